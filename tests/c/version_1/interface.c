/// The test program of the first version of <troupe/troupe.h>. It is compiled against the header of that version, which
/// is kept beside it, and runs with the library of today: what was built then must work with later versions.
///
/// Usage: interface PART. The parts are the functions of main(); each has worlds of its own, on the mock.

#include <troupe/troupe.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ranks = 3, count = 8 };
static const int64_t patience_ns = 60000000000;

// Checks --------------------------------------------------------------------------------------------------------------

#define EXPECT(condition)                                                                                              \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                          \
      exit(EXIT_FAILURE);                                                                                              \
    }                                                                                                                  \
  } while (0)

static void check_at(int line, troupe_code code, troupe_error** failed) {
  if (code == TROUPE_OK) {
    if (*failed == NULL) return;
    fprintf(stderr, "line %d: an error beside TROUPE_OK\n", line);
    exit(EXIT_FAILURE);
  }
  troupe_error_info info = {.size = sizeof info};
  troupe_error_get(*failed, &info);
  fprintf(stderr, "line %d: %s: %s\n", line, troupe_code_name(code), *failed != NULL ? info.line : "no text");
  exit(EXIT_FAILURE);
}
static troupe_error* failed = NULL;
#define CHECK(call) check_at(__LINE__, call, &failed)

/// Expects a code, and a piece of the text of the error, which it frees.
static void refused_at(int line, troupe_code code, troupe_code expected, const char* text) {
  troupe_error_info info = {.size = sizeof info};
  if (code == expected && troupe_error_get(failed, &info) == TROUPE_OK && info.code == expected &&
      strstr(info.line, text) != NULL) {
    troupe_error_free(failed);
    failed = NULL;
    return;
  }
  fprintf(stderr, "line %d: %s (%s), not %s (%s)\n", line, troupe_code_name(code),
          failed != NULL ? info.line : "no error", troupe_code_name(expected), text);
  exit(EXIT_FAILURE);
}
#define REFUSED(call, code, text) refused_at(__LINE__, call, code, text)

// A world of three mock ranks -----------------------------------------------------------------------------------------

static troupe_runtime* runtime = NULL;
static troupe_world* world = NULL;
static troupe_buffer* host = NULL;

static troupe_settings* make_settings(void) {
  troupe_settings* settings = NULL;
  CHECK(troupe_settings_create(NULL, &settings, &failed));
  CHECK(troupe_settings_set(settings, "backend", "mock", &failed));
  CHECK(troupe_settings_set(settings, "log_level", "off", &failed));
  CHECK(troupe_settings_set(settings, "mock.devices", "3", &failed));
  return settings;
}

static void begin(void) {
  troupe_settings* const settings = make_settings();
  CHECK(troupe_runtime_create(settings, &runtime, &failed));
  troupe_settings_free(settings);
  CHECK(troupe_runtime_form_world(runtime, NULL, &world, &failed));
  CHECK(troupe_world_allocate_pinned(world, 4096, &host, &failed));
}

static void end(void) {
  troupe_buffer_free(host);
  troupe_world_free(world);
  troupe_runtime_free(runtime);
}

static void answer_at(int line, troupe_reply* reply) {
  troupe_completion completion = {.size = sizeof completion};
  check_at(line, troupe_reply_wait(reply, patience_ns, &completion, &failed), &failed);
  EXPECT(completion.epoch >= 1 && completion.done_ns >= completion.queued_ns);
  troupe_reply_free(reply);
}
#define ANSWER(reply) answer_at(__LINE__, reply)

/// Expects an answer that is an error, and returns it.
static troupe_error* failure_of(troupe_reply* reply, troupe_code expected) {
  troupe_error* why = NULL;
  const troupe_code code = troupe_reply_wait(reply, patience_ns, NULL, &why);
  troupe_error_info info = {.size = sizeof info};
  if (why != NULL) troupe_error_get(why, &info);
  if (code != expected) {
    fprintf(stderr, "%s (%s), not %s\n", troupe_code_name(code), why != NULL ? info.line : "no error",
            troupe_code_name(expected));
    exit(EXIT_FAILURE);
  }
  EXPECT(why != NULL && info.code == expected);
  troupe_reply_free(reply);
  return why;
}

/// Allocates memory of this many floats at each rank.
static void allocate(troupe_buffer** made, size_t floats) {
  CHECK(troupe_world_allocate_all(world, floats * sizeof(float), made, ranks, &failed));
}
static void drop(troupe_buffer** all) {
  for (int r = 0; r < ranks; ++r) troupe_buffer_free(all[r]);
}
static void set(int rank, troupe_buffer* to, const float* values, size_t floats) {
  troupe_reply* reply = NULL;
  troupe_buffer* part = NULL;
  memcpy(troupe_buffer_address(host), values, floats * sizeof(float));
  CHECK(troupe_buffer_slice(host, 0, floats * sizeof(float), &part, &failed));
  CHECK(troupe_world_copy(world, rank, part, to, NULL, &reply, &failed));
  troupe_buffer_free(part); // the request holds it
  ANSWER(reply);
}
static const float* get(int rank, troupe_buffer* from) {
  troupe_reply* reply = NULL;
  CHECK(troupe_world_copy(world, rank, from, host, NULL, &reply, &failed));
  ANSWER(reply);
  return troupe_buffer_address(host);
}
/// Sets element i at rank r to 100 r + i.
static void number(troupe_buffer** all, size_t floats) {
  float values[64];
  for (int r = 0; r < ranks; ++r) {
    for (size_t i = 0; i < floats; ++i) values[i] = (float)(100 * r) + (float)i;
    set(r, all[r], values, floats);
  }
}
static troupe_operation make(troupe_kind kind, size_t elements) {
  const troupe_operation made = {.size = sizeof made, .kind = kind, .type = TROUPE_F32, .count = elements};
  return made;
}
static void ask_each(const troupe_operation* what, troupe_buffer** send, troupe_buffer** recv) {
  troupe_reply* reply = NULL;
  CHECK(troupe_world_ask_each(world, what, (const troupe_buffer* const*)send, (const troupe_buffer* const*)recv, ranks,
                              NULL, &reply, &failed));
  ANSWER(reply);
}
static void ask(const troupe_operation* parts) {
  troupe_reply* reply = NULL;
  CHECK(troupe_world_ask(world, parts, ranks, NULL, &reply, &failed));
  ANSWER(reply);
}

