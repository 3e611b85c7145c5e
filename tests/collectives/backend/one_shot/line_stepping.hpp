// Enumerates every interleaving of the loads and stores of ranks that run operations of the line protocol, in a model
// of relaxed accesses, barriers and kernel boundaries. Any rank is ended before each of its steps, or aborted at any
// time.
//
// As in processes/transport/stepping.hpp, a thread's program runs again from its beginning, with the results that its
// accesses had, up to the first access that has none, and memory is a history of stores for each word: a load may
// return every store that its thread's view permits. That model has releases and acquires of single accesses; here no
// access has either, and knowledge passes at kernel boundaries, which are fences: what a thread has read is known to
// its rank from the next kernel on, and a store passes on what its rank knew when the kernel began.
//
// Five reductions keep the result the same:
// - What no other thread can notice is no step of its own: ends, barriers, and the sequence, which only threads of the
//   block access, behind a barrier.
// - A failed poll is not a step, because a thread that polls later has the same possibilities.
// - Both halves of a line, and all lines of a poll, are loaded in one step: an older store stays readable until then.
// - Both halves are stored in one step: readers may see either of them later. A rank may end between the two.
// - Stores that their reader can read no more are dropped.
// Not modelled: a load that is delayed behind a later store of its own thread.
#pragma once

#include <troupe/collectives/backend/one_shot/line_protocol.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe::tests::line_stepping {

/// Planted faults.
enum class fault : std::uint8_t {
  none,
  second_half_unchecked,  ///< A line counts as arrived when its first half has.
  flag_before_payload,    ///< Flag and payload of a half are two stores.
  one_buffer,             ///< All operations use the same lines.
  no_empty_lines,         ///< A rank without payload for a peer sends it nothing, and the peer waits for nothing.
  zero_after_wrap,        ///< The sequence after 0xFFFFFFFF is 0.
  one_after_wrap,         ///< It is 1, so two operations in a row use the same buffer.
  uncleared,              ///< No buffer is cleared before the wrap.
  cleared_early,          ///< A thread clears lines that another one has not received yet.
  sequence_early,         ///< The next sequence is stored before all threads of the block have received everything.
  boundary_without_fence, ///< A kernel may not see the stores of the one before.
  no_vote,                ///< A thread that has received everything completes the operation although another has not.
  aborted_keeps_sequence, ///< The sequence of an aborted operation is used again.
  aborted_advances        ///< An aborted operation is followed by the next.
};

/// What may stop ranks.
enum class stops : std::uint8_t {
  none,
  kills, ///< One rank ends before any of its accesses; then any poll of the others may find the abort word set.
  aborts ///< Any poll may find the abort word set.
};

/// The payload bytes that each rank sends to each peer in an operation.
using operation_bytes = std::function<std::size_t(std::uint32_t source, std::uint32_t destination)>;

struct scenario {
  line_layout layout{};
  std::uint32_t threads = 1; ///< Of each block.
  std::uint32_t first_sequence = 1;
  bool has_old_lines = false; ///< Scratch has lines that a previous cycle of sequences has left, with flags 2 and 3.
  std::vector<operation_bytes> operations{};
  stops stopped = stops::none;
  fault planted = fault::none;
};

struct exploration {
  std::size_t states = 0;
  std::size_t ends = 0;            ///< States in which every rank has ended.
  std::size_t completed = 0;       ///< Of these, those in which every rank has completed every operation.
  bool stores_after_abort = false; ///< A block has stored a line after an operation of it was aborted.
  std::string violation{};
};

constexpr std::size_t most_ranks = 3;
constexpr std::size_t most_agents = 6;
constexpr std::size_t most_words = 84;
constexpr std::size_t most_kernels = 5;
constexpr std::size_t most_results = 28;
constexpr std::size_t most_stores = 6;

enum class access_kind : std::uint8_t {
  load_sequence,
  store_line,
  receive, ///< The beginning of receive_lines().
  load_line,
  look, ///< At the abort word.
  barrier,
  clear_line,
  store_sequence
};

struct access {
  access_kind kind;
  std::uint32_t rank = 0; ///< Whose memory.
  std::uint32_t at = 0;   ///< Line or block.
  line_halves value{};    ///< In the first half if it is one word.
};

/// Thrown by the first access that has no result yet.
struct suspended {
  access next;
};

