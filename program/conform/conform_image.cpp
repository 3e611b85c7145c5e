#include <troupe/program/conform/conform_image.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace troupe::program {

namespace {

constexpr std::size_t guard_bytes = 256;
constexpr std::size_t alignment = 256; ///< The alignment of pool memory.

std::size_t rounded_up(std::size_t bytes) noexcept {
  return (bytes + alignment - 1) / alignment * alignment;
}

/// Writes poison that depends on the position, so that data moved from elsewhere is detected.
void write_poison(std::span<std::byte> image, std::size_t begin, std::size_t end) {
  constexpr std::size_t poison_period = 4'093; // A prime number.
  static const auto poison = [] {
    std::array<std::byte, poison_period> bytes{};
    for (std::size_t i = 0; i < poison_period; ++i) bytes[i] = static_cast<std::byte>(scramble(i));
    return bytes;
  }();
  while (begin < end) {
    const std::size_t at = begin % poison_period;
    const std::size_t bytes = std::min(end - begin, poison_period - at);
    std::memcpy(&image[begin], &poison[at], bytes);
    begin += bytes;
  }
}

bool holds(const std::vector<value_part>& parts, std::size_t element) {
  return std::ranges::any_of(
      parts, [&](const value_part& one) { return element >= one.first && element - one.first < one.count; });
}

} // namespace

std::shared_ptr<const reference_values> known_values::of(const value_source& source) {
  constexpr std::size_t most = 32; // A conformance plan proceeds by dtype and does not return to an earlier one.
  const std::lock_guard lock{mutex_};
  if (values_.size() > most && !values_.contains(source)) values_.clear();
  auto& found = values_[source];
  if (!found) found = std::make_shared<const reference_values>(source.type, source.op, ranks_, seed_, source.kind);
  return found;
}

conform_image::conform_image(const world& where, rank owner, memory_kind kind, std::size_t size_bytes)
  : memory_{kind == memory_kind::device ? where.allocate(owner, size_bytes) : where.allocate_pinned(size_bytes)},
    before_{where.allocate_pinned(size_bytes)},
    seen_{where.allocate_pinned(size_bytes)},
    expected_(size_bytes) {}

std::size_t conform_image::room_for(const conform_range& range) {
  return rounded_up(guard_bytes) + rounded_up((range.shift + range.count) * troupe::size_bytes(range.values.type)) +
         rounded_up(guard_bytes);
}

void conform_image::clear() {
  slots_.clear();
  used_ = 0;
}

std::size_t conform_image::place(conform_range range, std::shared_ptr<const reference_values> values) {
  const std::size_t width = troupe::size_bytes(range.values.type);
  slot made{.range = std::move(range), .values = std::move(values), .begin = used_};
  made.front = made.begin + rounded_up(guard_bytes) + made.range.shift * width;
  made.end = made.begin + room_for(made.range);
  made.memory = memory_.slice(made.front, made.range.count * width);
  used_ = made.end;
  if (is_elsewhere()) {
    slots_.push_back(std::move(made));
    return slots_.size() - 1;
  }

  const auto before = before_.host_span<std::byte>();
  const auto in = [&](std::span<std::byte> image, const value_part& part) {
    return image.subspan(made.front + part.first * width, part.count * width);
  };
  write_poison(before, made.begin, made.end);
  for (const value_part& part : made.range.after) {
    const auto result = in(before, part);
    made.values->fill(part.from, part.from_first, result);
    for (std::byte& one : result) one = ~one;
  }
  for (const value_part& part : made.range.before) made.values->fill(part.from, part.from_first, in(before, part));
  if (made.range.factor_of) write_factor(made);

  std::memcpy(&expected_[made.begin], &before[made.begin], made.end - made.begin);
  for (const value_part& part : made.range.after) made.values->fill(part.from, part.from_first, in(expected_, part));
  slots_.push_back(std::move(made));
  return slots_.size() - 1;
}