// Parts ---------------------------------------------------------------------------------------------------------------

static void settings(void) {
  troupe_settings* const made = make_settings();
  char text[8];
  size_t length = 0;
  CHECK(troupe_settings_get(made, "backend", text, sizeof text, &length, &failed));
  EXPECT(strcmp(text, "mock") == 0 && length == 4);
  CHECK(troupe_settings_get(made, "backend", text, 3, &length, &failed));
  EXPECT(strcmp(text, "mo") == 0 && length == 4);
  CHECK(troupe_settings_get(made, "deadlines.form", NULL, 0, &length, &failed));
  EXPECT(length > 0);
  REFUSED(troupe_settings_set(made, "backnd", "mock", &failed), TROUPE_INVALID_ARGUMENT, "backend");
  REFUSED(troupe_settings_set(made, "ranks", "many", &failed), TROUPE_INVALID_ARGUMENT, "ranks");
  REFUSED(troupe_settings_create("/nowhere/at/all.json", &(troupe_settings*){NULL}, &failed), TROUPE_INVALID_ARGUMENT,
          "/nowhere");
  CHECK(troupe_settings_set_token(made, "secret", &failed));
  CHECK(troupe_settings_set(made, "ranks", "9", &failed));
  troupe_runtime* one = NULL;
  troupe_world* none = NULL;
  CHECK(troupe_runtime_create(made, &one, &failed));
  REFUSED(troupe_runtime_form_world(one, NULL, &none, &failed), TROUPE_INVALID_ARGUMENT, "9");
  EXPECT(none == NULL);
  troupe_runtime_free(one);
  CHECK(troupe_settings_set(made, "deadlines.form", "1ms", &failed));
  CHECK(troupe_settings_set(made, "recovery.window", "1ms", &failed));
  REFUSED(troupe_runtime_create(made, &one, &failed), TROUPE_INVALID_ARGUMENT, "recovery");
  EXPECT(one == NULL);
  troupe_settings_free(made);
  size_t names = 0;
  while (troupe_setting_name(names) != NULL) ++names;
  EXPECT(names > 30);
  EXPECT(strcmp(troupe_code_name(TROUPE_STALE_EPOCH), "stale_epoch") == 0);
  EXPECT(strcmp(troupe_code_name(TROUPE_INTERNAL), "internal") == 0 && strcmp(troupe_code_name(99), "unknown") == 0);
  EXPECT(troupe_c_version() >= TROUPE_C_VERSION && strlen(troupe_version()) > 0);
  EXPECT(troupe_dtype_size(TROUPE_BF16) == 2 && troupe_dtype_size(TROUPE_F64) == 8 && troupe_dtype_size(77) == 0);
}

static void collectives(void) {
  begin();
  troupe_buffer *small[ranks], *large[ranks], *other[ranks];
  allocate(small, count);
  allocate(large, ranks * count);
  allocate(other, ranks * count);

  troupe_operation what = make(TROUPE_ALL_REDUCE, count);
  number(small, count);
  ask_each(&what, small, other);
  for (int r = 0; r < ranks; ++r) EXPECT(get(r, other[r])[2] == 306);
  what.reduction = TROUPE_MAX;
  ask_each(&what, small, other);
  EXPECT(get(0, other[0])[1] == 201);
  what.reduction = TROUPE_PRE_MUL_SUM;
  const float two = 2;
  what.factor = &two;
  ask_each(&what, small, other);
  EXPECT(get(1, other[1])[0] == 600);

  what = make(TROUPE_REDUCE, count);
  what.root = 2;
  ask_each(&what, small, other);
  EXPECT(get(2, other[2])[0] == 300);
  what = make(TROUPE_BROADCAST, count);
  what.root = 1;
  ask_each(&what, small, other);
  EXPECT(get(0, other[0])[3] == 103 && get(2, other[2])[3] == 103);
  what = make(TROUPE_ALL_GATHER, count);
  ask_each(&what, small, large);
  EXPECT(get(0, large[0])[2 * count + 1] == 201);
  what = make(TROUPE_REDUCE_SCATTER, count);
  number(large, ranks * count);
  ask_each(&what, large, small);
  EXPECT(get(1, small[1])[0] == 300 + 3 * count);
  what = make(TROUPE_ALL_TO_ALL, count);
  ask_each(&what, large, other);
  EXPECT(get(1, other[1])[2 * count] == 200 + count);
  what = make(TROUPE_GATHER, count);
  number(small, count);
  ask_each(&what, small, large);
  EXPECT(get(0, large[0])[count] == 100);
  what = make(TROUPE_SCATTER, count);
  number(large, ranks * count);
  ask_each(&what, large, small);
  EXPECT(get(2, small[2])[0] == 2 * count);

  // Parts of unequal size: rank r has r + 1 elements.
  const size_t counts[ranks] = {1, 2, 3}, gaps[ranks] = {0, 4, 8};
  what = make(TROUPE_ALL_GATHER_V, 0);
  what.recv_counts = counts;
  what.recv_displacements = gaps;
  what.part_count = ranks;
  number(small, count);
  ask_each(&what, small, large);
  EXPECT(get(0, large[0])[10] == 202 && get(2, large[2])[5] == 101);
  what.kind = TROUPE_GATHER_V;
  what.recv_displacements = NULL;
  ask_each(&what, small, large);
  EXPECT(get(0, large[0])[5] == 202);
  what = make(TROUPE_REDUCE_SCATTER_V, 0);
  what.send_counts = counts;
  what.part_count = ranks;
  number(large, ranks * count);
  ask_each(&what, large, small);
  EXPECT(get(2, small[2])[2] == 300 + 3 * 5);
  what.kind = TROUPE_SCATTER_V;
  ask_each(&what, large, small);
  EXPECT(get(2, small[2])[0] == 3);
  const size_t ones[ranks] = {1, 1, 1};
  what.kind = TROUPE_ALL_TO_ALL_V;
  what.send_counts = what.recv_counts = ones;
  ask_each(&what, large, other);
  EXPECT(get(1, other[1])[2] == 201);

  what = make(TROUPE_BARRIER, 0);
  ask_each(&what, NULL, NULL);

  // A group of a send with its recv, and another of two collectives.
  troupe_operation inner[ranks], parts[ranks];
  number(small, count);
  for (int r = 0; r < ranks; ++r) {
    parts[r] = make(TROUPE_GROUP, 0);
    parts[r].parts = &inner[r];
    parts[r].group_size = r < 2 ? 1 : 0;
  }
  inner[0] = make(TROUPE_SEND, count);
  inner[0].peer = 1;
  inner[0].tag = 4;
  inner[0].send.memory = small[0];
  inner[1] = make(TROUPE_RECV, count);
  inner[1].tag = 4;
  inner[1].recv.memory = other[1];
  ask(parts);
  EXPECT(get(1, other[1])[5] == 5);
  troupe_operation pairs[ranks][2];
  for (int r = 0; r < ranks; ++r) {
    pairs[r][0] = make(TROUPE_ALL_REDUCE, 2);
    pairs[r][1] = make(TROUPE_BARRIER, 0);
    pairs[r][0].send.memory = pairs[r][0].recv.memory = small[r];
    parts[r].parts = pairs[r];
    parts[r].group_size = 2;
  }
  ask(parts);
  EXPECT(get(0, small[0])[1] == 303);

  drop(small);
  drop(large);
  drop(other);
  end();
}

