/// What an NCCL library can do with some devices: from its version and functions, the devices' traits and what NCCL
/// reads in its environment.
#pragma once

#include <troupe/collectives/backend/nccl/nccl_options.hpp>
#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/device/driver.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// All that nccl_capabilities() looks at.
struct nccl_facts {
  int version = 0;   ///< As NCCL counts.
  std::string about; ///< The backend's version line.
  std::function<bool(std::string_view symbol)> has;
  std::vector<device_description> devices; ///< Those of this process.
  bool all_peers = true;                   ///< Each of them reaches the memory of each other.
  nccl_options options;
  nccl_variable_lookup environment;
  /// The CollNet interface that the network plugin called \p name offers: its file and symbol; nothing: none.
  std::function<std::optional<std::string>(const std::string& name)> collnet_plugin;
};

/// A feature counts as available when nothing that can be known beforehand speaks against it.
/// Source: NCCL 2.28.9, src/init.cc, src/enqueue.cc, src/transport/nvls.cc, src/register, src/ce_coll.cc.
[[nodiscard]] capabilities nccl_capabilities(const nccl_facts& facts);

/// Looks for the plugin as NCCL does: a file of that name, then libnccl-net-NAME.so; of several, with commas between
/// them, the first that has one; libnccl-net.so for "". Opened to
/// look and closed again.
[[nodiscard]] std::optional<std::string> find_collnet_plugin(const std::string& name);

} // namespace troupe
