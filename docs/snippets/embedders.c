/// The code of docs/guide/embedders.md: collectives of three kinds of engines by <troupe/troupe.h>, run on the mock.
/// Only the engines' own types are missing: `tensor` stands for theirs.

#include <troupe/troupe.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ranks = 2, count = 256 };

static void expect(int holds, const char* what) {
  if (holds) return;
  fprintf(stderr, "not so: %s\n", what);
  exit(EXIT_FAILURE);
}

typedef struct tensor {
  void* data;
  size_t count;
  troupe_dtype type;
} tensor;

// [operand]
/// Makes an operand of a tensor of the engine, which keeps the memory valid until the request has been answered.
static troupe_code operand_of(troupe_world* world, int32_t rank, const tensor* from, troupe_buffer** made) {
  return troupe_world_adopt(world, rank, from->data, from->count * troupe_dtype_size(from->type), NULL, NULL, made,
                            NULL);
}
// [operand]

// [disco]
/// The state of a worker, in place of its communicator.
typedef struct worker {
  troupe_world* world;
  troupe_lane* lane;
  int32_t rank;
  void* stream;       ///< The stream of the worker's kernels.
  troupe_reply* last; ///< The newest collective: SyncWorker() waits for it.
} worker;

/// AllReduce(send, kind, in_group, recv): runs behind the work in the worker's stream, and later work there runs behind
/// it. ReduceKind has the numbers of troupe_reduction. For in_group, the lane is one of the group's sub-world.
static troupe_code all_reduce(worker* self, const tensor* send, troupe_reduction kind, const tensor* recv) {
  troupe_buffer *from = NULL, *to = NULL;
  troupe_event* ready = NULL;
  troupe_code code = operand_of(self->world, self->rank, send, &from);
  if (code == TROUPE_OK) code = operand_of(self->world, self->rank, recv, &to);
  if (code == TROUPE_OK) code = troupe_event_record(self->world, self->rank, self->stream, &ready, NULL);
  if (code == TROUPE_OK) {
    const troupe_operation sum = {.size = sizeof sum,
                                  .kind = TROUPE_ALL_REDUCE,
                                  .type = send->type,
                                  .send = {from, ready},
                                  .recv = {to, NULL},
                                  .count = send->count,
                                  .reduction = kind};
    const troupe_request_options options = {.size = sizeof options, .in_two_steps = 1, TROUPE_HERE};
    troupe_reply_free(self->last); // that request goes on; a worker's requests end in order
    code = troupe_lane_ask(self->lane, &sum, &options, &self->last, NULL);
  }
  troupe_event_free(ready); // the request holds all three
  troupe_buffer_free(from);
  troupe_buffer_free(to);
  // All workers have asked: the collective is in the GPUs' queues. A worker that never comes is an error, not a hang.
  if (code == TROUPE_OK) code = troupe_reply_wait_enqueued(self->last, TROUPE_FOREVER, NULL);
  if (code == TROUPE_OK) code = troupe_reply_order(self->last, self->world, self->rank, self->stream, NULL);
  return code;
}

/// SyncWorker(): the results may be used by the CPU, or the error says what is undefined.
static troupe_code sync_worker(worker* self, troupe_error** failed) {
  return troupe_reply_wait(self->last, TROUPE_FOREVER, NULL, failed);
}
// [disco]

// [llama]
/// The context of ggml_backend_comm_init(): one thread speaks for all devices of the process.
typedef struct comm {
  troupe_world* world;
  void* streams[ranks]; ///< The stream of each backend.
} comm;

