/// Helpers with which tests read the outcome of a request or the error of a call.
#pragma once

#include <troupe/completion/reply/reply_promise.hpp>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::tests {

/// Returns the error that \p call threw, or an error with errc::none if it threw nothing.
template <class Call>
error error_of(Call&& call) {
  try {
    call();
  } catch (const exception& thrown) {
    return thrown.why();
  }
  return {};
}

/// Returns the code of error_of(call).
template <class Call>
errc code_of(Call&& call) {
  return error_of(std::forward<Call>(call)).code;
}

/// Records every outcome that its reply promises deliver. Threads: any.
class outcome_log {
public:
  [[nodiscard]] reply_promise make_reply_promise() const {
    return troupe::make_reply_promise([seen = seen_](outcome result) {
      const std::lock_guard lock{seen->mutex};
      seen->outcomes.push_back(std::move(result));
    });
  }
  [[nodiscard]] std::size_t count() const { return all().size(); }
  [[nodiscard]] std::vector<outcome> all() const {
    const std::lock_guard lock{seen_->mutex};
    return seen_->outcomes;
  }
  /// Returns the error of the first outcome: errc::none if it succeeded, errc::internal if there is no outcome yet.
  [[nodiscard]] error failure() const {
    const auto seen = all();
    if (seen.empty()) return {.code = errc::internal, .text = "no outcome yet"};
    const error* found = failure_of(seen.front());
    return found != nullptr ? *found : error{};
  }
  /// Returns the first outcome, which must be a success.
  [[nodiscard]] completion success() const { return std::get<completion>(all().at(0)); }

private:
  struct record {
    std::mutex mutex;
    std::vector<outcome> outcomes;
  };
  std::shared_ptr<record> seen_ = std::make_shared<record>();
};

} // namespace troupe::tests