static void note_done(void* user, const troupe_completion* completed, const troupe_error* why) {
  EXPECT((completed != NULL) != (why != NULL));
  troupe_error* refused = NULL;
  troupe_status* now = NULL;
  EXPECT(troupe_world_wait_ready(world, 0, 1, &now, &refused) == TROUPE_INVALID_ARGUMENT); // it would wait
  EXPECT(now == NULL && refused != NULL);
  troupe_error_free(refused);
  atomic_fetch_add((atomic_int*)user, completed != NULL ? 1 : 100);
}

static void answers(void) {
  begin();
  troupe_buffer* values[ranks];
  allocate(values, count);
  number(values, count);
  const troupe_buffer* const* const all = (const troupe_buffer* const*)values;
  atomic_int calls = 0;
  troupe_request_options options = {.size = sizeof options, .done = note_done, .user = &calls, TROUPE_HERE};
  troupe_operation sum = make(TROUPE_ALL_REDUCE, count);
  troupe_reply* reply = NULL;

  // By a callback and a reply: when a wait has ended, the callback has returned.
  CHECK(troupe_world_ask_each(world, &sum, all, all, ranks, &options, &reply, &failed));
  EXPECT(troupe_reply_wait(reply, patience_ns, NULL, &failed) == TROUPE_OK && calls == 1);
  CHECK(troupe_reply_wait(reply, 0, NULL, &failed)); // again
  troupe_reply_free(reply);
  // By a callback alone.
  CHECK(troupe_world_ask_each(world, &sum, all, all, ranks, &options, NULL, &failed));
  sum.kind = TROUPE_BARRIER;
  do ask_each(&sum, NULL, NULL); // answered behind it
  while (calls < 2);
  // By neither.
  options.done = NULL;
  REFUSED(troupe_world_ask_each(world, &sum, NULL, NULL, ranks, &options, NULL, &failed), TROUPE_INVALID_ARGUMENT,
          "callback");
  REFUSED(troupe_world_ask_each(world, &sum, NULL, NULL, ranks, NULL, NULL, &failed), TROUPE_INVALID_ARGUMENT,
          "callback");
  // What is wrong with an operation is the answer.
  sum = make(TROUPE_ALL_REDUCE, 1000000);
  options.done = note_done;
  CHECK(troupe_world_ask_each(world, &sum, all, all, ranks, &options, &reply, &failed));
  troupe_error* why = failure_of(reply, TROUPE_INVALID_ARGUMENT);
  EXPECT(calls == 102);
  troupe_error_info info = {.size = sizeof info};
  EXPECT(troupe_error_get(why, &info) == TROUPE_OK && info.effect == TROUPE_REJECTED);
  EXPECT(strstr(info.text, "1000000") != NULL && info.has_absence == 0 && info.undefined_count == 0);
  troupe_error* copy = troupe_error_copy(why);
  troupe_error_free(why);
  EXPECT(troupe_error_get(copy, &info) == TROUPE_OK && info.code == TROUPE_INVALID_ARGUMENT);
  troupe_undefined_buffer undefined = {.size = sizeof undefined};
  EXPECT(troupe_error_undefined(copy, 0, &undefined) == TROUPE_INVALID_ARGUMENT);
  troupe_error_free(copy);
  // What is no operation is refused at once.
  sum.kind = 77;
  REFUSED(troupe_world_ask_each(world, &sum, all, all, ranks, &options, &reply, &failed), TROUPE_INVALID_ARGUMENT,
          "77");
  EXPECT(reply == NULL && calls == 102);
  sum = make(TROUPE_ALL_REDUCE, 1);
  sum.type = -1;
  REFUSED(troupe_world_ask_each(world, &sum, all, all, ranks, &options, &reply, &failed), TROUPE_INVALID_ARGUMENT,
          "dtype");

  // In two steps, with work of the client's own stream before and behind it.
  troupe_stream* stream = NULL;
  troupe_event* ready = NULL;
  float before[count], behind[count];
  for (int i = 0; i < count; ++i) before[i] = 7;
  CHECK(troupe_stream_create(world, 1, &stream, &failed));
  CHECK(troupe_stream_copy(stream, troupe_buffer_address(values[1]), before, sizeof before, &failed));
  CHECK(troupe_event_record(world, 1, troupe_stream_native(stream), &ready, &failed));
  troupe_operation parts[ranks];
  for (int r = 0; r < ranks; ++r) {
    parts[r] = make(TROUPE_BROADCAST, count);
    parts[r].root = 1;
    parts[r].send.memory = r == 1 ? values[r] : NULL;
    parts[r].recv.memory = values[r];
    if (r == 1) parts[r].send.ready = ready;
  }
  troupe_plan* plan = NULL; // its requests wait for no event
  REFUSED(troupe_world_capture(world, parts, 1, ranks, NULL, &plan, &failed), TROUPE_INVALID_ARGUMENT, "event");
  options.in_two_steps = 1;
  options.done = NULL;
  CHECK(troupe_world_ask(world, parts, ranks, &options, &reply, &failed));
  troupe_event_free(ready);
  CHECK(troupe_reply_wait_enqueued(reply, patience_ns, &failed));
  CHECK(troupe_reply_order(reply, world, 1, troupe_stream_native(stream), &failed));
  CHECK(troupe_stream_copy(stream, behind, troupe_buffer_address(values[1]), sizeof behind, &failed));
  CHECK(troupe_stream_synchronize(stream, &failed));
  EXPECT(behind[0] == 7);
  ANSWER(reply);
  EXPECT(get(2, values[2])[0] == 7);
  REFUSED(troupe_event_record(world, 1, NULL, &ready, &failed), TROUPE_UNSUPPORTED, "mock");
  options.in_two_steps = 0;
  parts[1].send.ready = NULL;
  CHECK(troupe_world_ask(world, parts, ranks, &options, &reply, &failed));
  REFUSED(troupe_reply_wait_enqueued(reply, 0, &failed), TROUPE_INVALID_ARGUMENT, "in_two_steps");
  troupe_reply_free(reply); // the request goes on
  troupe_stream_free(stream);
  drop(values);
  end();
}

