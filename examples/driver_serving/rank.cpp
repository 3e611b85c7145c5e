/// The process of one rank: holds the rank's part of the model, and runs the functions that drivers call.
#include "http.hpp"
#include "serving.hpp"

#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace {

using namespace std::chrono_literals;

/// Sends results to drivers on a thread of its own, so that a slow driver delays no request. If too many results are
/// queued, the oldest is dropped, and its driver repeats the step.
class result_sender {
public:
  ~result_sender() {
    {
      const std::lock_guard lock{mutex_};
      is_over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void send(const store_values& to, std::string bytes) {
    {
      const std::lock_guard lock{mutex_};
      if (waiting_.size() == most_waiting) waiting_.pop_front();
      waiting_.emplace_back(to, std::move(bytes));
    }
    changed_.notify_all();
  }

private:
  static constexpr std::size_t most_waiting = 64;

  void run() {
    std::unique_lock lock{mutex_};
    while (true) {
      changed_.wait(lock, [this] { return is_over_ || !waiting_.empty(); });
      if (is_over_) return;
      const auto [to, bytes] = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      http_post({to.address, strnlen(to.address, sizeof to.address)}, to.port,
                "/results/" + std::to_string(to.secret) + "/" + std::to_string(to.step), bytes, 1s);
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<store_values, std::string>> waiting_;
  bool is_over_ = false;
  std::thread thread_{[this] { run(); }};
};

/// A rank's part of the model, and the functions that drivers call. Weights and intermediate values are the rank's own;
/// the tokens of a batch are in memory that its driver has allocated, so the requests of several drivers may
/// interleave. Threads: drivers' calls run on the launcher thread of the rank's GPU.
class served_part {
public:
  served_part(const troupe::world& where, troupe::rank self, const shard& model)
    : device_{where.device_of(self)}, model_{model} {
    for (auto& one : seats_) one.emplace(device_, where.allocate_pinned(model.batch_size() * sizeof(float)));
  }

  [[nodiscard]] std::size_t size_bytes(troupe::rank self, int ranks) const { return cut(self, ranks).size() * 4; }

  /// Generates the weights of a rank of \p now in \p memory. From then on calls in this epoch are served.
  void enter(troupe::epoch now, troupe::rank self, int ranks, troupe::buffer memory) {
    const std::lock_guard lock{mutex_};
    if (memory_.size_bytes() > 0) memory_.note_use(seat_of(epoch_).queue); // after a fault, work may still be queued
    epoch_ = now;
    memory_ = std::move(memory);
    part_ = cut(self, ranks);
    part_.x = reinterpret_cast<float*>(memory_.data());
    seat_of(now).run(part_, 0);
  }

  /// Writes values to the driver's memory.
  void load(const troupe::rank_call& with) {
    const auto to = values_in<load_values>(with.values);
    const std::span<const std::byte> floats = with.values.subspan(sizeof to);
    if (to.first > model_.batch_size() || floats.size() > (model_.batch_size() - to.first) * sizeof(float))
      throw troupe::exception{troupe::errc::invalid_argument, "a driver has loaded more than a batch"};
    work(with, [&](seat& on, std::byte* memory) {
      std::byte* const pinned = on.pinned.data() + to.first * sizeof(float);
      // The values are invalid when this function returns, so the enqueued call owns a copy of them.
      call(on.queue,
           [pinned, kept = std::vector<std::byte>(floats.begin(), floats.end())] { std::ranges::copy(kept, pinned); });
      on.queue.ref().copy(memory + to.first * sizeof(float), pinned, floats.size());
    });
  }

  /// Runs a stage on the batch in the driver's memory, and writes this rank's part of the sum there.
  void stage(const troupe::rank_call& with) {
    const auto number = values_in<stage_values>(with.values).stage;
    if (number == 0 || number > 2 * model_.layers)
      throw troupe::exception{troupe::errc::invalid_argument, "a driver asks for a stage that the model does not have"};
    work(with, [&](seat& on, std::byte* memory) {
      on.queue.ref().copy(part_.x, memory, on.pinned.size_bytes());
      on.run(part_, number);
      on.queue.ref().copy(memory, part_.x, on.pinned.size_bytes());
    });
  }

  /// Sends the driver's memory at rank 0 to the driver.
  void store(const troupe::rank_call& with) {
    const auto to = values_in<store_values>(with.values);
    if (with.self != troupe::rank{0}) return;
    work(with, [&](seat& on, std::byte* memory) {
      on.queue.ref().copy(on.pinned.data(), memory, on.pinned.size_bytes());
      call(on.queue, [to, pinned = on.pinned, sender = sender_] {
        sender->send(to, {reinterpret_cast<const char*>(pinned.data()), pinned.size_bytes()});
      });
    });
  }

private:
  /// The example's own stream, with the runner and the staging memory used in it. Epochs alternate between two seats,
  /// so that work of a failed epoch that is still queued in one does not block the next epoch.
  struct seat {
    seat(const std::shared_ptr<troupe::device>& where, troupe::buffer staging)
      : queue{where}, run{make_runner(queue)}, pinned{std::move(staging)} {}
    troupe::stream queue;
    stage_runner run;
    troupe::buffer pinned; ///< Staging memory for a batch.
  };

  [[nodiscard]] shard cut(troupe::rank self, int ranks) const {
    return model_.cut(static_cast<std::size_t>(self.value()), static_cast<std::size_t>(ranks));
  }
  [[nodiscard]] seat& seat_of(troupe::epoch which) { return *seats_[which.value() % 2]; }

  /// Lets \p enqueue enqueue work in the seat's stream, at the place of this call in the rank's stream.
  template <class Enqueue>
  void work(const troupe::rank_call& with, const Enqueue& enqueue) {
    const std::lock_guard lock{mutex_};
    if (with.epoch != epoch_)
      throw troupe::exception{troupe::errc::invalid_argument,
                              "a driver has called before it has found '" + name_of_model(with.epoch) + "'"};
    if (with.memory.size() != 1 || with.memory[0].size_bytes() != model_.batch_size() * sizeof(float))
      throw troupe::exception{troupe::errc::invalid_argument,
                              "a driver's memory is not that of a batch: start it with this --width and --batch"};
    seat& on = seat_of(epoch_);
    on.queue.ref().wait(*troupe::record_event(device_, with.stream));
    enqueue(on, with.memory[0].data());
    with.memory[0].note_use(on.queue);
    with.stream.wait(*troupe::record_event(device_, on.queue));
  }

  /// Calls \p function once, in stream order.
  template <class Function>
  static void call(const troupe::stream& queue, Function function) {
    queue.ref().call(
        [](void* enqueued) {
          const std::unique_ptr<Function> held{static_cast<Function*>(enqueued)};
          (*held)();
        },
        new Function{std::move(function)});
  }

  std::shared_ptr<troupe::device> device_;
  const shard model_;
  const std::shared_ptr<result_sender> sender_ = std::make_shared<result_sender>();
  std::mutex mutex_;
  std::array<std::optional<seat>, 2> seats_;
  troupe::epoch epoch_{};
  troupe::buffer memory_{}; ///< The memory of part_.
  shard part_{};
};

/// Follows the world's epochs until it ends, or a signal ends this process.
class rank_process {
public:
  rank_process(troupe::world where, const shard& model, bool has_own_sums)
    : world_{std::move(where)},
      part_{std::make_shared<served_part>(world_, world_.local_ranks().front(), model)},
      has_own_sums_{has_own_sums} {
    using function = void (served_part::*)(const troupe::rank_call&);
    const auto add = [this](const char* name, function what) {
      world_.register_function(name, [part = part_, what](const troupe::rank_call& with) { ((*part).*what)(with); });
    };
    add("load", &served_part::load);
    add("stage", &served_part::stage);
    add("store", &served_part::store);
  }

  int run() {
    while (told_by() == 0) {
      const troupe::world_event now = world_.wait_ready(has_own_sums_ ? troupe::epoch{} : epoch_, 100ms);
      if (now.phase > troupe::world_phase::rebuilding) {
        std::fprintf(stderr, "the world has ended: %s\n", to_string(now.reason).c_str());
        return out_of_its_world;
      }
      if (now.phase == troupe::world_phase::ready) try {
          if (now.epoch != epoch_) enter(now);
          if (has_own_sums_ && !sum()) return 1;
        } catch (const troupe::exception&) {
          // The epoch has failed, or will: the loop prepares for the next one.
        }
      if (has_own_sums_) std::this_thread::sleep_for(2ms); // between two sums
    }
    return 0;
  }

private:
  void enter(const troupe::world_event& now) {
    const troupe::rank self = self_ = now.local_ranks.front();
    lane_.emplace(world_, self, troupe::lane::named("own sums"));
    lane_->acknowledge(now.epoch);
    size_ = now.world_size;
    // New memory for each epoch: work of a failed epoch may still write to the old memory.
    const troupe::buffer memory = world_.allocate(self, part_->size_bytes(self, now.world_size));
    word_ = world_.allocate_pinned(sizeof(std::uint64_t));
    part_->enter(now.epoch, self, now.world_size, memory);
    world_.unexport(exported_);
    exported_ = world_.export_memory(self, memory, name_of_model(now.epoch));
    epoch_ = now.epoch;
    std::printf("rank %d of %d serves in epoch %s\n", self.value(), now.world_size, to_string(now.epoch).c_str());
  }

  /// Runs an all_reduce of the ranks' processes, beside the driver's requests. Returns false if the result is wrong.
  bool sum() {
    const auto value = word_.host_span<std::uint64_t>();
    value[0] = static_cast<std::uint64_t>(self_.value()) + 1;
    lane_->all_reduce(word_, word_, 1, troupe::dtype::u64, troupe::reduction::sum).get();
    const auto ranks = static_cast<std::uint64_t>(size_);
    if (value[0] != ranks * (ranks + 1) / 2) {
      std::printf("rank %d: an own sum is WRONG\n", self_.value());
      return false;
    }
    if (++sums_ % 20 == 0)
      std::printf("rank %d: %llu own sums are right\n", self_.value(), static_cast<unsigned long long>(sums_));
    return true;
  }

  troupe::world world_;
  std::shared_ptr<served_part> part_;
  const bool has_own_sums_;
  troupe::epoch epoch_{};
  troupe::rank self_{};
  int size_ = 0;
  std::optional<troupe::rank_lane> lane_{};
  troupe::buffer word_{};
  troupe::remote_buffer exported_{};
  std::uint64_t sums_ = 0;
};

} // namespace

int run_rank(const command_line& line) {
  troupe::runtime runtime{line.settings()};
  troupe::world world = runtime.form_world();
  rank_process self{world, model_of(line), line.number("--own-sums", 0) != 0};
  const int status = self.run();
  world.stop();
  return status;
}