/// The results of a thread's accesses in its kernel.
struct result_list {
  std::array<std::uint64_t, most_results> all{};
  std::uint8_t count = 0;
  void add(std::uint64_t value) { all.at(count++) = value; }
};

/// The memory of the protocol as one thread sees it.
class stepped_memory {
public:
  static constexpr std::uint32_t polls_per_look = 1;

  stepped_memory(const result_list& results, const scenario& played, std::uint32_t self)
    : results_{&results}, played_{&played}, self_{self} {}

  void store_line(std::uint32_t peer, std::uint32_t line, line_halves value) {
    take({.kind = access_kind::store_line, .rank = peer, .at = place(line), .value = value});
  }
  line_halves load_line(std::uint32_t line) {
    const std::uint64_t first = take({.kind = access_kind::load_line, .rank = self_, .at = place(line)});
    const std::uint64_t second = take({.kind = access_kind::load_line, .rank = self_, .at = place(line)});
    if (played_->planted == fault::second_half_unchecked)
      return {.first = first, .second = (first >> 32U) << 32U | (second & 0xFFFFFFFFU)};
    return {.first = first, .second = second};
  }
  void clear_line(std::uint32_t line) {
    if (played_->planted == fault::uncleared) return;
    take({.kind = access_kind::clear_line, .rank = self_, .at = place(line)});
  }
  std::uint32_t load_sequence(std::uint32_t block) {
    sequence_ = static_cast<std::uint32_t>(take({.kind = access_kind::load_sequence, .rank = self_, .at = block}));
    return sequence_;
  }
  void store_sequence(std::uint32_t block, std::uint32_t value) {
    if (played_->planted == fault::aborted_keeps_sequence && value == ended_sequence) return;
    if (played_->planted == fault::zero_after_wrap && sequence_ == last_sequence) value = 0;
    if (played_->planted == fault::one_after_wrap && sequence_ == last_sequence) value = 1;
    take({.kind = access_kind::store_sequence, .rank = self_, .at = block, .value = {.first = value}});
  }
  bool is_aborted() { return take({.kind = access_kind::look, .rank = self_}) != 0; }

  void begin_receive() { take({.kind = access_kind::receive}); }
  bool barrier(bool value) { return take({.kind = access_kind::barrier, .value = {.first = value ? 1U : 0U}}) != 0; }

private:
  std::uint64_t take(const access& next) {
    if (at_ == results_->count) throw suspended{next};
    return results_->all[at_++];
  }
  [[nodiscard]] std::uint32_t place(std::uint32_t line) const {
    const auto buffer = static_cast<std::uint32_t>(played_->layout.line_count() / 2);
    return played_->planted == fault::one_buffer ? line % buffer : line;
  }

  const result_list* results_;
  const scenario* played_;
  std::uint32_t self_;
  std::uint32_t sequence_ = 0;
  std::size_t at_ = 0;
};

/// The part of one thread in one kernel.
struct thread_place {
  std::uint32_t rank = 0;
  std::uint32_t block = 0;
  std::uint32_t thread = 0;
  std::size_t kernel = 0;
};

enum class kernel_end : std::uint8_t { completed, aborted, ended_before, wrong };

/// Returns the payload of a line, distinct for each operation, block, sender, receiver and line.
inline std::uint64_t payload_for(const thread_place& place, std::uint32_t source, std::uint32_t destination,
                                 std::uint32_t index) {
  const std::uint64_t part = 0x10000 * (place.block + 1) + 0x1000 * (place.kernel + 1) + 0x100 * (source + 1) +
                             0x10 * (destination + 1) + index;
  return part << 32U | part;
}

