#include <troupe/collectives/backend/nccl/nccl_algorithms.hpp>

#include <algorithm>
#include <optional>
#include <span>

namespace troupe {

namespace {

constexpr std::array<std::string_view, 5> function_names{"Broadcast", "Reduce", "AllGather", "ReduceScatter",
                                                         "AllReduce"};
constexpr std::array<std::string_view, 7> algorithm_names{"Tree",     "Ring", "CollNetDirect", "CollNetChain", "NVLS",
                                                          "NVLSTree", "PAT"};
constexpr std::array<std::string_view, 3> protocol_names{"LL", "LL128", "Simple"};

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
}

/// Finds a name, ignoring case as NCCL does.
std::optional<std::size_t> find_name(std::span<const std::string_view> names, std::string_view wanted) {
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::ranges::equal(names[i], wanted, {}, lower, lower)) return i;
  return std::nullopt;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    // NCCL skips empty parts, as strtok() does.
    if (const auto part = text.substr(0, end); !part.empty()) parts.push_back(part);
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

[[noreturn]] void refuse(std::string_view variable, std::string_view text, const std::string& why) {
  throw exception{errc::invalid_argument, std::string{variable} + " is '" + std::string{text} + "': " + why};
}

std::string list_of(std::span<const std::string_view> names) {
  std::string all;
  for (const auto name : names) all += (all.empty() ? "" : ", ") + std::string{name};
  return all;
}

template <std::size_t Count>
std::array<std::bitset<Count>, 5> parse_choice(std::string_view variable, std::string_view text,
                                               const std::array<std::string_view, Count>& names) {
  std::array<std::bitset<Count>, 5> choice;
  for (auto& each : choice) each.set();
  const auto entries = split(text, ';');
  for (std::size_t i = 0; i < entries.size(); ++i) {
    std::string_view list = entries[i];
    std::optional<std::size_t> function;
    if (const std::size_t colon = list.find(':'); colon != std::string_view::npos) {
      function = find_name(function_names, list.substr(0, colon));
      if (!function)
        refuse(variable, text,
               "unknown function '" + std::string{list.substr(0, colon)} + "': choose one of " +
                   list_of(function_names));
      list.remove_prefix(colon + 1);
    } else if (i > 0) {
      refuse(variable, text,
             "every list after the first needs a function before it, as in allreduce:" + std::string{list});
    }
    const bool without = list.starts_with('^');
    if (without) list.remove_prefix(1);
    std::bitset<Count> allowed;
    for (const auto name : split(list, ',')) {
      const auto found = find_name(names, name);
      if (!found) refuse(variable, text, "'" + std::string{name} + "' is unknown: choose one of " + list_of(names));
      allowed.set(*found);
    }
    if (without) allowed.flip();
    for (std::size_t f = 0; f < choice.size(); ++f)
      if (!function || *function == f) choice[f] = allowed;
  }
  return choice;
}

nccl_algorithm_set set_of(std::initializer_list<nccl_algorithm> all) {
  nccl_algorithm_set made;
  for (const auto one : all) made.set(static_cast<std::size_t>(one));
  return made;
}

nccl_algorithm_set known_to(nccl_function function) {
  using a = nccl_algorithm;
  switch (function) {
    case nccl_function::broadcast:
    case nccl_function::reduce: return set_of({a::ring});
    case nccl_function::all_gather:
    case nccl_function::reduce_scatter: return set_of({a::ring, a::collnet_direct, a::nvls, a::pat});
    case nccl_function::all_reduce:
      return set_of({a::tree, a::ring, a::collnet_direct, a::collnet_chain, a::nvls, a::nvls_tree});
  }
  return {};
}

/// Returns whether NVSwitch can compute this reduction: sums and extremes of some dtypes.
bool nvls_reduces(dtype type, reduction op) {
  const bool extreme = op == reduction::min || op == reduction::max;
  switch (type) {
    case dtype::i32:
    case dtype::u32:
    case dtype::i64:
    case dtype::u64:
    case dtype::f16:
    case dtype::bf16: return op == reduction::sum || extreme;
    case dtype::f32:
    case dtype::f64: return op == reduction::sum;
    default: return false;
  }
}

nccl_algorithm_set reachable(const nccl_reach& reach) {
  using a = nccl_algorithm;
  nccl_algorithm_set all = set_of({a::tree, a::ring});
  if (reach.nvls) all |= set_of({a::nvls});
  if (reach.nvls_tree) all |= set_of({a::nvls_tree});
  if (reach.collnet) all |= set_of({a::collnet_direct, a::collnet_chain});
  if (reach.pat) all |= set_of({a::pat});
  return all;
}

/// Returns the algorithms that could perform the function, before the environment's choice.
nccl_algorithm_set able_to(nccl_function function, dtype type, std::optional<reduction> op) {
  using a = nccl_algorithm;
  nccl_algorithm_set all = known_to(function);
  if (!op) return all;
  if (!nvls_reduces(type, *op)) all &= ~set_of({a::nvls, a::nvls_tree});
  if (*op == reduction::avg || *op == reduction::pre_mul_sum) all &= ~set_of({a::pat});
  return all;
}

/// Returns whether one of \p algorithms works with one of \p protocols. Only tree and ring have other protocols than
/// Simple.
bool served(nccl_algorithm_set algorithms, nccl_protocol_set protocols) {
  using a = nccl_algorithm;
  if ((algorithms & set_of({a::tree, a::ring})).any()) return protocols.any();
  return algorithms.any() && protocols.test(static_cast<std::size_t>(nccl_protocol::simple));
}

} // namespace

