// Ranks in several processes exchange the scratch of their one-shot kernels over the meeting service of their node.
#include "processes/meeting/meeting_rig.hpp"
#include "processes/transport/forked_process.hpp"
#include "support/outcomes.hpp"
#include "support/process_resources.hpp"

#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_backend.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/processes/meeting/meeting_service.hpp>
#include <troupe/processes/meeting/process_meetings.hpp>
#include <troupe/processes/mock/process_rendezvous.hpp>
#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>
#include <troupe/processes/transport/shared_memory/local_socket.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::meeting_service_test {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// An address that no other process uses.
std::string own_address() {
  static std::atomic<int> last{0};
  return "troupe-test-meetings-" + std::to_string(::getpid()) + "-" + std::to_string(++last);
}

meeting_door door_to(const std::string& address) {
  return [address] { return connect_locally(address); };
}

/// A rank, with devices and meetings of its own as a process has.
struct member {
  explicit member(const std::string& address, std::optional<bool> is_on_one_node = true)
    : meetings{std::make_shared<process_meetings>(door_to(address))} {
    if (is_on_one_node) meetings->note_node(formation(1), *is_on_one_node);
  }

  [[nodiscard]] one_shot_offer offer(const std::string& why = {}) const {
    one_shot_offer made{.where = gpu, .reaches = {device_id{0}}, .layout = small_layout, .part_bytes = 64, .blocks = 8};
    if (why.empty())
      made.scratch = std::make_shared<const peer_memory>(gpu, small_layout.scratch_bytes());
    else
      made.why = why;
    return made;
  }

  std::shared_ptr<driver> api = make_mock_driver({.device_count = 1});
  std::shared_ptr<device> gpu = device::open(api, device_id{0});
  std::shared_ptr<process_meetings> meetings;
};

/// A rank that speaks to the service by itself, and maps nothing.
struct raw_rank {
  raw_rank(const std::string& address, int self, int world_size) : socket{connect_locally(address)} {
    meeting_offer mine = offer_of(self, world_size);
    mine.part_bytes = 64; // as those of member
    const file_descriptor memory{::memfd_create("troupe test", MFD_CLOEXEC)};
    send_descriptors(socket, encode(mine), std::array{memory.native()});
  }
  [[nodiscard]] meeting_answer answer() const {
    const auto got =
        receive_passed(socket, most_meeting_bytes, most_passed_descriptors, std::chrono::steady_clock::now() + 20s);
    error why;
    auto read = decode_meeting_answer(got.bytes, why);
    REQUIRE(read);
    return *std::move(read);
  }

  file_descriptor socket;
};

bool is_closed(const file_descriptor& socket) {
  try {
    static_cast<void>(
        receive_passed(socket, most_meeting_bytes, most_passed_descriptors, std::chrono::steady_clock::now() + 10s));
  } catch (const exception& failure) {
    return failure.why().code == errc::rank_lost;
  }
  return false;
}

} // namespace

TEST_CASE("ranks of several processes map each other's scratch", "[processes][meeting]") {
  const std::string address = own_address();
  const meeting_service service{address};
  const int size = 3;
  std::vector<member> all;
  for (int i = 0; i < size; ++i) all.emplace_back(address);
  std::vector<std::future<one_shot_peers>> waiting;
  for (int i = size - 1; i >= 0; --i)
    waiting.push_back(std::async(std::launch::async, [&, i] {
      const member& mine = all[static_cast<std::size_t>(i)];
      const auto meeting = mine.meetings->meeting_of(formation(1), size);
      if (!meeting->absence().empty()) throw std::runtime_error{meeting->absence()};
      return meeting->meet(rank{i}, mine.offer());
    }));
  std::vector<one_shot_peers> got;
  for (auto& one : waiting) got.push_back(one.get());
  std::ranges::reverse(got); // by rank
  for (int of = 0; of < size; ++of) {
    const auto at = static_cast<std::size_t>(of);
    REQUIRE(got[at].scratch.size() == static_cast<std::size_t>(size));
    CHECK(got[at].are_in_processes);
    CHECK(got[at].blocks == 8);
    *got[at].scratch[at]->data() = static_cast<std::byte>(of + 1);
  }
  for (int by = 0; by < size; ++by)
    for (int of = 0; of < size; ++of) {
      const std::byte* const seen = got[static_cast<std::size_t>(by)].scratch[static_cast<std::size_t>(of)]->data();
      CHECK(*seen == static_cast<std::byte>(of + 1));
      CHECK((by == of) == (seen == got[static_cast<std::size_t>(of)].scratch[static_cast<std::size_t>(of)]->data()));
    }
}