/// The kernel: sends the thread's lines of every block's part to all peers, and receives theirs.
inline kernel_end run_kernel(stepped_memory& memory, const scenario& played, const thread_place& place) {
  const line_layout& layout = played.layout;
  const auto planted = played.planted;
  const line_operation operation = begin_operation(memory, layout, place.block);
  if (operation.is_ended()) return kernel_end::ended_before;
  const auto lines = [&](std::uint32_t source, std::uint32_t destination) {
    const std::size_t bytes = played.operations[place.kernel](source, destination);
    return planted == fault::no_empty_lines && bytes == 0 ? 0 : line_count_of(bytes);
  };
  for (std::uint32_t peer = 0; peer < layout.ranks; ++peer)
    for (std::uint32_t i = place.thread; peer != place.rank && i < lines(place.rank, peer); i += played.threads)
      send_line(memory, operation, place.rank, peer, i, payload_for(place, place.rank, peer, i));
  bool has_received = true;
  if (planted == fault::sequence_early && place.thread == 0)
    memory.store_sequence(place.block, next_sequence(operation.sequence));
  std::vector<std::pair<std::uint32_t, std::uint32_t>> expected; // source, index
  for (std::uint32_t source = 0; source < layout.ranks; ++source)
    for (std::uint32_t i = place.thread; source != place.rank && i < lines(source, place.rank); i += played.threads)
      expected.emplace_back(source, i);
  const auto line_at = [&](std::size_t at) { return operation.line(expected[at].first, expected[at].second); };
  const auto is_right = [&](std::size_t at, std::uint64_t payload) {
    return payload == payload_for(place, expected[at].first, place.rank, expected[at].second);
  };
  for (std::size_t at = 0; at < expected.size() && has_received; at += 2) {
    memory.begin_receive();
    if (at + 1 == expected.size()) {
      const std::uint32_t line[1] = {line_at(at)};
      std::uint64_t payload[1] = {};
      has_received = receive_lines(memory, operation, line, payload);
      if (has_received && !is_right(at, payload[0])) return kernel_end::wrong;
    } else {
      const std::uint32_t line[2] = {line_at(at), line_at(at + 1)};
      std::uint64_t payload[2] = {};
      has_received = receive_lines(memory, operation, line, payload);
      if (has_received && (!is_right(at, payload[0]) || !is_right(at + 1, payload[1]))) return kernel_end::wrong;
    }
  }
  if (planted == fault::cleared_early && is_before_wrap(operation.sequence))
    for (std::uint32_t source = 0; source < layout.ranks; ++source)
      for (std::uint32_t i = played.threads - 1 - place.thread; i < layout.lines_per_block; i += played.threads)
        memory.clear_line(operation.line(source, i));
  bool has_block_received = memory.barrier(has_received);
  if (planted == fault::no_vote) has_block_received = has_received;
  end_operation(memory, layout, operation, place.block, has_block_received || planted == fault::aborted_advances,
                place.thread, played.threads);
  return has_block_received ? kernel_end::completed : kernel_end::aborted;
}

using view = std::array<std::uint8_t, most_words>;

inline void join(view& into, const view& other) {
  for (std::size_t i = 0; i < most_words; ++i) into[i] = std::max(into[i], other[i]);
}

struct stored {
  std::uint64_t value = 0;
  std::uint8_t knows = 0; ///< Index of a view in execution::known.
};

/// The stores of a word, from the oldest that can be read.
struct history {
  std::array<stored, most_stores> all{};
  std::uint8_t count = 0;
};

enum class agent_status : std::uint8_t { running, at_barrier, ended };

/// A thread.
struct agent {
  result_list results{};
  view now{};     ///< What it must see.
  view pending{}; ///< What it will know after a fence.
  agent_status status = agent_status::running;
  bool has_received = true; ///< The value that it brings to a barrier.
  kernel_end end = kernel_end::completed;
};

struct rank_state {
  std::uint8_t kernel = 0;
  bool is_live = true;
  bool has_aborted = false;        ///< A kernel of it was aborted.
  std::uint8_t aborted_blocks = 0; ///< A bit for each.
};

struct execution {
  std::array<history, most_words> words{};
  std::array<agent, most_agents> agents{};
  std::array<rank_state, most_ranks> ranks{};
  std::array<view, 1 + most_ranks * most_kernels> known{}; ///< By each rank as each of its kernels began.
  bool has_killed = false;
};

/// Explores all executions of a scenario.
class explorer {
public:
  explicit explorer(scenario played) : played_{std::move(played)} {}

