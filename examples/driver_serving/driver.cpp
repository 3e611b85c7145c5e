/// The driver: a process without a rank or a GPU that collects users' requests into batches, and sends them to the
/// ranks.
#include "http.hpp"
#include "serving.hpp"

#include <troupe/processes/world_driver.hpp>

#include <charconv>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

namespace {

using namespace std::chrono_literals;

/// Receives the results of steps, which rank 0's process sends: see served_part::store().
class result_box {
public:
  explicit result_box(const std::string& address)
    : address_{address}, server_{address, 0, 2, [this](const http_request& asked) { return take(asked); }} {}

  /// Accepts the results of \p step from now on. Returns the values for the call "store" that sends them here.
  store_values expect(std::uint64_t step) {
    store_values made{.secret = secret_, .step = step, .port = server_.port()};
    address_.copy(made.address, sizeof made.address - 1);
    const std::lock_guard lock{mutex_};
    expected_ = step;
    bytes_.clear();
    return made;
  }

  /// Returns the results of the last expected step, or nothing if they do not arrive \p within this time.
  std::optional<std::vector<float>> wait(std::chrono::milliseconds within) {
    std::unique_lock lock{mutex_};
    if (!changed_.wait_for(lock, within, [this] { return !bytes_.empty(); })) return std::nullopt;
    std::vector<float> made(bytes_.size() / sizeof(float));
    std::memcpy(made.data(), bytes_.data(), made.size() * sizeof(float));
    return made;
  }

private:
  http_answer take(const http_request& asked) {
    const std::lock_guard lock{mutex_};
    if (asked.path != "/results/" + std::to_string(secret_) + "/" + std::to_string(expected_)) return {404, "{}"};
    bytes_ = asked.body;
    changed_.notify_all();
    return {200, "{}"};
  }

  const std::string address_;
  const std::uint64_t secret_ = (std::uint64_t{std::random_device{}()} << 32U) | std::random_device{}();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t expected_ = 0;
  std::string bytes_;
  http_server server_;
};

struct answer {
  std::vector<float> values;
  std::uint64_t step = 0;
  troupe::epoch epoch{};
};

/// Runs all requests that are waiting together in the next step. Each request is answered once: if a fault interrupts a
/// step, its requests are repeated in the next epoch, on the ranks it has. Threads: ask() and status() from any.
class batcher {
public:
  batcher(troupe::world_driver by, const shard& model, const std::string& results_at, std::size_t ballast_bytes)
    : driver_{std::move(by)}, model_{model}, results_{results_at}, ballast_bytes_{ballast_bytes} {}

  std::future<answer> ask(std::vector<float> asked) {
    const std::lock_guard lock{mutex_};
    if (is_over_) return std::promise<answer>{}.get_future(); // a broken promise
    jobs_.push_back({std::move(asked), {}});
    changed_.notify_all();
    return jobs_.back().to.get_future();
  }

  /// Serves until a signal ends the program, and then abandons the requests that are waiting. Returns false if the
  /// world has ended, or the controller has detached the driver.
  bool run() {
    const bool by_signal = serve();
    const std::lock_guard lock{mutex_};
    is_over_ = true;
    jobs_.clear();
    return by_signal;
  }

  std::string status() {
    const troupe::world_event now = driver_.status();
    const std::lock_guard lock{mutex_};
    return "{\"epoch\": " + to_string(now.epoch) + ", \"ranks\": " + std::to_string(now.world_size) +
           ", \"ready\": " + (now.phase == troupe::world_phase::ready ? "true" : "false") +
           ", \"rings\": " + (driver_.has_rings() ? "true" : "false") +
           ", \"waiting\": " + std::to_string(jobs_.size()) + ", \"steps\": " + std::to_string(steps_) +
           ", \"answered\": " + std::to_string(answered_) + ", \"failures\": " + std::to_string(failures_) + "}";
  }

private:
  struct job {
    std::vector<float> asked;
    std::promise<answer> to;
  };