static void lanes(void) {
  begin();
  troupe_buffer* values[ranks];
  troupe_lane* all[ranks];
  troupe_reply* replies[ranks];
  allocate(values, count);
  number(values, count);
  for (int r = 0; r < ranks; ++r) CHECK(troupe_lane_create(world, r, "step", &all[r], &failed));
  for (int r = 0; r < ranks; ++r) {
    troupe_operation what = make(TROUPE_ALL_REDUCE, count);
    what.send.memory = what.recv.memory = values[r];
    CHECK(troupe_lane_ask(all[r], &what, NULL, &replies[r], &failed));
  }
  for (int r = 0; r < ranks; ++r) ANSWER(replies[r]);
  EXPECT(get(1, values[1])[0] == 300);
  // A send and its recv.
  troupe_operation what = make(TROUPE_SEND, count);
  what.peer = 2;
  what.send.memory = values[0];
  CHECK(troupe_lane_ask(all[0], &what, NULL, &replies[0], &failed));
  what = make(TROUPE_RECV, count);
  what.peer = 0;
  what.recv.memory = values[2];
  CHECK(troupe_lane_ask(all[2], &what, NULL, &replies[1], &failed));
  ANSWER(replies[0]);
  ANSWER(replies[1]);

  // A rank that is missing is named.
  what = make(TROUPE_BARRIER, 0);
  const troupe_request_options soon = {.size = sizeof soon, .deadline_ns = 20000000};
  CHECK(troupe_lane_ask(all[1], &what, NULL, &replies[1], &failed));
  EXPECT(troupe_reply_wait(replies[1], 0, NULL, &failed) == TROUPE_WAITING && failed == NULL);
  CHECK(troupe_lane_ask(all[0], &what, &soon, &replies[0], &failed));
  troupe_error* why = failure_of(replies[0], TROUPE_DEADLINE_EXCEEDED);
  troupe_error_info info = {.size = sizeof info};
  EXPECT(troupe_error_get(why, &info) == TROUPE_OK && info.has_absence == 1 && info.missing_count == 1);
  EXPECT(info.missing[0] == 2 && strcmp(info.lane, "step") == 0 && strcmp(info.waiting, "barrier") == 0);
  EXPECT(info.standing_count == ranks && info.effect == TROUPE_REJECTED);
  troupe_standing standing = {.size = sizeof standing};
  EXPECT(troupe_error_standing(why, 2, &standing) == TROUPE_OK && standing.rank == 2 && standing.asked == 0);
  EXPECT(standing.participates == 1 && strstr(standing.last_asked, "recv") != NULL);
  troupe_error_free(why);
  troupe_error_free(failure_of(replies[1], TROUPE_CANCELLED));

  // A client withdraws a request; another its lane.
  CHECK(troupe_lane_ask(all[0], &what, NULL, &replies[0], &failed));
  CHECK(troupe_lane_cancel(all[0], 3, &failed));
  troupe_error_free(failure_of(replies[0], TROUPE_CANCELLED));
  CHECK(troupe_lane_ask(all[1], &what, NULL, &replies[1], &failed));
  troupe_lane_free(all[1]);
  troupe_error_free(failure_of(replies[1], TROUPE_CANCELLED));
  troupe_lane* none = NULL;
  REFUSED(troupe_lane_create(world, 7, "step", &none, &failed), TROUPE_INVALID_ARGUMENT, "rank 7");
  REFUSED(troupe_lane_create(world, 0, "", &none, &failed), TROUPE_INVALID_ARGUMENT, "lane");
  troupe_lane_free(all[0]);
  troupe_lane_free(all[2]);
  // Without a lane.
  for (int r = 0; r < ranks; ++r) {
    CHECK(troupe_lane_create(world, r, NULL, &all[r], &failed));
    CHECK(troupe_lane_ask(all[r], &what, NULL, &replies[r], &failed));
    troupe_lane_free(all[r]);
  }
  for (int r = 0; r < ranks; ++r) ANSWER(replies[r]);
  drop(values);
  end();
}

static int32_t scale(void* user, const troupe_rank_call* call) {
  if (*(int*)user != 0) return 5;
  EXPECT(call->size >= sizeof(size_t) && call->world_size == ranks && call->argument_count == 1);
  EXPECT(call->sizes[0] == count * sizeof(float) && call->value_bytes == sizeof(float) && call->stream != NULL);
  float by = 0;
  memcpy(&by, call->values, sizeof by);
  float* const values = call->addresses[0];
  for (int i = 0; i < count; ++i) values[i] = by * (float)(call->rank + 1); // nothing else is in flight
  return 0;
}
static void forget(void* user) {
  *(int*)user = -1;
}