  exploration run() {
    const line_layout& layout = played_.layout;
    scratch_words_ = static_cast<std::size_t>(layout.line_count()) * 2;
    words_ = (scratch_words_ + layout.blocks) * layout.ranks;
    agents_of_rank_ = std::size_t{layout.blocks} * played_.threads;
    if (words_ > most_words || agents_of_rank_ * layout.ranks > most_agents || layout.ranks > most_ranks ||
        played_.operations.size() > most_kernels) {
      violate("the scenario is too large for this model, which is no fault");
      return found_;
    }
    execution start;
    for (std::size_t word = 0; word < words_; ++word) append(start, word, 0, 0);
    for (std::uint32_t rank = 0; rank < layout.ranks; ++rank) {
      for (std::uint32_t block = 0; block < layout.blocks; ++block)
        start.words[sequence_word(rank, block)].all[0].value = played_.first_sequence;
      for (std::uint32_t line = 0; played_.has_old_lines && line < layout.line_count(); ++line)
        for (std::uint32_t half = 0; half < 2; ++half) {
          const std::uint64_t flag = line < layout.line_count() / 2 ? 2 : 3;
          start.words[line_word(rank, line) + half].all[0].value = flag << 32U | 0xBAD;
        }
    }
    for (std::size_t rank = 0; rank < layout.ranks; ++rank) settle(start, rank);
    push(std::move(start));
    while (!stack_.empty() && found_.violation.empty()) {
      const execution one = std::move(stack_.back());
      stack_.pop_back();
      expand(one);
    }
    return found_;
  }

private:
  [[nodiscard]] std::size_t line_word(std::size_t rank, std::size_t line) const {
    return rank * scratch_words_ + line * 2;
  }
  [[nodiscard]] std::size_t sequence_word(std::size_t rank, std::size_t block) const {
    return scratch_words_ * played_.layout.ranks + rank * played_.layout.blocks + block;
  }
  [[nodiscard]] std::size_t owner_of(std::size_t word) const {
    if (word < scratch_words_ * played_.layout.ranks) return word / scratch_words_;
    return (word - scratch_words_ * played_.layout.ranks) / played_.layout.blocks;
  }
  [[nodiscard]] std::uint32_t rank_of(std::size_t which) const {
    return static_cast<std::uint32_t>(which / agents_of_rank_);
  }
  [[nodiscard]] thread_place place_of(const execution& in, std::size_t which) const {
    const auto within = static_cast<std::uint32_t>(which % agents_of_rank_);
    return {.rank = rank_of(which),
            .block = within / played_.threads,
            .thread = within % played_.threads,
            .kernel = in.ranks[rank_of(which)].kernel};
  }
  [[nodiscard]] static std::uint8_t known_index(std::size_t rank, std::size_t kernel) {
    return static_cast<std::uint8_t>(1 + rank * most_kernels + kernel);
  }

  void violate(const std::string& what) {
    if (found_.violation.empty()) found_.violation = what;
  }

  /// Runs the program of a thread up to its next access without a result; nullopt when it has ended.
  std::optional<access> next_of(const execution& in, std::size_t which, kernel_end& end) const {
    stepped_memory memory{in.agents[which].results, played_, rank_of(which)};
    try {
      end = run_kernel(memory, played_, place_of(in, which));
      return std::nullopt;
    } catch (const suspended& at) {
      return at.next;
    }
  }

  static void append(execution& in, std::size_t word, std::uint64_t value, std::uint8_t knows) {
    history& of = in.words[word];
    of.all.at(of.count++) = {.value = value, .knows = knows};
  }
  /// A store of a thread.
  void store(execution& in, std::size_t which, std::size_t word, std::uint64_t value) const {
    const std::size_t rank = rank_of(which);
    if (!in.ranks[owner_of(word)].is_live) return; // nobody reads it
    append(in, word, value, known_index(rank, in.ranks[rank].kernel));
    in.agents[which].now[word] = static_cast<std::uint8_t>(in.words[word].count - 1);
  }
  /// A load of a thread that returns the store with this index.
  static void load(execution& in, std::size_t which, std::size_t word, std::size_t index) {
    agent& self = in.agents[which];
    const stored& read = in.words[word].all[index];
    self.now[word] = static_cast<std::uint8_t>(index);
    join(self.pending, in.known[read.knows]);
    self.pending[word] = std::max(self.pending[word], self.now[word]);
    self.results.add(read.value);
  }

