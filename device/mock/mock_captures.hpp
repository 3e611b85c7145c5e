/// Stream captures of the mock: records the work of captured streams and rejects work that cannot be captured.
#pragma once

#include <troupe/device/driver.hpp>
#include <troupe/device/mock/mock_engine.hpp>

#include <atomic>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe {

/// Captures work of streams. If several streams join a capture through events, their work is kept in the order of the
/// calls, which is one of the orders that the events allow.
/// Threads: all functions may be called from any thread.
class mock_captures {
public:
  /// Returns whether any capture is active. If not, no other function of this class needs to be called.
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) > 0; }

  void begin(native_stream stream);
  /// Ends the capture, even if it throws, and returns the captured tasks.
  /// Errors: invalid_argument (no capture was begun in \p stream, the capture is broken, or a stream was not joined).
  [[nodiscard]] std::vector<mock_task_factory> end(native_stream stream);
  [[nodiscard]] capture_status status(native_stream stream) const;

  /// Captures a task. Returns false if \p stream is not being captured. Errors: invalid_argument (the capture is
  /// broken).
  [[nodiscard]] bool keep(native_stream stream, const mock_task_factory& make);
  /// If \p stream is being captured, breaks the capture and throws, because \p what cannot be captured.
  void refuse(native_stream stream, const char* what);

  /// Captures a record of \p event. Returns false if \p stream is not being captured.
  [[nodiscard]] bool record(native_event event, native_stream stream);
  /// Discards the captured record of \p event, because the event was recorded outside of captures or destroyed.
  void forget(native_event event);
  /// Captures a wait. Returns false if neither the stream nor the event belongs to a capture. \p recorded: the event
  /// has been recorded outside of captures.
  [[nodiscard]] bool wait(native_stream stream, native_event event, bool recorded);
  /// Breaks the capture and throws if the last record of \p event was captured.
  void refuse_query(native_event event) const;

private:
  struct recording {
    /// A stream of the capture: the number of its tasks, and how many of them other streams have waited for.
    struct member {
      std::size_t task_count = 0;
      std::size_t joined_count = 0;
    };
    native_stream origin = nullptr;
    std::vector<mock_task_factory> tasks{};
    std::map<native_stream, member> members{};
    std::string broken{}; ///< The reason why the capture is broken; empty if it is not.
  };
  struct mark {
    std::shared_ptr<recording> where;
    native_stream stream;
    std::size_t task_count;
  };

  [[nodiscard]] std::shared_ptr<recording> find(native_stream stream) const;
  static void throw_if_broken(const recording& one);
  [[noreturn]] static void break_off(recording& one, std::string why);

  std::atomic<std::size_t> count_{0};
  mutable std::mutex mutex_;
  std::map<native_stream, std::shared_ptr<recording>> streams_;
  std::map<native_event, mark> events_;
};

} // namespace troupe
