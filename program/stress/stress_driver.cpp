#include <troupe/program/bench/frame/reference_values.hpp>
#include <troupe/program/stress/stress_client.hpp>

#include <troupe/processes/world_driver.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <future>
#include <span>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

constexpr std::size_t slots = 8;        ///< Steps of a driver in flight.
constexpr std::size_t most_values = 32; ///< Elements of a sum.
constexpr std::size_t table_values = 4096;
constexpr std::size_t word = sizeof(std::uint64_t);
constexpr std::size_t slot_bytes = most_values * word;

std::uint64_t table_value(rank at, std::size_t index) {
  return scramble(index * 1'000'003 + static_cast<std::uint64_t>(at.value()));
}

/// One step of a driver.
struct driver_step {
  std::size_t slot = 0;
  std::size_t count = 0;
  std::vector<std::size_t> from{}; ///< The index of the inputs in each rank's table, by rank.
  std::vector<std::future<completion>> replies{};
};

/// The handles of one rank.
struct rank_handles {
  remote_buffer table, input, sum, result, ended;
};

class stress_driver {
public:
  stress_driver(world_driver& driver, std::size_t number, std::uint64_t seed)
    : driver_{driver}, number_{number}, seed_{seed} {}

  stress_totals run(std::size_t requests) {
    const auto ready = driver_.wait_ready(std::chrono::minutes{5});
    if (ready.phase != world_phase::ready) throw exception{ready.reason};
    find_all_handles(ready, {});
    const std::size_t steps = std::max<std::size_t>(1, requests / (ranks_ * 3));
    for (std::size_t i = 0; i < steps; ++i) play(i);
    for (driver_step& one : in_flight_) judge(one);
    std::vector<operation> ended;
    for (const rank_handles& at : handles_)
      ended.emplace_back(copy{at.table.slice(0, word).as_buffer(), at.ended.slice(number_ * word, word).as_buffer()});
    driver_.ask(std::move(ended)).get();
    return result_;
  }

  /// Sends steps in the epoch of \p now until it ends. Beside each, gives a value a place among them.
  void run_in(const world_event& now, receipt_log& receipts) {
    in_flight_.clear(); // of an earlier epoch
    epoch_ = now.epoch;
    find_all_handles(now, stress_memory_suffix(now.epoch));
    for (std::size_t i = 0;; ++i) {
      play(i);
      const std::uint64_t stamp = scramble(seed_ ^ scramble(now.epoch.value() ^ scramble(number_ + i)));
      ++result_.asked;
      auto reply = driver_.agree({std::vector{static_cast<std::int64_t>(stamp)}}, {.epoch = epoch_});
      const completion done = await(reply);
      ++result_.answered;
      receipts.write({.kind = receipt_kind::heard, .world = "whole", .epoch = done.epoch, .value = *done.agreed});
      if (done.agreed->integer() != static_cast<std::int64_t>(stamp))
        throw exception{errc::internal, "a driver's value has changed"};
    }
  }
  [[nodiscard]] const stress_totals& result() const noexcept { return result_; }

private:
  void find_all_handles(const world_event& now, const std::string& suffix) {
    ranks_ = static_cast<std::size_t>(now.world_size);
    handles_.clear();
    for (std::size_t r = 0; r < ranks_; ++r) handles_.push_back(find_handles(rank{static_cast<int>(r)}, suffix));
  }

  rank_handles find_handles(rank at, const std::string& suffix) {
    const auto find = [&](const std::string& name) {
      for (;;) {
        try {
          return driver_.find_memory(at, name + suffix).get();
        } catch (const exception& failure) {
          if (failure.why().code != errc::missing) throw;
          if (epoch_ != epoch{} && driver_.epoch() != epoch_) throw exception{errc::stale_epoch, "the epoch has ended"};
          std::this_thread::sleep_for(std::chrono::milliseconds{2});
        }
      }
    };
    const std::size_t mine = number_ * slots * slot_bytes;
    rank_handles made;
    made.ended = find("stress ended"); // exported last, so the others can be found
    made.table = find("stress table");
    made.input = find("stress inputs").slice(mine, slots * slot_bytes);
    made.sum = find("stress sums").slice(mine, slots * slot_bytes);
    made.result = find("stress results").slice(mine, slots * slot_bytes);
    return made;
  }

  /// Begins step \p index, when there is room for it.
  void play(std::size_t index) {
    // An epoch may be short: few steps at a time are also judged.
    if (in_flight_.size() == (epoch_ == epoch{} ? slots : 2)) {
      judge(in_flight_.front());
      in_flight_.pop_front();
    }
    in_flight_.push_back(begin(index));
  }

  template <class Value>
  [[nodiscard]] static Value await(std::future<Value>& reply) {
    constexpr auto patience = std::chrono::minutes{1};
    if (reply.wait_for(patience) != std::future_status::ready)
      throw exception{errc::internal, "a request of a driver was not answered"};
    return reply.get();
  }

