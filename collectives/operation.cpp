#include <troupe/collectives/operation.hpp>

namespace troupe {

namespace {

struct describer {
  std::string operator()(const all_reduce& what) const {
    return "all_reduce of " + std::to_string(what.count) + ' ' + std::string{to_string(what.type)} + ", " +
           std::string{to_string(what.op)};
  }
  std::string operator()(const barrier&) const { return "barrier"; }
  std::string operator()(const copy& what) const {
    return "copy of " + std::to_string(what.from.memory.size_bytes()) + " bytes";
  }
};

} // namespace

std::string_view name_of(const operation& what) noexcept {
  constexpr std::string_view names[] = {"all_reduce", "barrier", "copy"};
  static_assert(std::size(names) == std::variant_size_v<operation>);
  return what.valueless_by_exception() ? std::string_view{} : names[what.index()];
}

std::string describe(const operation& what) {
  return std::visit(describer{}, what);
}

bool agree(const operation& one, const operation& other) noexcept {
  if (one.index() != other.index()) return false;
  const auto* mine = std::get_if<all_reduce>(&one);
  const auto* theirs = std::get_if<all_reduce>(&other);
  return mine == nullptr || (mine->count == theirs->count && mine->type == theirs->type && mine->op == theirs->op);
}

} // namespace troupe
