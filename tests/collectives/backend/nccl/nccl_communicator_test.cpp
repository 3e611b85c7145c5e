// NCCL's communicators against functions that only write down how they were called: what is made of a failed one, and
// what is left to be aborted. Needs nccl.h, and neither a GPU nor the library. FLT-1, BLK-1
#include "support/outcomes.hpp"

#include <troupe/collectives/backend/nccl/nccl_communicator.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace troupe::tests::nccl_communicator_test {

using troupe::tests::error_of;

namespace {

/// What an ncclComm_t of these functions points to.
struct noted_communicator {
  int rank = 0;
};

/// One at a time.
struct noted_calls {
  std::mutex mutex;
  std::vector<std::string> all;
  std::vector<std::unique_ptr<noted_communicator>> made;
  ncclResult_t shrink_returns = ncclSuccess;
  std::atomic<int> still_in_progress{0}; ///< Looks that find a communicator busy.
  std::promise<void>* launched = nullptr;
  std::shared_future<void> may_return;

  void note(std::string what) {
    const std::lock_guard lock{mutex};
    all.push_back(std::move(what));
  }
  ncclComm_t make(int rank) {
    const std::lock_guard lock{mutex};
    made.push_back(std::make_unique<noted_communicator>(noted_communicator{rank}));
    return reinterpret_cast<ncclComm_t>(made.back().get());
  }
};

noted_calls* calls = nullptr;

std::string name_of(ncclComm_t comm) {
  for (std::size_t i = 0; i < calls->made.size(); ++i)
    if (reinterpret_cast<ncclComm_t>(calls->made[i].get()) == comm) return "c" + std::to_string(i);
  return "nobody";
}

ncclResult_t init_rank(ncclComm_t* comm, int, ncclUniqueId, int rank, ncclConfig_t*) {
  *comm = calls->make(rank);
  return ncclSuccess;
}
ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t*) {
  calls->note("split " + name_of(comm) + " color " + std::to_string(color) + " key " + std::to_string(key));
  *made = calls->make(key);
  return ncclSuccess;
}
ncclResult_t shrink(ncclComm_t comm, int* without, int count, ncclComm_t* made, ncclConfig_t*, int flags) {
  std::string text = "shrink " + name_of(comm) + " without";
  for (int i = 0; i < count; ++i) text += " " + std::to_string(without[i]);
  calls->note(text + " flags " + std::to_string(flags));
  if (calls->shrink_returns == ncclSuccess) *made = calls->make(0);
  return calls->shrink_returns;
}
ncclResult_t revoke(ncclComm_t comm, int flags) {
  calls->note("revoke " + name_of(comm) + " flags " + std::to_string(flags));
  return ncclSuccess;
}
ncclResult_t abort_it(ncclComm_t comm) {
  calls->note("abort " + name_of(comm));
  return ncclSuccess;
}
ncclResult_t finish(ncclComm_t comm) {
  calls->note("finish " + name_of(comm));
  return ncclSuccess;
}
ncclResult_t state_of(ncclComm_t comm, ncclResult_t* state) {
  *state = calls->still_in_progress > 0 ? ncclInProgress : ncclSuccess;
  if (calls->still_in_progress-- == 1) calls->note("quiet " + name_of(comm));
  return ncclSuccess;
}
ncclResult_t stuck_reduce(const void*, void*, std::size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t, cudaStream_t) {
  calls->launched->set_value();
  calls->may_return.wait();
  return ncclSuccess;
}
ncclResult_t nothing() {
  return ncclSuccess;
}
const char* words(ncclResult_t) {
  return "words";
}

struct rig {
  explicit rig(bool complete = true) {
    calls = &noted;
    nccl_functions made;
    made.get_error_string = words;
    made.comm_init_rank_config = init_rank;
    made.comm_split = split;
    made.comm_finalize = finish;
    made.comm_destroy = finish;
    made.comm_abort = abort_it;
    made.comm_get_async_error = state_of;
    made.all_reduce = stuck_reduce;
    made.group_start = nothing;
    made.group_end = nothing;
    if (complete) {
      made.comm_shrink = shrink;
      made.comm_revoke = revoke;
    }
    library =
        std::make_shared<const nccl_library>(nullptr, "nowhere", 22809, std::make_shared<const nccl_functions>(made));
  }
  ~rig() { calls = nullptr; }

  std::shared_ptr<nccl_communicator> formed(int self, int size) {
    auto one = std::make_shared<nccl_communicator>(library, memories, unique_id{}, rank{self}, size, gpu);
    one->init();
    return one;
  }

