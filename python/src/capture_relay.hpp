/// Captures a plan whose kernels a thread of Python enqueues.
#pragma once

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/time.hpp>
#include <troupe/runtime/world.hpp>

#include <pybind11/pybind11.h>

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe::python {

/// One rank's capture. The capture function runs on the GPU's launcher thread, which alone may call NCCL (BLK-1), and
/// would have to take the GIL to call Python. So it waits there, without the GIL, while a thread of Python enqueues
/// kernels into the stream in capture, and makes the launches that this thread passes to it.
///
/// Lifetime: the plan holds this object. Threads: any; launches are made one at a time.
class capture_relay : public std::enable_shared_from_this<capture_relay> {
public:
  /// Begins to capture the rank of this process into \p stream. Returns when the stream is in capture. The caller must
  /// hold the GIL. Errors: those of world::capture(); unsupported (several ranks in this process).
  [[nodiscard]] static std::shared_ptr<capture_relay> begin(troupe::world where, native_stream stream, std::string name,
                                                            nanoseconds deadline);
  capture_relay(const capture_relay&) = delete;
  capture_relay& operator=(const capture_relay&) = delete;

  /// Captures \p what behind the work that is now in the stream. The caller must hold the GIL. Errors: those of
  /// rank_capture::launch(); invalid_argument (the capture has ended).
  void launch(operation what);
  /// Ends the capture, and returns the plan. The caller must hold the GIL. Errors: those of world::capture().
  [[nodiscard]] std::shared_ptr<captured_plan> finish();
  /// Ends the capture at all ranks with an error that has \p why as its text. Does nothing if it has ended.
  void fail(const std::string& why);

private:
  enum class phase { starting, capturing, finishing, failing, ended };

  explicit capture_relay(time_point until) : until_{until} {}
  void serve(rank_capture& mine);
  [[nodiscard]] error make_launch(rank_capture& mine, std::unique_lock<std::mutex>& lock);

  const time_point until_; ///< How long the launcher waits for the thread of Python.
  std::future<std::shared_ptr<captured_plan>> result_;
  std::mutex callers_; ///< Held for one launch.
  std::mutex mutex_;
  std::condition_variable changed_;
  phase phase_ = phase::starting;
  std::optional<operation> asked_;
  std::optional<error> answer_; ///< errc::none: launched.
  std::string why_;
};

void bind_captures(pybind11::module_& module);

} // namespace troupe::python
