#include <troupe/backends/gloo/gloo_backend.hpp>
#include <troupe/backends/hierarchy/hierarchical_backend.hpp>
#include <troupe/device/cuda/cuda_driver.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/packages.hpp>

#include <memory>
#include <span>
#include <string>
#include <utility>

namespace troupe {

namespace {

selected_backend select_gloo(const configuration& settings) {
  auto made = make_gloo_backend(settings.gloo);
  if (settings.gloo.memory == gloo_memory::device) {
    try {
      return {.api = make_cuda_driver(), .collectives = std::move(made), .why = "Gloo was asked for, on GPUs"};
    } catch (const exception& absent) {
      if (absent.why().code != errc::missing) throw;
    }
  }
  // A thread that runs a stream of the host can wake the poller, and costs no GPU the time of a call.
  return {.api = make_mock_devices(settings),
          .collectives = std::move(made),
          .why = "Gloo was asked for",
          .by_default = completion_strategy::host_fn};
}

/// Returns the backend that moves data between nodes, or null if it is the one used inside a node.
std::shared_ptr<backend> select_across(const configuration& settings, const driver& api) {
  if (settings.hierarchy.across == across_choice::same) return nullptr;
  gloo_options options = settings.gloo;
  options.memory = api.name() == "mock" ? gloo_memory::host : gloo_memory::device;
  return make_gloo_backend(std::move(options));
}

/// Returns whether operations are composed over nodes without hierarchy.nodes. NCCL finds the nodes of its ranks by
/// itself.
bool composes_by_itself(const configuration& settings, const backend& flat) {
  return settings.hierarchy.mode == hierarchy_mode::always || settings.hierarchy.across != across_choice::same ||
         flat.name() != "nccl";
}

/// Wraps the backend so that operations over several nodes are composed.
void compose_over_nodes(selected_backend& selected, const configuration& settings) {
  if (settings.hierarchy.mode == hierarchy_mode::never) return;
  const bool is_asked = !settings.hierarchy.nodes.empty();
  if (!is_asked && settings.control.address.empty()) {
    if (settings.hierarchy.mode == hierarchy_mode::always)
      log_warning("hierarchy.mode is always, but which ranks share a node is unknown, so no operation is composed: set "
                  "hierarchy.nodes, or use a controller");
    return;
  }
  if (!is_asked && !composes_by_itself(settings, *selected.collectives)) return;
  const auto nodes = is_asked ? std::make_shared<node_directory>(node_map::of_sizes(settings.hierarchy.nodes))
                              : std::make_shared<node_directory>();
  const hierarchy_terms& terms = settings.hierarchy;
  selected.collectives =
      make_hierarchical_backend(std::move(selected.collectives), nodes, terms, select_across(settings, *selected.api));
  selected.note_hosts = [nodes](const unique_id& formation, std::span<const std::string> hosts) {
    nodes->note(formation, node_map::of_hosts(hosts));
  };
}

} // namespace

} // namespace troupe

const troupe::backends_package* troupe_backends_package() noexcept {
  static constexpr troupe::backends_package package{.select_gloo = troupe::select_gloo,
                                                    .compose_over_nodes = troupe::compose_over_nodes};
  return &package;
}
