/// Memory that two processes share by a file descriptor, which neither can shrink or grow: an access never ends in
/// SIGBUS.
#pragma once

#include <troupe/device/file_descriptor.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace troupe {

/// Unmaps shared memory.
struct memory_unmapping {
  std::size_t size_bytes = 0;
  void operator()(std::uint64_t* words) const noexcept;
};

/// A mapped memfd. It is unmapped and closed with the object. Move-only.
class shared_memory {
public:
  /// Makes zeroed memory of \p size_bytes, all of it allocated, and seals its size. The descriptor is closed on exec.
  /// \p name shows up in /proc. Errors: out_of_memory, unsupported.
  [[nodiscard]] static shared_memory create(const std::string& name, std::size_t size_bytes);

  /// Maps memory that another process made. \p what names it, with both sides, for errors. Refuses (internal) a
  /// descriptor that is not memory of the system's page size (ordinary files change their size, huge pages can be used
  /// up), whose seals are missing, or whose size is not \p size_bytes. Errors: internal, out_of_memory.
  [[nodiscard]] static shared_memory open(file_descriptor from, std::size_t size_bytes, const std::string& what);

  /// Aligned to a page.
  [[nodiscard]] std::uint64_t* words() const noexcept { return words_.get(); }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return words_.get_deleter().size_bytes; }
  [[nodiscard]] const file_descriptor& descriptor() const noexcept { return descriptor_; }
  /// Closes the descriptor. The mapping stays.
  void close_descriptor() noexcept { descriptor_.close(); }

private:
  shared_memory(file_descriptor descriptor, std::size_t size_bytes);

  file_descriptor descriptor_;
  std::unique_ptr<std::uint64_t, memory_unmapping> words_;
};

/// Throws the failure of \p call, with the reason in errno.
[[noreturn]] void throw_memory_failure(const char* call, const std::string& text);

} // namespace troupe