  void expand(const execution& from) {
    bool is_live = false;
    bool can_go_on = false;
    for (std::size_t rank = 0; rank < played_.layout.ranks; ++rank) {
      if (!from.ranks[rank].is_live) continue;
      is_live = true;
      for (std::size_t i = 0; i < agents_of_rank_; ++i)
        if (step(from, rank * agents_of_rank_ + i)) can_go_on = true;
      if (played_.stopped == stops::kills && !from.has_killed) {
        execution made = from;
        kill(made, rank);
        push(std::move(made));
      }
    }
    if (is_live && !can_go_on) violate("deadlock");
    if (is_live) return;
    ++found_.ends;
    if (!from.has_killed &&
        std::none_of(from.ranks.begin(), from.ranks.end(), [](const rank_state& one) { return one.has_aborted; }))
      ++found_.completed;
  }

  static void kill(execution& in, std::size_t rank) {
    in.ranks[rank].is_live = false;
    in.has_killed = true;
  }

  /// Does the next access of a thread, in every way. Returns whether it can always be done: not if it is a poll that
  /// the newest stores let fail.
  bool step(const execution& from, std::size_t which) {
    const agent& self = from.agents[which];
    if (self.status != agent_status::running) return false;
    kernel_end end{};
    const std::optional<access> next = next_of(from, which, end);
    const std::size_t rank = rank_of(which);
    execution made = from;
    if (!next) {
      violate("a step is missing in this model, which is no fault");
      return true;
    }
    switch (next->kind) {
      case access_kind::load_sequence: {
        const std::size_t word = sequence_word(rank, next->at);
        for (std::size_t i = self.now[word]; i < from.words[word].count; ++i) {
          execution loaded = from;
          load(loaded, which, word, i);
          go_on(std::move(loaded), rank);
        }
        return true;
      }
      case access_kind::receive: made.agents[which].results.add(0); return poll(made, which, true, true);
      case access_kind::store_sequence: store(made, which, sequence_word(rank, next->at), next->value.first); break;
      case access_kind::store_line: {
        if ((from.ranks[rank].aborted_blocks >> place_of(from, which).block & 1U) != 0)
          found_.stores_after_abort = true;
        const std::size_t word = line_word(next->rank, next->at);
        for (std::uint32_t half = 0; played_.stopped == stops::kills && !from.has_killed && half < 2; ++half) {
          execution killed = from;
          store(killed, which, word + half, half == 0 ? next->value.first : next->value.second);
          kill(killed, rank);
          push(std::move(killed));
        }
        if (played_.planted == fault::flag_before_payload)
          for (std::uint32_t half = 0; half < 2; ++half)
            store(made, which, word + half, next->value.first >> 32U << 32U);
        store(made, which, word, next->value.first);
        store(made, which, word + 1, next->value.second);
        break;
      }
      case access_kind::clear_line:
        store(made, which, line_word(rank, next->at), 0);
        store(made, which, line_word(rank, next->at) + 1, 0);
        break;
      default: violate("a line is loaded, or the abort word looked at, outside of a receive"); return true;
    }
    made.agents[which].results.add(0);
    go_on(std::move(made), rank);
    return true;
  }

  /// Does all that threads of this rank do next and no other thread can notice.
  void settle(execution& in, std::size_t rank) {
    for (std::size_t i = 0; i < agents_of_rank_; ++i) {
      const std::size_t which = rank * agents_of_rank_ + i;
      if (in.ranks[rank].is_live && in.agents[which].status == agent_status::running && settle_one(in, which))
        i = static_cast<std::size_t>(-1); // it may have let others go on
    }
  }
  bool settle_one(execution& in, std::size_t which) {
    agent& self = in.agents[which];
    kernel_end end{};
    const std::optional<access> next = next_of(in, which, end);
    if (!next) {
      finish(in, which, end);
      return true;
    }
    if (next->kind == access_kind::barrier) {
      self.status = agent_status::at_barrier;
      self.has_received = next->value.first != 0;
      meet(in, which);
      return true;
    }
    const bool is_of_sequence = next->kind == access_kind::load_sequence || next->kind == access_kind::store_sequence;
    if (!is_of_sequence || played_.planted == fault::sequence_early) return false;
    const std::size_t word = sequence_word(rank_of(which), next->at);
    if (next->kind == access_kind::store_sequence) {
      store(in, which, word, next->value.first);
      self.results.add(0);
      return true;
    }
    if (self.now[word] + 1U < in.words[word].count) return false; // it may read an older one
    load(in, which, word, self.now[word]);
    return true;
  }
  void go_on(execution&& in, std::size_t rank) {
    settle(in, rank);
    push(std::move(in));
  }