std::vector<buffer> conform_image::place(const conform_piece& piece, rank self, known_values& values,
                                         std::vector<std::size_t>& numbers) {
  std::vector<buffer> memory(piece.ranges.size());
  for (std::size_t i = 0; i < piece.ranges.size(); ++i) {
    const conform_range& range = piece.ranges[i];
    if (range.owner != self.value()) continue;
    numbers.push_back(place(range, values.of(range.values)));
    memory[i] = memory_of(numbers.back());
  }
  return memory;
}

void conform_image::write_factor(const slot& one) {
  const value_source& source = one.range.values;
  const factor made = reference_factor(source.type, *one.range.factor_of, source.kind);
  std::memcpy(&before_.host_span<std::byte>()[one.front], made.value.data(), troupe::size_bytes(source.type));
}

void conform_image::allow_for_rounding(const slot& one) {
  const std::size_t width = troupe::size_bytes(one.range.values.type);
  const auto seen = seen_.host_span<std::byte>();
  for (const value_part& part : one.range.after) {
    if (part.from) continue;
    for (std::size_t i = 0; i < part.count; ++i) {
      const std::size_t at = one.front + (part.first + i) * width;
      if (std::memcmp(&seen[at], &expected_[at], width) == 0) continue;
      if (one.values->count_wrong(std::nullopt, part.from_first + i, seen.subspan(at, width)) == 0)
        std::memcpy(&expected_[at], &seen[at], width);
    }
  }
}

std::string conform_image::find_fault(std::size_t number) {
  const slot& one = slots_[number];
  const auto seen = seen_.host_span<std::byte>();
  const auto same = [&] { return std::memcmp(&seen[one.begin], &expected_[one.begin], one.end - one.begin) == 0; };
  if (same()) return {};
  allow_for_rounding(one);
  if (same()) return {};

  const std::size_t width = troupe::size_bytes(one.range.values.type);
  const std::size_t behind = one.front + one.range.count * width;
  const auto differs = [&](std::size_t begin, std::size_t end) {
    return std::memcmp(&seen[begin], &expected_[begin], end - begin) != 0;
  };
  // Elements are checked first: a write to a guard zone instead of an element says less about the cause.
  std::size_t first = behind;
  std::size_t wrong = 0;
  for (std::size_t at = one.front; at < behind; at += width)
    if (differs(at, at + width) && wrong++ == 0) first = at;
  if (wrong == 0) {
    first = one.begin;
    while (!differs(first, first + 1)) ++first;
  }
  return describe_fault(one, first, wrong);
}

std::string conform_image::describe_fault(const slot& one, std::size_t at, std::size_t wrong) const {
  const dtype type = one.range.values.type;
  const std::size_t width = troupe::size_bytes(type);
  const auto seen = seen_.host_span<std::byte>();
  const auto before = before_.host_span<std::byte>();
  const std::string whose = "rank " + std::to_string(one.range.owner) + ", " + std::string{one.range.role} + ": ";
  if (wrong == 0) {
    const std::size_t behind = one.front + one.range.count * width;
    const std::string where = at < one.front ? std::to_string(one.front - at) + " bytes before its front"
                                             : std::to_string(at - behind) + " bytes behind its end";
    return whose + "the guard zone was written to, " + where;
  }
  const std::size_t element = (at - one.front) / width;
  std::string text = whose + "element " + std::to_string(element) + " of " + std::to_string(one.range.count);
  const bool result = holds(one.range.after, element);
  if (result && std::memcmp(&seen[at], &before[at], width) == 0)
    text += " was not written";
  else if (!result)
    text += " was written to, but is not part of a result";
  text += ": expected " + describe_element(&expected_[at], type) + ", seen " + describe_element(&seen[at], type);
  if (wrong > 1) text += "; " + std::to_string(wrong) + " elements are wrong";
  return text;
}

} // namespace troupe::program
