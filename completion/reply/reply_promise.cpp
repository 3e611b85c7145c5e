#include <troupe/completion/reply/reply_promise.hpp>

#include <exception>
#include <utility>

namespace troupe {

namespace {

/// Omits the text if there is no memory for it.
std::exception_ptr exception_of(const error& failure) noexcept {
  try {
    return std::make_exception_ptr(exception{failure});
  } catch (...) {
    try {
      return std::make_exception_ptr(exception{{.code = failure.code, .effect = failure.effect}});
    } catch (...) {
      return std::current_exception();
    }
  }
}

class promise_sink final : public outcome_sink {
public:
  [[nodiscard]] std::future<completion> future() { return promise_.get_future(); }

  void deliver(outcome result) noexcept override {
    if (const error* failure = failure_of(result))
      promise_.set_exception(exception_of(*failure));
    else
      promise_.set_value(std::get<completion>(result));
  }

private:
  std::promise<completion> promise_;
};

} // namespace

reply_promise& reply_promise::operator=(reply_promise&& other) noexcept {
  if (this != &other) {
    abandon();
    sink_ = std::move(other.sink_);
    paid_ = std::move(other.paid_);
  }
  return *this;
}

void reply_promise::deliver(outcome result) noexcept {
  const auto sink = std::exchange(sink_, nullptr);
  if (!sink) return;
  paid_.give_back();
  sink->deliver(std::move(result));
}

void reply_promise::abandon() noexcept {
  if (sink_ == nullptr) return;
  // It is not known here whether the work ran, so the outcome is unknown (ONE-2).
  deliver(error{.code = errc::abandoned,
                .effect = effect::unknown_outcome,
                .text = "the request was dropped before it had an outcome: its actor has ended"});
}

std::pair<reply_promise, std::future<completion>> make_future_promise() {
  auto sink = std::make_unique<promise_sink>();
  auto future = sink->future();
  return {reply_promise{std::move(sink)}, std::move(future)};
}

} // namespace troupe
