/// A world over three processes whose ranks leave and join as planned, in C: the controller and the driver are in this
/// process, which starts itself again as the process of each rank.

#define _POSIX_C_SOURCE 200809L

#include <troupe/troupe.h>

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ranks = 3, last = ranks - 1, count = 8 };
static const int64_t patience_ns = 60000000000;
extern char** environ;

static troupe_error* failed = NULL;
static pid_t children[ranks];

static void give_up(void) {
  for (int i = 0; i < ranks; ++i)
    if (children[i] > 0) kill(children[i], SIGKILL);
  _Exit(EXIT_FAILURE);
}

static void check_at(int line, troupe_code code) {
  if (code == TROUPE_OK) return;
  troupe_error_info info = {.size = sizeof info};
  troupe_error_get(failed, &info);
  fprintf(stderr, "line %d: %s: %s\n", line, troupe_code_name(code), failed != NULL ? info.line : "no text");
  give_up();
}
#define CHECK(call) check_at(__LINE__, call)
#define EXPECT(condition) check_at(__LINE__, (condition) ? TROUPE_OK : TROUPE_INTERNAL)

// The process of a rank -----------------------------------------------------------------------------------------------

/// Sums ones until a request is refused, which is when this process leaves or the world ends.
static void work(troupe_world* world, int32_t self) {
  troupe_buffer *ones = NULL, *sums = NULL;
  troupe_lane* lane = NULL;
  CHECK(troupe_world_allocate_pinned(world, count * sizeof(float), &ones, &failed));
  CHECK(troupe_world_allocate_pinned(world, count * sizeof(float), &sums, &failed));
  for (int i = 0; i < count; ++i) ((float*)troupe_buffer_address(ones))[i] = 1;
  CHECK(troupe_lane_create(world, self, "work", &lane, &failed));
  const troupe_operation sum = {.size = sizeof sum,
                                .kind = TROUPE_ALL_REDUCE,
                                .type = TROUPE_F32,
                                .count = count,
                                .reduction = TROUPE_SUM,
                                .send = {ones, NULL},
                                .recv = {sums, NULL}};
  troupe_code code = TROUPE_OK;
  while (code == TROUPE_OK) {
    troupe_reply* reply = NULL;
    CHECK(troupe_lane_ask(lane, &sum, NULL, &reply, &failed));
    code = troupe_reply_wait(reply, patience_ns, NULL, &failed);
    const float seen = ((float*)troupe_buffer_address(sums))[count - 1];
    if (code == TROUPE_OK) EXPECT(seen == 2 || seen == ranks);
    troupe_reply_free(reply);
  }
  troupe_error_info info = {.size = sizeof info};
  CHECK(troupe_error_get(failed, &info));
  if (code != TROUPE_STOPPING || info.effect != TROUPE_REJECTED) check_at(__LINE__, code);
  troupe_error_free(failed);
  troupe_lane_free(lane);
  troupe_buffer_free(ones);
  troupe_buffer_free(sums);
}

static void* leave(void* world) {
  troupe_error* failure = NULL;
  if (troupe_world_leave(world, 0, &failure) == TROUPE_OK) return world;
  troupe_error_free(failure);
  return NULL;
}

static int serve(int leaves) {
  troupe_runtime* runtime = NULL;
  troupe_world* world = NULL;
  CHECK(troupe_runtime_create(NULL, &runtime, &failed));
  CHECK(troupe_runtime_form_world(runtime, NULL, &world, &failed));
  troupe_status* status = NULL;
  troupe_status_info info = {.size = sizeof info};
  CHECK(troupe_world_status(world, &status, &failed));
  CHECK(troupe_status_get(status, &info));
  EXPECT(info.local_rank_count == 1);
  const int32_t self = info.local_ranks[0];
  troupe_status_free(status);
  pthread_t leaving;
  void* has_left = NULL;
  if (leaves) EXPECT(pthread_create(&leaving, NULL, leave, world) == 0);
  work(world, self);
  if (leaves) EXPECT(pthread_join(leaving, &has_left) == 0 && has_left != NULL);
  troupe_world_free(world);
  troupe_runtime_free(runtime);
  return EXIT_SUCCESS;
}

// The controller and the driver ---------------------------------------------------------------------------------------

static troupe_driver* driver = NULL;

static void start(const char* program, int place, int attempt, const char* how) {
  char number[16];
  snprintf(number, sizeof number, "%d", place);
  setenv("TROUPE_PLACE", number, 1);
  setenv("TROUPE_HOST", place == last ? "right" : "left", 1);
  snprintf(number, sizeof number, "%d", attempt);
  setenv("TROUPE_ATTEMPT", number, 1);
  char* arguments[] = {(char*)program, (char*)how, NULL};
  EXPECT(posix_spawn(&children[place], program, NULL, NULL, arguments, environ) == 0);
}

