/// A world over three processes and a driver, in C: the controller and the driver are in this process, which starts
/// itself again as the process of each rank. Of the first version of <troupe/troupe.h>, as interface.c.

#define _POSIX_C_SOURCE 200809L

#include <troupe/troupe.h>

#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ranks = 3, count = 8 };
static const int64_t patience_ns = 60000000000;
extern char** environ;

static troupe_error* failed = NULL;

static void check_at(int line, troupe_code code) {
  if (code == TROUPE_OK) return;
  troupe_error_info info = {.size = sizeof info};
  troupe_error_get(failed, &info);
  fprintf(stderr, "line %d: %s: %s\n", line, troupe_code_name(code), failed != NULL ? info.line : "no text");
  _Exit(EXIT_FAILURE);
}
#define CHECK(call) check_at(__LINE__, call)
#define EXPECT(condition) check_at(__LINE__, (condition) ? TROUPE_OK : TROUPE_INTERNAL)

static void answer_at(int line, troupe_reply* reply) {
  check_at(line, troupe_reply_wait(reply, patience_ns, NULL, &failed));
  troupe_reply_free(reply);
}
#define ANSWER(reply) answer_at(__LINE__, reply)

// The process of a rank -----------------------------------------------------------------------------------------------

static int32_t show(void* user, const troupe_rank_call* call) {
  (void)user;
  memcpy(call->addresses[1], call->addresses[0], call->sizes[1]); // nothing else is in flight
  return 0;
}

static int serve(void) {
  troupe_runtime* runtime = NULL;
  troupe_world* world = NULL;
  CHECK(troupe_runtime_create(NULL, &runtime, &failed));
  CHECK(troupe_runtime_form_world(runtime, NULL, &world, &failed));
  troupe_status* status = NULL;
  troupe_status_info info = {.size = sizeof info};
  CHECK(troupe_world_status(world, &status, &failed));
  CHECK(troupe_status_get(status, &info));
  EXPECT(info.world_size == ranks && info.local_rank_count == 1);
  const int32_t self = info.local_ranks[0];
  troupe_status_free(status);

  // A sum that each process asks its own rank for.
  troupe_buffer *values = NULL, *report = NULL;
  troupe_lane* lane = NULL;
  troupe_reply* reply = NULL;
  CHECK(troupe_world_allocate(world, self, count * sizeof(float), &values, &failed));
  CHECK(troupe_world_allocate_pinned(world, count * sizeof(float), &report, &failed));
  float* const numbers = troupe_buffer_address(report);
  for (int i = 0; i < count; ++i) numbers[i] = (float)(self + 1);
  CHECK(troupe_world_copy(world, self, report, values, NULL, &reply, &failed));
  ANSWER(reply);
  CHECK(troupe_lane_create(world, self, "own", &lane, &failed));
  const troupe_operation sum = {.size = sizeof sum,
                                .kind = TROUPE_ALL_REDUCE,
                                .type = TROUPE_F32,
                                .count = count,
                                .send = {values, NULL},
                                .recv = {values, NULL}};
  CHECK(troupe_lane_ask(lane, &sum, NULL, &reply, &failed));
  ANSWER(reply); // 6 at every rank
  troupe_lane_free(lane);

  // What the driver names.
  troupe_remote_buffer handle = {.size = sizeof handle};
  CHECK(troupe_world_register_function(world, "show", show, NULL, NULL, NULL, &failed));
  CHECK(troupe_world_export(world, self, report, "report", &handle, &failed));
  CHECK(troupe_world_export(world, self, values, "values", &handle, &failed));         // last: then all is there
  CHECK(troupe_world_wait_ready(world, info.epoch, TROUPE_FOREVER, &status, &failed)); // until the world stops
  troupe_status_free(status);
  troupe_buffer_free(values);
  troupe_buffer_free(report);
  troupe_world_free(world);
  troupe_runtime_free(runtime);
  return EXIT_SUCCESS;
}

// The controller and the driver ---------------------------------------------------------------------------------------

static troupe_driver* driver = NULL;

/// Waits until each rank has exported its memory called \p name, and makes operands of it.
static void find(const char* name, troupe_buffer** made, troupe_remote_buffer* handles) {
  for (int r = 0; r < ranks; ++r) {
    handles[r].size = sizeof *handles;
    troupe_code code = TROUPE_MISSING;
    while (code == TROUPE_MISSING) {
      code = troupe_driver_find(driver, r, name, patience_ns, &handles[r], &failed);
      if (code == TROUPE_MISSING) troupe_error_free(failed);
    }
    CHECK(code);
    CHECK(troupe_buffer_from_remote(&handles[r], &made[r], &failed));
  }
}

/// Returns the first value of `values` at rank 1.
static float shown(troupe_buffer** values, troupe_buffer** reports, const troupe_remote_buffer* handles) {
  troupe_operand arguments[ranks][2];
  troupe_operation calls[ranks];
  memset(calls, 0, sizeof calls);
  for (int r = 0; r < ranks; ++r) {
    arguments[r][0] = (troupe_operand){values[r], NULL};
    arguments[r][1] = (troupe_operand){reports[r], NULL};
    calls[r].size = sizeof calls[r];
    calls[r].kind = TROUPE_CALL;
    calls[r].name = "show";
    calls[r].arguments = arguments[r];
    calls[r].argument_count = 2;
  }
  troupe_reply* reply = NULL;
  float read[count];
  CHECK(troupe_driver_ask(driver, calls, ranks, NULL, &reply, &failed));
  ANSWER(reply);
  CHECK(troupe_driver_read(driver, &handles[1], read, sizeof read, patience_ns, &failed));
  return read[0];
}