  /// Pushes what follows if the thread's poll succeeds, or finds the abort word set. Returns whether the newest stores
  /// let it do one of both.
  bool poll(const execution& from, std::size_t which, bool is_newest, bool is_oldest) {
    kernel_end end{};
    const std::optional<access> next = next_of(from, which, end);
    if (!next || (next->kind != access_kind::load_line && next->kind != access_kind::look)) {
      execution made = from;
      go_on(std::move(made), rank_of(which));
      return is_newest;
    }
    bool can_go_on = false;
    if (next->kind == access_kind::look) {
      // What a thread has loaded before it is aborted makes no difference: it has loaded the oldest.
      if (!is_oldest || (played_.stopped != stops::aborts && !from.has_killed)) return false;
      execution made = from;
      made.agents[which].results.add(1);
      poll(made, which, false, true);
      return true;
    }
    const std::size_t word = line_word(next->rank, next->at);
    for (std::size_t i = from.agents[which].now[word]; i < from.words[word].count; ++i)
      for (std::size_t j = from.agents[which].now[word + 1]; j < from.words[word + 1].count; ++j) {
        execution made = from;
        load(made, which, word, i);
        load(made, which, word + 1, j);
        const bool are_newest = i + 1U == from.words[word].count && j + 1U == from.words[word + 1].count;
        const bool are_oldest = i == from.agents[which].now[word] && j == from.agents[which].now[word + 1];
        if (poll(made, which, is_newest && are_newest, is_oldest && are_oldest)) can_go_on = true;
      }
    return can_go_on;
  }

  /// Lets the threads of a block go on when all are at the barrier.
  void meet(execution& in, std::size_t which) const {
    const std::size_t first = which / played_.threads * played_.threads;
    const std::size_t behind = first + played_.threads;
    bool have_received = true;
    view all{};
    for (std::size_t i = first; i < behind; ++i) {
      if (in.agents[i].status != agent_status::at_barrier) return;
      have_received = have_received && in.agents[i].has_received;
      join(all, in.agents[i].now);
    }
    for (std::size_t i = first; i < behind; ++i) {
      in.agents[i].status = agent_status::running;
      in.agents[i].now = all;
      in.agents[i].results.add(have_received ? 1 : 0);
    }
  }

  /// Ends a thread's part in a kernel, and the kernel if it was the last.
  void finish(execution& in, std::size_t which, kernel_end end) {
    const std::size_t rank = rank_of(which);
    rank_state& of = in.ranks[rank];
    agent& self = in.agents[which];
    self.status = agent_status::ended;
    self.end = end;
    self.results = {};
    if (end == kernel_end::wrong) violate("a payload is not the one that was sent");
    const std::uint32_t bit = 1U << place_of(in, which).block;
    if (end == kernel_end::ended_before && (of.aborted_blocks & bit) == 0) violate("a block ends without an abort");
    const auto first = in.agents.begin() + static_cast<std::ptrdiff_t>(rank * agents_of_rank_);
    const auto behind = first + static_cast<std::ptrdiff_t>(agents_of_rank_);
    if (std::all_of(first, behind, [](const agent& one) { return one.status == agent_status::ended; })) {
      view now{};
      bool has_completed = true;
      for (auto one = first; one != behind; ++one) {
        join(now, one->now);
        join(now, one->pending);
        if (one->end == kernel_end::completed) continue;
        has_completed = false;
        of.aborted_blocks |=
            static_cast<std::uint8_t>(1U << place_of(in, static_cast<std::size_t>(one - in.agents.begin())).block);
      }
      if (has_completed && of.has_aborted) violate("an operation completes after an aborted one");
      of.has_aborted = !has_completed || of.has_aborted;
      const bool has_fence = played_.planted != fault::boundary_without_fence;
      for (auto one = first; one != behind; ++one)
        *one = {.results = {}, .now = has_fence ? now : one->now, .pending = has_fence ? view{} : one->pending};
      if (++of.kernel == played_.operations.size())
        of.is_live = false;
      else if (has_fence)
        in.known[known_index(rank, of.kernel)] = now;
    }
  }

  void push(execution&& one) {
    reduce(one);
    if (!found_.violation.empty() || !reached_.insert(fingerprint_of(one)).second) return;
    ++found_.states;
    stack_.push_back(std::move(one));
  }