TEST_CASE("the scratch of a process that has been killed stays what it is, for those that have mapped it",
          "[processes][meeting]") {
  const std::string address = own_address();
  // Forked before there are threads of this test's.
  const forked_process other{[&] {
    try {
      while (!connect_locally(address)) {
      }
      const member mine{address};
      const auto got = mine.meetings->meeting_of(formation(1), 2)->meet(rank{1}, mine.offer());
      *got.scratch.at(1)->data() = std::byte{7};
      std::atomic_ref{*got.scratch.at(0)->data()}.store(std::byte{9});
      for (;;) ::pause();
    } catch (...) {
      return 1;
    }
  }};
  const meeting_service service{address};
  const member mine{address};
  const auto got = mine.meetings->meeting_of(formation(1), 2)->meet(rank{0}, mine.offer());
  REQUIRE(got.scratch.size() == 2);
  std::atomic_ref own{*got.scratch[0]->data()};
  for (const auto until = std::chrono::steady_clock::now() + 20s; own.load() != std::byte{9};)
    REQUIRE(std::chrono::steady_clock::now() < until);
  other.kill(SIGKILL);
  other.await_end();
  CHECK(*got.scratch[1]->data() == std::byte{7});
  *got.scratch[1]->data() = std::byte{8}; // a late store
  CHECK(*got.scratch[1]->data() == std::byte{8});
}

TEST_CASE("if a rank brings nothing, or cannot map, no rank of the processes has kernels", "[processes][meeting]") {
  const std::string address = own_address();
  const meeting_service service{address};
  const member one{address}, other{address};
  const bool maps = GENERATE(true, false);
  auto waits = std::async(std::launch::async,
                          [&] { return one.meetings->meeting_of(formation(1), 2)->meet(rank{0}, one.offer()); });
  one_shot_offer mine = other.offer(maps ? "there is no room" : "");
  if (!maps) {
    const auto limited = make_mock_driver({.device_count = 1, .traits = {.virtual_memory = false}});
    mine.where = device::open(limited, device_id{0});
  }
  const auto got = other.meetings->meeting_of(formation(1), 2)->meet(rank{1}, mine);
  const auto theirs = waits.get();
  CHECK(got.scratch.empty());
  CHECK(theirs.scratch.empty());
  CHECK(got.why == theirs.why);
  CHECK_THAT(got.why, ContainsSubstring(maps ? "rank 1: there is no room" : "rank 1: device 0 has no virtual memory"));
}

TEST_CASE("an abort ends the waiting of a rank, before, while and after it has come", "[processes][meeting]") {
  const std::string address = own_address();
  const meeting_service service{address};
  const member one{address};
  const auto meeting = one.meetings->meeting_of(formation(1), 2);
  const auto meet = [&] { static_cast<void>(meeting->meet(rank{0}, one.offer())); };
  auto waits = std::async(std::launch::async, [&] { return error_of(meet); });
  if (GENERATE(false, true)) static_cast<void>(waits.wait_for(20ms)); // it has come, or not
  meeting->abort();
  for (const error& why : {waits.get(), error_of(meet)}) {
    CHECK(why.code == errc::communicator_failed);
    CHECK_THAT(why.text, ContainsSubstring("aborted"));
    CHECK(why.rank == rank{0});
  }
}

TEST_CASE("an abort of one rank ends the waiting of its peers in other processes", "[processes][meeting]") {
  const std::string address = own_address();
  const meeting_service service{address};
  const member one{address};
  const auto meeting = one.meetings->meeting_of(formation(1), 2);
  auto waits = std::async(std::launch::async,
                          [&] { return error_of([&] { static_cast<void>(meeting->meet(rank{0}, one.offer())); }); });
  raw_rank peer{address, 1, 2};
  CHECK(peer.answer().kind == meeting_answer::form::shared); // both have come
  meeting->abort();
  CHECK(peer.answer().kind == meeting_answer::form::broken);
  CHECK(is_closed(peer.socket));
  CHECK_THAT(waits.get().text, ContainsSubstring("aborted"));
}

