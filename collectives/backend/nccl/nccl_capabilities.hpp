/// Determines what an NCCL library can do with some devices: from its version and functions, the devices' traits and
/// the environment variables that NCCL reads.
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

/// The input of nccl_capabilities().
struct nccl_facts {
  int version = 0;   ///< As NCCL encodes it, e.g. 22809.
  std::string about; ///< The version line of the backend.
  std::function<bool(std::string_view symbol)> has;
  std::vector<device_description> devices; ///< The devices of this process.
  bool all_peers = true;                   ///< Each device can access the memory of every other one.
  nccl_options options;
  nccl_variable_lookup environment;
  /// Returns the CollNet interface of the network plugin called \p name, as file and symbol; nullopt if it has none.
  std::function<std::optional<std::string>(const std::string& name)> collnet_plugin;
};

/// A feature counts as available unless a fact known beforehand excludes it.
/// Source: NCCL 2.28.9, src/init.cc, src/enqueue.cc, src/transport/nvls.cc, src/register, src/ce_coll.cc.
[[nodiscard]] capabilities nccl_capabilities(const nccl_facts& facts);

/// Searches the plugin as NCCL does: a file of that name, then libnccl-net-NAME.so; libnccl-net.so for "". \p name may
/// be a list with commas: the first plugin that has a CollNet interface counts. Each file is opened, examined and
/// closed.
[[nodiscard]] std::optional<std::string> find_collnet_plugin(const std::string& name);

} // namespace troupe
