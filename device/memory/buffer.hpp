/// Memory that requests carry: a counted handle onto a range of a block.
#pragma once

#include <troupe/device/device.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

namespace troupe {

/// Owns one allocation; its destructor gives the memory back to where it came from.
class memory_block {
public:
  /// For whoever allocates: \p size_bytes from \p address on.
  memory_block(std::shared_ptr<device> where, memory_kind kind, void* address, std::size_t size_bytes);
  memory_block(const memory_block&) = delete;
  memory_block& operator=(const memory_block&) = delete;
  virtual ~memory_block() = default;

  /// The block must not be reused before the work now in \p stream has finished.
  /// Errors: unsupported where the memory is not troupe's to reuse.
  virtual void note_use(stream_ref stream) = 0;

  /// The device it lives on, or whose driver reaches it.
  [[nodiscard]] const std::shared_ptr<device>& where() const noexcept { return device_; }
  /// Device memory, or which kind of host memory.
  [[nodiscard]] memory_kind kind() const noexcept { return kind_; }
  /// The device's life in which it was allocated.
  [[nodiscard]] device_epoch made_in() const noexcept { return made_in_; }
  /// First byte.
  [[nodiscard]] std::byte* address() const noexcept { return static_cast<std::byte*>(address_); }
  /// Size in bytes.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

private:
  std::shared_ptr<device> device_;
  memory_kind kind_;
  device_epoch made_in_;
  void* address_;
  std::size_t size_bytes_;
};

/// A range of a memory block, counted: copies share the block, the last one gives it back.
///
/// Lifetime: an in-flight request holds its buffers until its outcome (BUF-1). Work of your own
/// streams is not known to troupe: keep a copy until it is done, or call note_use().
/// Threads: distinct handles may be used from any threads; one handle like any value.
class buffer {
public:
  /// Names no memory; size 0.
  buffer() noexcept = default;
  /// All of \p block.
  explicit buffer(std::shared_ptr<memory_block> block) noexcept;

  [[nodiscard]] explicit operator bool() const noexcept { return block_ != nullptr; }
  /// First byte; nullptr for an empty handle.
  [[nodiscard]] std::byte* data() const noexcept;
  /// Size in bytes; 0 for an empty handle.
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  /// The range [\p offset_bytes, \p offset_bytes + \p length_bytes) of this one.
  /// Errors: invalid_argument when it reaches beyond.
  [[nodiscard]] buffer slice(std::size_t offset_bytes, std::size_t length_bytes) const;

  /// Device memory, or which kind of host memory.
  [[nodiscard]] memory_kind kind() const noexcept;
  /// Whether it names host memory, pinned or pageable; false for an empty handle.
  [[nodiscard]] bool on_host() const noexcept { return block_ != nullptr && kind() != memory_kind::device; }
  /// The device it lives on, or, of host memory, the one whose driver reaches it; nullptr for an empty handle.
  [[nodiscard]] const device* where() const noexcept;
  /// Whether the device has lost its memory since this was made (BUF-2).
  [[nodiscard]] bool stale() const noexcept;
  /// Defers reuse of the memory until the work now in \p stream has finished.
  void note_use(stream_ref stream) const;

  /// Host memory as elements. Errors: invalid_argument for device memory or a length that is no multiple.
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

/// Page-locked host memory, reachable from \p where's driver. \p size_bytes may be 0.
[[nodiscard]] buffer allocate_pinned(const std::shared_ptr<device>& where, std::size_t size_bytes);

/// A buffer onto memory that somebody else owns; \p owner is held for as long as any handle lives.
/// Errors: invalid_argument (null, or the address is not device or pinned memory: see adopt_host()), wrong_device.
[[nodiscard]] buffer adopt(const std::shared_ptr<device>& where, void* address, std::size_t size_bytes,
                           std::shared_ptr<void> owner);

/// The same for any host memory: pinned where the driver of \p where knows it as such (also by cudaHostRegister), else
/// pageable, which requests reach through pinned chunks (docs/host-memory.md). \p size_bytes may be 0.
/// Errors: invalid_argument (null with a size, or device memory).
[[nodiscard]] buffer adopt_host(const std::shared_ptr<device>& where, void* address, std::size_t size_bytes,
                                std::shared_ptr<void> owner);

} // namespace troupe