  /// Drops what nobody can read any more, and counts times from the oldest store that can be read.
  void reduce(execution& in) const {
    for (std::size_t rank = 0; rank < played_.layout.ranks; ++rank)
      if (!in.ranks[rank].is_live) {
        for (std::size_t i = 0; i < agents_of_rank_; ++i) in.agents[rank * agents_of_rank_ + i] = {};
        in.ranks[rank].kernel = 0;
      }
    std::array<bool, 1 + most_ranks * most_kernels> is_used{};
    for (std::size_t rank = 0; rank < played_.layout.ranks; ++rank)
      if (in.ranks[rank].is_live) is_used[known_index(rank, in.ranks[rank].kernel)] = true;
    for (std::size_t word = 0; word < words_; ++word) {
      const std::size_t owner = owner_of(word);
      history& of = in.words[word];
      std::uint8_t least = of.count;
      if (in.ranks[owner].is_live)
        for (std::size_t i = 0; i < agents_of_rank_; ++i)
          least = std::min(least, in.agents[owner * agents_of_rank_ + i].now[word]);
      if (least > 0) {
        std::copy(of.all.begin() + least, of.all.begin() + of.count, of.all.begin());
        of.count = static_cast<std::uint8_t>(of.count - least);
        const auto lower = [&](view& one) {
          one[word] = static_cast<std::uint8_t>(std::max(one[word], least) - least);
        };
        for (agent& one : in.agents) {
          lower(one.now);
          lower(one.pending);
        }
        for (view& one : in.known) lower(one);
      }
      for (std::size_t i = 0; i < of.count; ++i) is_used[of.all[i].knows] = true;
    }
    for (std::size_t i = 0; i < in.known.size(); ++i)
      if (!is_used[i]) in.known[i] = {};
  }

  /// A hash of 128 bits of everything that decides what can follow: two states with the same one are taken for equal.
  struct fingerprint {
    std::uint64_t first = 0x243F6A8885A308D3U;
    std::uint64_t second = 0x13198A2E03707344U;
    bool operator==(const fingerprint&) const = default;
    void add(std::uint64_t value) {
      first = (first ^ value) * 0x9E3779B97F4A7C15U;
      first ^= first >> 32U;
      second = (second + value) * 0xD6E8FEB86659FD93U;
      second ^= second >> 29U;
    }
  };
  struct fingerprint_hash {
    std::size_t operator()(const fingerprint& one) const noexcept { return one.first; }
  };
  [[nodiscard]] fingerprint fingerprint_of(const execution& one) const {
    fingerprint made;
    const auto add_view = [&](const view& all) {
      for (std::size_t i = 0; i < words_; ++i) made.add(all[i]);
    };
    made.add(one.has_killed ? 1 : 0);
    for (std::size_t rank = 0; rank < played_.layout.ranks; ++rank) {
      const rank_state& of = one.ranks[rank];
      made.add(of.kernel);
      made.add((of.is_live ? 1U : 0U) + (of.has_aborted ? 2U : 0U) + 4U * of.aborted_blocks);
      for (std::size_t i = rank * agents_of_rank_; of.is_live && i < (rank + 1) * agents_of_rank_; ++i) {
        const agent& self = one.agents[i];
        made.add(static_cast<std::uint64_t>(self.status) + 8U * static_cast<std::uint64_t>(self.end) +
                 (self.has_received ? 64U : 0U));
        made.add(self.results.count);
        for (std::size_t k = 0; k < self.results.count; ++k) made.add(self.results.all[k]);
        add_view(self.now);
        add_view(self.pending);
      }
    }
    for (std::size_t word = 0; word < words_; ++word) {
      made.add(one.words[word].count);
      for (std::size_t i = 0; i < one.words[word].count; ++i) {
        made.add(one.words[word].all[i].value);
        made.add(one.words[word].all[i].knows);
      }
    }
    for (const view& all : one.known) add_view(all);
    return made;
  }

  scenario played_;
  std::size_t scratch_words_ = 0;
  std::size_t words_ = 0;
  std::size_t agents_of_rank_ = 0;
  std::vector<execution> stack_;
  std::unordered_set<fingerprint, fingerprint_hash> reached_;
  exploration found_;
};

} // namespace troupe::tests::line_stepping
