// The calls that a launch makes of NCCL, seen without a GPU: one group, closed on every path (GRP-1).
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_enqueue.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <string>
#include <vector>

using namespace troupe;

namespace {

/// What was called, and which call is to fail. NCCL's functions have no place for an object.
struct call_log {
  std::vector<std::string> calls;
  std::string failing;
  int depth = 0;
  int operators = 0;
} call_log;

ncclResult_t called(const std::string& name) {
  call_log.calls.push_back(name);
  return name.starts_with(call_log.failing) && !call_log.failing.empty() ? ncclInternalError : ncclSuccess;
}

nccl_functions fake_functions() {
  call_log = {};
  nccl_functions made;
  made.group_start = +[]() -> ncclResult_t {
    const ncclResult_t result = called("start");
    if (result == ncclSuccess) ++call_log.depth;
    return result;
  };
  made.group_end = +[]() -> ncclResult_t {
    --call_log.depth;
    return called("end");
  };
  made.all_reduce = +[](const void*, void*, size_t count, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
    return called("all_reduce " + std::to_string(count));
  };
  made.broadcast = +[](const void*, void*, size_t count, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
    return called("broadcast " + std::to_string(count));
  };
  made.send = +[](const void*, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
    return called("send " + std::to_string(count) + " to " + std::to_string(peer));
  };
  made.recv = +[](void*, size_t count, ncclDataType_t, int peer, ncclComm_t, cudaStream_t) {
    return called("recv " + std::to_string(count) + " from " + std::to_string(peer));
  };
  made.red_op_create_pre_mul_sum =
      +[](ncclRedOp_t*, void*, ncclDataType_t, ncclScalarResidence_t, ncclComm_t) -> ncclResult_t {
    const ncclResult_t result = called("make operator");
    call_log.operators += result == ncclSuccess ? 1 : 0;
    return result;
  };
  made.red_op_destroy = +[](ncclRedOp_t, ncclComm_t) -> ncclResult_t {
    --call_log.operators;
    return called("end operator");
  };
  return made;
}

/// Of every kind that a batch may hold; the numbers tell the calls apart.
std::vector<operation> batch() {
  return {
      send{.memory = {}, .count = 11, .peer = rank{1}, .tag = 5},
      all_reduce{.send = {}, .recv = {}, .count = 1},
      all_reduce{.send = {}, .recv = {}, .count = 0},
      all_reduce{.send = {}, .recv = {}, .count = 2, .op = reduction::pre_mul_sum},
      recv{.memory = {}, .count = 12, .peer = rank{1}, .tag = 0},
      group{{send{.memory = {}, .count = 13, .peer = rank{1}, .tag = 5}, broadcast{.send = {}, .recv = {}, .count = 3},
             send{.memory = {}, .count = 14, .peer = rank{1}, .tag = 2}}},
      all_to_all{.send = {}, .recv = {}, .count = 4}};
}

nccl_enqueued enqueue_batch(const nccl_functions& nccl, const std::vector<operation>& all) {
  std::vector<const operation*> addresses;
  for (const operation& one : all) addresses.push_back(&one);
  return enqueue_together(
      addresses,
      {.nccl = nccl, .communicator = {}, .stream = {}, .self = rank{0}, .world_size = 2, .barrier_word = nullptr});
}

} // namespace

TEST_CASE("several operations are one group of NCCL: collectives as given, then transfers by tag",
          "[collectives][nccl][fusion][GRP-1][ORD-1]") {
  const nccl_functions nccl = fake_functions();
  CHECK(enqueue_batch(nccl, batch()).result == ncclSuccess);
  CHECK(call_log.calls == std::vector<std::string>{"start", "all_reduce 1", "make operator", "all_reduce 2",
                                                   "broadcast 3", "send 4 to 0", "recv 4 from 0", "send 4 to 1",
                                                   "recv 4 from 1", "recv 12 from 1", "send 14 to 1", "send 11 to 1",
                                                   "send 13 to 1", "end", "end operator"});
}

