#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/device/error.hpp>

#include <string>

namespace troupe {

namespace {

template <class Value, std::size_t Count>
Value parse(const std::array<Value, Count>& values, std::string_view what, std::string_view name) {
  std::string known;
  for (const Value value : values) {
    if (to_string(value) == name) return value;
    known += known.empty() ? "" : ", ";
    known += to_string(value);
  }
  throw exception{errc::invalid_argument,
                  "unknown " + std::string{what} + " '" + std::string{name} + "': choose one of " + known};
}

} // namespace

std::string_view to_string(dtype type) noexcept {
  switch (type) {
    case dtype::u8: return "u8";
    case dtype::i8: return "i8";
    case dtype::i32: return "i32";
    case dtype::u32: return "u32";
    case dtype::i64: return "i64";
    case dtype::u64: return "u64";
    case dtype::f16: return "f16";
    case dtype::f32: return "f32";
    case dtype::f64: return "f64";
    case dtype::bf16: return "bf16";
    case dtype::f8e4m3: return "f8e4m3";
    case dtype::f8e5m2: return "f8e5m2";
  }
  return {};
}

std::string_view to_string(reduction op) noexcept {
  switch (op) {
    case reduction::sum: return "sum";
    case reduction::prod: return "prod";
    case reduction::min: return "min";
    case reduction::max: return "max";
    case reduction::avg: return "avg";
    case reduction::pre_mul_sum: return "pre_mul_sum";
  }
  return {};
}

dtype parse_dtype(std::string_view name) {
  return parse(all_dtypes, "dtype", name);
}

reduction parse_reduction(std::string_view name) {
  return parse(all_reductions, "reduction", name);
}

} // namespace troupe