  bool serve() {
    while (told_by() == 0) {
      const troupe::world_event now = driver_.wait_ready(100ms);
      if (now.phase == troupe::world_phase::stopped) {
        std::fprintf(stderr, "the driver has no world: %s\n", to_string(now.reason).c_str());
        return false;
      }
      if (now.phase != troupe::world_phase::ready) continue;
      try {
        if (now.epoch != epoch_) enter(now);
        if (has_jobs()) step();
      } catch (const troupe::exception& failure) { // the requests stay, and are repeated
        ++failures_;
        epoch_ = {}; // prepare again even in the same epoch: the ranks may have released this driver's memory
        if (std::exchange(last_failure_, failure.what()) != failure.what())
          std::printf("in epoch %s, step %llu: %s\n", to_string(now.epoch).c_str(), number_of_step(), failure.what());
        driver_.wait_ready(now.epoch, 10ms); // for the next epoch, or for a moment
      }
    }
    return true;
  }

  bool has_jobs() {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, 100ms, [this] { return !jobs_.empty(); });
  }

  /// Prepares for an epoch: waits until the ranks have their weights, and allocates memory for a batch at each rank.
  void enter(const troupe::world_event& now) {
    for (const troupe::remote_buffer& one : std::exchange(memory_, {})) driver_.release(one);
    if (taken_ > 0 && has_committed(now) && finish(1s)) std::printf("step %llu had ended\n", number_of_step());
    for (int r = 0; r < now.world_size; ++r) await_model(troupe::rank{r}, now);
    for (int r = 0; r < now.world_size; ++r)
      memory_.push_back(driver_.allocate(troupe::rank{r}, model_.batch_size() * sizeof(float)).get());
    if (ballast_bytes_ > 0)
      for (int r = 0; r < now.world_size; ++r)
        memory_.push_back(driver_.allocate(troupe::rank{r}, ballast_bytes_).get());
    epoch_ = now.epoch;
    std::printf("serving in epoch %s with %d ranks\n", to_string(epoch_).c_str(), now.world_size);
  }

  void await_model(troupe::rank target, const troupe::world_event& now) {
    while (told_by() == 0) try {
        static_cast<void>(driver_.find_memory(target, name_of_model(now.epoch)).get());
        return;
      } catch (const troupe::exception& failure) {
        if (failure.why().code != troupe::errc::missing) throw;
        std::this_thread::sleep_for(5ms);
      }
  }

  /// Returns whether the last step is complete at all ranks, although its epoch has ended.
  [[nodiscard]] bool has_committed(const troupe::world_event& now) const {
    const auto* const reached = now.resume ? troupe::find_point(*now.resume, std::nullopt) : nullptr;
    return reached != nullptr && reached->commit == commit_number();
  }
  [[nodiscard]] unsigned long long number_of_step() const { return step_; }
  /// Returns the step's commit number. The upper bits identify this driver, because a world may have several in turn.
  [[nodiscard]] std::uint64_t commit_number() const { return (instance_ << 32U) + step_; }

  /// Sends all requests of a step without waiting in between; the ranks' streams keep their order.
  void step() {
    ++step_;
    step_epoch_ = epoch_;
    const std::size_t ranks = memory_.size() / (ballast_bytes_ > 0 ? 2 : 1);
    const troupe::request_options now{.epoch = epoch_};
    std::vector<troupe::buffer> sums;
    for (std::size_t r = 0; r < ranks; ++r) sums.push_back(memory_[r].as_buffer());
    std::vector<std::vector<troupe::operand>> arguments;
    for (const troupe::buffer& one : sums) arguments.push_back({one});

    std::vector<std::future<troupe::completion>> asked;
    const std::vector<float> batch = take_batch();
    constexpr std::size_t most = troupe::most_call_bytes / sizeof(float) - 64; // beside load_values
    for (std::size_t first = 0; first < batch.size(); first += most) {
      const std::span<const float> part{&batch[first], std::min(most, batch.size() - first)};
      asked.push_back(driver_.call("load", arguments, bytes_of(load_values{first}, part), now));
    }
    for (std::uint64_t stage = 1; stage <= 2 * model_.layers; ++stage) {
      asked.push_back(driver_.call("stage", arguments, bytes_of(stage_values{stage}), now));
      asked.push_back(
          driver_.all_reduce(sums, sums, model_.batch_size(), troupe::dtype::f32, troupe::reduction::sum, now));
    }
    asked.push_back(driver_.call("store", arguments, bytes_of(results_.expect(step_)), now));
    asked.push_back(driver_.commit(commit_number(), now));
    for (auto& one : asked) one.get();
    if (!finish(2s)) throw troupe::exception{troupe::errc::missing, "rank 0's process has not sent the results"};
  }