TEST_CASE("an abort ends the ranks that wait where a split of processes forms, and not a successor",
          "[processes][meeting]") {
  const std::string address = own_address();
  const meeting_service service{address, {.meetings = {.patience = 50ms}}};
  const member one{address};
  const auto all = one.meetings->meeting_of(formation(1), 2);
  const auto half = all->derived({one_shot_meeting::derivation_kind::split, 0, 1}, 2);
  const auto next = all->derived({one_shot_meeting::derivation_kind::shrink, 0, 0}, 2);
  all->abort();
  const auto later = all->derived({one_shot_meeting::derivation_kind::split, 1, 1}, 2);
  for (const auto& each : {half, later})
    CHECK(error_of([&] { static_cast<void>(each->meet(rank{0}, one.offer())); }).code == errc::communicator_failed);
  CHECK_THAT(next->meet(rank{0}, one.offer()).why, ContainsSubstring("rank 1 has not brought"));
}

TEST_CASE("a process that is killed while its peers wait ends their waiting", "[processes][meeting]") {
  const std::string address = own_address();
  const forked_process other{[&] {
    try {
      while (!connect_locally(address)) {
      }
      const raw_rank mine{address, 1, 3};
      for (;;) ::pause();
    } catch (...) {
      return 1;
    }
  }};
  const meeting_service service{address};
  raw_rank first{address, 0, 3}, last{address, 2, 3};
  CHECK(first.answer().kind == meeting_answer::form::shared); // all have come
  other.kill(SIGKILL);
  const meeting_answer got = first.answer();
  CHECK(got.kind == meeting_answer::form::broken);
  CHECK_THAT(got.why, ContainsSubstring("rank 1 has ended"));
  CHECK(is_closed(first.socket));
  CHECK(last.answer().kind == meeting_answer::form::shared);
  CHECK(last.answer().kind == meeting_answer::form::broken);
}

TEST_CASE("the end of the service ends the waiting of its ranks", "[processes][meeting]") {
  const std::string address = own_address();
  std::optional<meeting_service> service{std::in_place, address};
  const member one{address};
  auto waits = std::async(std::launch::async, [&] {
    return error_of([&] { static_cast<void>(one.meetings->meeting_of(formation(1), 2)->meet(rank{0}, one.offer())); });
  });
  if (GENERATE(false, true)) static_cast<void>(waits.wait_for(50ms)); // it has connected, or not
  service.reset();
  const error why = waits.get();
  if (why) CHECK_THAT(why.text, ContainsSubstring("the meeting service of this node has ended"));
}

TEST_CASE("a world that no controller has formed on one node has no kernels, and connects to nothing",
          "[processes][meeting]") {
  const std::string address = own_address(); // where nobody listens
  CHECK_THAT(member(address, std::nullopt).meetings->meeting_of(formation(1), 2)->absence(),
             ContainsSubstring("not formed by a controller"));
  const auto apart = member(address, false).meetings->meeting_of(formation(1), 2);
  CHECK_THAT(apart->absence(), ContainsSubstring("not all on one node"));
  CHECK_THAT(apart->derived({one_shot_meeting::derivation_kind::split, 0, 0}, 2)->absence(),
             ContainsSubstring("not all on one node"));
  const member one{address};
  const auto got = one.meetings->meeting_of(formation(1), 2)->meet(rank{0}, one.offer());
  CHECK(got.scratch.empty());
  CHECK_THAT(got.why, ContainsSubstring("no meeting service"));
}

