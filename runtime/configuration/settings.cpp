#include <troupe/runtime/configuration/nearest_name.hpp>
#include <troupe/runtime/configuration/setting_forms.hpp>
#include <troupe/runtime/configuration/settings.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace troupe {

namespace {

using namespace setting_forms;

// Limits of the ranges. They are far beyond useful values, but low enough that a typing error does not exhaust the
// machine.
constexpr std::uint64_t most_ranks = 1'024; ///< In one process: each rank has threads and marks of its own.
constexpr std::uint64_t most_threads = 1'024;
constexpr std::uint64_t most_requests = 1'000'000'000;
constexpr std::size_t tebibyte = std::size_t{1} << 40U;
constexpr std::int64_t microsecond = 1'000, millisecond = 1'000'000, hour = 3'600'000'000'000;
constexpr std::int64_t year = 365 * 24 * hour;

/// Returns the setting at the member path \p Path of a configuration, written as a \p Form. Its variable and option are
/// derived from its name: a.b_c and a.bC become TROUPE_A_B_C and --a-b-c.
template <class Form, auto... Path>
setting at(std::string_view group, std::string_view name, std::string_view description) {
  std::string variable = "TROUPE_", option = "--";
  bool was_small = false;
  for (const char letter : name) {
    const bool is_small = letter >= 'a' && letter <= 'z';
    const bool is_capital = letter >= 'A' && letter <= 'Z';
    if (is_capital && was_small) { // a capital inside a name of NCCL begins a new word
      variable += '_';
      option += '-';
    }
    const char capital = is_small ? static_cast<char>(letter - 'a' + 'A') : letter;
    const char small = is_capital ? static_cast<char>(letter - 'A' + 'a') : letter;
    variable += is_small || is_capital ? capital : '_';
    option += is_small || is_capital ? small : '-';
    was_small = is_small;
  }
  const auto range = [] {
    if constexpr (requires { Form::range(); }) return Form::range();
    return std::string{};
  };
  return {.name = name,
          .variable = std::move(variable),
          .option = std::move(option),
          .group = group,
          .description = description,
          .form = Form::form,
          .range = range(),
          .set = [](configuration& settings, std::string_view text) { (settings.*....*Path) = Form::parse(text); },
          .text = [](const configuration& settings) { return Form::print((settings.*....*Path)); },
          .fits =
              []([[maybe_unused]] const configuration& settings) {
                if constexpr (requires { Form::range(); }) return Form::fits((settings.*....*Path));
                return true;
              }};
}

/// Replaces the derived names by shorter, established ones.
setting called(std::string variable, std::string option, setting one) {
  one.variable = std::move(variable);
  one.option = std::move(option);
  return one;
}

/// Returns the setting of a field of ncclConfig_t. It has the field's name.
template <auto Member>
setting field(std::string_view name, std::string_view description) {
  return at<nccl_number<Member>, &configuration::nccl, Member>("NCCL communicators", name, description);
}

/// Returns the setting of an environment variable of NCCL. The setting uses that same variable, so that one precedence
/// applies.
template <auto Member>
setting variable(std::string_view name, std::string_view description) {
  setting one =
      at<nccl_variable_text<Member>, &configuration::nccl_environment, Member>("NCCL environment", name, description);
  one.option = "--nccl" + one.option.substr(std::string_view{"--nccl-nccl"}.size());
  one.variable = name.substr(std::string_view{"nccl."}.size());
  return one;
}

std::vector<setting> make_table() {
  using c = configuration;
  using d = world_deadlines;
  using l = track_limits;
  using n = nccl_options;
  using e = nccl_environment;
  using h = staging_limits;
  using s = sequencer_limits;
  using f = fusion_limits;
  using p = pending_limits;
  using r = recovery_terms;
  using k = control_settings;
  using t = hierarchy_terms;
  using m = metrics_settings;
  constexpr std::string_view usual = "Runtime", mock = "Mock", time = "Deadlines and limits", recovery = "Recovery",
                             processes = "Worlds over processes";
  return {
      at<named<parse_backend_choice>, &c::backend>(usual, "backend",
                                                   "the backend that moves the data: auto, mock, nccl or gloo"),
      at<number<int, 0, most_ranks>, &c::ranks>(usual, "ranks",
                                                "ranks of a world in this process alone; 0: one for each device"),
      at<named<parse_latency_profile>, &c::profile>(
          usual, "profile", "how long threads spin before parking: latency, balanced or frugal"),
      at<named<parse_completion_strategy>, &c::strategy>(usual, "strategy",
                                                         "how completions are detected: auto, flag, event or host_fn"),
      at<named<parse_thread_placement>, &c::placement>(usual, "placement",
                                                       "where launchers and poller run: near (their GPUs) or none"),
      at<named<parse_ordering>, &c::ordering>(usual, "ordering",
                                              "who orders requests to single ranks: agreed (troupe) or caller"),
      called("TROUPE_NCCL_LIBRARY", "--nccl",
             at<path, &c::nccl_library>(usual, "nccl_library",
                                        "path of the NCCL library; empty: the one that the linker finds")),
      at<byte_size<0, tebibyte>, &c::pool_reserve_bytes>(usual, "pool_reserve_bytes",
                                                         "memory reserved on each device at the start"),
      at<number<std::size_t, 0, most_threads>, &c::scheduler_threads>(
          usual, "scheduler_threads", "threads of the actor system; 0: an eighth of the cores, 2 to 4"),
      at<named<parse_fusion>, &c::fusion, &f::mode>(
          usual, "fusion",
          "which requests are launched together: off (none), plans (those of a captured plan) or free (all)"),
      at<number<std::size_t, 1, 65'536>, &c::fusion, &f::max_operations>(usual, "fusion_max_operations",
                                                                         "most requests in one launch"),
      at<byte_size<1, tebibyte>, &c::fusion, &f::max_bytes>(usual, "fusion_max_bytes",
                                                            "most bytes in one launch of several requests"),
      at<byte_size<1, tebibyte>, &c::fusion, &f::max_operation_bytes>(
          usual, "fusion_max_operation_bytes", "an operation with more bytes is launched by itself"),
      at<byte_size<1, tebibyte>, &c::host_staging, &h::chunk_bytes>(
          usual, "host_staging.chunk_bytes",
          "bytes of host memory in one launch; the same in all processes of a world"),
      at<number<std::size_t, 1, 1'024>, &c::host_staging, &h::slots>(
          usual, "host_staging.slots", "chunks of host memory on a device at once, of inputs and of results"),
      at<named<parse_hierarchy_mode>, &c::hierarchy, &t::mode>(
          usual, "hierarchy.mode", "whether to compose operations in worlds over several nodes: auto, always or never"),
      at<byte_size<0, tebibyte>, &c::hierarchy, &t::min_bytes>(
          usual, "hierarchy.min_bytes", "least size of an operation's longest buffer to compose it under auto"),
      at<byte_size<1, tebibyte>, &c::hierarchy, &t::scratch_bytes>(
          usual, "hierarchy.scratch_bytes",
          "memory on each device for results between steps; the same in all processes of a world"),
      at<metrics_place, &c::metrics, &m::address>(
          usual, "metrics.address", "HOST:PORT that serves metrics to Prometheus and troupe top; empty: none"),
      at<yes_or_no, &c::metrics, &m::allow_remote>(
          usual, "metrics.allow_remote",
          "whether metrics.address may be beyond loopback, where it is unprotected: yes or no"),
      called("TROUPE_LOG", "--log",
             at<log_level, &c::log_level>(usual, "log_level", "trace, debug, info, warn, error or off")),
      field<&n::cgaClusterSize>("nccl.cgaClusterSize", "thread blocks in a cluster, 0 to 8"),
      field<&n::minCTAs>("nccl.minCTAs", "fewest thread blocks of a kernel, 1 to 64"),
      field<&n::maxCTAs>("nccl.maxCTAs", "most thread blocks of a kernel"),
      at<plain_text, &c::nccl, &n::netName>("NCCL communicators", "nccl.netName",
                                            "name of the network, for example IB or Socket"),
      field<&n::splitShare>("nccl.splitShare", "1: a split communicator shares its parent's resources"),
      field<&n::trafficClass>("nccl.trafficClass", "traffic class of network packets"),
      at<plain_text, &c::nccl, &n::commName>("NCCL communicators", "nccl.commName",
                                             "name of communicators in NCCL's logs and profilers"),
      field<&n::collnetEnable>("nccl.collnetEnable", "1: reduce in the network's switches (SHARP) where possible"),
      called("TROUPE_NCCL_CTA_POLICY", "--nccl-cta-policy",
             at<cta_policy, &c::nccl, &n::CTAPolicy>("NCCL communicators", "nccl.CTAPolicy",
                                                     "default, efficiency or zero (copy engines where possible)")),
      field<&n::shrinkShare>("nccl.shrinkShare", "1: a shrunk communicator shares its parent's resources"),
      field<&n::nvlsCTAs>("nccl.nvlsCTAs", "thread blocks of NVLS kernels"),
      field<&n::nChannelsPerNetPeer>("nccl.nChannelsPerNetPeer", "channels between two ranks over the network"),
      field<&n::nvlinkCentricSched>("nccl.nvlinkCentricSched", "1: schedule for NVLink first"),
      variable<&e::algo>("nccl.NCCL_ALGO", "algorithms to choose from, for example ring,tree or ^nvls"),
      variable<&e::proto>("nccl.NCCL_PROTO", "protocols to choose from, for example LL,Simple"),
      variable<&e::p2p_disable>("nccl.NCCL_P2P_DISABLE", "1: GPUs do not access each other directly"),
      variable<&e::p2p_level>("nccl.NCCL_P2P_LEVEL",
                              "longest distance for direct access: LOC, NVL, PIX, PXB, PHB or SYS"),
      variable<&e::shm_disable>("nccl.NCCL_SHM_DISABLE", "1: no transport through shared host memory"),
      variable<&e::ib_disable>("nccl.NCCL_IB_DISABLE", "1: no InfiniBand or RoCE"),
      variable<&e::socket_ifname>("nccl.NCCL_SOCKET_IFNAME",
                                  "network interfaces to use, for example eth0,eth1 or ^docker"),
      variable<&e::net_plugin>("nccl.NCCL_NET_PLUGIN", "network plugin"),
      variable<&e::nvls_enable>("nccl.NCCL_NVLS_ENABLE",
                                "0: no reductions inside NVSwitch; 2: where devices support them"),
      variable<&e::cumem_enable>("nccl.NCCL_CUMEM_ENABLE", "0: no memory by handle and no windows; 1: both"),
      variable<&e::single_proc_mem_reg_enable>("nccl.NCCL_SINGLE_PROC_MEM_REG_ENABLE",
                                               "1: several GPUs of a process register buffers"),
      variable<&e::launch_order_implicit>("nccl.NCCL_LAUNCH_ORDER_IMPLICIT",
                                          "1 (also if empty): launches of worlds on one GPU begin in one order"),
      variable<&e::debug>("nccl.NCCL_DEBUG", "NCCL's own log: VERSION, WARN, INFO or TRACE"),
      variable<&e::debug_subsys>("nccl.NCCL_DEBUG_SUBSYS", "parts that NCCL's log covers, for example INIT,GRAPH"),
      variable<&e::debug_file>("nccl.NCCL_DEBUG_FILE", "file of NCCL's log; %h is the host and %p the process"),
      at<nccl_other_variables, &c::nccl_environment, &e::others>("NCCL environment", "nccl.environment",
                                                                 "other variables that NCCL reads"),
      at<gloo_interface, &c::gloo, &gloo_options::interface_address>(
          "Gloo", "gloo.interface_address",
          "numeric address where other ranks reach this process; unprotected beyond loopback"),
      at<named<parse_gloo_memory>, &c::gloo, &gloo_options::memory>(
          "Gloo", "gloo.memory",
          "memory of buffers: host (mock devices) or device (GPUs, through pinned memory; mock devices without GPUs)"),
      at<number<int, 1, most_ranks>, &c::mock_devices>(mock, "mock.devices", "number of mock devices"),
      at<byte_size<1, tebibyte>, &c::mock_memory_bytes>(mock, "mock.memory_bytes", "memory of each mock device"),
      at<cpu_lists, &c::mock_cpus>(mock, "mock.cpus", "CPUs near each mock device, for example 0-3;4-7"),
      at<feature_list, &c::mock_without>(mock, "mock.without",
                                         "features that the mock lacks, for example fp8_reductions"),
      at<named<parse_mock_results>, &c::mock_results>(
          mock, "mock.results", "results of collectives: computed, or none to measure only the overhead around them"),
      at<count_list, &c::hierarchy_nodes>(
          usual, "hierarchy.nodes",
          "ranks on each node in order, for example 2,3; empty: from the controller, else all on one node"),
      at<named<parse_across_choice>, &c::hierarchy_across>(
          usual, "hierarchy.across", "backend of composed operations between nodes: same or gloo"),
      at<duration<millisecond, year>, &c::deadlines, &d::form>(time, "deadlines.form",
                                                               "time to form a world, including other processes"),
      at<duration<millisecond, year>, &c::deadlines, &d::operation>(
          time, "deadlines.operation", "time to answer a request without its own deadline"),
      at<duration<millisecond, year>, &c::deadlines, &d::drain>(time, "deadlines.drain",
                                                                "time to finish requests in flight when a world stops"),
      at<duration<millisecond, year>, &c::deadlines, &d::release>(time, "deadlines.release",
                                                                  "time to release a stopped world's communicators"),
      at<duration<millisecond, year>, &c::deadlines, &d::abort>(time, "deadlines.abort",
                                                                "time to abort a failed world's communicators"),
      at<named<parse_recovery_policy>, &c::recovery, &r::policy>(
          recovery, "recovery.policy",
          "after a fault: fail_fast (the world ends), keep_size (the ranks form again) or shrink (the survivors do)"),
      at<number<std::size_t, 1, 1'000'000>, &c::recovery, &r::rebuilds>(
          recovery, "recovery.rebuilds", "rebuilds of a world within recovery.window; the next fault ends the world"),
      at<duration_or_zero<millisecond, 10 * year>, &c::recovery, &r::window>(
          recovery, "recovery.window",
          "time in which rebuilds are counted; 0: derived from deadlines and limits, at least ten minutes"),
      at<duration_or_zero<microsecond, year>, &c::recovery, &r::backoff>(
          recovery, "recovery.backoff",
          "longest pause before the second rebuild in the window; doubled before each later one"),
      at<path, &c::report_folder>(recovery, "report.folder",
                                  "folder for fault reports, one file each; empty: reports go into the log"),
      at<number<std::size_t, 0, 1'048'576>, &c::recorder_requests>(
          recovery, "recorder.requests",
          "latest requests of each rank that the flight recorder keeps; 0: it only counts"),
      at<record_signal, &c::recorder_signal>(
          recovery, "recorder.signal",
          "signal that writes the flight record into report.folder or the working folder: USR1 or USR2"),
      at<named<parse_nvtx_choice>, &c::nvtx>(
          recovery, "nvtx", "NVTX ranges named like requests: auto (when a profiler listens), on or off"),
      at<named<parse_first_rung>, &c::recovery, &r::first_rung>(
          recovery, "recovery.first_rung",
          "first step of a recovery: form_beside (failed communicators are aborted afterwards), abort_first, shrink or "
          "revoke"),
      called("TROUPE_CONTROL", "--control",
             at<plain_text, &c::control, &k::address>(
                 processes, "control.address",
                 "HOST:PORT of the controller of a world over processes; empty: no controller")),
      at<named<parse_orphan_policy>, &c::control, &k::orphaned>(
          processes, "control.orphaned", "action without a controller: leave (the world ends) or rejoin"),
      at<file_path, &c::control, &k::ca>(processes, "control.ca",
                                         "the CA's certificate, for mutual TLS with the controller"),
      at<file_path, &c::control, &k::certificate>(processes, "control.certificate", "this process's own certificate"),
      at<file_path, &c::control, &k::key>(processes, "control.key", "this process's private key"),
      at<duration<millisecond, year>, &c::control, &k::patience>(processes, "control.patience",
                                                                 "time until a process without a controller gives up"),
      at<number<std::size_t, 1, most_requests>, &c::sequencing, &s::lead>(
          time, "limits.lead", "most requests of one rank that wait for its peers; more are refused as busy"),
      at<number<std::size_t, 0, most_requests>, &c::pending, &p::operations>(
          time, "limits.pending_operations",
          "most unanswered requests of a world beyond the first of each lane; more are refused as busy; 0: no limit"),
      at<byte_size<0, tebibyte>, &c::pending, &p::bytes>(time, "limits.pending_bytes",
                                                         "most bytes that these requests name in all; 0: no limit"),
      at<duration_or_zero<millisecond, year>, &c::sequencing, &s::straggling>(
          time, "limits.straggling", "time until a request that waits for peers is reported; 0: never"),
      at<duration<millisecond, year>, &c::limits, &l::launch>(time, "limits.launch",
                                                              "time after which a launch call is stuck"),
      at<duration<millisecond, year>, &c::limits, &l::hang>(time, "limits.hang",
                                                            "time after which an operation on a device is hung"),
      at<duration<10 * microsecond, hour>, &c::limits, &l::check_interval>(time, "limits.check_interval",
                                                                           "time between checks of these limits"),
      at<duration<10 * microsecond, hour>, &c::limits, &l::quiet>(
          time, "limits.quiet", "time without completions until a stream is queried for errors"),
  };
}

