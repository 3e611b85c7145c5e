#include <troupe/program/bench/frame/reference_values.hpp>
#include <troupe/program/stress/change_client.hpp>
#include <troupe/program/stress/stress_client.hpp>
#include <troupe/program/support/counted_reply.hpp>

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sysexits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;
using steady = std::chrono::steady_clock;

constexpr std::size_t element_count = 64;
constexpr std::size_t window = 3; ///< Requests of a lane that are pending at a time.

using counter = std::atomic<std::uint64_t> change_counts::*;

std::shared_ptr<change_counts> map_counts(const std::string& folder, std::int64_t pid, bool creates) {
  const std::string path = folder + "/" + std::to_string(pid);
  const file_descriptor file{::open(path.c_str(), (creates ? O_CREAT : 0) | O_RDWR | O_CLOEXEC, 0600)};
  if (!file && !creates) return nullptr;
  if (!file || (creates && ::ftruncate(file.native(), sizeof(change_counts)) != 0))
    throw exception{errc::missing, path + " cannot be written: set TMPDIR to a writable folder"};
  if (!creates && ::lseek(file.native(), 0, SEEK_END) < static_cast<off_t>(sizeof(change_counts))) return nullptr;
  void* const made = ::mmap(nullptr, sizeof(change_counts), PROT_READ | PROT_WRITE, MAP_SHARED, file.native(), 0);
  if (made == MAP_FAILED) throw exception{errc::out_of_memory, path + " cannot be mapped"};
  return {static_cast<change_counts*>(made), [](change_counts* one) { ::munmap(one, sizeof *one); }};
}

void note_time(change_counts& seen, std::int64_t took) {
  std::int64_t longest = seen.longest_ns;
  while (took > longest && !seen.longest_ns.compare_exchange_weak(longest, took)) {
  }
}

/// The numbers of ranks of the epochs that were ready. Threads: any.
class epoch_sizes {
public:
  void note(const world_event& now) {
    if (now.phase != world_phase::ready) return;
    const std::lock_guard lock{mutex_};
    all_.insert_or_assign(now.epoch, now.world_size);
  }
  [[nodiscard]] std::optional<int> find(epoch of) const {
    const std::lock_guard lock{mutex_};
    const auto found = all_.find(of);
    return found != all_.end() ? std::optional{found->second} : std::nullopt;
  }

private:
  mutable std::mutex mutex_;
  std::map<epoch, int> all_;
};

/// The process of one rank. The part of each rank in a sum is a function of lane and position, so a request that is
/// lost, doubled or out of order at a rank gives a wrong sum, and so does one that a rank is missing in.
class change_member {
public:
  change_member(const change_clients& options, world where, change_counts& seen)
    : options_{options}, where_{std::move(where)}, seen_{seen} {
    where_.on_event([to = sizes_](const world_event& now) { to->note(now); });
    sizes_->note(where_.status());
  }

  void run() {
    std::vector<std::jthread> clients;
    for (std::size_t i = 0; i < options_.lanes; ++i) clients.emplace_back([this, i] { serve(i); });
  }

private:
  /// Returns the number of ranks of \p of, in which a request has ended. Waits for the world's event if it has not come
  /// yet.
  [[nodiscard]] int size_of(epoch of) {
    for (int i = 0; i < 2'000; ++i) {
      if (const auto found = sizes_->find(of)) return *found;
      sizes_->note(where_.status());
      std::this_thread::sleep_for(1ms);
    }
    return 0;
  }
  void fault(counter which, const std::string& what) {
    ++(seen_.*which);
    seen_.note(what);
  }

  void serve(std::size_t index) {
    for (epoch served{}; !seen_.has_text;) {
      const world_event now = where_.wait_ready(served, 100ms);
      if (now.phase > world_phase::rebuilding) return;
      if (now.phase == world_phase::ready && now.epoch > served) served = std::max(serve(index, now), now.epoch);
    }
  }

  /// A request that is pending.
  struct pending {
    std::uint64_t position = 0;
    steady::time_point asked{};
    buffer memory{};
    std::future<completion> reply{};
  };