TEST_CASE("where NCCL has calls of its own for exchanges, they take the place of sends and receives",
          "[collectives][nccl]") {
  nccl_functions nccl = fake_functions();
  nccl.all_to_all = +[](const void*, void*, size_t count, ncclDataType_t, ncclComm_t, cudaStream_t) {
    return called("all_to_all " + std::to_string(count));
  };
  nccl.gather = +[](const void*, void*, size_t count, ncclDataType_t, int root, ncclComm_t, cudaStream_t) {
    return called("gather " + std::to_string(count) + " to " + std::to_string(root));
  };
  nccl.scatter = +[](const void*, void*, size_t count, ncclDataType_t, int root, ncclComm_t, cudaStream_t) {
    return called("scatter " + std::to_string(count) + " from " + std::to_string(root));
  };
  const nccl_target target{
      .nccl = nccl, .communicator = {}, .stream = {}, .self = rank{0}, .world_size = 2, .barrier_word = nullptr};
  for (const operation& one : std::vector<operation>{all_to_all{.send = {}, .recv = {}, .count = 4},
                                                     gather{.send = {}, .recv = {}, .count = 5, .root = rank{1}},
                                                     scatter{.send = {}, .recv = {}, .count = 6, .root = rank{1}},
                                                     all_to_all{.send = {}, .recv = {}, .count = 0}})
    CHECK(enqueue(one, target).result == ncclSuccess);
  CHECK(call_log.calls == std::vector<std::string>{"all_to_all 4", "gather 5 to 1", "scatter 6 from 1"});
  call_log.calls.clear();
  CHECK(enqueue_batch(nccl, batch()).result == ncclSuccess);
  CHECK(std::ranges::find(call_log.calls, "all_to_all 4") != call_log.calls.end());
  CHECK(call_log.depth == 0);
}

TEST_CASE("after any failed call no further one is made, the group is closed, and operators are released behind it",
          "[collectives][nccl][fusion][GRP-1]") {
  for (const char* const failing : {"start", "all_reduce 1", "make operator", "all_reduce 2", "broadcast",
                                    "send 4 to 1", "recv 12", "send 13", "end"}) {
    CAPTURE(failing);
    const nccl_functions nccl = fake_functions();
    call_log.failing = failing;
    const nccl_enqueued seen = enqueue_batch(nccl, batch());
    CHECK(seen.result == ncclInternalError);
    CHECK(call_log.depth == 0);
    CHECK(call_log.operators == 0);
    CHECK(std::string{seen.call}.starts_with("nccl"));
    const auto failed = std::ranges::find_if(call_log.calls, [&](const auto& one) { return one.starts_with(failing); });
    CHECK(std::all_of(failed + 1, call_log.calls.end(),
                      [](const auto& one) { return one == "end" || one == "end operator"; }));
  }
}

TEST_CASE("an exception in the middle of a group leaves it closed", "[collectives][nccl][fusion][GRP-1]") {
  const nccl_functions nccl = fake_functions();
  CHECK_THROWS(enqueue_batch(nccl, {all_reduce{.send = {}, .recv = {}, .count = 1},
                                    all_reduce{.send = {}, .recv = {}, .count = 2, .type = static_cast<dtype>(99)}}));
  CHECK_THROWS(enqueue_batch(nccl, {all_reduce{.send = {}, .recv = {}, .count = 1}, copy{}}));
  CHECK(call_log.depth == 0);
}

TEST_CASE("a single operation of one call needs no group", "[collectives][nccl][GRP-1]") {
  const nccl_functions nccl = fake_functions();
  const nccl_target target{
      .nccl = nccl, .communicator = {}, .stream = {}, .self = rank{0}, .world_size = 2, .barrier_word = nullptr};
  CHECK(enqueue(all_reduce{.send = {}, .recv = {}, .count = 1}, target).result == ncclSuccess);
  CHECK(call_log.calls == std::vector<std::string>{"all_reduce 1"});
}