  noted_calls noted;
  std::shared_ptr<device> gpu = device::open(make_mock_driver({.device_count = 1}), device_id{0});
  std::shared_ptr<const nccl_library> library;
  std::shared_ptr<nccl_barrier_memories> memories = std::make_shared<nccl_barrier_memories>();
};

} // namespace

TEST_CASE("a failed communicator is shrunk with its operations ended first, and aborted afterwards",
          "[collectives][nccl]") {
  rig r;
  const auto failed = r.formed(2, 4);
  const auto fewer = failed->shrink({{rank{0}, rank{1}}, rank{0}, 2});
  CHECK(r.noted.all.empty()); // cheap until it forms
  fewer->init();
  CHECK(fewer->self() == rank{0});
  CHECK(fewer->world_size() == 2);
  CHECK(r.noted.all == std::vector<std::string>{"shrink c0 without 0 1 flags 1"});
  CHECK(error_of([&] { failed->check(); }).code == errc::communicator_failed); // nobody enters it any more
  CHECK(error_of([&] { static_cast<void>(failed->shrink({{}, rank{0}, 4})); }).code == errc::communicator_failed);
  failed->abort();
  fewer->abort();
  CHECK(r.noted.all == std::vector<std::string>{"shrink c0 without 0 1 flags 1", "abort c0", "abort c1"});
}

TEST_CASE("a failed communicator is revoked, and split with all its ranks once it is quiet", "[collectives][nccl]") {
  rig r;
  const auto failed = r.formed(1, 2);
  r.noted.still_in_progress = 3;
  const auto next = failed->revoke_and_split();
  next->init();
  CHECK(next->self() == rank{1});
  CHECK(next->world_size() == 2);
  failed->abort();
  next->abort();
  CHECK(r.noted.all ==
        std::vector<std::string>{"revoke c0 flags 0", "quiet c0", "split c0 color 0 key 1", "abort c0", "abort c1"});
}

TEST_CASE("without graphs in NCCL's configuration nothing is captured, and the setting is named",
          "[collectives][nccl]") {
  rig r;
  CHECK(r.formed(0, 2)->capture_objection().empty());
  const nccl_communicator without{
      r.library, r.memories, unique_id{}, rank{0}, 2, r.gpu, native_config({{"graphUsageMode", "0"}})};
  CHECK(without.capture_objection().find("nccl.config has graphUsageMode=0") != std::string_view::npos);
}

TEST_CASE("a shrink that fails leaves nothing but the failed communicator to abort", "[collectives][nccl]") {
  rig r;
  const auto failed = r.formed(0, 3);
  r.noted.shrink_returns = ncclSystemError;
  const auto fewer = failed->shrink({{rank{2}}, rank{0}, 2});
  const error why = error_of([&] { fewer->init(); });
  CHECK(why.call == "ncclCommShrink");
  fewer->abort();
  failed->abort();
  CHECK(r.noted.all == std::vector<std::string>{"shrink c0 without 2 flags 1", "abort c0"});
}

TEST_CASE("a communicator with a call inside that does not return is not shrunk (BLK-1)", "[collectives][nccl]") {
  rig r;
  std::promise<void> launched;
  std::promise<void> returns;
  r.noted.launched = &launched;
  r.noted.may_return = returns.get_future().share();
  const auto failed = r.formed(0, 3);
  stream line{r.gpu};
  std::jthread launcher{[&] { failed->launch(all_reduce{.send = {}, .recv = {}, .count = 1}, line); }};
  launched.get_future().wait();
  const auto fewer = failed->shrink({{rank{2}}, rank{0}, 2});
  CHECK(error_of([&] { fewer->init(); }).code == errc::communicator_failed);
  CHECK(r.noted.all.empty());
  returns.set_value();
  launcher.join();
  failed->abort();
  CHECK(r.noted.all == std::vector<std::string>{"abort c0"});
}

TEST_CASE("a library without the functions is told of before anything is done", "[collectives][nccl]") {
  rig r{false};
  const auto one = r.formed(0, 2);
  const error shrunk = error_of([&] { static_cast<void>(one->shrink({{rank{1}}, rank{0}, 1})); });
  CHECK(shrunk.code == errc::unsupported);
  CHECK(shrunk.text.find("ncclCommShrink") != std::string::npos);
  CHECK(error_of([&] { static_cast<void>(one->revoke_and_split()); }).code == errc::unsupported);
  one->abort();
}

} // namespace troupe::tests::nccl_communicator_test
