#include <troupe/actors.hpp>
#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/program/support/counted_reply.hpp>
#include <troupe/program/support/fault_traffic.hpp>

#include <troupe/runtime/interop/ask_into.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe::program {

namespace {

using namespace std::chrono_literals;

/// The time after which a client sends a refused request again.
constexpr nanoseconds pause_between_refusals = 50us;
/// Results are written to these sets in turn. A set must stay unused while a request with unknown outcome may still
/// write to it.
constexpr std::size_t result_sets = 3;
/// Inputs, used in turn, so that no result equals the previous one.
constexpr std::size_t value_sets = 2;

float value_of(rank self, std::size_t set) {
  return static_cast<float>((self.value() + 1) * (static_cast<int>(set) * 2 + 1));
}

} // namespace

class fault_traffic::client {
public:
  client(world where, const traffic_plan& plan) : where_{std::move(where)}, plan_{plan} {
    const std::size_t bytes = plan_.element_count * sizeof(float);
    const buffer host = where_.allocate_pinned(bytes);
    homes_ = where_.status().origins;
    if (plan_.on_registered) {
      for (auto& values : values_) values = where_.allocate_all(bytes);
      for (result_set& one : results_) one.on_device = where_.allocate_all(bytes);
    }
    for (const rank self : where_.local_ranks()) {
      for (std::size_t set = 0; set < value_sets; ++set) {
        std::ranges::fill(host.host_span<float>(), value_of(self, set));
        if (!plan_.on_registered) values_[set].push_back(where_.allocate(self, bytes));
        where_.copy(self, host, values_[set][worth_[set].size()]).get();
        worth_[set].push_back(value_of(self, set));
      }
      for (result_set& one : results_) {
        if (!plan_.on_registered) one.on_device.push_back(where_.allocate(self, bytes));
        one.on_host.push_back(where_.allocate_pinned(bytes));
      }
    }
    replies_.reserve(plan_.kept_replies);
  }

  void run(const std::stop_token& stop) {
    for (std::size_t round = 0; !stop.stop_requested() && !gave_up_; ++round) ask(round % value_sets);
  }

  void begin() {
    const std::lock_guard lock{mutex_};
    replies_.clear();
    unkept_ = 0;
    first_failure_.reset();
  }
  void add_to(std::vector<seen_reply>& all) const {
    const std::lock_guard lock{mutex_};
    all.insert(all.end(), replies_.begin(), replies_.end());
  }
  [[nodiscard]] std::optional<seen_reply> find(const std::function<bool(const seen_reply&)>& wanted) const {
    const std::lock_guard lock{mutex_};
    const auto found = std::ranges::find_if(replies_, wanted);
    return found == replies_.end() ? std::nullopt : std::optional{*found};
  }
  [[nodiscard]] std::size_t unkept() const {
    const std::lock_guard lock{mutex_};
    return unkept_;
  }
  [[nodiscard]] std::optional<std::pair<time_point, error>> first_failure() const {
    const std::lock_guard lock{mutex_};
    return first_failure_;
  }
  void add_to(traffic_counts& sum) const {
    const std::lock_guard lock{mutex_};
    sum += counts_;
    sum.doubled += doubled_->load();
  }

private:
  struct result_set {
    std::vector<buffer> on_device, on_host;
  };

  void ask(std::size_t set) {
    const result_set& into = results_[round_of_results_ % result_sets];
    const world_event here = where_.status();
    const std::vector<std::size_t> who = homes_of(here);
    std::vector<operation> parts;
    for (const std::size_t i : who)
      parts.emplace_back(all_reduce{.send = values_[set][i], .recv = into.on_device[i], .count = plan_.element_count});
    const epoch now = here.epoch;
    const time_point asked = monotonic_clock{}.now();
    const auto reply = std::make_shared<counted_reply>(doubled_);
    ask_into(where_, world_request{std::move(parts), now}, counted_reply::answer_to(reply));
    const auto result = settle(*reply);
    if (!result) return;
    const error* const failure = failure_of(*result);
    keep({asked, monotonic_clock{}.now(), now, failure != nullptr ? failure->code : errc::none}, failure);
    if (failure != nullptr) return step_back(*failure);
    verify(into, set, now, who);
  }

  /// Returns, for each rank of the current epoch, the index of its memory.
  [[nodiscard]] std::vector<std::size_t> homes_of(const world_event& now) const {
    std::vector<std::size_t> all;
    for (const rank one : now.origins)
      all.push_back(static_cast<std::size_t>(std::ranges::find(homes_, one) - homes_.begin()));
    return all;
  }

