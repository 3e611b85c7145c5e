#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/small_float.hpp>

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace troupe {

namespace {

/// Maps between an element's type in memory and the type in which it is combined.
template <class Number>
struct plain_element {
  using stored = Number;
  using combined = Number;
  static combined load(stored value) noexcept { return value; }
  static stored store(combined value) noexcept { return value; }
};

template <class Format>
struct narrow_element {
  using stored = typename Format::bits;
  using combined = float;
  static combined load(stored value) noexcept { return Format::decode(value); }
  static stored store(combined value) noexcept { return Format::encode(value); }
};

/// Computes in unsigned arithmetic and wraps explicitly: signed overflow is undefined, and narrow types are promoted.
template <class T, class Combine>
T wrapping(T left, T right, Combine combine) noexcept {
  if constexpr (std::is_integral_v<T>) {
    using unsigned_t = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<unsigned_t>(combine(static_cast<std::uint64_t>(static_cast<unsigned_t>(left)),
                                                          static_cast<std::uint64_t>(static_cast<unsigned_t>(right)))));
  } else {
    return combine(left, right);
  }
}

struct add {
  template <class T>
  T operator()(T left, T right) const noexcept {
    return wrapping(left, right, [](auto a, auto b) { return a + b; });
  }
};

struct multiply {
  template <class T>
  T operator()(T left, T right) const noexcept {
    return wrapping(left, right, [](auto a, auto b) { return a * b; });
  }
};

template <class T>
bool is_nan(T value) noexcept {
  if constexpr (std::is_floating_point_v<T>) return std::isnan(value);
  return false;
}

struct lesser {
  template <class T>
  T operator()(T left, T right) const noexcept {
    return is_nan(left) || !(right < left || is_nan(right)) ? left : right;
  }
};

struct greater {
  template <class T>
  T operator()(T left, T right) const noexcept {
    return is_nan(left) || !(left < right || is_nan(right)) ? left : right;
  }
};

template <class Element>
typename Element::combined rounded(typename Element::combined value) noexcept {
  return Element::load(Element::store(value));
}

/// Changes an element before it is combined.
struct scaled_by_factor {
  template <class Element>
  static auto before(typename Element::combined value, const reduce_part& part) noexcept {
    typename Element::stored factor;
    std::memcpy(&factor, part.factor.data(), sizeof factor);
    return rounded<Element>(multiply{}(value, Element::load(factor)));
  }
};

/// The mean of \p ranks values.
struct averaged {
  std::size_t ranks;

  template <class Element>
  [[nodiscard]] auto before(typename Element::combined value, const reduce_part&) const noexcept {
    using number = typename Element::combined;
    if constexpr (std::is_floating_point_v<number>)
      return rounded<Element>(value * rounded<Element>(number{1} / static_cast<number>(ranks)));
    else
      return value;
  }
  template <class Element>
  [[nodiscard]] auto after(typename Element::combined value) const noexcept {
    using number = typename Element::combined;
    if constexpr (std::is_floating_point_v<number>)
      return value / static_cast<number>(ranks);
    else if constexpr (std::is_signed_v<number>)
      return static_cast<number>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(ranks));
    else
      return static_cast<number>(value / ranks);
  }
};

/// Calls \p visit with the plain_element or narrow_element of \p type.
template <class Visit>
void with_element(dtype type, const Visit& visit) {
  switch (type) {
    case dtype::u8: return visit(plain_element<std::uint8_t>{});
    case dtype::i8: return visit(plain_element<std::int8_t>{});
    case dtype::i32: return visit(plain_element<std::int32_t>{});
    case dtype::u32: return visit(plain_element<std::uint32_t>{});
    case dtype::i64: return visit(plain_element<std::int64_t>{});
    case dtype::u64: return visit(plain_element<std::uint64_t>{});
    case dtype::f16: return visit(narrow_element<float16>{});
    case dtype::f32: return visit(plain_element<float>{});
    case dtype::f64: return visit(plain_element<double>{});
    case dtype::bf16: return visit(narrow_element<bfloat16>{});
    case dtype::f8e4m3: return visit(narrow_element<float8_e4m3>{});
    case dtype::f8e5m2: return visit(narrow_element<float8_e5m2>{});
  }
}

