/// Streams of the mock in capture: what is kept of their work, and what cannot be.
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

/// Makes a task afresh, since one that has run is used up.
using mock_task_factory = std::function<std::unique_ptr<mock_task>()>;

/// Where streams join a capture by events, their work is kept in the order of the calls: one of those that the events
/// allow. Threads: safe from any.
class mock_captures {
public:
  /// Whether there is any capture: without one nothing else need be asked.
  [[nodiscard]] bool any() const noexcept { return count_.load(std::memory_order_acquire) > 0; }

  void begin(native_stream stream);
  /// Errors: invalid_argument (no capture began here, it is broken, a stream was not joined); it has ended all the
  /// same.
  [[nodiscard]] std::vector<mock_task_factory> end(native_stream stream);
  [[nodiscard]] capture_status status(native_stream stream) const;

  /// False where \p stream is not in capture. Errors: invalid_argument (its capture is broken).
  [[nodiscard]] bool keep(native_stream stream, const mock_task_factory& make);
  /// Throws and breaks the capture where \p stream is in one: \p what cannot be captured.
  void refuse(native_stream stream, const char* what);

  /// A record in a stream that is in capture; false in any other.
  [[nodiscard]] bool record(native_event event, native_stream stream);
  /// A record elsewhere, or the event's end.
  void forget(native_event event);
  /// A wait that concerns a capture; false where none is. \p recorded: the event has been recorded outside of captures.
  [[nodiscard]] bool wait(native_stream stream, native_event event, bool recorded);
  /// Throws where the event's last record was captured.
  void refuse_query(native_event event) const;

private:
  struct recording {
    /// A stream that takes part: how much it was given, and how much of that the others have waited for.
    struct member {
      std::size_t given = 0;
      std::size_t joined = 0;
    };
    native_stream origin = nullptr;
    std::vector<mock_task_factory> tasks{};
    std::map<native_stream, member> members{};
    std::string broken{}; ///< By what; empty: not broken.
  };
  struct mark {
    std::shared_ptr<recording> where;
    native_stream stream;
    std::size_t given;
  };

  [[nodiscard]] std::shared_ptr<recording> find(native_stream stream) const;
  static void expect_whole(const recording& one);
  [[noreturn]] static void break_off(recording& one, std::string why);

  std::atomic<std::size_t> count_{0};
  mutable std::mutex guard_;
  std::map<native_stream, std::shared_ptr<recording>> streams_;
  std::map<native_event, mark> events_;
};

} // namespace troupe
