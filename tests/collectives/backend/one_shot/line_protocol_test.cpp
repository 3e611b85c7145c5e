// Sequences and places of lines, and the protocol between threads over real memory.
#include <troupe/collectives/backend/one_shot/line_protocol.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <future>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace troupe::tests::line_protocol_test {

using namespace std::chrono_literals;

namespace {

/// Counts rounds of operations: at least two, and then as many as take a second. With fewer cores than ranks, each
/// operation may take a turn of the scheduler.
struct round_count {
  static constexpr std::uint32_t operations = 500;
  static constexpr std::uint32_t fewest = 2;
  static constexpr std::uint32_t most = 200;

  void operator()() noexcept {
    if (*rounds < fewest || (*rounds < most && std::chrono::steady_clock::now() < until))
      ++*rounds;
    else
      *is_over = true;
  }

  std::uint32_t* rounds;
  bool* is_over;
  std::chrono::steady_clock::time_point until = std::chrono::steady_clock::now() + 1s;
};

/// The memory of all ranks.
struct shared_scratch {
  explicit shared_scratch(const line_layout& layout, std::uint32_t first_sequence)
    : words(layout.ranks, std::vector<std::uint64_t>(layout.line_count() * 2)),
      sequences(layout.ranks, std::vector<std::uint32_t>(layout.blocks, first_sequence)),
      sends(layout.ranks),
      round{layout.ranks, round_count{.rounds = &rounds, .is_over = &is_over}} {}

  /// Wakes the ranks that wait for lines.
  void wake(std::uint32_t rank) {
    ++sends[rank];
    sends[rank].notify_all();
  }
  void abort() {
    is_aborted = true;
    for (std::uint32_t rank = 0; rank < sends.size(); ++rank) wake(rank);
  }

  std::vector<std::vector<std::uint64_t>> words;
  std::vector<std::vector<std::uint32_t>> sequences;
  std::vector<std::atomic<std::uint32_t>> sends; ///< To each rank, by all its peers.
  std::atomic<bool> is_aborted = false;
  std::uint32_t rounds = 0;
  bool is_over = false;
  std::barrier<round_count> round;
};

/// The memory as one rank sees it.
class host_memory {
public:
  static constexpr std::uint32_t polls_per_look = 16;

  host_memory(shared_scratch& all, std::uint32_t self) : all_{&all}, self_{self} {}

  void store_line(std::uint32_t peer, std::uint32_t line, line_halves value) const {
    half(peer, line, 0).store(value.first, std::memory_order_relaxed);
    half(peer, line, 1).store(value.second, std::memory_order_relaxed);
  }
  [[nodiscard]] line_halves load_line(std::uint32_t line) const {
    return {.first = half(self_, line, 0).load(std::memory_order_relaxed),
            .second = half(self_, line, 1).load(std::memory_order_relaxed)};
  }
  void clear_line(std::uint32_t line) const { store_line(self_, line, {}); }
  [[nodiscard]] std::uint32_t load_sequence(std::uint32_t block) const { return all_->sequences[self_][block]; }
  void store_sequence(std::uint32_t block, std::uint32_t sequence) const { all_->sequences[self_][block] = sequence; }
  [[nodiscard]] bool is_aborted() {
    // There may be fewer cores than ranks: sleep, unless something was sent since the last look.
    all_->sends[self_].wait(seen_);
    seen_ = all_->sends[self_];
    return all_->is_aborted;
  }

private:
  [[nodiscard]] std::atomic_ref<std::uint64_t> half(std::uint32_t rank, std::uint32_t line, std::size_t which) const {
    return std::atomic_ref{all_->words[rank][line * std::size_t{2} + which]};
  }

  shared_scratch* all_;
  std::uint32_t self_;
  std::uint32_t seen_ = 0;
};

constexpr std::uint32_t threads_of_block = 3;

std::uint64_t payload_for(std::uint64_t kernel, std::uint32_t source, std::uint32_t destination, std::uint32_t block,
                          std::uint32_t index) {
  std::uint64_t mixed = kernel;
  for (const std::uint64_t one : {source, destination, block, index}) mixed = (mixed ^ one) * 0x9E3779B97F4A7C15U + one;
  return mixed;
}

/// Runs random operations at one rank; all ranks draw the same. Returns what is wrong.
std::string run_rank(shared_scratch& all, const line_layout& layout, std::uint32_t self) {
  host_memory memory{all, self};
  std::mt19937 drawn{7};
  std::vector<std::vector<std::uint32_t>> lines(layout.ranks, std::vector<std::uint32_t>(layout.ranks));
  for (std::uint64_t kernel = 0;; ++kernel) {
    if (kernel % round_count::operations == 0) all.round.arrive_and_wait();
    if (all.is_over) return {};
    for (auto& row : lines)
      for (std::uint32_t& one : row) one = line_count_of(drawn() % (line_payload_bytes * layout.lines_per_block + 1));
    const auto blocks = static_cast<std::uint32_t>(drawn() % layout.blocks + 1);
    const auto send = [&](std::uint32_t block, std::uint32_t thread) {
      const line_operation operation = begin_operation(memory, layout, block);
      for (std::uint32_t peer = 0; peer < layout.ranks; ++peer)
        for (std::uint32_t i = thread; peer != self && i < lines[self][peer]; i += threads_of_block)
          send_line(memory, operation, self, peer, i, payload_for(kernel, self, peer, block, i));
    };
    const auto receive = [&](std::uint32_t block, std::uint32_t thread) -> std::string {
      const line_operation operation = begin_operation(memory, layout, block);
      for (std::uint32_t source = 0; source < layout.ranks; ++source)
        for (std::uint32_t i = thread; source != self && i < lines[source][self]; i += threads_of_block) {
          const std::uint32_t line[1] = {operation.line(source, i)};
          std::uint64_t payload[1] = {};
          if (!receive_lines(memory, operation, line, payload)) return "aborted";
          if (payload[0] != payload_for(kernel, source, self, block, i)) return "wrong payload";
        }
      return {};
    };
    for (std::uint32_t block = 0; block < blocks; ++block)
      for (std::uint32_t thread = 0; thread < threads_of_block; ++thread) send(block, thread);
    for (std::uint32_t peer = 0; peer < layout.ranks; ++peer) all.wake(peer);
    for (std::uint32_t block = 0; block < blocks; ++block) {
      for (std::uint32_t thread = 0; thread < threads_of_block; ++thread)
        if (const std::string wrong = receive(block, thread); !wrong.empty()) {
          all.abort();
          all.round.arrive_and_drop();
          return wrong + " in operation " + std::to_string(kernel) + " of rank " + std::to_string(self);
        }
      const line_operation operation = begin_operation(memory, layout, block);
      for (std::uint32_t thread = 0; thread < threads_of_block; ++thread)
        end_operation(memory, layout, operation, block, true, thread, threads_of_block);
    }
  }
}

} // namespace