/// Uses memcpy, because a slice may begin at any byte. Compilers turn it into plain vector loads.
template <class T>
T load_at(const std::byte* from, std::size_t index) noexcept {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store_at(std::byte* to, std::size_t index, T value) noexcept {
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

template <class Element, class Combine>
void combine_by(std::byte* to, const std::byte* left, const std::byte* right, std::size_t count, Combine combine) {
  using stored = typename Element::stored;
  const auto combined = [&](std::size_t i) {
    return Element::store(combine(Element::load(load_at<stored>(left, i)), Element::load(load_at<stored>(right, i))));
  };
  // Compilers vectorize a loop of this length into memory of its own also where they check no addresses (-O2).
  constexpr std::size_t block = 32;
  std::size_t i = 0;
  for (; i + block <= count; i += block) {
    std::array<stored, block> made;
    for (std::size_t k = 0; k < block; ++k) made[k] = combined(i + k);
    std::memcpy(to + i * sizeof(stored), made.data(), sizeof made);
  }
  for (; i < count; ++i) store_at(to, i, combined(i));
}

} // namespace

void reduce_parts(std::span<const reduce_part> parts, std::size_t count, dtype type, reduction op) {
  if (count == 0 || parts.empty()) return;
  const dtype combined = combining_dtype(type);
  std::vector<std::byte> changed(changes_elements(type, op) ? count * size_bytes(type) : 0);
  std::vector<std::byte> widened(combined != type ? count * size_bytes(combined) : 0);
  std::vector<std::byte> sums(count * size_bytes(combined));
  for (const reduce_part& part : parts) {
    const std::byte* next = part.send;
    if (!changed.empty()) {
      change_elements(changed.data(), part, count, type, op, parts.size());
      next = changed.data();
    }
    if (!widened.empty()) {
      widen_elements(reinterpret_cast<float*>(widened.data()), next, count, type);
      next = widened.data();
    }
    if (&part == &parts.front())
      std::memcpy(sums.data(), next, sums.size());
    else
      combine_elements(sums.data(), sums.data(), next, count, combined, op);
  }
  finish_elements(sums.data(), count, combined, op, parts.size());
  if (!widened.empty()) narrow_elements(widened.data(), reinterpret_cast<const float*>(sums.data()), count, type);
  const std::byte* const results = widened.empty() ? sums.data() : widened.data();
  for (const reduce_part& part : parts)
    if (part.recv != nullptr) std::memcpy(part.recv, results, count * size_bytes(type));
}

void store_element(std::byte* to, dtype type, double value) {
  with_element(type, [&]<class Element>(Element) {
    store_at(to, 0, Element::store(static_cast<typename Element::combined>(value)));
  });
}

bool changes_elements(dtype type, reduction op) noexcept {
  return op == reduction::pre_mul_sum || (op == reduction::avg && !is_integer(type));
}

void change_elements(std::byte* to, const reduce_part& from, std::size_t count, dtype type, reduction op,
                     std::size_t ranks) {
  with_element(type, [&]<class Element>(Element) {
    const auto change = [&](auto changing) {
      for (std::size_t i = 0; i < count; ++i) {
        const auto value = Element::load(load_at<typename Element::stored>(from.send, i));
        store_at(to, i, Element::store(changing.template before<Element>(value, from)));
      }
    };
    if (op == reduction::pre_mul_sum) return change(scaled_by_factor{});
    change(averaged{ranks});
  });
}

void combine_elements(std::byte* to, const std::byte* left, const std::byte* right, std::size_t count, dtype type,
                      reduction op) {
  with_element(type, [&]<class Element>(Element) {
    switch (op) {
      case reduction::prod: return combine_by<Element>(to, left, right, count, multiply{});
      case reduction::min: return combine_by<Element>(to, left, right, count, lesser{});
      case reduction::max: return combine_by<Element>(to, left, right, count, greater{});
      case reduction::sum:
      case reduction::avg:
      case reduction::pre_mul_sum: return combine_by<Element>(to, left, right, count, add{});
    }
  });
}

void finish_elements(std::byte* data, std::size_t count, dtype type, reduction op, std::size_t ranks) {
  if (op == reduction::avg && is_integer(type)) divide_elements(data, count, type, ranks);
}

void divide_elements(std::byte* data, std::size_t count, dtype type, std::size_t ranks) {
  with_element(type, [&]<class Element>(Element) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto sum = Element::load(load_at<typename Element::stored>(data, i));
      store_at(data, i, Element::store(averaged{ranks}.template after<Element>(sum)));
    }
  });
}

dtype combining_dtype(dtype type) noexcept {
  return is_integer(type) || type == dtype::f64 ? type : dtype::f32;
}

void widen_elements(float* to, const std::byte* from, std::size_t count, dtype type) {
  with_element(type, [&]<class Element>(Element) {
    for (std::size_t i = 0; i < count; ++i)
      to[i] = static_cast<float>(Element::load(load_at<typename Element::stored>(from, i)));
  });
}

void narrow_elements(std::byte* to, const float* from, std::size_t count, dtype type) {
  with_element(type, [&]<class Element>(Element) {
    for (std::size_t i = 0; i < count; ++i)
      store_at(to, i, Element::store(static_cast<typename Element::combined>(from[i])));
  });
}

} // namespace troupe