  /// Asks until a request fails. Returns the epoch in which that was, as far as it is known.
  epoch serve(std::size_t index, const world_event& now) {
    const lane name = lane::named("stress change " + std::to_string(index));
    rank_lane mine{where_, now.local_ranks.front(), name}; // goes on when its rank gets another number
    mine.acknowledge(now.epoch);
    const resume_point* const reached = now.resume ? find_point(*now.resume, name) : nullptr;
    std::uint64_t position = reached != nullptr ? reached->complete : 0;
    std::array<pending, window> all;
    // New memory: failed requests of an earlier epoch may still write to theirs.
    for (pending& one : all) one.memory = where_.allocate_pinned(element_count * sizeof(std::uint64_t));
    epoch last = now.epoch;
    for (; !seen_.has_text; ++position) {
      pending& one = all[position % window];
      if (!take(index, one, now.epoch, last)) break;
      one.position = position;
      for (std::uint64_t& each : one.memory.host_span<std::uint64_t>()) each = part_of(index, position);
      one.asked = steady::now();
      one.reply = mine.all_reduce(one.memory, one.memory, element_count, dtype::u64, reduction::sum,
                                  {.deadline = options_.patience});
      std::this_thread::sleep_for(options_.pace);
    }
    for (std::size_t i = 0; i < window; ++i)
      static_cast<void>(take(index, all[(position + i) % window], now.epoch, last));
    return last;
  }

  [[nodiscard]] std::uint64_t part_of(std::size_t index, std::uint64_t position) const {
    return scramble(options_.seed ^ scramble(position * most_change_lanes + index)) >> 8U;
  }

  /// Verifies a request. Returns whether the client goes on.
  bool take(std::size_t index, pending& one, epoch began, epoch& last) {
    if (!one.reply.valid()) return true;
    const std::string name = "sum " + std::to_string(one.position) + " of lane " + std::to_string(index);
    if (one.reply.wait_for(2 * options_.patience) != std::future_status::ready) {
      fault(&change_counts::lost, name + " was not answered");
      return false;
    }
    try {
      const completion done = one.reply.get();
      note_time(seen_, (steady::now() - one.asked).count());
      last = std::max(last, done.epoch);
      return check(index, one, done, began, name);
    } catch (const exception& failure) {
      const error& why = failure.why();
      if (why.epoch) last = std::max(last, *why.epoch);
      if (why.code == errc::stopping)
        ++seen_.leaving;
      else if (may_end_with_epoch(why.code))
        note_end(name + ": " + to_string(why));
      else
        fault(&change_counts::refused, name + ": " + to_string(why));
      return false;
    }
  }

  [[nodiscard]] bool check(std::size_t index, const pending& one, const completion& done, epoch began,
                           const std::string& name) {
    const auto size = static_cast<std::uint64_t>(size_of(done.epoch));
    const auto values = one.memory.host_span<std::uint64_t>();
    const std::uint64_t part = part_of(index, one.position);
    if (!std::ranges::all_of(values, [&](std::uint64_t each) { return each == part * size; })) {
      const bool is_twice = values[0] == part * size * size;
      fault(is_twice ? &change_counts::doubled : &change_counts::wrong,
            name + " in epoch " + to_string(done.epoch) + " of " + std::to_string(size) + " ranks is " +
                std::to_string(values[0]) + " and must be " + std::to_string(part * size));
      return false;
    }
    ++seen_.verified[index];
    if (done.epoch > began) ++seen_.moved;
    return true;
  }
  void note_end(const std::string& what) {
    if (seen_.ended++ == 0) std::fprintf(stderr, "stress change: %s\n", what.c_str());
  }

  const change_clients& options_;
  world where_;
  change_counts& seen_;
  const std::shared_ptr<epoch_sizes> sizes_ = std::make_shared<epoch_sizes>();
};

} // namespace

void change_counts::note(const std::string& what) {
  static std::mutex mutex;
  const std::lock_guard lock{mutex};
  if (has_text) return;
  std::strncpy(text, what.c_str(), sizeof text - 1);
  has_text = true;
}

