/// Manages the memory of one rank during a conformance run: ranges between guard zones, filled and compared as a whole.
#pragma once

#include <troupe/program/conform/conform_pieces.hpp>

#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

/// Computes the reference values of a source (dtype, reduction, kind of values) when they are first needed, and keeps
/// them. Threads: any.
class known_values {
public:
  /// \p seed determines the inputs of \p ranks ranks.
  known_values(int ranks, std::uint64_t seed) : ranks_{ranks}, seed_{seed} {}
  [[nodiscard]] std::shared_ptr<const reference_values> of(const value_source& source);

private:
  int ranks_;
  std::uint64_t seed_;
  std::mutex mutex_;
  std::map<value_source, std::shared_ptr<const reference_values>> values_;
};

/// A block of one rank's device or pinned memory. Three images belong to it: in pinned memory the contents before and
/// the contents seen afterwards, and in plain host memory the expected contents. One round is: clear(), place() for
/// each range, upload(), the tested operations, download(), find_fault() for each range.
class conform_image {
public:
  conform_image(const world& where, rank owner, memory_kind kind, std::size_t size_bytes);
  /// The memory of a rank in another process. Its contents are neither written nor compared here.
  explicit conform_image(buffer elsewhere) : memory_{std::move(elsewhere)} {}

  /// Returns the bytes that a range needs together with its guard zones.
  [[nodiscard]] static std::size_t room_for(const conform_range& range);
  [[nodiscard]] bool has_room_for(std::size_t size_bytes) const noexcept {
    return size_bytes <= memory_.size_bytes() - used_;
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return memory_.size_bytes(); }
  [[nodiscard]] bool is_elsewhere() const noexcept { return !seen_; }
  /// Returns the whole memory.
  [[nodiscard]] const buffer& memory() const noexcept { return memory_; }

  void clear();
  /// Places \p range behind the ranges placed before. \p values are the reference values of its source; null for the
  /// memory of another process. Returns the number of the range.
  std::size_t place(conform_range range, std::shared_ptr<const reference_values> values);
  /// Places the ranges of rank \p self in \p piece, and appends their numbers to \p numbers. Returns the memory of each
  /// range of \p piece; empty for those of other ranks.
  std::vector<buffer> place(const conform_piece& piece, rank self, known_values& values,
                            std::vector<std::size_t>& numbers);
  /// Returns the range as a buffer, for use as an operand.
  [[nodiscard]] const buffer& memory_of(std::size_t number) const { return slots_[number].memory; }

  /// Return the copies to and from the memory, which must be requested from the rank that owns it.
  [[nodiscard]] copy upload() const { return {used(before_), used(memory_)}; }
  [[nodiscard]] copy download() const { return {used(memory_), used(seen_)}; }

  /// Describes in one line how the \p number-th range or its guard zones differ from the expected contents. Returns an
  /// empty string if they do not.
  [[nodiscard]] std::string find_fault(std::size_t number);

private:
  struct slot {
    conform_range range;
    std::shared_ptr<const reference_values> values;
    std::size_t begin = 0; ///< Start of the guard zone before the range.
    std::size_t front = 0;
    std::size_t end = 0; ///< End of the guard zone behind the range.
    buffer memory{};
  };

  [[nodiscard]] buffer used(const buffer& whole) const { return whole.slice(0, used_); }
  void write_factor(const slot& one);
  /// Copies seen elements that are within the rounding tolerance into the expected contents.
  void allow_for_rounding(const slot& one);
  [[nodiscard]] std::string describe_fault(const slot& one, std::size_t at, std::size_t wrong) const;

  buffer memory_;
  buffer before_;
  buffer seen_;
  std::vector<std::byte> expected_;
  std::vector<slot> slots_;
  std::size_t used_ = 0;
};

} // namespace troupe::program
