/// The smallest use of troupe from C: one world, and one all_reduce whose result is verified. Runs on GPUs if there are
/// any, otherwise on the mock; TROUPE_BACKEND=mock chooses the mock.

#include <troupe/troupe.h>

#include <stdio.h>
#include <stdlib.h>

enum { count = 1024, most_ranks = 1024 };

/// Ends the program with the error of a call, if that has failed.
static void check(troupe_code code, troupe_error** failed) {
  if (code == TROUPE_OK) return;
  troupe_error_info info = {.size = sizeof info};
  troupe_error_get(*failed, &info);
  fprintf(stderr, "%s\n", *failed != NULL ? info.line : troupe_code_name(code));
  exit(EXIT_FAILURE);
}

/// Waits for a reply, and frees it.
static troupe_completion answer_of(troupe_reply* reply) {
  troupe_error* failed = NULL;
  troupe_completion completion = {.size = sizeof completion};
  const troupe_code code = troupe_reply_wait(reply, TROUPE_FOREVER, &completion, &failed);
  troupe_reply_free(reply);
  check(code, &failed);
  return completion;
}

int main(void) {
  troupe_error* failed = NULL;
  troupe_runtime* runtime = NULL;
  troupe_world* world = NULL;
  check(troupe_runtime_create(NULL, &runtime, &failed), &failed);
  check(troupe_runtime_form_world(runtime, NULL, &world, &failed), &failed);
  const int ranks = troupe_world_size(world);

  // Every rank contributes 1024 floats with the value rank + 1.
  troupe_buffer* host = NULL;
  troupe_buffer* values[most_ranks];
  check(troupe_world_allocate_pinned(world, count * sizeof(float), &host, &failed), &failed);
  check(troupe_world_allocate_all(world, count * sizeof(float), values, (size_t)ranks, &failed), &failed);
  float* const numbers = troupe_buffer_address(host);
  troupe_reply* reply = NULL;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int i = 0; i < count; ++i) numbers[i] = (float)(rank + 1);
    check(troupe_world_copy(world, rank, host, values[rank], NULL, &reply, &failed), &failed);
    answer_of(reply);
  }

  // One message requests the operation on all ranks. The single reply arrives when the last GPU has finished.
  const troupe_operation sum = {
      .size = sizeof sum, .kind = TROUPE_ALL_REDUCE, .type = TROUPE_F32, .count = count, .reduction = TROUPE_SUM};
  const troupe_request_options options = {.size = sizeof options, .deadline_ns = 30000000000, TROUPE_HERE};
  const troupe_buffer* const* operands = (const troupe_buffer* const*)values;
  check(troupe_world_ask_each(world, &sum, operands, operands, (size_t)ranks, &options, &reply, &failed), &failed);
  const troupe_completion done = answer_of(reply);

  const float expected = (float)(ranks * (ranks + 1) / 2);
  int right = 1;
  for (int rank = 0; rank < ranks; ++rank) {
    check(troupe_world_copy(world, rank, values[rank], host, NULL, &reply, &failed), &failed);
    answer_of(reply);
    for (int i = 0; i < count; ++i) right = right && numbers[i] == expected;
    troupe_buffer_free(values[rank]);
  }
  printf("%d ranks, epoch %llu: every sum is %.0f: %s (%lld us)\n", ranks, (unsigned long long)done.epoch,
         (double)expected, right ? "right" : "WRONG", (long long)(done.done_ns - done.queued_ns) / 1000);
  troupe_buffer_free(host);
  troupe_world_free(world);
  troupe_runtime_free(runtime);
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
