#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>

#include <algorithm>
#include <numeric>
#include <type_traits>

namespace troupe {

namespace {

template <class T, std::size_t I = 0>
constexpr std::uint8_t index_of() {
  if constexpr (std::is_same_v<T, std::variant_alternative_t<I, operation::variant>>)
    return static_cast<std::uint8_t>(I);
  else
    return index_of<T, I + 1>();
}

std::uint64_t total(const partition& parts) noexcept {
  return std::accumulate(parts.counts.begin(), parts.counts.end(), std::uint64_t{0});
}

bool is_transfer(const operation& what) noexcept {
  return what.index() == index_of<send>() || what.index() == index_of<recv>();
}

bool is_local(const operation& what) noexcept {
  return what.index() == index_of<copy>() || what.index() == index_of<call>();
}

} // namespace

compact_signature compact_unstaged(const operation& what) noexcept {
  return std::visit(
      []<class T>(const T& one) {
        compact_signature made{.kind = index_of<T>()};
        if constexpr (requires { one.type; }) made.type = one.type;
        if constexpr (requires { one.op; }) made.op = one.op;
        if constexpr (requires { one.count; }) made.count = one.count;
        if constexpr (requires { one.root; }) made.root = one.root.value();
        if constexpr (requires { one.peer; }) made.root = one.peer.value();
        if constexpr (requires { one.tag; }) made.tag = one.tag;
        if constexpr (requires { one.recv_parts; }) made.count = total(one.recv_parts);
        if constexpr (requires { one.send_parts; }) made.count = total(one.send_parts);
        if constexpr (std::is_same_v<T, copy>) made.count = one.from.memory.size_bytes();
        if constexpr (std::is_same_v<T, group>) made.count = one.parts.size();
        if constexpr (std::is_same_v<T, replay>) made.count = number_of(one);
        if constexpr (std::is_same_v<T, barrier>) made.count = one.commit ? *one.commit + 1 : 0;
        if constexpr (std::is_same_v<T, agree>) {
          if (one.rule != agreement_rule::of_rank) made.root = 0;
          made.tag = static_cast<std::int32_t>(one.rule);
          made.count = compared_bytes(one);
        }
        return made;
      },
      what);
}

compact_signature compact(const operation& what) noexcept {
  compact_signature made = compact_unstaged(what);
  std::visit(
      [&](const auto& one) {
        if constexpr (requires { one.staged; }) made.staged = is_launched_in_chunks(what);
      },
      what);
  return made;
}

operation_reach reach_of(const operation& what) noexcept {
  if (const auto* several = std::get_if<group>(&what)) {
    if (std::ranges::all_of(several->parts, is_local)) return operation_reach::itself;
    return std::ranges::all_of(several->parts, [](const operation& one) { return is_local(one) || is_transfer(one); })
               ? operation_reach::peers
               : operation_reach::all_ranks;
  }
  if (is_transfer(what)) return operation_reach::peers;
  return is_local(what) ? operation_reach::itself : operation_reach::all_ranks;
}

bool is_decided_by_compact(const compact_signature& what) noexcept {
  switch (what.kind) {
    case index_of<all_gather_v>():
    case index_of<reduce_scatter_v>():
    case index_of<all_to_all_v>():
    case index_of<gather_v>():
    case index_of<scatter_v>():
    case index_of<group>(): return false;
    default: return true;
  }
}

bool is_agree(const compact_signature& what) noexcept {
  return what.kind == index_of<agree>();
}

std::string describe(const compact_signature& what) {
  const std::string name{name_of_kind(what.kind)};
  switch (what.kind) {
    case index_of<all_gather_v>():
    case index_of<reduce_scatter_v>():
    case index_of<all_to_all_v>():
    case index_of<gather_v>():
    case index_of<scatter_v>():
      return name + " of " + std::to_string(what.count) + ' ' + std::string{to_string(what.type)} +
             (what.kind == index_of<reduce_scatter_v>() ? ", " + std::string{to_string(what.op)} : "");
    case index_of<group>(): return name + " of " + std::to_string(what.count);
    case index_of<copy>(): return name + " of " + std::to_string(what.count) + " bytes";
    default: break;
  }
  return describe(signature{.kind = what.kind,
                            .type = what.type,
                            .op = what.op,
                            .count = what.count,
                            .root = rank{what.root},
                            .tag = what.tag});
}

} // namespace troupe
