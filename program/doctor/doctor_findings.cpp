#include <troupe/program/bench/bench_operation.hpp>
#include <troupe/program/doctor/doctor_findings.hpp>

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/backends/gloo/gloo_backend.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/collectives/backend/nccl/nccl_profiler.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_kernels.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_rule.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>
#include <troupe/device/cuda/cuda_driver.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/runtime/metrics/metrics_source.hpp>
#include <troupe/runtime/runtime.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <span>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

#if defined(__clang__)
constexpr const char* compiler_name = "clang " __clang_version__;
#else
constexpr const char* compiler_name = "g++ " __VERSION__;
#endif

/// Runs \p check. If it throws, the error is recorded as the missing part \p part.
template <class Look>
void check_part(const std::string& part, doctor_findings& findings, Look&& check, bool needed_by_gpus = true) {
  try {
    check();
  } catch (const exception& failure) {
    findings.missing.push_back({part, failure.why(), needed_by_gpus});
  }
}

} // namespace

bool doctor_findings::ready_for_gpus() const {
  return std::ranges::none_of(missing, &missing_part::needed_by_gpus);
}

void examine_devices(driver& api, const machine& host, doctor_findings& findings) {
  std::vector<device_id> opened;
  for (int i = 0; i < api.device_count(); ++i) {
    const device_id id{i};
    check_part("GPU " + to_string(id), findings, [&] {
      api.open(id);
      findings.devices.push_back({id, api.describe(id)});
      opened.push_back(id);
    });
  }
  check_part(
      "topology", findings,
      [&] {
        findings.where = topology::examine(api, opened, host);
        findings.one_shot = examine_one_shot(api, *findings.where);
      },
      false);
}

namespace {

one_shot_finding compiled_one_shot() {
  one_shot_finding found{.is_compiled = compiled_one_shot_kernel(2, one_shot_form::any) != nullptr};
  if (!found.is_compiled) return found;
  std::istringstream names{TROUPE_CUDA_ARCHITECTURES};
  for (std::string one; std::getline(names, one, ',');) found.architectures.push_back(one);
  return found;
}

/// Returns why worlds over \p where would have no one-shot kernels; empty if they would.
std::string objection_to_one_shot(driver& api, const topology& where) {
  const auto& places = where.places();
  if (places.size() < 2) return "a world of one GPU has no peers";
  if (places.size() > static_cast<std::size_t>(most_one_shot_ranks))
    return "they are for at most " + std::to_string(most_one_shot_ranks) + " ranks";
  try {
    for (const device_place& one : places)
      static_cast<void>(
          api.load(one.id, one_shot_kernel(static_cast<int>(places.size()), one_shot_form::any), one_shot_threads));
  } catch (const exception& failure) {
    return failure.why().text;
  }
  for (const device_pair& pair : where.pairs()) {
    const std::string name = "GPU " + to_string(pair.from) + " to GPU " + to_string(pair.to);
    if (!pair.peer_access) return "no peer access from " + name;
    if (pair.link != link_kind::same && pair.link != link_kind::nvlink)
      return "no NVLink from " + name + ": give one_shot_bytes a size to use kernels there";
  }
  return {};
}

} // namespace

one_shot_finding examine_one_shot(driver& api, const topology& where) {
  one_shot_finding found = compiled_one_shot();
  found.why = objection_to_one_shot(api, where);
  if (found.why.empty())
    found.automatic_bytes = one_shot_limits::usual(static_cast<int>(where.places().size())).part_bytes;
  return found;
}

namespace {

void examine_capabilities(const configuration& settings, const std::shared_ptr<driver>& api,
                          doctor_findings& findings) {
  check_part("capabilities", findings, [&] {
    if (settings.backend == backend_choice::gloo) {
      findings.able = make_gloo_backend(settings.gloo)->examine({});
      return;
    }
    if (settings.backend == backend_choice::mock || api == nullptr || !findings.nccl || findings.devices.empty()) {
      findings.able = make_mock_backend(settings.mock.without)->examine({});
      return;
    }
    std::vector<std::shared_ptr<device>> devices;
    for (const found_device& one : findings.devices) devices.push_back(device::open(api, one.id));
    findings.able = make_nccl_backend(settings.nccl.library, settings.nccl.config)->examine(devices);
  });
}

} // namespace

