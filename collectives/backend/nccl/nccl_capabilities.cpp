#include <troupe/collectives/backend/nccl/nccl_capabilities.hpp>

#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/device/enum_names.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <span>
#include <sstream>
#include <utility>

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
                   listed(function_names));
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
      if (!found)
        refuse(variable, text, std::string{"'"}.append(name).append("' is unknown: choose one of ") + listed(names));
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

/// Returns the algorithms that can perform the function if the environment allows all.
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
  const nccl_protocol_choice chosen_protocols = parse_nccl_protocols(protocols);
  const nccl_algorithm_set there = reachable(reach);
  const std::string why = "NCCL has no algorithm left for it under NCCL_ALGO=" + algorithms +
                          (protocols.empty() ? "" : " and NCCL_PROTO=" + protocols) +
                          ": add ring to NCCL_ALGO, or leave it out";

  std::vector<exclusion> found;
  const auto judge = [&](std::size_t kind, nccl_function function, bool reduces) {
    const auto f = static_cast<std::size_t>(function);
    const auto can = [&](dtype type, std::optional<reduction> op) {
      return served(able_to(function, type, op) & chosen[f] & there, chosen_protocols[f]);
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

namespace {

using verdict = std::pair<availability, std::string>;

verdict no(std::string why) {
  return {availability::no, std::move(why)};
}
verdict yes(std::string why) {
  return {availability::yes, std::move(why)};
}

/// Determines the availability of each feature.
class feature_evaluator {
public:
  explicit feature_evaluator(const nccl_facts& facts) : facts_{facts} {}

  verdict operator()(feature what) const {
    switch (what) {
      case feature::fp8_reductions: return fp8();
      case feature::multicast: return multicast();
      case feature::buffer_registration: return registration();
      case feature::symmetric_windows: return windows();
      case feature::copy_engine: return copy_engine();
      case feature::device_communicators: return device_communicators();
      case feature::gpu_direct_rdma: return gpu_direct();
      case feature::collnet: return collnet();
      case feature::split: return function("ncclCommSplit");
      case feature::shrink: return function("ncclCommShrink");
      case feature::revoke: return function("ncclCommRevoke");
      case feature::suspend: return suspension();
    }
    return {availability::unknown, "not examined"};
  }

  [[nodiscard]] bool several_here() const { return facts_.devices.size() > 1; }
  [[nodiscard]] std::string text(const std::string& variable) const {
    return facts_.environment(variable).value_or("");
  }

  /// Returns a variable as NCCL reads it: text that is not a number counts as 0.
  [[nodiscard]] long number(const std::string& variable, long otherwise) const {
    const std::string value = text(variable);
    return value.empty() ? otherwise : std::strtol(value.c_str(), nullptr, 0);
  }

private:
  /// Returns a field of the configuration, over which its variable takes precedence. NCCL's default is 0.
  [[nodiscard]] long chosen(const char* variable, int field) const {
    return number(variable, field == nccl_native_config::unset ? 0 : field);
  }

  [[nodiscard]] std::string library() const { return "NCCL " + nccl_library::version_text(facts_.version); }

  [[nodiscard]] verdict function(const char* symbol) const {
    return facts_.has(symbol) ? yes(library() + " has " + symbol)
                              : no(library() + " has no " + std::string{symbol} + ": install a newer one");
  }

  /// Returns no if a device lacks the trait, unknown if a device does not report it, yes otherwise.
  [[nodiscard]] verdict trait(std::optional<bool> device_traits::*which, const std::string& what) const {
    bool known = !facts_.devices.empty();
    for (std::size_t i = 0; i < facts_.devices.size(); ++i) {
      const auto& value = facts_.devices[i].traits.*which;
      if (value && !*value) return no(facts_.devices[i].name + " " + facts_.devices[i].pci_bus_id + " has no " + what);
      known = known && value;
    }
    return known ? yes("each device has " + what)
                 : verdict{availability::unknown, "the driver does not report whether each device has " + what};
  }

  [[nodiscard]] verdict fp8() const {
    for (const device_description& one : facts_.devices)
      if (one.compute_major < 9)
        return no("NCCL reduces fp8 from compute capability 9.0 on, and " + one.name + " has " +
                  std::to_string(one.compute_major) + "." + std::to_string(one.compute_minor));
    return yes("each device has compute capability 9.0 or more");
  }

  [[nodiscard]] verdict multicast() const {
    if (facts_.devices.size() == 1) // each process examines its own devices
      return trait(&device_traits::multicast, "multicast (one device here; NVLS needs two on one host)");
    const long enabled = number("NCCL_NVLS_ENABLE", 2);
    if (enabled == 0) return no("NCCL_NVLS_ENABLE is 0: set it to 2, or leave it out");
    if (enabled == 1) return yes("NCCL_NVLS_ENABLE is 1, so NCCL does not query the devices");
    return trait(&device_traits::multicast, "multicast");
  }

  /// Examines CUDA's virtual memory management, which NCCL needs for all shared memory.
  [[nodiscard]] verdict handles() const {
    const long enabled = number("NCCL_CUMEM_ENABLE", -2);
    if (enabled == 0) return no("NCCL_CUMEM_ENABLE is 0: set it to 1, or leave it out");
    if (enabled > 0) return yes("NCCL_CUMEM_ENABLE is 1");
    return trait(&device_traits::virtual_memory, "virtual memory management");
  }

  [[nodiscard]] verdict registration() const {
    if (verdict found = function("ncclCommRegister"); found.first != availability::yes) return found;
    if (number("NCCL_LOCAL_REGISTER", 1) == 0) return no("NCCL_LOCAL_REGISTER is 0: set it to 1, or leave it out");
    if (number("NCCL_P2P_USE_CUDA_MEMCPY", 0) != 0)
      return no("NCCL_P2P_USE_CUDA_MEMCPY is set, and copies by CUDA need no registration: leave it out");
    if (several_here() && number("NCCL_SINGLE_PROC_MEM_REG_ENABLE", 0) == 0)
      return no("several devices of one process register their buffers only with NCCL_SINGLE_PROC_MEM_REG_ENABLE=1: "
                "set it, for example in nccl.environment");
    return handles();
  }

  [[nodiscard]] verdict windows() const {
    for (const char* symbol : {"ncclCommWindowRegister", "ncclMemAlloc"})
      if (verdict found = function(symbol); found.first != availability::yes) return found;
    if (number("NCCL_WIN_ENABLE", 1) == 0) return no("NCCL_WIN_ENABLE is 0: set it to 1, or leave it out");
    if (!facts_.all_peers) return no("not all devices can access each other's memory");
    return handles();
  }

  [[nodiscard]] verdict copy_engine() const {
    constexpr int since = 22800;
    if (facts_.version < since)
      return no("it needs NCCL " + nccl_library::version_text(since) + ", and this is " +
                nccl_library::version_text(facts_.version));
    if (verdict found = windows(); found.first != availability::yes) return found;
    constexpr int zero = 2;
    const long policy = chosen("NCCL_CTA_POLICY", facts_.config.CTAPolicy);
    return policy == zero ? yes("CTAPolicy is 2: gathers of symmetric windows use it, with a driver for CUDA 12.5 or "
                                "newer")
                          : no("CTAPolicy is not 2: set it in nccl.config");
  }

  [[nodiscard]] verdict device_communicators() const {
    if (verdict found = function("ncclDevCommCreate"); found.first != availability::yes) return found;
    return windows();
  }

  [[nodiscard]] verdict gpu_direct() const {
    verdict found = trait(&device_traits::gpu_direct_rdma, "GPUDirect RDMA");
    if (found.first == availability::yes) {
      const bool handle = trait(&device_traits::dma_buf, "DMA-BUF").first == availability::yes;
      found.second += handle ? ", by DMA-BUF" : ", by nvidia-peermem";
      found.second += "; whether a network adapter is close enough is known when a world spans hosts";
    }
    return found;
  }

  [[nodiscard]] verdict suspension() const {
    for (const char* symbol : {"ncclCommSuspend", "ncclCommResume"})
      if (verdict found = function(symbol); found.first != availability::yes) return found;
    if (number("NCCL_DISABLE_MEM_MANAGER", 0) != 0)
      return no("NCCL_DISABLE_MEM_MANAGER is set, and NCCL then does not track its memory: leave it out");
    if (chosen("NCCL_COMM_SPLIT_SHARE_RESOURCES", facts_.config.splitShare) != 0)
      return no("splitShare is 1 (nccl.config), and memory that communicators share is not released: leave it out");
    return handles();
  }

  [[nodiscard]] verdict collnet() const {
    if (chosen("NCCL_COLLNET_ENABLE", facts_.config.collnetEnable) == 0)
      return no("collnetEnable is not 1: set it in nccl.config");
    const auto plugin = facts_.collnet_plugin(text("NCCL_NET_PLUGIN"));
    if (!plugin)
      return no("no network plugin offers CollNet: install one (SHARP comes with libnccl-net.so of NVIDIA's HPC-X) and "
                "name it by NCCL_NET_PLUGIN");
    return {availability::unknown, *plugin + "; whether the switches reduce (SHARP) is known when a world spans hosts"};
  }

  const nccl_facts& facts_;
};

constexpr int oldest_collnet = 6;
constexpr int newest_collnet = 12;

} // namespace

capabilities nccl_capabilities(const nccl_facts& facts) {
  capabilities found{.backend = "nccl", .version = facts.about, .features = {}, .exclusions = {}};
  const feature_evaluator evaluate{facts};
  for (const feature one : all_features) {
    auto [available, why] = evaluate(one);
    if (available == availability::no)
      for (exclusion& each : consequences_of(one, why)) found.exclusions.push_back(std::move(each));
    found.features.push_back({one, available, std::move(why)});
  }
  const bool nvls = found.find(feature::multicast).available != availability::no;
  const bool may_span_hosts = !evaluate.several_here(); // each process of a larger world has one rank
  const nccl_reach reach{.nvls = nvls,
                         .nvls_tree = nvls && may_span_hosts,
                         .collnet = may_span_hosts && found.find(feature::collnet).available != availability::no,
                         .pat = evaluate.number("NCCL_PAT_ENABLE", 2) != 0 &&
                                (may_span_hosts || evaluate.number("NCCL_PAT_ENABLE", 2) == 1)};
  for (exclusion& each : excluded_by_choice(evaluate.text("NCCL_ALGO"), evaluate.text("NCCL_PROTO"), reach))
    found.exclusions.push_back(std::move(each));
  return found;
}

std::optional<std::string> find_collnet_plugin(const std::string& name) {
  if (name == "none") return std::nullopt;
  std::vector<std::string> files;
  std::istringstream names{name.empty() ? "libnccl-net.so" : name}; // separated by commas
  for (std::string one; std::getline(names, one, ',');) {
    files.push_back(one);
    if (one.find('/') == std::string::npos && !one.ends_with(".so")) files.push_back("libnccl-net-" + one + ".so");
  }
  for (const std::string& file : files) {
    void* const handle = ::dlopen(file.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (handle == nullptr) continue;
    std::optional<std::string> found;
    for (int version = newest_collnet; version >= oldest_collnet && !found; --version) {
      const std::string symbol = "ncclCollNetPlugin_v" + std::to_string(version);
      if (::dlsym(handle, symbol.c_str()) != nullptr) found = file + " has " + symbol;
    }
    ::dlclose(handle);
    if (found) return found;
  }
  return std::nullopt;
}

} // namespace troupe
