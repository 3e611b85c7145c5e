#include <troupe/collectives/backend/nccl/nccl_algorithms.hpp>
#include <troupe/collectives/backend/nccl/nccl_environment.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>

#include <strings.h>

namespace troupe {

namespace {

using e = nccl_environment;

constexpr std::array variables{
    nccl_variable{"NCCL_ALGO", &e::algo},
    nccl_variable{"NCCL_PROTO", &e::proto},
    nccl_variable{"NCCL_P2P_DISABLE", &e::p2p_disable},
    nccl_variable{"NCCL_P2P_LEVEL", &e::p2p_level},
    nccl_variable{"NCCL_SHM_DISABLE", &e::shm_disable},
    nccl_variable{"NCCL_IB_DISABLE", &e::ib_disable},
    nccl_variable{"NCCL_SOCKET_IFNAME", &e::socket_ifname},
    nccl_variable{"NCCL_NET_PLUGIN", &e::net_plugin},
    nccl_variable{"NCCL_NVLS_ENABLE", &e::nvls_enable},
    nccl_variable{"NCCL_CUMEM_ENABLE", &e::cumem_enable},
    nccl_variable{"NCCL_SINGLE_PROC_MEM_REG_ENABLE", &e::single_proc_mem_reg_enable},
    nccl_variable{"NCCL_LAUNCH_ORDER_IMPLICIT", &e::launch_order_implicit},
    nccl_variable{"NCCL_DEBUG", &e::debug},
    nccl_variable{"NCCL_DEBUG_SUBSYS", &e::debug_subsys},
    nccl_variable{"NCCL_DEBUG_FILE", &e::debug_file},
};

/// Variables that programs may not set, and why.
constexpr std::array reserved{
    std::pair{std::string_view{"NCCL_COMM_BLOCKING"}, "troupe's communicators are blocking, and it relies on that"},
    std::pair{std::string_view{"NCCL_COMM_ID"}, "a world's unique id is made by troupe and is a secret"},
};

[[noreturn]] void refuse(const std::string& text) {
  throw exception{errc::invalid_argument, text};
}

/// NCCL reads these with strtoll(), which reads text that is not a number as 0.
void require_number(std::string_view name, const std::string& value) {
  const std::string_view digits = std::string_view{value}.substr(value.starts_with('-') ? 1 : 0);
  if (value.empty() || (!digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos)) return;
  refuse(std::string{name} + " is '" + value + "' and must be a number, for example 0 or 1: NCCL would read it as 0");
}

/// Compares without case, as NCCL does.
void require_one_of(std::string_view name, const std::string& value, std::initializer_list<std::string_view> choices) {
  std::string known;
  for (const auto choice : choices) {
    if (::strcasecmp(value.c_str(), std::string{choice}.c_str()) == 0) return;
    known += (known.empty() ? "" : ", ") + std::string{choice};
  }
  if (!value.empty()) refuse(std::string{name} + " is '" + value + "' and must be one of " + known);
}

void check_other(const std::string& name, const std::string& value) {
  const auto is_part = [](char letter) {
    return (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') || letter == '_';
  };
  if (!name.starts_with("NCCL_") || name.size() == 5 || !std::ranges::all_of(name, is_part))
    refuse("nccl.environment: '" + name + "' is not a variable of NCCL: their names begin with NCCL_, in capitals");
  if (value.find('\0') != std::string::npos) refuse("nccl.environment: the value of " + name + " holds a null byte");
  if (std::ranges::find(variables, name, &nccl_variable::name) != variables.end())
    refuse("nccl.environment: " + name + " has its own setting: use nccl." + name);
  for (const nccl_field& one : nccl_fields())
    if (one.variable == name)
      refuse("nccl.environment: " + name + " has its own setting: use nccl." + std::string{one.name});
  if (name == "NCCL_NET") refuse("nccl.environment: NCCL_NET has its own setting: use nccl.netName");
  for (const auto& [kept, why] : reserved)
    if (kept == name) refuse("nccl.environment: " + name + " cannot be chosen: " + why);
}

} // namespace

std::span<const nccl_variable> nccl_variables() noexcept {
  return variables;
}

void check(const nccl_environment& wanted) {
  if (!wanted.algo.empty()) static_cast<void>(parse_nccl_algorithms(wanted.algo));
  if (!wanted.proto.empty()) static_cast<void>(parse_nccl_protocols(wanted.proto));
  for (const auto member : {&e::p2p_disable, &e::shm_disable, &e::ib_disable, &e::nvls_enable, &e::cumem_enable,
                            &e::single_proc_mem_reg_enable, &e::launch_order_implicit})
    require_number(std::ranges::find(variables, member, &nccl_variable::member)->name, wanted.*member);
  if (wanted.p2p_level.empty() || !std::isdigit(static_cast<unsigned char>(wanted.p2p_level.front())))
    require_one_of("NCCL_P2P_LEVEL", wanted.p2p_level,
                   {"LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS"});
  require_one_of("NCCL_DEBUG", wanted.debug, {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"});
  std::vector<std::string> seen;
  for (const auto& [name, value] : wanted.others) {
    check_other(name, value);
    if (std::ranges::find(seen, name) != seen.end()) refuse("nccl.environment: " + name + " is set twice: leave one");
    seen.push_back(name);
  }
}

std::vector<std::string> set_environment(const nccl_environment& wanted,
                                         const std::optional<std::filesystem::path>& library) {
  check(wanted);
  struct change {
    std::string name;
    std::string value;
    bool replaces;
  };
  std::vector<change> changes;
  for (const nccl_variable& one : variables)
    if (const std::string& value = wanted.*one.member; !value.empty())
      changes.push_back({std::string{one.name}, value, true});
  for (const auto& [name, value] : wanted.others) changes.push_back({name, value, false});

  const auto environment = nccl_process_variables();
  if (wanted.launch_order_implicit.empty() && !environment("NCCL_LAUNCH_ORDER_IMPLICIT") &&
      !nccl_library::is_loaded(library))
    changes.push_back({"NCCL_LAUNCH_ORDER_IMPLICIT", "1", false});
  std::erase_if(changes, [&](const change& one) { return environment(one.name) == one.value; });
  if (changes.empty()) return {};

  for (const change& one : changes) {
    const auto present = environment(one.name);
    if (nccl_library::is_loaded(library))
      refuse(one.name + " must be " + one.value +
             ", but NCCL is already loaded in this process and may have read it as " +
             (present ? "'" + *present + "'" : std::string{"not set"}) +
             ": set it before NCCL is loaded (by the first runtime, or in the environment of the process)");
    if (present && !one.replaces)
      refuse(one.name + " is " + one.value + " in nccl.environment and " + *present +
             " in the environment: leave one of them out");
  }
  std::vector<std::string> replaced;
  for (const change& one : changes) {
    if (const auto present = environment(one.name))
      replaced.push_back(one.name + "=" + *present + " of the environment is replaced by " + one.value +
                         " of the settings");
    ::setenv(one.name.c_str(), one.value.c_str(), 1); // NOLINT(concurrency-mt-unsafe): see the header
  }
  return replaced;
}

} // namespace troupe
