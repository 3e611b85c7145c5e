#include <troupe/collectives/operation/capabilities.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace troupe {

namespace {

const std::array reducing{operation{all_reduce{}}.index(), operation{reduce{}}.index(),
                          operation{reduce_scatter{}}.index(), operation{reduce_scatter_v{}}.index()};

template <class Value>
bool names(const std::vector<Value>& list, const Value& one) {
  return list.empty() || std::ranges::find(list, one) != list.end();
}

bool applies(exclusion::world_size size, int world_size) {
  switch (size) {
    case exclusion::world_size::one: return world_size == 1;
    case exclusion::world_size::several: return world_size > 1;
    case exclusion::world_size::any: break;
  }
  return true;
}

struct request_kind {
  dtype type{};
  std::optional<reduction> op{};
};

/// Returns the dtype and reduction of \p what. A barrier counts as a sum of one i32. Empty for operations without a
/// dtype.
std::optional<request_kind> kind_asked(const operation& what) {
  if (std::holds_alternative<barrier>(what)) return request_kind{dtype::i32, reduction::sum};
  return std::visit(
      [](const auto& one) -> std::optional<request_kind> {
        request_kind asked;
        if constexpr (requires { one.type; })
          asked.type = one.type;
        else
          return std::nullopt;
        if constexpr (requires { one.op; }) asked.op = one.op;
        return asked;
      },
      what);
}

} // namespace

std::string describe(const exclusion& what) {
  const auto list = [](const auto& values, auto name, std::string none) {
    std::string all;
    for (const auto value : values) all += (all.empty() ? "" : ", ") + std::string{name(value)};
    return all.empty() ? none : all;
  };
  const auto named = [](auto one) { return to_string(one); };
  std::string text = list(what.kinds, name_of_kind, "everything");
  if (!what.types.empty()) text += " of " + list(what.types, named, "");
  if (!what.ops.empty()) text += "; " + list(what.ops, named, "");
  if (what.size != exclusion::world_size::any)
    text += what.size == exclusion::world_size::one ? "; in worlds of one rank" : "; in worlds of several ranks";
  return text + ": " + what.why;
}

feature_finding capabilities::find(feature what) const {
  const auto found = std::ranges::find(features, what, &feature_finding::what);
  if (found != features.end()) return *found;
  return {what, availability::unknown, "not examined"};
}

error capabilities::supports(std::size_t kind, dtype type, std::optional<reduction> op, int world_size) const {
  const auto met = std::ranges::find_if(exclusions, [&](const exclusion& one) {
    return applies(one.size, world_size) && names(one.kinds, kind) && names(one.types, type) &&
           (one.ops.empty() || (op && names(one.ops, *op)));
  });
  if (met == exclusions.end()) return {};
  std::string text = std::string{name_of_kind(kind)} + " of " + std::string{to_string(type)};
  if (op) text += ", " + std::string{to_string(*op)};
  return error{.code = errc::unsupported, .text = text + ": " + met->why};
}

error capabilities::objection_to(const operation& what, int world_size) const {
  if (exclusions.empty()) return {};
  if (const auto* several = std::get_if<group>(&what)) {
    for (std::size_t i = 0; i < several->parts.size(); ++i)
      if (error objection = objection_to(several->parts[i], world_size)) {
        objection.text = "part " + std::to_string(i) + " of the group: " + objection.text;
        return objection;
      }
    return {};
  }
  const auto asked = kind_asked(what);
  return asked ? supports(what.index(), asked->type, asked->op, world_size) : error{};
}

std::span<const std::size_t> reducing_kinds() noexcept {
  return reducing;
}

std::vector<exclusion> consequences_of(feature lacking, const std::string& why) {
  if (lacking != feature::fp8_reductions) return {};
  // A world of one rank combines nothing, so the reduction needs no support.
  return {{.kinds = {reducing.begin(), reducing.end()},
           .types = {dtype::f8e4m3, dtype::f8e5m2},
           .size = exclusion::world_size::several,
           .why = why + ": convert to f16 or bf16 first; gathers, broadcasts and transfers of fp8 are possible"}};
}

std::string describe(const one_shot_status& one) {
  if (one.part_bytes == 0) return "no one-shot kernels (" + one.why + ")";
  return "one-shot kernels up to " + std::to_string(one.part_bytes) + " B, " + std::to_string(one.blocks) + " blocks";
}

} // namespace troupe
