/// The obligation to reply with a value of any type.
#pragma once

#include <troupe/device/error.hpp>

#include <functional>
#include <utility>
#include <variant>

namespace troupe {

/// Replies once, explicitly or through the destructor (ONE-1). Threads: one at a time.
template <class Value>
class value_promise {
public:
  using sink = std::function<void(std::variant<Value, error>&&)>;

  explicit value_promise(sink to) : sink_{std::move(to)} {}
  value_promise(const value_promise&) = delete;
  value_promise& operator=(const value_promise&) = delete;
  ~value_promise() { deliver(error{.code = errc::abandoned, .text = "the world ended before it had answered"}); }

  /// Delivers \p result. Does nothing if it has been called before.
  void deliver(std::variant<Value, error> result) {
    if (const sink to = std::exchange(sink_, nullptr)) to(std::move(result));
  }

private:
  sink sink_;
};

} // namespace troupe