  void verify(const result_set& of, std::size_t set, epoch now, const std::vector<std::size_t>& who) {
    std::vector<std::shared_ptr<counted_reply>> copies;
    float sum = 0;
    for (std::size_t k = 0; k < who.size(); ++k) {
      const std::size_t i = who[k];
      sum += worth_[set][i];
      copies.push_back(std::make_shared<counted_reply>(doubled_));
      try {
        ask_into(where_, rank{static_cast<int>(k)}, {.what = copy{of.on_device[i], of.on_host[i]}, .epoch = now},
                 counted_reply::answer_to(copies.back()));
      } catch (const exception&) {
        return; // Ranks have left meanwhile.
      }
    }
    std::optional<error> failed;
    for (const auto& one : copies) {
      const auto result = settle(*one);
      if (!result) return;
      if (const error* const why = failure_of(*result)) failed = failed && failed->effect > why->effect ? failed : *why;
    }
    if (failed) return step_back(*failed);
    const bool right = std::ranges::all_of(who, [&](std::size_t i) {
      return std::ranges::all_of(of.on_host[i].host_span<float>(), [&](float seen) { return seen == sum; });
    });
    const std::lock_guard lock{mutex_};
    ++counts_.verified;
    counts_.wrong += right ? 0 : 1;
  }

  /// Waits for the outcome and records it. Returns nothing if none arrives; the client then sends no more requests.
  [[nodiscard]] std::optional<outcome> settle(counted_reply& reply) {
    auto result = reply.wait(plan_.patience);
    const std::lock_guard lock{mutex_};
    ++counts_.asked;
    if (!result) {
      ++counts_.unanswered;
      gave_up_ = true;
      return std::nullopt;
    }
    const error* const failure = failure_of(*result);
    ++(failure != nullptr ? counts_.failed : counts_.succeeded);
    if (failure != nullptr && failure->effect == effect::rejected) ++counts_.rejected;
    return result;
  }

  void keep(const seen_reply& one, const error* failure) {
    const std::lock_guard lock{mutex_};
    if (failure != nullptr && !first_failure_) first_failure_ = {one.replied, *failure};
    if (replies_.size() < plan_.kept_replies)
      replies_.push_back(one);
    else
      ++unkept_;
  }

  void step_back(const error& why) {
    if (why.effect == effect::unknown_outcome) ++round_of_results_;
    std::this_thread::sleep_for(pause_between_refusals);
  }

  world where_;
  const traffic_plan plan_;
  std::array<std::vector<buffer>, value_sets> values_;
  std::array<std::vector<float>, value_sets> worth_; ///< The value of each rank's inputs, by set.
  std::vector<rank> homes_;                          ///< The owners of the memory, as ranks of the first epoch.
  std::array<result_set, result_sets> results_;
  std::size_t round_of_results_ = 0;
  std::atomic<bool> gave_up_{false};
  std::shared_ptr<std::atomic<std::size_t>> doubled_ = std::make_shared<std::atomic<std::size_t>>(0);

  mutable std::mutex mutex_;
  std::vector<seen_reply> replies_;
  std::size_t unkept_ = 0;
  std::optional<std::pair<time_point, error>> first_failure_;
  traffic_counts counts_;
};

fault_traffic::fault_traffic(const world& where, const traffic_plan& plan) {
  for (std::size_t i = 0; i < plan.clients; ++i) clients_.push_back(std::make_shared<client>(where, plan));
  for (const auto& one : clients_) threads_.emplace_back([one](const std::stop_token& stop) { one->run(stop); });
}

fault_traffic::~fault_traffic() {
  stop();
}

void fault_traffic::begin() {
  for (const auto& one : clients_) one->begin();
}

std::vector<seen_reply> fault_traffic::replies() const {
  std::vector<seen_reply> all;
  for (const auto& one : clients_) one->add_to(all);
  return all;
}

std::optional<seen_reply> fault_traffic::await(const std::function<bool(const seen_reply&)>& wanted,
                                               nanoseconds at_most) const {
  const time_point until = later(monotonic_clock{}.now(), at_most);
  for (;;) {
    std::optional<seen_reply> first;
    for (const auto& one : clients_)
      if (const auto found = one->find(wanted); found && (!first || found->replied < first->replied)) first = found;
    if (first || monotonic_clock{}.now() >= until) return first;
    std::this_thread::sleep_for(1ms);
  }
}

std::size_t fault_traffic::unkept() const {
  std::size_t sum = 0;
  for (const auto& one : clients_) sum += one->unkept();
  return sum;
}

std::optional<error> fault_traffic::first_failure() const {
  std::optional<std::pair<time_point, error>> first;
  for (const auto& one : clients_)
    if (auto found = one->first_failure(); found && (!first || found->first < first->first)) first = std::move(found);
  return first ? std::optional{first->second} : std::nullopt;
}

void fault_traffic::stop() {
  for (auto& one : threads_) one.request_stop();
  threads_.clear();
}

traffic_counts fault_traffic::counts() const {
  traffic_counts sum;
  for (const auto& one : clients_) one->add_to(sum);
  return sum;
}

} // namespace troupe::program
