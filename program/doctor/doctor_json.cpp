#include <troupe/program/doctor/doctor_json.hpp>

#include <nlohmann/json.hpp>

namespace troupe::program {

namespace {

using json = nlohmann::ordered_json;

template <class Value>
json or_null(const std::optional<Value>& value) {
  return value ? json(*value) : json(nullptr);
}

json of(const found_host& host) {
  return {{"cores", host.cores},
          {"usable_cpus", host.usable_cpus.cpus()},
          {"numa_nodes", host.numa_nodes},
          {"hwloc_version", host.hwloc_version}};
}

json of(const found_device& device, const device_place* place) {
  const bool cpus_known = place != nullptr && !place->local.cpus.empty();
  return {{"id", device.id.value()},
          {"name", device.what.name},
          {"compute_capability",
           std::to_string(device.what.compute_major) + "." + std::to_string(device.what.compute_minor)},
          {"total_bytes", device.what.total_bytes},
          {"free_bytes", device.what.free_bytes},
          {"pci_bus_id", device.what.pci_bus_id},
          {"multicast", or_null(device.what.traits.multicast)},
          {"gpu_direct_rdma", or_null(device.what.traits.gpu_direct_rdma)},
          {"dma_buf", or_null(device.what.traits.dma_buf)},
          {"numa_node", place != nullptr ? or_null(place->local.numa_node) : json(nullptr)},
          {"local_cpus", cpus_known ? json(place->local.cpus.cpus()) : json(nullptr)}};
}

json of(const device_pair& pair) {
  return {{"from", pair.from.value()},
          {"to", pair.to.value()},
          {"peer_access", pair.peer_access},
          {"link", to_string(pair.link)},
          {"nvlink_count", or_null(pair.nvlink_count)},
          {"nvlink_source", pair.nvlink_source}};
}

json of(const capabilities& able) {
  json features = json::array();
  for (const feature_finding& one : able.features)
    features.push_back({{"feature", to_string(one.what)}, {"available", to_string(one.available)}, {"why", one.why}});
  json refused = json::array();
  for (const exclusion& one : able.exclusions) {
    json kinds = json::array(), dtypes = json::array(), ops = json::array();
    for (const std::size_t kind : one.kinds) kinds.push_back(name_of_kind(kind));
    for (const dtype type : one.types) dtypes.push_back(to_string(type));
    for (const reduction op : one.ops) ops.push_back(to_string(op));
    refused.push_back({{"operations", kinds},
                       {"dtypes", dtypes},
                       {"reductions", ops},
                       {"ranks", to_string(one.size)},
                       {"why", one.why}});
  }
  return {{"backend", able.backend}, {"version", able.version}, {"features", features}, {"refused", refused}};
}

json of(const probe_findings& probed) {
  json uses = json::array();
  for (const probed_use& one : probed.uses)
    uses.push_back({{"operation", one.operation},
                    {"size_bytes", one.size_bytes},
                    {"function", one.function},
                    {"algorithm", one.algorithm.empty() ? json(nullptr) : json(one.algorithm)},
                    {"protocol", one.protocol.empty() ? json(nullptr) : json(one.protocol)},
                    {"channels", one.channels},
                    {"host_threads", one.by_proxy}});
  json transports = json::array();
  for (const probed_pair& one : probed.transports)
    transports.push_back({{"from", one.from.value()},
                          {"to", one.to.value()},
                          {"transport", one.transport.name},
                          {"deduced_from", one.transport.how}});
  return {{"backend", probed.backend},
          {"ranks", probed.ranks},
          {"uses", uses},
          {"transports", transports},
          {"note", probed.note}};
}

json of(const missing_part& missing) {
  json part{{"part", missing.part},
            {"code", to_string(missing.why.code)},
            {"remedy", missing.why.text},
            {"needed_by_gpus", missing.needed_by_gpus}};
  if (!missing.why.call.empty())
    part["call"] = {{"name", missing.why.call}, {"code", missing.why.native_code}, {"text", missing.why.native_text}};
  return part;
}

} // namespace

std::string as_json(const doctor_findings& findings) {
  json document{{"troupe",
                 {{"version", findings.troupe_version},
                  {"caf_version", findings.caf_version},
                  {"compiler", findings.compiler},
                  {"built_with_cuda", findings.built_with_cuda}}},
                {"host", findings.host ? of(*findings.host) : json(nullptr)},
                {"driver", or_null(findings.driver_version)},
                {"devices", json::array()},
                {"pairs", json::array()},
                {"nccl", nullptr},
                {"capabilities", findings.able ? of(*findings.able) : json(nullptr)},
                {"probe", findings.probed ? of(*findings.probed) : json(nullptr)},
                {"missing", json::array()},
                {"ready", {{"mock", true}, {"gpus", findings.ready_for_gpus()}}}};
  for (std::size_t i = 0; i < findings.devices.size(); ++i)
    document["devices"].push_back(of(findings.devices[i], findings.where ? &findings.where->places()[i] : nullptr));
  if (findings.where)
    for (const auto& pair : findings.where->pairs())
      if (pair.from != pair.to) document["pairs"].push_back(of(pair));
  if (findings.nccl) document["nccl"] = {{"version", findings.nccl->version}, {"path", findings.nccl->path}};
  for (const auto& missing : findings.missing) document["missing"].push_back(of(missing));
  // Names and native texts come from other software. Invalid UTF-8 in them is replaced, not refused.
  return document.dump(2, ' ', false, json::error_handler_t::replace) + '\n';
}

} // namespace troupe::program
