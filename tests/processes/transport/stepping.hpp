// Enumerates every interleaving of the loads and stores of a ring's writer and reader, in a model of the C++ memory
// model, and ends either side before each of its steps.
//
// The protocol runs over an Access that asks an execution for each result. A side's program is deterministic: what it
// does next follows from the results so far. A step therefore runs the program again from its beginning, with the
// results that it had, up to the first access that has none. No threads or fibers are needed, and ending a side means
// never running it again.
//
// Memory is a history of stores for each word, each with the view of its writer (the release/acquire fragment of C++20,
// with one view for all sequentially consistent accesses and fences). A load may return every store that its thread's
// view permits, so a store that is not released, a load that does not acquire and a missing sequentially consistent
// pair are all visible, on any machine. Not modelled: a load that is delayed behind a later store of its own thread.
#pragma once

#include <troupe/processes/transport/shared_memory/ring_protocol.hpp>

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

namespace troupe::tests::stepping {

constexpr std::uint64_t capacity_words = 8;
constexpr std::size_t ring_words = 1 + capacity_words; // "consumed" and the data
constexpr std::size_t all_words = ring_words + 2;      // and "parked" and "rings"

/// Planted faults.
enum class fault : std::uint8_t {
  none,
  publish_unreleased,  ///< The sequence word is stored without release.
  sequence_unacquired, ///< It is loaded without acquire.
  reused_slot,         ///< The word behind a record keeps what an earlier round has left there.
  consumed_early,      ///< A record may be written over while it is being copied.
  fence_dropped,       ///< "parked" may be loaded before the record is published.
  announce_not_sc,     ///< "parked" may be stored after the last look.
  news_not_sc,         ///< The last look may come before "parked" is stored.
  announce_dropped,    ///< The reader sleeps unannounced.
  count_dropped,       ///< The word on which the reader sleeps does not change.
  wake_dropped         ///< Nobody wakes the reader.
};

enum class access_kind : std::uint8_t { load, store, add, fence, wake, sleep };

struct access {
  access_kind kind;
  std::size_t word;
  std::uint64_t value;
  std::memory_order order;
  ring_step step;
};

constexpr std::uint64_t timed_out = 2; ///< Result of a sleep.

/// Thrown by the first access that has no result yet.
struct suspended {
  access next;
};

/// The results of one side's accesses.
class replay {
public:
  explicit replay(const std::vector<std::uint64_t>& results) : results_{results} {}
  std::uint64_t take(const access& next) {
    if (at_ == results_.size()) throw suspended{next};
    return results_[at_++];
  }
  [[nodiscard]] std::size_t taken() const noexcept { return at_; }

private:
  const std::vector<std::uint64_t>& results_;
  std::size_t at_ = 0;
};

/// The memory of the protocol as one side sees it. Copies share what a side has done.
class stepped_words {
public:
  struct side_state {
    replay results;
    fault planted = fault::none;
    std::uint64_t sequence = 0; ///< As last read.
    bool has_timed_out = false;
    std::string summary{}; ///< Of all that the program depends on at its last checkpoint().
    std::size_t summarised = 0;

    /// Says that what the program does from here on depends on \p all alone, not on the results so far.
    void checkpoint(std::string all) {
      summary = std::move(all);
      summarised = results.taken();
    }
  };
  stepped_words(side_state& side, bool is_bell) : side_{&side}, is_bell_{is_bell} {}

  std::uint64_t load(std::size_t at, std::memory_order order, ring_step step) {
    const fault planted = side_->planted;
    if (step == ring_step::read_sequence && planted == fault::sequence_unacquired) order = std::memory_order_relaxed;
    if (step == ring_step::check_news && planted == fault::news_not_sc) order = std::memory_order_acquire;
    const std::uint64_t got = side_->results.take({access_kind::load, word(at), 0, order, step});
    if (step == ring_step::read_sequence) side_->sequence = got;
    if (step == ring_step::read_header && planted == fault::consumed_early)
      perform_store(ring_layout::consumed, side_->sequence - 1 + ring_layout::words_of(got >> 33U),
                    std::memory_order_release, ring_step::consume);
    return got;
  }
  void store(std::size_t at, std::uint64_t value, std::memory_order order, ring_step step) {
    const fault planted = side_->planted;
    if (step == ring_step::publish && planted == fault::publish_unreleased) order = std::memory_order_relaxed;
    if (step == ring_step::announce_park && planted == fault::announce_not_sc) order = std::memory_order_release;
    if (step == ring_step::announce_park && planted == fault::announce_dropped) return;
    if (step == ring_step::clear_next && planted == fault::reused_slot) return;
    if (step == ring_step::consume && planted == fault::consumed_early) return; // done before
    perform_store(at, value, order, step);
  }
  void add(std::size_t at, std::uint64_t value, ring_step step) {
    if (side_->planted == fault::count_dropped) return;
    side_->results.take({access_kind::add, word(at), value, std::memory_order_seq_cst, step});
  }
  void fence(ring_step step) {
    if (side_->planted == fault::fence_dropped) return;
    side_->results.take({access_kind::fence, 0, 0, std::memory_order_seq_cst, step});
  }
  void wake(std::size_t at, ring_step step) {
    if (side_->planted == fault::wake_dropped) return;
    side_->results.take({access_kind::wake, word(at), 0, std::memory_order_relaxed, step});
  }
  void sleep(std::size_t at, std::uint64_t expected, nanoseconds, ring_step step) {
    side_->has_timed_out =
        side_->results.take({access_kind::sleep, word(at), expected, std::memory_order_relaxed, step}) == timed_out;
  }

private:
  [[nodiscard]] std::size_t word(std::size_t at) const {
    if (is_bell_) return at == doorbell_layout::parked ? ring_words : ring_words + 1;
    return at == ring_layout::consumed ? 0 : 1 + at - ring_layout::first_data;
  }
  void perform_store(std::size_t at, std::uint64_t value, std::memory_order order, ring_step step) {
    side_->results.take({access_kind::store, word(at), value, order, step});
  }