static void functions_and_plans(void) {
  begin();
  troupe_buffer* values[ranks];
  allocate(values, count);
  int state = 0;
  troupe_function* function = NULL;
  CHECK(troupe_world_register_function(world, "scale", scale, &state, forget, &function, &failed));
  REFUSED(troupe_world_register_function(world, "", scale, &state, forget, NULL, &failed), TROUPE_INVALID_ARGUMENT,
          "name");
  EXPECT(state == 0);
  const float by = 3;
  troupe_operation steps[2][ranks];
  troupe_operand arguments[ranks] = {{NULL, NULL}};
  for (int r = 0; r < ranks; ++r) {
    arguments[r].memory = values[r];
    steps[0][r] = make(TROUPE_CALL, 0);
    steps[0][r].function = function;
    steps[0][r].arguments = &arguments[r];
    steps[0][r].argument_count = 1;
    steps[0][r].values = &by;
    steps[0][r].value_bytes = sizeof by;
    steps[1][r] = make(TROUPE_ALL_REDUCE, count);
    steps[1][r].send.memory = steps[1][r].recv.memory = values[r];
  }
  ask(steps[0]);
  EXPECT(get(1, values[1])[0] == 6);

  troupe_plan* plan = NULL;
  const troupe_plan_options options = {.size = sizeof options, .deadline_ns = patience_ns};
  CHECK(troupe_world_capture(world, steps[1], 1, ranks, &options, &plan, &failed));
  number(values, count);
  troupe_operation replay = make(TROUPE_REPLAY, 0);
  replay.plan = plan;
  ask_each(&replay, NULL, NULL);
  EXPECT(get(2, values[2])[1] == 303);
  ask_each(&replay, NULL, NULL);
  EXPECT(get(2, values[2])[1] == 909);
  troupe_plan_free(plan);
  REFUSED(troupe_world_capture(world, steps[1], 1, 0, NULL, &plan, &failed), TROUPE_INVALID_ARGUMENT, "rank");
  replay.plan = NULL;
  troupe_reply* reply = NULL;
  REFUSED(troupe_world_ask_each(world, &replay, NULL, NULL, ranks, NULL, &reply, &failed), TROUPE_INVALID_ARGUMENT,
          "plan");
  steps[0][0].function = NULL;
  REFUSED(troupe_world_ask(world, steps[0], ranks, NULL, &reply, &failed), TROUPE_INVALID_ARGUMENT, "function");
  troupe_function_free(function);
  drop(values);
  end();
  EXPECT(state == -1);
}

typedef struct heard {
  atomic_int events, rebuilding, ready, forgotten;
} heard;
static void hear(void* user, const troupe_status* status) {
  heard* const all = user;
  troupe_status_info info = {.size = sizeof info};
  EXPECT(troupe_status_get(status, &info) == TROUPE_OK && strlen(info.text) > 0);
  atomic_fetch_add(&all->events, 1);
  if (info.phase == TROUPE_PHASE_REBUILDING) {
    troupe_error_info why = {.size = sizeof why};
    EXPECT(troupe_error_get(info.reason, &why) == TROUPE_OK && strstr(why.line, "returned 5") != NULL);
    atomic_store(&all->rebuilding, 1);
  }
}
static void note_forgotten(void* user) {
  atomic_store(&((heard*)user)->forgotten, 1);
}
static void hear_ready(void* user, const troupe_status* status) {
  troupe_status* const copy = troupe_status_copy(status);
  troupe_status_info info = {.size = sizeof info};
  EXPECT(troupe_status_get(copy, &info) == TROUPE_OK && info.phase == TROUPE_PHASE_READY && info.epoch == 2);
  troupe_status_free(copy);
  atomic_store(&((heard*)user)->ready, 1);
}

/// A fault ends the epoch: events, resume points with commits, stale lanes that acknowledge the next epoch.
static void recovery(void) {
  begin();
  heard all = {0, 0, 0, 0};
  troupe_lane* lane[ranks];
  troupe_reply* replies[ranks];
  CHECK(troupe_world_on_event(world, hear, &all, note_forgotten, &failed));
  CHECK(troupe_world_when_ready(world, 1, hear_ready, &all, &failed));
  EXPECT(troupe_world_size(world) == ranks && troupe_world_epoch(world) == 1);
  for (int r = 0; r < ranks; ++r) CHECK(troupe_lane_create(world, r, "step", &lane[r], &failed));
  troupe_operation what = make(TROUPE_BARRIER, 0);
  what.is_commit = 1;
  what.commit = 41;
  for (int r = 0; r < ranks; ++r) CHECK(troupe_lane_ask(lane[r], &what, NULL, &replies[r], &failed));
  for (int r = 0; r < ranks; ++r) ANSWER(replies[r]);

  int state = 1; // the function fails
  troupe_function* function = NULL;
  CHECK(troupe_world_register_function(world, "fail", scale, &state, NULL, &function, &failed));
  what = make(TROUPE_CALL, 0);
  what.function = function;
  CHECK(troupe_lane_ask(lane[1], &what, NULL, &replies[1], &failed));
  troupe_error* why = NULL;
  EXPECT(troupe_reply_wait(replies[1], patience_ns, NULL, &why) > 0);
  troupe_reply_free(replies[1]);
  troupe_error_free(why);
  troupe_function_free(function);

  troupe_status* status = NULL;
  CHECK(troupe_world_wait_ready(world, 1, patience_ns, &status, &failed));
  troupe_status_info info = {.size = sizeof info};
  EXPECT(troupe_status_get(status, &info) == TROUPE_OK && info.phase == TROUPE_PHASE_READY && info.epoch == 2);
  EXPECT(info.world_size == ranks && info.local_rank_count == ranks && info.local_ranks[2] == 2 &&
         info.origins[1] == 1);
  EXPECT(info.lost_count == 0 && strlen(info.recovery) > 0 && info.has_resume_points == 1 && info.counted_from == 1);
  int found = 0;
  for (size_t i = 0; i < info.resume_point_count; ++i) {
    troupe_resume_point point = {.size = sizeof point};
    EXPECT(troupe_status_resume_point(status, i, &point) == TROUPE_OK);
    if (point.lane == NULL || strcmp(point.lane, "step") != 0) continue;
    found = point.has_commit == 1 && point.commit == 41 && point.complete >= 1;
    for (size_t k = 0; k < point.listed_count; ++k) {
      troupe_incomplete_operation one = {.size = sizeof one};
      EXPECT(troupe_status_incomplete(status, i, k, &one) == TROUPE_OK && one.position >= point.complete);
    }
  }
  EXPECT(found);
  troupe_resume_point none = {.size = sizeof none};
  EXPECT(troupe_status_resume_point(status, info.resume_point_count, &none) == TROUPE_INVALID_ARGUMENT);
  troupe_status_free(status);
  EXPECT(troupe_world_wait_ready(world, 2, 0, &status, &failed) == TROUPE_WAITING && status != NULL);
  troupe_status_free(status);

  // Lanes are refused until their owners have acknowledged the epoch.
  what = make(TROUPE_BARRIER, 0);
  CHECK(troupe_lane_ask(lane[0], &what, NULL, &replies[0], &failed));
  troupe_error_free(failure_of(replies[0], TROUPE_STALE_EPOCH));
  for (int r = 0; r < ranks; ++r) {
    CHECK(troupe_lane_acknowledge(lane[r], 2, &failed));
    CHECK(troupe_lane_ask(lane[r], &what, NULL, &replies[r], &failed));
  }
  for (int r = 0; r < ranks; ++r) {
    ANSWER(replies[r]);
    troupe_lane_free(lane[r]);
  }
  end();
  // Events come from a thread of the runtime, the last of them before the handler is released.
  EXPECT(all.forgotten == 1 && all.rebuilding == 1 && all.ready == 1 && all.events >= 2);
}

