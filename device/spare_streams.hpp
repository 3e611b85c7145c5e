/// Spare streams. Returning them makes it possible to create new streams while the device hangs.
#pragma once

#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// CUDA allocates the resources of streams on the device in blocks of about forty. The thread that needs the next block
/// waits until nothing runs on the device any more. If an operation hangs there, it waits indefinitely. A world can be
/// formed beside such an operation. It therefore creates spare streams ahead of time and returns them when it forms;
/// new streams then use their resources. (docs/design/0032-spare-streams.md)
///
/// Threads: all functions may be called from any thread.
class spare_streams {
public:
  /// Holds no streams yet.
  spare_streams(std::shared_ptr<device> where, std::size_t wanted) : device_{std::move(where)}, wanted_{wanted} {}
  spare_streams(const spare_streams&) = delete;
  spare_streams& operator=(const spare_streams&) = delete;

  /// Creates the missing streams. May wait for the device. Errors: those of the driver; streams created so far are
  /// kept.
  void fill();
  /// Destroys all spare streams. The same number of streams can then be created at once without waiting.
  void give_back();
  /// Returns the current number of spare streams.
  [[nodiscard]] std::size_t size() const;

private:
  std::shared_ptr<device> device_;
  std::size_t wanted_;
  mutable std::mutex guard_;
  std::vector<stream> kept_;
};

} // namespace troupe