std::uint64_t change_counts::all_verified() const {
  std::uint64_t sum = 0;
  for (const auto& one : verified) sum += one;
  return sum;
}

std::shared_ptr<change_counts> find_change_counts(const std::string& folder, std::int64_t pid) {
  return map_counts(folder, pid, false);
}

int run_change_member(const change_clients& options, const std::string& folder) {
  configuration settings = options.runtime.settings();
  settings.control.planned_changes = true;
  settings.control.orphaned = orphan_policy::rejoin;
  const auto seen = map_counts(folder, ::getpid(), true);
  std::optional<runtime> rt;
  std::optional<world> whole;
  try {
    rt.emplace(std::move(settings));
    whole.emplace(rt->form_world());
  } catch (const exception& failure) {
    seen->is_over = true;
    if (failure.why().code == errc::stopping) return 0;
    if (may_end_with_epoch(failure.why().code)) return EX_TEMPFAIL;
    throw;
  }
  change_member{options, *whole, *seen}.run();
  const error reason = whole->status().reason;
  whole->stop();
  seen->is_over = true;
  if (seen->has_text) {
    std::fprintf(stderr, "stress change: %s\n", seen->text);
    return 1;
  }
  return reason.code == errc::none || reason.code == errc::stopping ? 0 : EX_TEMPFAIL;
}

void run_change_driver(const change_clients& options, const configuration& settings, change_counts& seen,
                       const std::atomic<bool>& is_over) {
  const auto doubled = std::make_shared<std::atomic<std::size_t>>();
  std::uint64_t number = 0;
  epoch began{};
  while (!is_over && !seen.has_text) {
    world_driver driver{settings};
    while (!is_over && !seen.has_text) {
      const world_event now = driver.wait_ready(100ms);
      if (now.phase == world_phase::stopped) break;
      if (now.phase != world_phase::ready) continue;
      if (began == epoch{}) began = now.epoch;
      ++number;
      const auto part_of = [&](int r) { return static_cast<std::int64_t>(number % 1'000 * 1'000) + r; };
      std::int64_t expected = 0;
      std::vector<operation> parts;
      for (int r = 0; r < now.world_size; ++r) {
        expected += part_of(r);
        parts.emplace_back(agree{agreement_rule::sum, contribution{part_of(r)}.bytes});
      }
      const auto reply = std::make_shared<counted_reply>(doubled);
      const auto asked = steady::now();
      driver.ask(world_request{.parts = std::move(parts), .deadline = options.patience},
                 counted_reply::answer_to(reply));
      const auto result = reply->wait(2 * options.patience);
      if (!result) {
        ++seen.lost;
        seen.note("agree " + std::to_string(number) + " of the driver was not answered");
        return;
      }
      if (const error* const why = failure_of(*result)) {
        if (why->code == errc::invalid_argument && why->effect == effect::rejected) {
          ++seen.outgrown;
        } else if (why->code == errc::stopping && driver.status().phase == world_phase::stopped) {
          ++seen.leaving;
        } else if (may_end_with_epoch(why->code) || why->code == errc::missing) { // the controller is lost
          ++seen.ended;
        } else {
          ++seen.refused;
          seen.note("agree " + std::to_string(number) + " of the driver: " + to_string(*why));
        }
        std::this_thread::sleep_for(1ms);
        continue;
      }
      const auto& done = std::get<completion>(*result);
      std::int64_t value = 0;
      if (done.agreed && done.agreed->bytes.size() == sizeof value)
        std::memcpy(&value, done.agreed->bytes.data(), sizeof value);
      if (value != expected) {
        ++seen.wrong;
        seen.note("agree " + std::to_string(number) + " of the driver is " + std::to_string(value) + " and must be " +
                  std::to_string(expected));
      }
      ++seen.verified[0];
      if (done.epoch > began) ++seen.moved;
      note_time(seen, (steady::now() - asked).count());
      std::this_thread::sleep_for(options.pace);
    }
  }
  if (const std::size_t extra = *doubled; extra > 0) {
    seen.doubled += extra;
    seen.note(std::to_string(extra) + " requests of the driver were answered twice");
  }
}

} // namespace troupe::program
