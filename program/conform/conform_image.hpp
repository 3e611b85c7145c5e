/// One rank's memory during a conformance run: ranges between guard zones, filled and compared as a whole.
#pragma once

#include <troupe/program/conform/conform_case.hpp>

#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace troupe::program {

/// A block of device or pinned memory of one rank with images in pinned memory of what it must hold before, and has
/// been seen to hold after, and one of what is expected then.
/// A round: clear(), place()…, upload(), what is tested, download(), find_fault() of each place.
class conform_image {
public:
  conform_image(const world& where, rank owner, memory_kind kind, std::size_t size_bytes);

  /// What a range takes with its guard zones.
  [[nodiscard]] static std::size_t room_for(const conform_range& range);
  [[nodiscard]] bool has_room_for(std::size_t size_bytes) const noexcept {
    return size_bytes <= seen_.size_bytes() - used_;
  }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return seen_.size_bytes(); }

  void clear();
  /// Puts \p range behind those placed before, with \p values from its source. Returns its number.
  std::size_t place(conform_range range, std::shared_ptr<const reference_values> values);
  /// What an operation is given.
  [[nodiscard]] const buffer& memory_of(std::size_t number) const { return slots_[number].memory; }

  /// To be asked of the owner.
  [[nodiscard]] copy upload() const { return {used(before_), used(memory_)}; }
  [[nodiscard]] copy download() const { return {used(memory_), used(seen_)}; }

  /// What is wrong with the \p number-th range or its guard zones, in one line; empty for nothing.
  [[nodiscard]] std::string find_fault(std::size_t number);

private:
  struct slot {
    conform_range range;
    std::shared_ptr<const reference_values> values;
    std::size_t begin = 0; ///< Of the guard zone before it.
    std::size_t front = 0;
    std::size_t end = 0; ///< Of the guard zone behind it.
    buffer memory{};
  };

  [[nodiscard]] buffer used(const buffer& whole) const { return whole.slice(0, used_); }
  void write_factor(const slot& one);
  /// Takes as expected what was seen where it is right too.
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
