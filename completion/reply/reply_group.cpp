#include <troupe/completion/reply/reply_group.hpp>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// The sink of all parts' answers.
class gathered final : public outcome_sink {
public:
  gathered(reply_promise whole, ticket name, std::size_t part_count)
    : whole_{std::move(whole)}, ticket_{name}, missing_{part_count}, held_by_{part_count} {}

  void deliver(outcome part) noexcept override {
    {
      const std::lock_guard lock{guard_};
      if (auto* failure = std::get_if<error>(&part))
        take(std::move(*failure));
      else
        take(std::get<completion>(part));
      if (--missing_ > 0) return;
    }
    whole_.deliver(conclusion());
  }

  void let_go() noexcept override {
    if (held_by_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Returns the listener of the whole request, which counts the parts.
  [[nodiscard]] std::shared_ptr<launch_listener> listener() const noexcept override { return whole_.listener(); }

private:
  void take(error&& failure) {
    may_have_run_ = may_have_run_ || failure.effect == effect::unknown_outcome;
    if (failure.undefined) undefined_.push_back(failure.undefined);
    is_unlisted_ = is_unlisted_ || (failure.effect == effect::unknown_outcome && !failure.undefined);
    if (!failure_) failure_ = std::move(failure);
  }

  void take(const completion& part) {
    may_have_run_ = true;
    if (!latest_) {
      latest_ = part;
      return;
    }
    latest_->times.queued = std::min(latest_->times.queued, part.times.queued);
    latest_->times.launched = std::max(latest_->times.launched, part.times.launched);
    latest_->times.done = std::max(latest_->times.done, part.times.done);
  }

  [[nodiscard]] outcome conclusion() {
    if (!failure_) {
      latest_->ticket = ticket_;
      latest_->launch = 0;
      return *latest_;
    }
    failure_->ticket = ticket_;
    // The list is empty if the parts that may have run are done and the others certainly did not run.
    if (may_have_run_ && (!undefined_.empty() || !is_unlisted_)) failure_->undefined = all_undefined();
    return may_have_run_ ? with_unknown_outcome(std::move(*failure_)) : std::move(*failure_);
  }

  /// Returns the lists of all parts, in the order of ranks; null if there is no memory for it.
  [[nodiscard]] std::shared_ptr<const undefined_buffers> all_undefined() const noexcept {
    try {
      auto all = std::make_shared<undefined_buffers>();
      for (const auto& one : undefined_) all->insert(all->end(), one->begin(), one->end());
      std::ranges::stable_sort(*all, {}, &undefined_buffer::rank);
      return all;
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  reply_promise whole_;
  ticket ticket_;
  std::mutex guard_;
  std::size_t missing_;
  bool may_have_run_ = false;
  std::optional<error> failure_;
  std::vector<std::shared_ptr<const undefined_buffers>> undefined_; ///< Lists of the parts whose outcome is unknown.
  bool is_unlisted_ = false;                                        ///< Such a part has no list.
  std::optional<completion> latest_;
  std::atomic<std::size_t> held_by_;
};

} // namespace

divided_answer divide_promise(reply_promise whole, ticket name, std::size_t part_count) {
  divided_answer parts;
  parts.reserve(part_count); // first: nothing may fail once the parts refer to the group
  auto* const group = std::make_unique<gathered>(std::move(whole), name, part_count).release();
  for (std::size_t i = 0; i < part_count; ++i) parts.emplace_back(*group);
  return parts;
}

} // namespace troupe
