#include <troupe/collectives/backend/gloo/gloo_tag.hpp>

namespace troupe {

namespace {

/// FNV-1a hash of whole numbers.
class number_hash {
public:
  number_hash& operator<<(std::uint64_t number) noexcept {
    for (int i = 0; i < 8; ++i) {
      value_ ^= (number >> (8 * i)) & 0xFFU;
      value_ *= 0x100000001B3U;
    }
    return *this;
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

private:
  std::uint64_t value_ = 0xCBF29CE484222325U;
};

template <class Enumeration>
std::uint64_t number_of_value(Enumeration value) noexcept {
  return static_cast<std::uint64_t>(value);
}

/// The prefixes of Gloo's own algorithms are the numbers 1 to 8.
constexpr std::uint64_t transfer_prefix = 0x40, part_prefix = 0x41;

std::uint64_t with_prefix(std::uint64_t prefix, std::uint64_t hash) noexcept {
  return (prefix << 56U) | (hash >> 8U);
}

} // namespace

std::uint32_t collective_tag(const signature& what, std::uint64_t ordinal, std::uint64_t part) noexcept {
  number_hash hash;
  hash << ordinal << part << what.kind << number_of_value(what.type) << number_of_value(what.op) << what.count
       << number_of_value(what.root.value());
  static const std::size_t counts_differ = operation{all_to_all_v{}}.index(); // its counts differ between ranks
  if (!what.is(counts_differ)) {
    for (const std::size_t count : what.send_counts) hash << count;
    for (const std::size_t count : what.recv_counts) hash << count;
  }
  return static_cast<std::uint32_t>(hash.value() ^ (hash.value() >> 32U));
}

std::uint64_t transfer_slot(const signature& what, std::uint64_t ordinal) noexcept {
  number_hash hash;
  hash << ordinal << number_of_value(what.type) << what.count << number_of_value(what.tag);
  return with_prefix(transfer_prefix, hash.value());
}

std::uint64_t part_slot(const signature& what, std::size_t count, std::uint32_t tag) noexcept {
  number_hash hash;
  hash << tag << number_of_value(what.type) << count;
  return with_prefix(part_prefix, hash.value());
}

} // namespace troupe