static void await_end(int place) {
  int how = 0;
  EXPECT(waitpid(children[place], &how, 0) == children[place]);
  children[place] = 0;
  EXPECT(WIFEXITED(how) && WEXITSTATUS(how) == EXIT_SUCCESS);
}

/// Waits until the world serves with \p size ranks.
static void await_ranks(int size) {
  const struct timespec pause = {.tv_nsec = 5000000};
  for (int i = 0; i < 4000; ++i) {
    troupe_status* status = NULL;
    troupe_status_info info = {.size = sizeof info};
    CHECK(troupe_driver_status(driver, &status, &failed));
    CHECK(troupe_status_get(status, &info));
    const int is_it = info.phase == TROUPE_PHASE_READY && info.world_size == size;
    troupe_status_free(status);
    if (is_it) return;
    nanosleep(&pause, NULL);
  }
  check_at(__LINE__, TROUPE_DEADLINE_EXCEEDED);
}

/// Makes a change, and checks that the world has \p size ranks afterwards, on their hosts.
static void change(const troupe_rank_change* what, int size) {
  troupe_processes* all = NULL;
  CHECK(troupe_driver_change(driver, what, &all, &failed));
  EXPECT(troupe_processes_count(all) >= (size_t)size);
  for (int i = 0; i < size; ++i) {
    troupe_process_info info = {.size = sizeof info};
    CHECK(troupe_processes_get(all, (size_t)i, &info));
    EXPECT(info.rank == i && info.place == i && info.pid > 0);
    EXPECT(strcmp(info.host, i == last ? "right" : "left") == 0);
  }
  for (size_t i = (size_t)size; i < troupe_processes_count(all); ++i) { // it may not have ended yet
    troupe_process_info info = {.size = sizeof info};
    CHECK(troupe_processes_get(all, i, &info));
    EXPECT(info.rank == -1);
  }
  troupe_processes_free(all);
}

static void* join(void* unused) {
  const troupe_rank_change what = {.size = sizeof what, .kind = TROUPE_CHANGE_JOIN, .place = -1};
  change(&what, ranks);
  return unused;
}

static void drive(const char* program) {
  const troupe_rank_change none = {.size = sizeof none, .kind = TROUPE_CHANGE_NONE};
  const troupe_rank_change third = {.size = sizeof third, .kind = TROUPE_CHANGE_LEAVE, .place = last};
  const troupe_rank_change first = {.size = sizeof first, .kind = TROUPE_CHANGE_LEAVE};
  const troupe_rank_change host = {.size = sizeof host, .kind = TROUPE_CHANGE_DRAIN, .host = "right"};
  await_ranks(ranks);
  change(&none, ranks);
  EXPECT(troupe_driver_change(driver, &first, NULL, NULL) == TROUPE_INVALID_ARGUMENT); // others would get other numbers
  for (int round = 1; round <= 3; ++round) {
    if (round == 1) change(&third, ranks - 1);
    if (round == 2) change(&host, ranks - 1);
    await_end(last); // in the third round it leaves by its own request
    await_ranks(ranks - 1);
    pthread_t joining; // it is asked before the process is there
    EXPECT(pthread_create(&joining, NULL, join, NULL) == 0);
    const struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
    start(program, last, round, round == 2 ? "leaves" : "rank");
    EXPECT(pthread_join(joining, NULL) == 0);
  }
}

int main(int argc, char** argv) {
  if (argc == 2) return serve(strcmp(argv[1], "leaves") == 0);
  const troupe_controller_options options = {
      .size = sizeof options, .processes = ranks, .token = "a token of this test", .policy = "shrink"};
  troupe_controller* controller = NULL;
  CHECK(troupe_controller_create(&options, &controller, &failed));
  char address[64];
  CHECK(troupe_controller_address(controller, address, sizeof address, NULL, &failed));
  troupe_settings* settings = NULL;
  CHECK(troupe_settings_create(NULL, &settings, &failed));
  CHECK(troupe_settings_set(settings, "control.address", address, &failed));
  CHECK(troupe_settings_set_token(settings, options.token, &failed));
  setenv("TROUPE_BACKEND", "mock", 1);
  setenv("TROUPE_LOG", "off", 1);
  setenv("TROUPE_CONTROL", address, 1);
  setenv("TROUPE_JOIN_TOKEN", options.token, 1);
  setenv("TROUPE_CONTROL_PLANNED_CHANGES", "yes", 1);
  for (int r = 0; r < ranks; ++r) start(argv[0], r, 0, "rank");
  CHECK(troupe_driver_create(settings, &driver, &failed));
  drive(argv[0]);
  troupe_driver_free(driver);
  troupe_settings_free(settings);
  CHECK(troupe_controller_stop(controller, &failed));
  for (int r = 0; r < ranks; ++r) await_end(r);
  troupe_controller_free(controller);
  return EXIT_SUCCESS;
}