doctor_findings examine(configuration settings, bool probing) {
  if (probing) prepare_probe(settings);
  doctor_findings findings;
  findings.troupe_version = TROUPE_VERSION;
  findings.caf_version = std::to_string(CAF_MAJOR_VERSION) + "." + std::to_string(CAF_MINOR_VERSION) + "." +
                         std::to_string(CAF_PATCH_VERSION);
  findings.compiler = compiler_name;
  findings.built_with_cuda = TROUPE_HAS_CUDA;
  findings.one_shot = compiled_one_shot();
  findings.pool_keep_bytes = settings.pool.keep_bytes;
  findings.pool_reserve_bytes = settings.pool.reserve_bytes;
  const machine& host = machine::here();
  check_part(
      "hwloc", findings,
      [&] {
        findings.host = found_host{.cores = std::thread::hardware_concurrency(),
                                   .usable_cpus = usable_cpus(host),
                                   .numa_nodes = host.numa_node_count(),
                                   .hwloc_version = host.library_version()};
      },
      false);
  std::shared_ptr<driver> api;
  check_part("driver", findings, [&] {
    api = make_cuda_driver();
    findings.driver_version = api->version();
    examine_devices(*api, host, findings);
  });
  check_part("NCCL", findings, [&] {
    set_environment(settings.nccl.environment, settings.nccl.library);
    const auto library = nccl_library::open(settings.nccl.library);
    findings.nccl = found_nccl{.version = library->version(), .path = library->path().string()};
  });
  examine_capabilities(settings, api, findings);
  if (probing)
    check_part(
        "probe", findings, [&] { findings.probed = probe(settings, findings.where); }, false);
  return findings;
}

namespace {

constexpr const char* plugin_variable = "NCCL_PROFILER_PLUGIN";
constexpr std::array<std::size_t, 3> all_sizes{8, std::size_t{1} << 20U, std::size_t{64} << 20U};

constexpr std::array<std::string_view, 6> questions{"all_reduce", "broadcast",      "reduce",
                                                    "all_gather", "reduce_scatter", "all_to_all"};

void ask(world& where, std::span<const std::size_t> sizes, probe_findings& found) {
  const std::size_t ranks = where.local_ranks().size();
  // At least one element per rank, which the parts of a gather need.
  const auto count_of = [&](std::size_t size_bytes) { return std::max(size_bytes / sizeof(float), ranks); };
  const bench_memory memory{where, count_of(sizes.back()) * sizeof(float), 0};
  for (const std::string_view name : questions)
    for (const std::size_t size : sizes) {
      const bench_operation& what = *std::ranges::find(bench_operations(), name, &bench_operation::name);
      const std::size_t count = count_of(size);
      const std::size_t before = nccl_use_count();
      static_cast<void>(
          where.ask(memory.parts({.what = &what, .count = what.count_is_part ? count / ranks : count})).get());
      for (const nccl_use& use : nccl_uses(before)) {
        probed_use seen{.operation = std::string{name},
                        .size_bytes = count * sizeof(float),
                        .function = use.function,
                        .algorithm = use.algorithm,
                        .protocol = use.protocol,
                        .channels = use.channels,
                        .by_proxy = use.proxy_operations > 0};
        if (std::ranges::find(found.uses, seen) == found.uses.end()) found.uses.push_back(std::move(seen));
      }
    }
}

std::string why_silent(bool is_nccl, int ranks) {
  if (!is_nccl) return "the mock has neither algorithms nor transports";
  if (ranks == 1) return "a world of one rank copies by itself and does not use NCCL";
  const auto chosen = nccl_process_variables()(plugin_variable);
  if (chosen && *chosen != profiler_in_program)
    return std::string{plugin_variable} + " is " + *chosen +
           ", so NCCL reports to that plugin: unset the variable to let the doctor observe NCCL";
  return "NCCL did not load the profiler in this program, or this version of NCCL reports nothing";
}

} // namespace

void prepare_probe(configuration& settings) {
  auto& variables = settings.nccl.environment;
  if (!find_value(variables, plugin_variable) && !nccl_process_variables()(plugin_variable))
    variables.emplace_back(plugin_variable, profiler_in_program);
}