static void note_event(void* user, const troupe_status* status) {
  troupe_status_info info = {.size = sizeof info};
  if (troupe_status_get(status, &info) == TROUPE_OK) *(volatile int*)user += 1;
}

static void drive(troupe_settings* settings) {
  volatile int events = 0;
  CHECK(troupe_driver_create(settings, &driver, &failed));
  CHECK(troupe_driver_on_event(driver, note_event, (void*)&events, NULL, &failed));
  troupe_status* status = NULL;
  troupe_status_info info = {.size = sizeof info};
  CHECK(troupe_driver_wait_ready(driver, 0, patience_ns, &status, &failed));
  CHECK(troupe_status_get(status, &info));
  EXPECT(info.phase == TROUPE_PHASE_READY && info.world_size == ranks && info.local_rank_count == 0);
  troupe_status_free(status);
  CHECK(troupe_driver_status(driver, &status, &failed));
  troupe_status_free(status);

  troupe_buffer *values[ranks], *reports[ranks];
  troupe_remote_buffer handles[ranks], report_handles[ranks];
  find("values", values, handles);
  find("report", reports, report_handles);
  EXPECT(shown(values, reports, report_handles) == 6);
  troupe_operation sum = {
      .size = sizeof sum, .kind = TROUPE_ALL_REDUCE, .type = TROUPE_F32, .count = count, .reduction = TROUPE_SUM};
  troupe_reply* reply = NULL;
  const troupe_buffer* const* all = (const troupe_buffer* const*)values;
  CHECK(troupe_driver_ask_each(driver, &sum, all, all, ranks, NULL, &reply, &failed));
  ANSWER(reply);
  EXPECT(shown(values, reports, report_handles) == 18);

  // The same as a plan.
  troupe_operation steps[ranks];
  for (int r = 0; r < ranks; ++r) {
    steps[r] = sum;
    steps[r].send.memory = steps[r].recv.memory = values[r];
  }
  const troupe_plan_options options = {.size = sizeof options, .name = "sum"};
  CHECK(troupe_driver_capture(driver, steps, 1, ranks, &options, &reply, &failed));
  ANSWER(reply);
  const troupe_operation replay = {.size = sizeof replay, .kind = TROUPE_REPLAY, .name = "sum"};
  CHECK(troupe_driver_ask_each(driver, &replay, NULL, NULL, ranks, NULL, &reply, &failed));
  ANSWER(reply);
  EXPECT(shown(values, reports, report_handles) == 54);
  CHECK(troupe_driver_drop_plan(driver, "sum", &failed));

  // Memory under the driver's lease; refusals.
  troupe_remote_buffer leased = {.size = sizeof leased};
  CHECK(troupe_driver_allocate(driver, 2, 64, patience_ns, &leased, &failed));
  EXPECT(leased.size_bytes == 64 && leased.exporter == 2);
  CHECK(troupe_driver_release(driver, &leased, &failed));
  char too_small[4];
  EXPECT(troupe_driver_read(driver, &report_handles[1], too_small, sizeof too_small, patience_ns, NULL) ==
         TROUPE_INVALID_ARGUMENT);
  const troupe_request_options two_steps = {.size = sizeof two_steps, .in_two_steps = 1};
  EXPECT(troupe_driver_ask_each(driver, &sum, all, all, ranks, &two_steps, &reply, NULL) == TROUPE_UNSUPPORTED);
  for (int r = 0; r < ranks; ++r) {
    troupe_buffer_free(values[r]);
    troupe_buffer_free(reports[r]);
  }
  troupe_driver_free(driver);
}

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "rank") == 0) return serve();
  const troupe_controller_options wrong = {.size = sizeof wrong, .processes = ranks};
  troupe_controller* controller = NULL;
  EXPECT(troupe_controller_create(&wrong, &controller, NULL) == TROUPE_INVALID_ARGUMENT); // no token
  const troupe_controller_options options = {
      .size = sizeof options, .processes = ranks, .token = "a token of this test"};
  CHECK(troupe_controller_create(&options, &controller, &failed));
  char address[64], number[16];
  CHECK(troupe_controller_address(controller, address, sizeof address, NULL, &failed));

  troupe_settings* settings = NULL;
  CHECK(troupe_settings_create(NULL, &settings, &failed));
  CHECK(troupe_settings_set(settings, "control.address", address, &failed));
  CHECK(troupe_settings_set_token(settings, options.token, &failed));
  setenv("TROUPE_BACKEND", "mock", 1);
  setenv("TROUPE_LOG", "off", 1);
  setenv("TROUPE_CONTROL", address, 1);
  setenv("TROUPE_JOIN_TOKEN", options.token, 1);
  snprintf(number, sizeof number, "%d", ranks);
  setenv("WORLD_SIZE", number, 1);
  pid_t children[ranks];
  for (int r = 0; r < ranks; ++r) {
    snprintf(number, sizeof number, "%d", r);
    setenv("RANK", number, 1);
    char* arguments[] = {argv[0], "rank", NULL};
    EXPECT(posix_spawn(&children[r], argv[0], NULL, NULL, arguments, environ) == 0);
  }
  drive(settings);
  troupe_settings_free(settings);

  CHECK(troupe_controller_stop(controller, &failed));
  int bad = 0;
  for (int r = 0; r < ranks; ++r) {
    int how = 0;
    EXPECT(waitpid(children[r], &how, 0) == children[r]);
    bad += how != 0;
  }
  EXPECT(bad == 0);
  CHECK(troupe_controller_wait(controller, patience_ns, &failed));
  troupe_controller_free(controller);
  return EXIT_SUCCESS;
}