/// User variables that are not settings.
constexpr std::array other_variables{"TROUPE_CONFIG", "TROUPE_JOIN_TOKEN", "TROUPE_WORLD_SIZE"};
/// Variables that `troupe launch` and troupe's tests set. They are never treated as misspelt.
constexpr std::array inner_variables{"TROUPE_PROCESS",      "TROUPE_HOST",        "TROUPE_PLACE",
                                     "TROUPE_DEVICE",       "TROUPE_SPARE",       "TROUPE_ATTEMPT",
                                     "TROUPE_BENCH_REPORT", "TROUPE_REQUIRE_GPU", "TROUPE_PREFIX"};

} // namespace

std::span<const setting> all_settings() {
  static const std::vector<setting> table = make_table();
  return table;
}

const setting& find_setting(std::string_view name) {
  const auto all = all_settings();
  const auto found = std::ranges::find(all, name, &setting::name);
  if (found != all.end()) return *found;
  std::vector<std::string> names;
  for (const setting& one : all) names.emplace_back(one.name);
  throw exception{errc::invalid_argument, "unknown setting '" + std::string{name} + "'; the nearest is '" +
                                              nearest_name(name, names) + "' (troupe config lists all)"};
}

void check_variable_names(const std::vector<std::string>& names) {
  std::vector<std::string> known(other_variables.begin(), other_variables.end());
  // Maps the regular name of a setting's variable, for example TROUPE_LOG_LEVEL, to its actual name.
  std::map<std::string, std::string> meant;
  for (const setting& one : all_settings()) {
    known.push_back(one.variable);
    std::string regular = "TROUPE_";
    for (const char letter : one.name)
      regular += letter == '.' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    meant.emplace(std::move(regular), one.variable);
    meant.emplace("TROUPE_" + one.variable, one.variable);
  }
  for (const std::string& name : names) {
    if (std::ranges::count(known, name) + std::ranges::count(inner_variables, name) > 0) continue;
    const auto other = meant.find(name);
    const std::string& nearest =
        other != meant.end()
            ? other->second
            : *std::ranges::min_element(known, {}, [&](const std::string& one) { return edit_distance(name, one); });
    constexpr std::size_t long_name = sizeof "TROUPE_12345678";
    // Another name that is two edits away may be the user's own.
    const std::size_t most = name.size() + 1 < long_name ? 1 : 2;
    if (other != meant.end() || edit_distance(name, nearest) <= most)
      throw exception{errc::invalid_argument, "the environment has " + name +
                                                  ", which troupe does not read; the nearest is '" + nearest +
                                                  "': set that, or unset " + name};
  }
}

void check_process_variables() {
  std::vector<std::string> names;
  for (char** one = ::environ; one != nullptr && *one != nullptr; ++one)
    if (const std::string_view entry{*one}; entry.starts_with("TROUPE_"))
      names.emplace_back(entry.substr(0, entry.find('=')));
  check_variable_names(names);
}

} // namespace troupe
