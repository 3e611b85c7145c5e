/// Buffers: reference-counted handles to ranges of memory blocks. Requests take their operands as buffers.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace troupe {

/// Owns one allocation. The destructor returns the memory to its source.
class memory_block {
public:
  /// Describes \p size_bytes at \p address. For use by allocators. \p where: null for memory of another process.
  memory_block(std::shared_ptr<device> where, memory_kind kind, void* address, std::size_t size_bytes);
  memory_block(const memory_block&) = delete;
  memory_block& operator=(const memory_block&) = delete;
  virtual ~memory_block() = default;

  /// Defers reuse of the block until the work currently in \p stream has finished.
  /// Errors: unsupported if troupe does not control the reuse of the memory; those of event_behind().
  virtual void note_use(stream_ref stream) = 0;

  /// Returns the device that holds the memory, or whose driver can access it; null for memory of another process.
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }
  /// Returns the kind of memory: device memory, or the kind of host memory.
  [[nodiscard]] memory_kind kind() const noexcept { return kind_; }
  /// Returns the epoch of the device in which the block was allocated.
  [[nodiscard]] device_epoch made_in() const noexcept { return made_in_; }
  /// Returns the address of the first byte.
  [[nodiscard]] std::byte* address() const noexcept { return static_cast<std::byte*>(address_); }
  /// Returns the size in bytes.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

protected:
  /// Returns a new event behind the work currently in \p stream, for note_use(). Errors: wrong_device for a stream of
  /// another device; invalid_argument for a stream in capture, because a captured event is never reached.
  [[nodiscard]] event event_behind(stream_ref stream) const;

private:
  std::shared_ptr<device> device_;
  memory_kind kind_;
  device_epoch made_in_;
  void* address_;
  std::size_t size_bytes_;
};

/// A reference-counted range of a memory block. Copies share the block; destroying the last one releases it.
///
/// Lifetime: a request in flight holds its buffers until its outcome (BUF-1). troupe does not know the work of your own
/// streams. Keep a copy of the handle until that work is done, or call note_use().
/// Threads: distinct handles may be used from any thread. One handle must not be used concurrently without
/// synchronization, like any value.
class buffer {
public:
  /// Creates an empty handle of size 0.
  buffer() noexcept = default;
  /// Refers to all of \p block.
  explicit buffer(std::shared_ptr<memory_block> block) noexcept;

  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }
  /// Returns the address of the first byte; nullptr for an empty handle.
  [[nodiscard]] std::byte* data() const noexcept;
  /// Returns the size in bytes; 0 for an empty handle.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  /// Returns the range [\p offset_bytes, \p offset_bytes + \p length_bytes) of this buffer.
  /// Errors: invalid_argument if the range exceeds the buffer.
  [[nodiscard]] buffer slice(std::size_t offset_bytes, std::size_t length_bytes) const;

  /// Returns the kind of memory: device memory, or the kind of host memory.
  [[nodiscard]] memory_kind kind() const noexcept;
  /// Returns whether the handle refers to host memory, pinned or pageable; false for an empty handle.
  [[nodiscard]] bool on_host() const noexcept { return block_ != nullptr && kind() != memory_kind::device; }
  /// Returns the device that holds the memory or, for host memory, the device whose driver can access it; nullptr for
  /// an empty handle and for memory of another process (remote_buffer).
  [[nodiscard]] const device* where() const noexcept;
  /// Returns whether the device has lost its memory since the block was allocated (BUF-2).
  [[nodiscard]] bool stale() const noexcept;
  /// Defers reuse of the memory until the work currently in \p stream has finished. Does nothing for an empty handle.
  /// Errors: unsupported for memory of another owner, of the host or of another process: keep a handle instead.
  /// wrong_device for a stream of another device. invalid_argument for a stream in capture: keep a handle for as long
  /// as the graph exists.
  void note_use(stream_ref stream) const;
  /// Returns the block; null for an empty handle.
  [[nodiscard]] const std::shared_ptr<memory_block>& block() const noexcept { return block_; }
  /// Returns the offset of the range in the block, in bytes.
  [[nodiscard]] std::size_t offset_bytes() const noexcept { return offset_bytes_; }

  /// Returns host memory as elements of type \p T. Errors: invalid_argument (device memory, an address that is not
  /// aligned for \p T, or a size that is not a multiple of its size).
  template <class T>
  [[nodiscard]] std::span<T> host_span() const {
    return {static_cast<T*>(host_address(sizeof(T), alignof(T))), size_bytes_ / sizeof(T)};
  }

private:
  [[nodiscard]] void* host_address(std::size_t element_bytes, std::size_t alignment) const;

  std::shared_ptr<memory_block> block_;
  std::size_t offset_bytes_ = 0;
  std::size_t size_bytes_ = 0;
};

/// Allocates page-locked host memory that the driver of \p where can access. \p size_bytes may be 0. Contents:
/// undefined. Lifetime: keep a handle until all work that uses the memory has finished. Errors: out_of_memory.
[[nodiscard]] buffer allocate_pinned(const std::shared_ptr<device>& where, std::size_t size_bytes);

/// Returns a buffer for memory of another owner. \p owner is held as long as any handle lives.
/// Errors: invalid_argument (null, or the address is not device or pinned memory: see adopt_host()), wrong_device.
[[nodiscard]] buffer adopt(const std::shared_ptr<device>& where, void* address, std::size_t size_bytes,
                           std::shared_ptr<void> owner);

/// Returns a buffer for any host memory of another owner. The memory is pinned if the driver of \p where knows it as
/// pinned (also through cudaHostRegister), otherwise pageable. Requests access pageable memory through pinned chunks
/// (docs/host-memory.md). \p size_bytes may be 0.
/// Errors: invalid_argument (null with a size, or device memory).
[[nodiscard]] buffer adopt_host(const std::shared_ptr<device>& where, void* address, std::size_t size_bytes,
                                std::shared_ptr<void> owner);

} // namespace troupe
