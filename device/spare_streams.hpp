/// Streams that are kept so that others can be made while the device hangs.
#pragma once

#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// CUDA takes what streams are made of from the device in blocks of some forty, and whoever needs the next block waits
/// until nothing runs on the device any more: with an operation that hangs there, for ever. A world forms beside such
/// operations, so it makes streams ahead, and gives them back when it forms: what is made next is made of them.
/// (docs/design/0032-spare-streams.md)
///
/// Threads: safe from any.
class spare_streams {
public:
  /// None yet.
  spare_streams(std::shared_ptr<device> where, std::size_t wanted) : device_{std::move(where)}, wanted_{wanted} {}
  spare_streams(const spare_streams&) = delete;
  spare_streams& operator=(const spare_streams&) = delete;

  /// Makes those that are missing. May wait for the device. Errors: the driver's; those made so far are kept.
  void fill();
  /// Gives all back, so that as many streams can be made at once without waiting.
  void give_back();
  /// How many there are now.
  [[nodiscard]] std::size_t size() const;

private:
  std::shared_ptr<device> device_;
  std::size_t wanted_;
  mutable std::mutex guard_;
  std::vector<stream> kept_;
};

} // namespace troupe