  driver_step begin(std::size_t index) {
    const std::uint64_t drawn = scramble(seed_ ^ scramble(number_ * 1'000'000'007 + index));
    driver_step made{.slot = index % slots, .count = 1 + drawn % most_values};
    const std::size_t bytes = made.count * word;
    const auto slot_of = [&](const remote_buffer& all) { return all.slice(made.slot * slot_bytes, bytes).as_buffer(); };
    std::vector<operation> in, sums, out;
    for (std::size_t r = 0; r < ranks_; ++r) {
      made.from.push_back(1 + scramble(drawn + r) % (table_values - most_values - 1));
      const rank_handles& at = handles_[r];
      in.emplace_back(copy{at.table.slice(made.from[r] * word, bytes).as_buffer(), slot_of(at.input)});
      sums.emplace_back(all_reduce{slot_of(at.input), slot_of(at.sum), made.count, dtype::u64});
      out.emplace_back(copy{slot_of(at.sum), slot_of(at.result)});
    }
    for (auto* const parts : {&in, &sums, &out}) {
      made.replies.push_back(driver_.ask(std::move(*parts), {.epoch = epoch_}));
      result_.asked += ranks_;
    }
    return made;
  }

  void judge(driver_step& one) {
    bool has_failed = false;
    for (auto& reply : one.replies) {
      try {
        static_cast<void>(await(reply));
      } catch (const exception& failure) {
        if (epoch_ != epoch{}) throw;
        has_failed = true;
        ++result_.failed;
        note(to_string(failure.why()));
      }
      result_.answered += ranks_;
    }
    if (has_failed) return;
    const std::size_t looked_at = (one.from.front() + one.slot) % ranks_; // the rank whose result is read
    const std::string seen =
        driver_.read(handles_[looked_at].result.slice(one.slot * slot_bytes, one.count * word)).get();
    ++result_.verified;
    for (std::size_t i = 0; i < one.count; ++i) {
      std::uint64_t expected = 0, value = 0;
      for (std::size_t r = 0; r < ranks_; ++r) expected += table_value(rank{static_cast<int>(r)}, one.from[r] + i);
      std::memcpy(&value, seen.data() + i * word, word);
      if (value == expected) continue;
      ++result_.wrong;
      note("element " + std::to_string(i) + " of a sum at rank " + std::to_string(looked_at) + " is " +
           std::to_string(value) + ", expected " + std::to_string(expected));
      return;
    }
  }

  void note(const std::string& what) {
    if (result_.first.empty()) result_.first = "driver " + std::to_string(number_) + ": " + what;
  }

  world_driver& driver_;
  const std::size_t number_;
  const std::uint64_t seed_;
  epoch epoch_{}; ///< That of its requests; 0: the present one.
  std::size_t ranks_ = 0;
  std::deque<driver_step> in_flight_;
  std::vector<rank_handles> handles_;
  stress_totals result_;
};

} // namespace

std::string stress_memory_suffix(epoch of) {
  return " of epoch " + to_string(of);
}

stress_driver_memory::stress_driver_memory(const world& where, rank self, std::size_t drivers,
                                           const std::string& suffix)
  : where_{where}, drivers_{drivers}, ended_{where.allocate_pinned(drivers * word)} {
  for (std::uint64_t& one : ended_.host_span<std::uint64_t>()) one = 0;
  const buffer table = where.allocate_pinned(table_values * word);
  const auto values = table.host_span<std::uint64_t>();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = i == 0 ? 1 : table_value(self, i);
  const std::size_t bytes = drivers * slots * slot_bytes;
  const auto add = [&](const buffer& memory, const std::string& name) {
    exported_.push_back(where.export_memory(self, memory, name + suffix));
  };
  add(table, "stress table");
  add(where.allocate(self, bytes), "stress inputs");
  add(where.allocate(self, bytes), "stress sums");
  add(where.allocate_pinned(bytes), "stress results");
  add(ended_, "stress ended");
}

stress_driver_memory::~stress_driver_memory() {
  for (const remote_buffer& one : exported_) where_.unexport(one);
}

void stress_driver_memory::await_drivers() const {
  const auto has_ended = [&](std::size_t i) {
    return std::atomic_ref{ended_.host_span<std::uint64_t>()[i]}.load(std::memory_order_acquire) == 1;
  };
  for (std::size_t i = 0; i < drivers_; ++i)
    while (!has_ended(i)) {
      if (where_.status().phase != world_phase::ready) throw exception{where_.status().reason};
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

stress_totals run_stress_driver(const configuration& settings, std::size_t number, std::size_t requests,
                                std::uint64_t seed) {
  try {
    world_driver driver{settings};
    return stress_driver{driver, number, seed}.run(requests);
  } catch (const exception& failure) {
    return {.failed = 1, .first = "driver " + std::to_string(number) + ": " + failure.what()};
  }
}

stress_totals run_driver_through_losses(const configuration& settings, std::uint64_t seed, receipt_log& receipts) {
  world_driver driver{settings};
  driver.on_agreed([&receipts](const std::string& where, const agreed_value& value) {
    receipts.write(
        {.kind = receipt_kind::heard, .world = "whole", .where = where, .epoch = value.epoch, .value = value});
  });
  const auto keep = [&receipts](const world_event& now) {
    if (now.phase == world_phase::ready && now.resume)
      receipts.write({.kind = receipt_kind::resumed, .world = "whole", .epoch = now.epoch, .points = now.resume});
  };
  driver.on_event(keep);
  stress_driver asks{driver, 0, seed};
  for (epoch served{};;) {
    const world_event now = driver.wait_ready(served, std::chrono::milliseconds{100});
    if (now.phase == world_phase::stopped) break;
    if (now.phase != world_phase::ready || now.epoch <= served) continue;
    served = now.epoch;
    keep(now);
    try {
      asks.run_in(now, receipts);
    } catch (const exception& failure) {
      const errc code = failure.why().code;
      // A rank that was lost takes its memory with it, and cannot say what it has exported.
      if (!may_end_with_epoch(code) && code != errc::stale_buffer && code != errc::deadline_exceeded)
        receipts.write({.kind = receipt_kind::fault, .text = failure.what()});
    }
  }
  stress_totals result = asks.result();
  if (!result.first.empty()) receipts.write({.kind = receipt_kind::fault, .text = result.first});
  return result;
}

} // namespace troupe::program