/// Ranks agree on host bytes: the smallest of their numbers, all of them, and a value of the world.
static void agreements(void) {
  begin();
  troupe_lane* all[ranks];
  troupe_reply* replies[ranks];
  const int64_t numbers[ranks] = {7, 5, 9};
  troupe_operation what = make(TROUPE_AGREE, 0);
  what.value_bytes = sizeof *numbers;
  for (int r = 0; r < ranks; ++r) CHECK(troupe_lane_create(world, r, "admission", &all[r], &failed));
  for (troupe_agreement_rule rule = TROUPE_AGREE_MIN; rule <= TROUPE_AGREE_GATHER_ALL; ++rule) {
    what.rule = rule;
    for (int r = 0; r < ranks; ++r) {
      what.values = &numbers[r];
      CHECK(troupe_lane_ask(all[r], &what, NULL, &replies[r], &failed));
    }
    for (int r = 0; r < ranks; ++r) {
      troupe_completion done = {.size = sizeof done};
      CHECK(troupe_reply_wait(replies[r], patience_ns, &done, &failed));
      const int64_t* const agreed = done.agreed;
      if (rule == TROUPE_AGREE_MIN) EXPECT(done.agreed_bytes == 8 && agreed[0] == 5 && done.agreed_position == 0);
      if (rule == TROUPE_AGREE_SUM) EXPECT(agreed[0] == 21);
      if (rule == TROUPE_AGREE_UNION_OF) EXPECT(done.agreed_bytes == 24 && agreed[0] == 5 && agreed[2] == 9);
      if (rule == TROUPE_AGREE_GATHER_ALL)
        EXPECT(agreed[2] == 9 && done.agreed_part_count == 3 && done.agreed_part_sizes[1] == 8);
      troupe_reply_free(replies[r]);
    }
  }
  // Ranks that name different rules are refused, and so is too much.
  for (int r = 0; r < ranks; ++r) {
    what.rule = r == 0 ? TROUPE_AGREE_MIN : TROUPE_AGREE_MAX;
    CHECK(troupe_lane_ask(all[r], &what, NULL, &replies[r], &failed));
  }
  for (int r = 0; r < ranks; ++r) troupe_error_free(failure_of(replies[r], TROUPE_MISMATCH));
  what.value_bytes = 4097;
  REFUSED(troupe_lane_ask(all[0], &what, NULL, &replies[0], &failed), TROUPE_INVALID_ARGUMENT, "4097");
  what.value_bytes = 8;
  what.rule = 8;
  REFUSED(troupe_lane_ask(all[0], &what, NULL, &replies[0], &failed), TROUPE_INVALID_ARGUMENT, "rule");
  // The world gives a value a position.
  what.rule = TROUPE_AGREE_OF_RANK;
  what.values = &numbers[2];
  CHECK(troupe_world_ask_each(world, &what, NULL, NULL, ranks, NULL, &replies[0], &failed));
  troupe_completion done = {.size = sizeof done};
  CHECK(troupe_reply_wait(replies[0], patience_ns, &done, &failed));
  EXPECT(done.agreed_bytes == 8 && *(const int64_t*)done.agreed == 9);
  troupe_reply_free(replies[0]);
  for (int r = 0; r < ranks; ++r) troupe_lane_free(all[r]);
  end();
}

static void count_release(void* user) {
  atomic_fetch_add((atomic_int*)user, 1);
}