TEST_CASE("sequences skip 0 and alternate between the buffers over the wrap", "[collectives][one-shot]") {
  CHECK(next_sequence(1) == 2);
  CHECK(next_sequence(last_sequence - 1) == last_sequence);
  CHECK(next_sequence(last_sequence) == 2);
  std::uint32_t cleared = 0;
  for (std::uint32_t sequence = last_sequence - 4; sequence != 6; sequence = next_sequence(sequence)) {
    CHECK(buffer_of(next_sequence(sequence)) != buffer_of(sequence));
    if (is_before_wrap(sequence)) cleared |= 1U << buffer_of(sequence);
  }
  CHECK(cleared == 3);
}

TEST_CASE("a line carries any payload, and arrives with both halves", "[collectives][one-shot]") {
  const std::uint64_t payload = GENERATE(0U, 0xFFFFFFFFFFFFFFFFU, 0x0123456789ABCDEFU, 0x8000000080000000U);
  const std::uint32_t sequence = GENERATE(1U, 2U, 0x80000000U, last_sequence);
  const line_halves line = line_of(payload, sequence);
  CHECK(has_arrived(line, sequence));
  CHECK(payload_of(line) == payload);
  CHECK_FALSE(has_arrived(line, next_sequence(sequence)));
  CHECK_FALSE(has_arrived({.first = line.first}, sequence));
  CHECK_FALSE(has_arrived({.second = line.second}, sequence));
}

TEST_CASE("payloads of any size have lines enough, and at least one", "[collectives][one-shot]") {
  CHECK(line_count_of(0) == 1);
  CHECK(line_count_of(1) == 1);
  CHECK(line_count_of(8) == 1);
  CHECK(line_count_of(9) == 2);
  CHECK(line_count_of(std::size_t{1} << 20U) == 131072);
}

TEST_CASE("no two lines of a scratch have the same place", "[collectives][one-shot]") {
  const line_layout layout{.ranks = 3, .blocks = 4, .lines_per_block = 5};
  shared_scratch all{layout, 1};
  const host_memory memory{all, 0};
  std::set<std::uint32_t> places;
  for (std::uint32_t sequence = 1; sequence <= 2; ++sequence)
    for (std::uint32_t block = 0; block < layout.blocks; ++block) {
      memory.store_sequence(block, sequence);
      const line_operation operation = begin_operation(memory, layout, block);
      CHECK(operation.sequence == sequence);
      for (std::uint32_t source = 0; source < layout.ranks; ++source)
        for (std::uint32_t i = 0; i < layout.lines_per_block; ++i) places.insert(operation.line(source, i));
    }
  CHECK(places.size() == layout.line_count());
  CHECK(*places.rbegin() + 1 == layout.line_count());
  CHECK(layout.scratch_bytes() == layout.line_count() * 16);
}

TEST_CASE("threads exchange random operations over real memory, and over the wrap", "[collectives][one-shot]") {
  const line_layout layout{.ranks = GENERATE(2U, 3U, 4U), .blocks = 2, .lines_per_block = 4};
  constexpr std::uint32_t before_wrap = round_count::operations + 100;
  shared_scratch all{layout, last_sequence - before_wrap};
  // What the previous cycle of sequences may have left: any flag that comes again.
  for (auto& words : all.words)
    for (std::size_t i = 0; i < words.size(); ++i)
      words[i] = std::uint64_t{2 + 2 * (i % 97) + (i < words.size() / 2 ? 0U : 1U)} << 32U;
  std::vector<std::future<std::string>> ranks;
  for (std::uint32_t self = 0; self < layout.ranks; ++self)
    ranks.push_back(std::async(std::launch::async, [&, self] { return run_rank(all, layout, self); }));
  const auto deadline = std::chrono::steady_clock::now() + 100s;
  for (auto& one : ranks) {
    if (one.wait_until(deadline) != std::future_status::ready) all.abort();
    CHECK(one.get() == "");
  }
  for (const auto& sequences : all.sequences)
    CHECK(sequences[0] == all.rounds * round_count::operations - before_wrap + 1);
}

} // namespace troupe::tests::line_protocol_test