TEST_CASE("bytes of strangers at the meeting service end only their connections", "[processes][meeting][SEC-2]") {
  const std::string address = own_address();
  const std::size_t before = open_descriptors();
  {
    const meeting_service service{address, {.connections = 8, .admission = 200ms}};
    const auto stranger = [&] {
      file_descriptor made = connect_locally(address);
      REQUIRE(made);
      return made;
    };
    const std::array<std::string, 5> said{"x", std::string(most_meeting_bytes, '\0'), encode(meeting_confirmation{}),
                                          encode(offer_of(0)), encode(offer_of(0)) + "y"};
    for (const std::string& one : said) { // offers without a descriptor
      const file_descriptor socket = stranger();
      send_descriptors(socket, one, {});
      CHECK(is_closed(socket));
    }
    { // longer than any message
      const file_descriptor socket = stranger();
      const std::string bytes(100'000, 'x');
      REQUIRE(::send(socket.native(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
      CHECK(is_closed(socket));
    }
    { // too many descriptors
      const file_descriptor socket = stranger();
      const file_descriptor memory = some_memory();
      const std::vector<int> many(most_passed_descriptors, memory.native());
      send_descriptors(socket, encode(offer_of(0)), many);
      CHECK(is_closed(socket));
    }
    { // says nothing
      const file_descriptor socket = stranger();
      CHECK(is_closed(socket));
    }
    { // more than there is room for: the next ones wait until the first are closed
      std::vector<file_descriptor> many;
      for (int i = 0; i < 20; ++i) many.push_back(stranger());
      for (const auto& one : many) CHECK(is_closed(one));
    }
    const member one{address}, other{address};
    auto waits = std::async(std::launch::async,
                            [&] { return one.meetings->meeting_of(formation(1), 2)->meet(rank{0}, one.offer()); });
    CHECK(other.meetings->meeting_of(formation(1), 2)->meet(rank{1}, other.offer()).scratch.size() == 2);
    CHECK(waits.get().scratch.size() == 2);
  }
  CHECK(open_descriptors() == before);
}

TEST_CASE("two services cannot have the same address", "[processes][meeting]") {
  const std::string address = own_address();
  std::optional<meeting_service> first{std::in_place, address};
  CHECK(error_of([&] { const meeting_service second{address}; }).code == errc::unsupported);
  first.reset();
  CHECK_NOTHROW(meeting_service{address});
}

TEST_CASE("small collectives of processes are kernels that store into each other's memory, and their splits, too",
          "[processes][meeting][one-shot]") {
  const std::string address = own_address();
  const meeting_service service{address};
  const int size = 3;
  const unique_id id = make_mock_backend()->make_unique_id();
  std::vector<member> all;
  std::vector<std::shared_ptr<communicator>> comms;
  std::vector<std::string> absent;
  std::mutex guard;
  for (int i = 0; i < size; ++i) {
    const member& mine = all.emplace_back(address);
    mine.meetings->note_node(id, true);
    const auto kind = with_one_shot_kernels(make_mock_backend({}, mock_results::computed, connect_over_processes),
                                            {.part_bytes = 256,
                                             .first_sequence = 0xFFFFFFFC,
                                             .meetings = mine.meetings,
                                             .on_absent = [&](const std::string& why) {
                                               const std::lock_guard lock{guard};
                                               absent.push_back(why);
                                             }});
    comms.push_back(kind->create(id, rank{i}, size, mine.gpu));
  }
  const auto each = [&](const auto& body) {
    std::vector<std::jthread> threads;
    for (int i = 0; i < size; ++i) threads.emplace_back([&, i] { body(static_cast<std::size_t>(i)); });
  };
  each([&](std::size_t i) { comms[i]->init(); });
  REQUIRE(absent.empty());
  std::vector<std::shared_ptr<communicator>> halves(comms.size());
  each([&](std::size_t i) {
    halves[i] = comms[i]->split({.color = 0, .self = rank{static_cast<int>(i)}, .world_size = size});
    halves[i]->init();
  });
  std::atomic<int> not_kernels = 0;
  std::atomic<int> wrong = 0;
  for (const auto& used : {comms, halves})
    each([&](std::size_t i) {
      const stream line{all[i].gpu};
      used[i]->warm_up(line);
      const auto pool = memory_pool::create(all[i].gpu);
      const buffer word = allocate_pinned(all[i].gpu, 4);
      auto& seen = word.host_span<std::uint32_t>()[0];
      seen = 0;
      for (std::uint32_t round = 1; round <= 20; ++round) {
        const std::size_t count = round; // up to 80 bytes
        const buffer data = pool->allocate(count * sizeof(float));
        auto* const values = reinterpret_cast<float*>(data.data());
        std::fill_n(values, count, static_cast<float>(i + round));
        const bool writes = used[i]->launch(all_reduce{.send = data, .recv = data, .count = count}, line,
                                            {.word = &seen, .value = round});
        line.ref().synchronize();
        if (!writes || seen != round) ++not_kernels;
        const auto expected = static_cast<float>(3 + 3 * round);
        if (!std::all_of(values, values + count, [=](float value) { return value == expected; })) ++wrong;
      }
      used[i]->drained();
    });
  CHECK(not_kernels == 0);
  CHECK(wrong == 0);
  for (auto& one : halves) one->destroy();
  for (auto& one : comms) one->destroy();
}

} // namespace troupe::tests::meeting_service_test