static void memory(void) {
  begin();
  atomic_int released = 0;
  float mine[count] = {1, 2, 3};
  troupe_buffer *adopted = NULL, *part = NULL, *none = NULL;
  CHECK(troupe_world_adopt(world, 1, mine, sizeof mine, count_release, &released, &adopted, &failed));
  EXPECT(troupe_buffer_address(adopted) == mine && troupe_buffer_size(adopted) == sizeof mine);
  EXPECT(troupe_buffer_on_host(adopted) == 1 && troupe_buffer_is_stale(adopted) == 0);
  CHECK(troupe_buffer_slice(adopted, sizeof(float), 2 * sizeof(float), &part, &failed));
  troupe_buffer_free(adopted);
  EXPECT(released == 0 && *(float*)troupe_buffer_address(part) == 2);
  REFUSED(troupe_buffer_slice(part, 4, 8, &none, &failed), TROUPE_INVALID_ARGUMENT, "8");
  troupe_buffer_free(part);
  EXPECT(released == 1);
  REFUSED(troupe_world_adopt(world, 1, NULL, 8, count_release, &released, &none, &failed), TROUPE_INVALID_ARGUMENT,
          "null");
  REFUSED(troupe_world_adopt(world, 9, mine, 8, count_release, &released, &none, &failed), TROUPE_INVALID_ARGUMENT,
          "rank 9");
  EXPECT(released == 1 && none == NULL);
  troupe_buffer* too_few[1];
  REFUSED(troupe_world_allocate_all(world, 64, too_few, 1, &failed), TROUPE_INVALID_ARGUMENT, "3 ranks");
  EXPECT(too_few[0] == NULL);
  troupe_code code = troupe_world_allocate(world, 0, (size_t)1 << 50, &none, &failed);
  REFUSED(code, TROUPE_OUT_OF_MEMORY, "");
  CHECK(troupe_world_allocate(world, 0, 64, &part, &failed));
  EXPECT(troupe_buffer_on_host(part) == 0 && troupe_buffer_size(part) == 64);
  size_t bytes = 1;
  troupe_buffer_free(part);
  CHECK(troupe_world_release_unused(world, &bytes, &failed));
  CHECK(troupe_runtime_release_unused(runtime, NULL, &failed));

  // Exported memory is an operand of requests to all ranks.
  troupe_buffer *values[ranks], *remote[ranks];
  troupe_remote_buffer handle = {.size = sizeof handle}, found = {.size = sizeof found};
  CHECK(troupe_world_register_memory(world, 1 << 16, &failed));
  allocate(values, count);
  number(values, count);
  CHECK(troupe_world_export(world, 2, values[2], "weights", &handle, &failed));
  EXPECT(handle.size_bytes == count * sizeof(float) && handle.exporter == 2 && handle.on_host == 0);
  CHECK(troupe_world_find(world, 2, "weights", patience_ns, &found, &failed));
  EXPECT(found.id == handle.id && found.session == handle.session);
  REFUSED(troupe_world_find(world, 2, "no such", patience_ns, &found, &failed), TROUPE_MISSING, "no such");
  CHECK(troupe_buffer_from_remote(&handle, &remote[2], &failed));
  EXPECT(troupe_buffer_address(remote[2]) == NULL && troupe_buffer_size(remote[2]) == count * sizeof(float));
  CHECK(troupe_buffer_slice(remote[2], 4, 4, &part, &failed));
  EXPECT(troupe_buffer_size(part) == 4);
  troupe_buffer_free(part);
  troupe_buffer_free(remote[2]);
  CHECK(troupe_world_unexport(world, &handle, &failed));
  drop(values);

  char text[256];
  int32_t available = 5;
  CHECK(troupe_runtime_describe(runtime, text, sizeof text, NULL, &failed));
  EXPECT(strstr(text, "mock") != NULL);
  CHECK(troupe_world_feature(world, "suspend", &available, text, sizeof text, NULL, &failed));
  EXPECT(available >= -1 && available <= 1);
  REFUSED(troupe_world_feature(world, "magic", &available, NULL, 0, NULL, &failed), TROUPE_INVALID_ARGUMENT, "magic");
  unsigned char id[TROUPE_ID_BYTES] = {0}, zeros[TROUPE_ID_BYTES] = {0};
  CHECK(troupe_runtime_make_id(runtime, id, &failed));
  EXPECT(memcmp(id, zeros, sizeof id) != 0);
  end();
}

static void sub_worlds(void) {
  begin();
  const int32_t first[] = {2, 0}, second[] = {1};
  const troupe_rank_group groups[] = {{.size = sizeof *groups, .name = "pair", .members = first, .member_count = 2},
                                      {.size = sizeof *groups, .name = "one", .members = second, .member_count = 1}};
  troupe_world* made[2];
  CHECK(troupe_world_split(world, groups, 2, made, &failed));
  EXPECT(troupe_world_size(made[0]) == 2 && troupe_world_size(made[1]) == 1);
  troupe_buffer* values[2];
  CHECK(troupe_world_allocate_all(made[0], 64, values, 2, &failed));
  const troupe_operation sum = make(TROUPE_ALL_REDUCE, count);
  troupe_reply* reply = NULL;
  const troupe_buffer* const* all = (const troupe_buffer* const*)values;
  CHECK(troupe_world_ask_each(made[0], &sum, all, all, 2, NULL, &reply, &failed));
  ANSWER(reply);
  troupe_buffer_free(values[0]);
  troupe_buffer_free(values[1]);
  troupe_code code = troupe_world_suspend(made[0], &failed);
  if (code == TROUPE_OK) {
    troupe_status* status = NULL;
    troupe_status_info info = {.size = sizeof info};
    CHECK(troupe_world_status(made[0], &status, &failed));
    EXPECT(troupe_status_get(status, &info) == TROUPE_OK && info.is_suspended == 1);
    troupe_status_free(status);
    CHECK(troupe_world_resume(made[0], &failed));
  } else {
    REFUSED(code, TROUPE_UNSUPPORTED, "");
  }
  CHECK(troupe_world_stop(made[1], &failed));
  troupe_world_free(made[0]);
  troupe_world_free(made[1]);
  const int32_t outside[] = {5};
  const troupe_rank_group wrong = {.size = sizeof wrong, .name = "far", .members = outside, .member_count = 1};
  REFUSED(troupe_world_split(world, &wrong, 1, made, &failed), TROUPE_INVALID_ARGUMENT, "5");
  EXPECT(made[0] == NULL);
  end();
}

