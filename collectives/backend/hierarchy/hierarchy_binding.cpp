#include <troupe/collectives/backend/hierarchy/hierarchy_binding.hpp>
#include <troupe/collectives/backend/mock/small_float.hpp>

#include <type_traits>

namespace troupe {

namespace {

/// Returns 1/\p parts as an element.
troupe::factor inverse_of(int parts, dtype type) {
  const float value = 1.0F / static_cast<float>(parts);
  switch (type) {
    case dtype::f64: return troupe::factor::of(1.0 / static_cast<double>(parts));
    case dtype::f32: return troupe::factor::of(value);
    case dtype::f16: return troupe::factor::of(float16::encode(value));
    case dtype::bf16: return troupe::factor::of(bfloat16::encode(value));
    case dtype::f8e4m3: return troupe::factor::of(float8_e4m3::encode(value));
    case dtype::f8e5m2: return troupe::factor::of(float8_e5m2::encode(value));
    // For integers, valid only if parts is 1.
    case dtype::u8: return troupe::factor::of(static_cast<std::uint8_t>(parts));
    case dtype::i8: return troupe::factor::of(static_cast<std::int8_t>(parts));
    case dtype::i32: return troupe::factor::of(static_cast<std::int32_t>(parts));
    case dtype::u32: return troupe::factor::of(static_cast<std::uint32_t>(parts));
    case dtype::i64: return troupe::factor::of(static_cast<std::int64_t>(parts));
    case dtype::u64: return troupe::factor::of(static_cast<std::uint64_t>(parts));
  }
  throw exception{errc::internal, "unknown dtype"};
}

} // namespace

hierarchy_binding::hierarchy_binding(const operation& asked, const buffer& scratch, int world_size)
  : scratch_{scratch}, world_size_{world_size} {
  std::visit(
      [this](const auto& one) {
        if constexpr (requires { one.send; }) send_ = one.send.memory;
        if constexpr (requires { one.recv; }) recv_ = one.recv.memory;
        if constexpr (requires { one.type; }) type_ = one.type;
        if constexpr (requires { one.factor; }) given_ = &one.factor;
      },
      asked);
}

buffer hierarchy_binding::at(const hierarchy_range& where) const {
  using memory = hierarchy_range::memory;
  if (where.in == memory::none) return {};
  const buffer& whole = where.in == memory::send ? send_ : where.in == memory::recv ? recv_ : scratch_;
  const std::size_t offset = where.first * size_bytes(type_);
  return whole.slice(offset, whole.size_bytes() - offset);
}

troupe::factor hierarchy_binding::factor_of(hierarchy_factor which) const {
  switch (which) {
    case hierarchy_factor::given: return *given_;
    case hierarchy_factor::one: return inverse_of(1, type_);
    case hierarchy_factor::mean: return inverse_of(world_size_, type_);
    case hierarchy_factor::none: break;
  }
  return {};
}

operation hierarchy_binding::bound(const hierarchy_step& step) const {
  operation made = step.what;
  std::visit(
      [&]<class T>(T& one) {
        if constexpr (requires { one.send; }) one.send.memory = at(step.from);
        if constexpr (requires { one.recv; }) one.recv.memory = at(step.to);
        if constexpr (requires { one.factor; }) one.factor = factor_of(step.factor);
        if constexpr (std::is_same_v<T, send>) one.memory.memory = at(step.from);
        if constexpr (std::is_same_v<T, recv>) one.memory.memory = at(step.to);
      },
      made);
  return made;
}

void hierarchy_binding::enqueue(const hierarchy_copy& what, stream_ref stream) const {
  const buffer from = at(what.from), to = at(what.to);
  if (from.data() != to.data()) stream.copy(to.data(), from.data(), what.count * size_bytes(type_));
}

} // namespace troupe