  side_state* side_;
  bool is_bell_;
};

using view = std::array<std::uint8_t, all_words>;

inline void join(view& into, const view& other) {
  for (std::size_t i = 0; i < all_words; ++i) into[i] = std::max(into[i], other[i]);
}

struct stored {
  std::uint64_t value = 0;
  view seen{};
};

/// What a program has done so far. Written anew by each run.
struct observed {
  std::vector<std::string> received{}; ///< By the reader.
  bool is_forged = false;              ///< Either side has found a fault.
};

enum class side_status : std::uint8_t { running, asleep, ended, killed };

struct side {
  std::vector<std::uint64_t> results{};
  view now{};
  side_status status = side_status::running;
  std::optional<access> next{};
  std::string summary{};      ///< Stands for the first results,
  std::size_t summarised = 0; ///< this many.
};

struct execution {
  std::array<std::vector<stored>, all_words> history;
  view sc{};
  std::array<side, 2> sides; ///< Writer, reader.
  std::size_t published = 0;
};

/// A program of one side over the ring's and the doorbell's memory.
using program = std::function<void(stepped_words::side_state& self, observed& into)>;

struct exploration {
  std::size_t states = 0;
  std::size_t ends = 0; ///< States in which neither side can go on.
  std::string violation{};
};

/// Explores all executions of a writer that publishes the records \p sent and of a reader.
class explorer {
public:
  explorer(program writer, program reader, std::vector<std::string> sent, fault planted, bool kills)
    : programs_{std::move(writer), std::move(reader)}, sent_{std::move(sent)}, planted_{planted}, kills_{kills} {}

  exploration run() {
    execution start;
    for (auto& one : start.history) one.push_back({});
    for (std::size_t i = 0; i < 2; ++i) advance(start, i);
    stack_.push_back(std::move(start));
    while (!stack_.empty() && found_.violation.empty()) {
      const execution one = std::move(stack_.back());
      stack_.pop_back();
      expand(one);
    }
    return found_;
  }

private:
  void push(execution&& one) {
    if (!found_.violation.empty() || !known_.insert(key_of(one)).second) return;
    ++found_.states;
    stack_.push_back(std::move(one));
  }

  /// Runs the program of side \p which up to its next access without a result, and checks what it has observed.
  void advance(execution& in, std::size_t which) {
    side& self = in.sides[which];
    self.next.reset();
    stepped_words::side_state state{.results = replay{self.results}, .planted = planted_};
    observed seen;
    try {
      programs_[which](state, seen);
      self.status = side_status::ended;
    } catch (const suspended& at) {
      self.next = at.next;
      self.status = side_status::running;
    }
    self.summary = std::move(state.summary);
    self.summarised = state.summarised;
    if (seen.is_forged) violate(in, which == 0 ? "the writer found a fault" : "the reader found a fault");
    if (which == 0) return;
    for (std::size_t i = 0; i < seen.received.size(); ++i)
      if (i >= sent_.size() || seen.received[i] != sent_[i]) violate(in, "a record is not the one that was sent");
    if (self.status == side_status::ended && seen.received.size() < sent_.size() &&
        in.sides[0].status != side_status::running && seen.received.size() != in.published)
      violate(in, "a published record is lost");
  }

  void expand(const execution& from) {
    bool can_go_on = false;
    for (std::size_t which = 0; which < 2; ++which) {
      const side& self = from.sides[which];
      const side_status peer = from.sides[1 - which].status;
      if (self.status == side_status::running) {
        can_go_on = true;
        step(from, which);
        if (kills_) {
          execution killed = from;
          killed.sides[which].status = side_status::killed;
          killed.sides[which].next.reset();
          push(std::move(killed));
        }
      } else if (self.status == side_status::asleep && peer != side_status::running) {
        can_go_on = true;
        wake_by_time(from, which);
      }
    }
    if (!can_go_on) ++found_.ends;
  }