/// Structs of other versions: shorter than any are refused; longer ones are read as far as they are known.
static void sizes(void) {
  begin();
  troupe_buffer* values[ranks];
  allocate(values, count);
  number(values, count);
  struct {
    troupe_operation known;
    uint64_t later;
  } parts[ranks];
  memset(parts, 0, sizeof parts);
  for (int r = 0; r < ranks; ++r) {
    parts[r].known = make(TROUPE_ALL_REDUCE, count);
    parts[r].known.size = sizeof parts[r];
    parts[r].known.send.memory = parts[r].known.recv.memory = values[r];
  }
  ask(&parts[0].known);
  EXPECT(get(0, values[0])[0] == 300);
  troupe_reply* reply = NULL;
  parts[1].later = 1;
  REFUSED(troupe_world_ask(world, &parts[0].known, ranks, NULL, &reply, &failed), TROUPE_UNSUPPORTED, "newer");
  parts[1].later = 0;
  parts[1].known.size = sizeof(troupe_operation);
  REFUSED(troupe_world_ask(world, &parts[0].known, ranks, NULL, &reply, &failed), TROUPE_INVALID_ARGUMENT, "same size");
  troupe_operation what = make(TROUPE_BARRIER, 0);
  REFUSED(troupe_world_ask(world, &what, (size_t)-1, NULL, &reply, &failed), TROUPE_INVALID_ARGUMENT, "operations");
  REFUSED(troupe_world_ask_each(world, &what, NULL, NULL, (size_t)-1, NULL, &reply, &failed), TROUPE_INVALID_ARGUMENT,
          "ranks");
  what.kind = TROUPE_CALL;
  what.name = "none";
  what.value_bytes = (size_t)-1;
  REFUSED(troupe_world_ask_each(world, &what, NULL, NULL, ranks, NULL, &reply, &failed), TROUPE_INVALID_ARGUMENT,
          "value_bytes");
  what = make(TROUPE_BARRIER, 0);
  what.size = 0;
  REFUSED(troupe_world_ask_each(world, &what, NULL, NULL, ranks, NULL, &reply, &failed), TROUPE_INVALID_ARGUMENT,
          "size");
  what.size = (size_t)-1;
  REFUSED(troupe_world_ask_each(world, &what, NULL, NULL, ranks, NULL, &reply, &failed), TROUPE_INVALID_ARGUMENT,
          "size");
  what.size = sizeof what;
  const troupe_request_options negative = {.size = sizeof negative, .deadline_ns = -1};
  REFUSED(troupe_world_ask_each(world, &what, NULL, NULL, ranks, &negative, &reply, &failed), TROUPE_INVALID_ARGUMENT,
          "-1 ns");
  ask_each(&what, NULL, NULL);

  struct {
    troupe_completion known;
    uint64_t later;
  } longer = {.known = {.size = sizeof longer}, .later = 7};
  CHECK(troupe_world_ask_each(world, &what, NULL, NULL, ranks, NULL, &reply, &failed));
  CHECK(troupe_reply_wait(reply, patience_ns, &longer.known, &failed));
  EXPECT(longer.later == 0 && longer.known.size == sizeof longer && longer.known.epoch == 1);
  troupe_completion shorter = {.size = 16};
  REFUSED(troupe_reply_wait(reply, patience_ns, &shorter, &failed), TROUPE_INVALID_ARGUMENT, "size");
  troupe_reply_free(reply);
  EXPECT(troupe_error_get(NULL, NULL) == TROUPE_INVALID_ARGUMENT);

  // All that frees accepts NULL.
  troupe_error_free(NULL);
  troupe_settings_free(NULL);
  troupe_runtime_free(NULL);
  troupe_world_free(NULL);
  troupe_lane_free(NULL);
  troupe_driver_free(NULL);
  troupe_controller_free(NULL);
  troupe_buffer_free(NULL);
  troupe_event_free(NULL);
  troupe_stream_free(NULL);
  troupe_reply_free(NULL);
  troupe_plan_free(NULL);
  troupe_function_free(NULL);
  troupe_status_free(NULL);
  drop(values);
  end();
}

/// Handles may be freed in any order: here the runtime goes first.
static void lifetimes(void) {
  begin();
  troupe_buffer* values[ranks];
  troupe_lane* lane = NULL;
  troupe_stream* stream = NULL;
  troupe_event* event = NULL;
  troupe_plan* plan = NULL;
  troupe_reply *reply = NULL, *waiting = NULL;
  troupe_status* status = NULL;
  allocate(values, count);
  troupe_operation parts[ranks];
  for (int r = 0; r < ranks; ++r) {
    parts[r] = make(TROUPE_ALL_REDUCE, count);
    parts[r].send.memory = parts[r].recv.memory = values[r];
  }
  CHECK(troupe_stream_create(world, 0, &stream, &failed));
  CHECK(troupe_event_record(world, 0, troupe_stream_native(stream), &event, &failed));
  CHECK(troupe_world_capture(world, parts, 1, ranks, NULL, &plan, &failed));
  CHECK(troupe_world_ask(world, parts, ranks, NULL, &reply, &failed));
  CHECK(troupe_lane_create(world, 0, "alone", &lane, &failed));
  const troupe_operation barrier = make(TROUPE_BARRIER, 0);
  CHECK(troupe_lane_ask(lane, &barrier, NULL, &waiting, &failed)); // its peers never ask
  CHECK(troupe_world_status(world, &status, &failed));
  troupe_runtime_free(runtime);

  ANSWER(reply); // requests in flight finish; those that cannot are answered
  troupe_error* why = NULL;
  EXPECT(troupe_reply_wait(waiting, patience_ns, NULL, &why) > 0 && why != NULL);
  troupe_error_free(why);
  troupe_reply_free(waiting);
  CHECK(troupe_world_ask(world, parts, ranks, NULL, &reply, &failed));
  troupe_error_free(failure_of(reply, TROUPE_STOPPING));
  troupe_lane_free(lane);
  drop(values);
  troupe_buffer_free(host);
  troupe_world_free(world);
  troupe_plan_free(plan);
  troupe_event_free(event);
  troupe_stream_free(stream);
  troupe_status_free(status);
}

int main(int argc, char** argv) {
  const struct {
    const char* name;
    void (*run)(void);
  } all[] = {{"settings", settings},
             {"collectives", collectives},
             {"answers", answers},
             {"lanes", lanes},
             {"functions_and_plans", functions_and_plans},
             {"recovery", recovery},
             {"memory", memory},
             {"sub_worlds", sub_worlds},
             {"agreements", agreements},
             {"sizes", sizes},
             {"lifetimes", lifetimes}};
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if (argc == 2 && strcmp(argv[1], all[i].name) != 0) continue;
    all[i].run();
    if (argc == 2) return EXIT_SUCCESS;
  }
  return argc == 1 ? EXIT_SUCCESS : EXIT_FAILURE;
}