probe_findings probe(const configuration& settings, const std::optional<topology>& where) {
  probe_findings found;
  runtime rt{settings};
  const bool is_nccl = rt.collectives().name() == "nccl";
  found.backend = rt.collectives().version();
  world formed = rt.form_world();
  found.ranks = formed.size();
  ask(formed, std::span{all_sizes}.first(is_nccl ? all_sizes.size() : 1), found);
  if (const auto seen = rt.metrics()->read())
    for (const pool_reading& one : seen->pools) found.pools.push_back({one.where, one.now});
  formed.stop();
  if (found.uses.empty()) found.note = why_silent(is_nccl, found.ranks);
  if (!is_nccl || !where) return found;

  const std::size_t used = formed.local_ranks().size();
  const auto here = [&](device_id id) { return static_cast<std::size_t>(id.value()) < used; };
  for (const device_pair& pair : where->pairs())
    if (pair.from != pair.to && here(pair.from) && here(pair.to))
      found.transports.push_back({pair.from, pair.to, deduce_transport(pair, used, nccl_process_variables())});
  return found;
}

namespace {

/// NCCL's kinds of paths, nearest first. NCCL_P2P_LEVEL names the farthest one over which P2P is used.
constexpr std::array<std::string_view, 10> levels{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"};
constexpr std::size_t usual_level = 5; // PXB
/// The meaning of the numbers that older versions accepted.
constexpr std::array<std::size_t, 6> old_levels{0, 4, 5, 8, 9, 9};

struct p2p_level {
  std::size_t farthest = usual_level;
  std::string said_by = "by default";
  bool chosen = false;
};

p2p_level level_of(const nccl_variable_lookup& environment) {
  if (const auto disabled = environment("NCCL_P2P_DISABLE");
      disabled && std::strtol(disabled->c_str(), nullptr, 0) == 1)
    return {0, "NCCL_P2P_DISABLE=" + *disabled, true};
  const auto level = environment("NCCL_P2P_LEVEL");
  if (!level || level->empty()) return {};
  if (const auto found = std::ranges::find(levels, *level); found != levels.end())
    return {static_cast<std::size_t>(found - levels.begin()), "NCCL_P2P_LEVEL=" + *level, true};
  if (level->front() < '0' || level->front() > '9') return {};
  const auto number = static_cast<std::size_t>(std::strtoul(level->c_str(), nullptr, 0));
  return {old_levels.at(std::min(number, old_levels.size() - 1)), "NCCL_P2P_LEVEL=" + *level, true};
}

std::size_t path_of(link_kind link) {
  switch (link) {
    case link_kind::same: return 0;
    case link_kind::nvlink: return 1;
    case link_kind::pcie_switch: return 5; // The farthest path through switches.
    case link_kind::host_bridge: return 8;
    case link_kind::numa:
    case link_kind::unknown: break;
  }
  return 9;
}

} // namespace

deduced_transport deduce_transport(const device_pair& pair, std::size_t device_count,
                                   const nccl_variable_lookup& environment) {
  const p2p_level level = level_of(environment);
  const std::string link{to_string(pair.link)};
  const std::string bound = "P2P up to " + std::string{levels.at(level.farthest)} + " " + level.said_by;
  if (pair.peer_access && level.farthest > 0) {
    if (pair.link == link_kind::unknown && level.farthest < path_of(link_kind::numa))
      return {"unknown", "the link between the devices is unknown, and " + bound};
    if (path_of(pair.link) <= level.farthest) return {"P2P", "peer access over " + link + "; " + bound};
    // On a host with AMD CPUs, NCCL lets two GPUs use P2P over any distance.
    if (!level.chosen && device_count <= 2)
      return {"unknown", "peer access over " + link + ": P2P on a host with AMD's CPUs, else shared memory"};
  }
  const std::string why = pair.peer_access ? "over " + link + ", and " + bound : "no peer access";
  const auto disabled = environment("NCCL_SHM_DISABLE");
  if (disabled && std::strtol(disabled->c_str(), nullptr, 0) == 1)
    return {"NET", why + "; NCCL_SHM_DISABLE=" + *disabled};
  return {"SHM", why};
}

} // namespace troupe::program