/// ggml_backend_comm_allreduce_tensor(): sums in place, behind the work in each backend's stream and before what
/// follows there. False: nothing has run on any device, and the caller's own way may be taken.
static int allreduce_tensor(comm* ctx, tensor* const* tensors) {
  troupe_buffer* operands[ranks] = {NULL};
  troupe_event* ready[ranks] = {NULL};
  troupe_operation parts[ranks];
  troupe_code code = TROUPE_OK;
  for (int32_t r = 0; r < ranks && code == TROUPE_OK; ++r) {
    code = operand_of(ctx->world, r, tensors[r], &operands[r]);
    if (code == TROUPE_OK) code = troupe_event_record(ctx->world, r, ctx->streams[r], &ready[r], NULL);
    parts[r] = (troupe_operation){.size = sizeof *parts,
                                  .kind = TROUPE_ALL_REDUCE,
                                  .type = tensors[r]->type,
                                  .send = {operands[r], ready[r]},
                                  .recv = {operands[r], NULL},
                                  .count = tensors[r]->count};
  }
  troupe_reply* reply = NULL;
  troupe_error* failed = NULL;
  const troupe_request_options options = {.size = sizeof options, .in_two_steps = 1};
  if (code == TROUPE_OK) code = troupe_world_ask(ctx->world, parts, ranks, &options, &reply, &failed);
  for (int32_t r = 0; r < ranks; ++r) {
    troupe_event_free(ready[r]);
    troupe_buffer_free(operands[r]);
  }
  if (code == TROUPE_OK) code = troupe_reply_wait_enqueued(reply, TROUPE_FOREVER, &failed);
  for (int32_t r = 0; r < ranks && code == TROUPE_OK; ++r)
    code = troupe_reply_order(reply, ctx->world, r, ctx->streams[r], &failed);
  troupe_reply_free(reply);
  troupe_error_free(failed); // a program logs its line; with TROUPE_UNKNOWN_OUTCOME it must not go on
  return code == TROUPE_OK;
}
// [llama]

// [mpi]
/// MPI_Iallreduce(): host memory of this process, which stays untouched until the wait.
static troupe_code iallreduce(troupe_world* world, troupe_lane* lane, int32_t rank, float* send, float* recv, size_t n,
                              troupe_reply** request) {
  troupe_buffer *from = NULL, *to = NULL;
  troupe_code code = operand_of(world, rank, &(tensor){send, n, TROUPE_F32}, &from);
  if (code == TROUPE_OK) code = operand_of(world, rank, &(tensor){recv, n, TROUPE_F32}, &to);
  const troupe_operation sum = {.size = sizeof sum,
                                .kind = TROUPE_ALL_REDUCE,
                                .type = TROUPE_F32,
                                .send = {from, NULL},
                                .recv = {to, NULL},
                                .count = n};
  if (code == TROUPE_OK) code = troupe_lane_ask(lane, &sum, NULL, request, NULL);
  troupe_buffer_free(from);
  troupe_buffer_free(to);
  return code;
}

/// MPI_Wait(): frees the request.
static troupe_code wait_for(troupe_reply** request, troupe_error** failed) {
  const troupe_code code = troupe_reply_wait(*request, TROUPE_FOREVER, NULL, failed);
  troupe_reply_free(*request);
  *request = NULL;
  return code;
}

/// MPI_Comm_split() with one color for even and one for odd ranks. Every process makes the call.
static troupe_code split(troupe_world* world, const int32_t* even, size_t evens, const int32_t* odd, size_t odds,
                         troupe_world** made) {
  const troupe_rank_group groups[] = {{.size = sizeof *groups, .name = "even", .members = even, .member_count = evens},
                                      {.size = sizeof *groups, .name = "odd", .members = odd, .member_count = odds}};
  return troupe_world_split(world, groups, 2, made, NULL); // NULL where this process has no rank
}
// [mpi]

// [mpi_form]
/// MPI_Init(): under mpirun, rank and size come from its variables. A controller (TROUPE_CONTROL) brings recovery and
/// requests from anywhere; without one the id is passed on by the MPI that the program has: \p broadcast is an
/// MPI_Bcast of bytes from rank 0.
static troupe_code form(troupe_runtime* runtime, int32_t rank, void (*broadcast)(void* bytes, size_t size),
                        troupe_world** made, troupe_error** failed) {
  unsigned char id[TROUPE_ID_BYTES] = {0};
  if (rank == 0) {
    const troupe_code code = troupe_runtime_make_id(runtime, id, failed);
    if (code != TROUPE_OK) return code;
  }
  broadcast(id, sizeof id);
  const troupe_world_options options = {.size = sizeof options, .id = id};
  return troupe_runtime_form_world(runtime, &options, made, failed);
}
// [mpi_form]

// What runs them ------------------------------------------------------------------------------------------------------

static troupe_world* world = NULL;
static troupe_stream* streams[ranks];
static tensor values[ranks];
static float memory[ranks][count];

static void fill(void) {
  for (int r = 0; r < ranks; ++r) {
    values[r] = (tensor){memory[r], count, TROUPE_F32};
    for (int i = 0; i < count; ++i) memory[r][i] = (float)(r + 1);
  }
}