  std::vector<float> take_batch() {
    const std::lock_guard lock{mutex_};
    taken_ = std::min(jobs_.size(), model_.batch);
    std::vector<float> batch;
    for (std::size_t i = 0; i < taken_; ++i) batch.insert(batch.end(), jobs_[i].asked.begin(), jobs_[i].asked.end());
    return batch;
  }

  /// Answers the requests of the last step, which is complete at all ranks. Returns false if its results do not arrive
  /// \p within this time.
  bool finish(std::chrono::milliseconds within) {
    const auto values = results_.wait(within);
    if (!values || values->size() != model_.batch_size()) return false;
    const std::size_t size = tokens * model_.width;
    const std::lock_guard lock{mutex_};
    ++steps_;
    for (std::size_t i = 0; i < taken_; ++i, jobs_.pop_front(), ++answered_)
      jobs_.front().to.set_value({{&(*values)[i * size], &(*values)[i * size] + size}, step_, step_epoch_});
    taken_ = 0;
    last_failure_.clear();
    return true;
  }

  troupe::world_driver driver_;
  const shard model_;
  result_box results_;
  const std::size_t ballast_bytes_;
  const std::uint64_t instance_ = std::random_device{}() >> 3U;
  troupe::epoch epoch_{};
  std::vector<troupe::remote_buffer> memory_; ///< A batch at each rank, then the ballast.
  std::uint64_t step_ = 0;
  troupe::epoch step_epoch_{}; ///< The epoch in which the last step was asked for.
  std::size_t taken_ = 0;      ///< The number of jobs, from the first on, that are in the last step and not answered.

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<job> jobs_;
  std::size_t steps_ = 0, answered_ = 0;
  bool is_over_ = false;
  std::atomic<std::size_t> failures_ = 0;
  std::string last_failure_;
};

/// Returns the number in {"number": 17}.
std::optional<std::uint64_t> number_in(const std::string& body) {
  const auto name = body.find("\"number\"");
  const auto begin = name == std::string::npos ? name : body.find_first_of("0123456789", name);
  std::uint64_t value = 0;
  if (begin == std::string::npos ||
      std::from_chars(body.data() + begin, body.data() + body.size(), value).ec != std::errc{})
    return std::nullopt;
  return value;
}

http_answer serve_user(batcher& by, const shard& model, const http_request& asked) try {
  if (asked.method == "GET" && asked.path == "/status") return {200, by.status()};
  if (asked.method != "POST" || asked.path != "/v1/generate") return {404, "{\"error\": \"unknown path\"}"};
  const auto number = number_in(asked.body);
  if (!number) return {400, "{\"error\": \"the body is not {\\\"number\\\": N}\"}"};
  const answer got = by.ask(tokens_of(*number, model)).get();
  std::string text = "{\"number\": " + std::to_string(*number) + ", \"step\": " + std::to_string(got.step) +
                     ", \"epoch\": " + to_string(got.epoch) + ", \"answer\": [";
  char digits[32];
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const auto size = std::snprintf(digits, sizeof digits, i == 0 ? "%.9g" : ", %.9g", got.values[i]);
    text.append(digits, static_cast<std::size_t>(size));
  }
  return {200, text + "]}"};
} catch (const std::future_error&) {
  return {503, "{\"error\": \"the driver ends\"}"};
}

} // namespace

int run_driver(const command_line& line) {
  const shard model = model_of(line);
  std::optional<batcher> by;
  by.emplace(troupe::world_driver{line.settings()}, model, line.text("--results-at", "127.0.0.1"),
             line.number<std::size_t>("--ballast", 0));
  http_server front{line.text("--bind", "127.0.0.1"), line.number<std::uint16_t>("--port", 0),
                    line.number<std::size_t>("--users", 32),
                    [&](const http_request& asked) { return serve_user(*by, model, asked); }};
  std::printf("listening at port %d\n", front.port());
  return by->run() ? 0 : out_of_its_world;
}