nccl_algorithm_choice parse_nccl_algorithms(std::string_view text) {
  return parse_choice("NCCL_ALGO", text, algorithm_names);
}

nccl_protocol_choice parse_nccl_protocols(std::string_view text) {
  return parse_choice("NCCL_PROTO", text, protocol_names);
}

std::vector<exclusion> excluded_by_choice(const std::string& algorithms, const std::string& protocols,
                                          const nccl_reach& reach) {
  if (algorithms.empty() && protocols.empty()) return {};
  const nccl_algorithm_choice chosen = parse_nccl_algorithms(algorithms);
  const nccl_protocol_choice spoken = parse_nccl_protocols(protocols);
  const nccl_algorithm_set there = reachable(reach);
  const std::string why = "NCCL has no algorithm left for it under NCCL_ALGO=" + algorithms +
                          (protocols.empty() ? "" : " and NCCL_PROTO=" + protocols) +
                          ": add ring to nccl.NCCL_ALGO, or leave it out";

  std::vector<exclusion> found;
  const auto judge = [&](std::size_t kind, nccl_function function, bool reduces) {
    const auto f = static_cast<std::size_t>(function);
    const auto can = [&](dtype type, std::optional<reduction> op) {
      return served(able_to(function, type, op) & chosen[f] & there, spoken[f]);
    };
    if (!reduces) {
      if (!can(dtype::u8, {})) found.push_back({.kinds = {kind}, .size = exclusion::world_size::several, .why = why});
      return;
    }
    for (const reduction op : all_reductions) {
      exclusion one{.kinds = {kind}, .ops = {op}, .size = exclusion::world_size::several, .why = why};
      for (const dtype type : all_dtypes)
        if (!can(type, op)) one.types.push_back(type);
      if (!one.types.empty()) found.push_back(std::move(one));
    }
  };
  judge(operation{broadcast{}}.index(), nccl_function::broadcast, false);
  judge(operation{reduce{}}.index(), nccl_function::reduce, true);
  judge(operation{all_gather{}}.index(), nccl_function::all_gather, false);
  judge(operation{reduce_scatter{}}.index(), nccl_function::reduce_scatter, true);
  judge(operation{reduce_scatter_v{}}.index(), nccl_function::reduce, true);
  judge(operation{all_reduce{}}.index(), nccl_function::all_reduce, true);
  judge(operation{barrier{}}.index(), nccl_function::all_reduce, true); // implemented as the sum of one i32
  return found;
}

} // namespace troupe