static void* work(void* with) {
  worker* const self = with;
  float seen[count];
  expect(all_reduce(self, &values[self->rank], TROUPE_SUM, &values[self->rank]) == TROUPE_OK, "workers sum");
  expect(troupe_stream_copy(streams[self->rank], seen, memory[self->rank], sizeof seen, NULL) == TROUPE_OK, "");
  expect(troupe_stream_synchronize(streams[self->rank], NULL) == TROUPE_OK && seen[1] == 3, "later work sees the sum");
  expect(sync_worker(self, NULL) == TROUPE_OK, "workers wait");
  troupe_reply_free(self->last);
  return NULL;
}

static void no_broadcast(void* bytes, size_t size) {
  expect(bytes != NULL && size == TROUPE_ID_BYTES, "the id is passed on");
}

int main(void) {
  troupe_settings* settings = NULL;
  troupe_runtime* runtime = NULL;
  expect(troupe_settings_create(NULL, &settings, NULL) == TROUPE_OK, "settings are read");
  expect(troupe_settings_set(settings, "backend", "mock", NULL) == TROUPE_OK, "the mock is chosen");
  expect(troupe_settings_set(settings, "mock.devices", "2", NULL) == TROUPE_OK, "it has two devices");
  expect(troupe_runtime_create(settings, &runtime, NULL) == TROUPE_OK, "a runtime begins");
  troupe_settings_free(settings);
  expect(form(runtime, 0, no_broadcast, &world, NULL) == TROUPE_OK && troupe_world_size(world) == 2, "a world forms");
  for (int32_t r = 0; r < ranks; ++r) expect(troupe_stream_create(world, r, &streams[r], NULL) == TROUPE_OK, "streams");

  fill();
  worker workers[ranks];
  pthread_t threads[ranks];
  for (int32_t r = 0; r < ranks; ++r) {
    workers[r] = (worker){world, NULL, r, troupe_stream_native(streams[r]), NULL};
    expect(troupe_lane_create(world, r, "disco", &workers[r].lane, NULL) == TROUPE_OK, "lanes");
    expect(pthread_create(&threads[r], NULL, work, &workers[r]) == 0, "threads");
  }
  for (int r = 0; r < ranks; ++r) {
    pthread_join(threads[r], NULL);
    troupe_lane_free(workers[r].lane);
  }

  fill();
  comm ctx = {.world = world};
  tensor* tensors[ranks];
  for (int r = 0; r < ranks; ++r) {
    ctx.streams[r] = troupe_stream_native(streams[r]);
    tensors[r] = &values[r];
  }
  expect(allreduce_tensor(&ctx, tensors), "all devices sum at one call");
  for (int r = 0; r < ranks; ++r) {
    expect(troupe_stream_synchronize(streams[r], NULL) == TROUPE_OK && memory[r][7] == 3, "sums are in place");
    troupe_stream_free(streams[r]);
  }
  tensor wrong = {memory[0], count / 2, TROUPE_F32};
  tensors[0] = &wrong;
  expect(!allreduce_tensor(&ctx, tensors) && memory[1][0] == 3, "a mismatch has run nowhere");

  fill();
  troupe_lane* lanes[ranks];
  troupe_reply* requests[ranks];
  for (int32_t r = 0; r < ranks; ++r) {
    expect(troupe_lane_create(world, r, "mpi", &lanes[r], NULL) == TROUPE_OK, "lanes");
    expect(iallreduce(world, lanes[r], r, memory[r], memory[r], count, &requests[r]) == TROUPE_OK, "asked");
  }
  for (int r = 0; r < ranks; ++r) {
    expect(wait_for(&requests[r], NULL) == TROUPE_OK && memory[r][3] == 3, "host memory is summed");
    troupe_lane_free(lanes[r]);
  }
  troupe_world* parts[2] = {NULL};
  expect(split(world, (int32_t[]){0}, 1, (int32_t[]){1}, 1, parts) == TROUPE_OK, "a world is split");
  expect(troupe_world_size(parts[0]) == 1 && troupe_world_size(parts[1]) == 1, "into two");
  troupe_world_free(parts[0]);
  troupe_world_free(parts[1]);
  troupe_world_free(world);
  troupe_runtime_free(runtime);
  puts("engines' collectives did what their page says");
  return EXIT_SUCCESS;
}
