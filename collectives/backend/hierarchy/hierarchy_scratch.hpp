/// Memory for intermediate results between the steps of a composed operation.
#pragma once

#include <troupe/device/event.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {

/// One device's scratch memory, shared by its communicators. A new world may form beside one that hangs, and growing a
/// pool may then wait for the device (BUF-1). Therefore it has room for two communicators from the start. Threads: safe
/// from any.
class hierarchy_memory {
public:
  /// May wait for the device. Errors: out_of_memory.
  hierarchy_memory(const std::shared_ptr<device>& where, std::size_t size_bytes);

  /// Errors: out_of_memory.
  [[nodiscard]] buffer take() { return take(size_bytes_); }
  [[nodiscard]] buffer take(std::size_t size_bytes) { return pool_->allocate(size_bytes); }
  /// Returns \p scratch for reuse after \p last_use is reached. No thread waits.
  void give_back(buffer scratch, const event& last_use);

private:
  std::size_t size_bytes_;
  std::shared_ptr<memory_pool> pool_;
  std::mutex guard_;
  stream side_; ///< Contains only waits for last uses.
};

/// The scratch memory of each device, created on first use and kept. Threads: safe from any.
class hierarchy_memories {
public:
  explicit hierarchy_memories(std::size_t size_bytes) noexcept : size_bytes_{size_bytes} {}

  /// Returns the scratch memory of \p where. The first call may wait for the device. Errors: out_of_memory.
  [[nodiscard]] std::shared_ptr<hierarchy_memory> of(const std::shared_ptr<device>& where);

private:
  std::size_t size_bytes_;
  std::mutex guard_;
  std::map<std::shared_ptr<device>, std::shared_ptr<hierarchy_memory>> all_;
};

/// One communicator's scratch. It may be destroyed while operations, hung or not, still use it.
class hierarchy_scratch {
public:
  hierarchy_scratch(std::shared_ptr<hierarchy_memory> home, const std::shared_ptr<device>& where)
    : home_{std::move(home)}, memory_{home_->take()}, last_use_{where} {}
  hierarchy_scratch(const hierarchy_scratch&) = delete;
  hierarchy_scratch& operator=(const hierarchy_scratch&) = delete;
  ~hierarchy_scratch();

  [[nodiscard]] const buffer& memory() const noexcept { return memory_; }
  /// Notes that work which uses the scratch has just been launched in \p stream. All such work is in the same stream.
  /// Captured work is not noted, because graphs are destroyed before their communicator.
  void used_in(stream_ref stream);

private:
  std::shared_ptr<hierarchy_memory> home_;
  buffer memory_;
  event last_use_;
};

} // namespace troupe
