#include "runtime_options.hpp"

#include <CLI/CLI.hpp>

namespace troupe::program {

void runtime_options::add_to(CLI::App& command) {
  command.add_option("--backend", backend_, "auto, mock or nccl (TROUPE_BACKEND; default auto)");
  command.add_option("--ranks", ranks_, "ranks of the world; 0 is one for each device (TROUPE_RANKS; default 0)");
  command.add_option("--profile", profile_, "latency, balanced or frugal (TROUPE_PROFILE; default balanced)");
  command.add_option("--strategy", strategy_,
                     "how completions are seen: auto, flag, event or host_fn (TROUPE_STRATEGY; default auto)");
  command.add_option("--nccl", nccl_, "path of the NCCL library (TROUPE_NCCL_LIBRARY; default: the linker's)");
  command.add_option("--log", log_, "trace, debug, info, warn, error or off (TROUPE_LOG; default warn)");
}

configuration runtime_options::settings() const {
  configuration chosen = configuration::from_environment();
  if (!backend_.empty()) chosen.backend = parse_backend_choice(backend_);
  if (!profile_.empty()) chosen.profile = parse_latency_profile(profile_);
  if (!strategy_.empty()) chosen.strategy = parse_completion_strategy(strategy_);
  if (!nccl_.empty()) chosen.nccl_library = nccl_;
  if (!log_.empty()) chosen.log_level = log_;
  if (ranks_ != -1) chosen.ranks = ranks_;
  if (chosen.backend == backend_choice::mock && chosen.ranks > chosen.mock_devices) chosen.mock_devices = chosen.ranks;
  check(chosen);
  return chosen;
}

} // namespace troupe::program