  void step(const execution& from, std::size_t which) {
    const access at = *from.sides[which].next;
    const auto finish = [&](execution&& made, std::uint64_t result) {
      made.sides[which].results.push_back(result);
      advance(made, which);
      push(std::move(made));
    };
    if (at.kind == access_kind::load) {
      view base = from.sides[which].now;
      if (at.order == std::memory_order_seq_cst) join(base, from.sc);
      for (std::size_t time = base[at.word]; time < from.history[at.word].size(); ++time) {
        execution made = from;
        view& now = made.sides[which].now = base;
        now[at.word] = static_cast<std::uint8_t>(time);
        const stored& read = from.history[at.word][time];
        if (at.order != std::memory_order_relaxed) join(now, read.seen);
        finish(std::move(made), read.value);
      }
      return;
    }
    execution made = from;
    side& self = made.sides[which];
    auto& history = made.history[at.word];
    if (at.kind == access_kind::store || at.kind == access_kind::add) {
      stored one{.value = at.value};
      if (at.kind == access_kind::add) { // a read and a write that are one step
        join(self.now, made.sc);
        join(self.now, history.back().seen);
        one.value += history.back().value;
      }
      self.now[at.word] = static_cast<std::uint8_t>(history.size());
      if (at.order == std::memory_order_relaxed)
        one.seen[at.word] = self.now[at.word];
      else
        one.seen = self.now;
      if (at.order == std::memory_order_seq_cst) join(made.sc, self.now);
      history.push_back(one);
      if (history.size() > 250) return violate(made, "a word is stored too often for this model, which is no fault");
      if (at.step == ring_step::publish) ++made.published;
    } else if (at.kind == access_kind::fence) {
      join(self.now, made.sc);
      join(made.sc, self.now);
    } else if (at.kind == access_kind::wake) {
      side& peer = made.sides[1 - which];
      if (peer.status == side_status::asleep && peer.next->word == at.word) {
        peer.results.push_back(0);
        advance(made, 1 - which);
      }
    } else { // the kernel reads the newest value, compares and sleeps in one step
      self.now[at.word] = static_cast<std::uint8_t>(history.size() - 1);
      if (history.back().value == at.value) {
        self.status = side_status::asleep;
        return push(std::move(made));
      }
    }
    finish(std::move(made), 0);
  }

  /// Time passes for a sleeper only when its peer does no more. If the peer has not been killed, it must have woken it.
  void wake_by_time(const execution& from, std::size_t which) {
    execution made = from;
    side& self = made.sides[which];
    const bool is_killed = from.sides[1 - which].status == side_status::killed;
    self.results.push_back(timed_out);
    join(self.now, latest(from)); // a time limit is long
    advance(made, which);
    if (!is_killed && reader_received(from) < from.published) return violate(from, "a wake-up is lost");
    push(std::move(made));
  }

  [[nodiscard]] static view latest(const execution& from) {
    view all{};
    for (std::size_t i = 0; i < all_words; ++i) all[i] = static_cast<std::uint8_t>(from.history[i].size() - 1);
    return all;
  }

  [[nodiscard]] std::size_t reader_received(const execution& from) const {
    stepped_words::side_state state{.results = replay{from.sides[1].results}, .planted = planted_};
    observed seen;
    try {
      programs_[1](state, seen);
    } catch (const suspended&) {
    }
    return seen.received.size();
  }

  void violate(const execution& at, const std::string& what) {
    if (!found_.violation.empty()) return;
    found_.violation = what + " after " + std::to_string(at.sides[0].results.size()) + " steps of the writer and " +
                       std::to_string(at.sides[1].results.size()) + " of the reader";
  }

  /// Everything that decides what can follow. Stores that no side can read any more are left out, and times are counted
  /// from the oldest store that can be read.
  [[nodiscard]] static std::string key_of(const execution& one) {
    std::string key;
    const auto add = [&](const auto& value) { key.append(reinterpret_cast<const char*>(&value), sizeof value); };
    view least = latest(one);
    for (const side& self : one.sides)
      if (self.status == side_status::running || self.status == side_status::asleep)
        for (std::size_t i = 0; i < all_words; ++i) least[i] = std::min(least[i], self.now[i]);
    const auto add_view = [&](const view& all) {
      for (std::size_t i = 0; i < all_words; ++i) key += static_cast<char>(std::max(all[i], least[i]) - least[i]);
    };
    for (const side& self : one.sides) {
      add(self.status);
      if (self.status == side_status::ended || self.status == side_status::killed) continue;
      key += self.summary;
      add(self.results.size() - self.summarised);
      for (std::size_t i = self.summarised; i < self.results.size(); ++i) add(self.results[i]);
      add_view(self.now);
    }
    add(one.published);
    add_view(one.sc);
    for (std::size_t i = 0; i < all_words; ++i) {
      add(one.history[i].size() - least[i]);
      for (std::size_t time = least[i]; time < one.history[i].size(); ++time) {
        add(one.history[i][time].value);
        add_view(one.history[i][time].seen);
      }
    }
    return key;
  }

  std::array<program, 2> programs_;
  std::vector<std::string> sent_;
  fault planted_;
  bool kills_;
  std::vector<execution> stack_;
  std::unordered_set<std::string> known_;
  exploration found_;
};

} // namespace troupe::tests::stepping
