#include <troupe/program/doctor/doctor_findings.hpp>

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/collectives/backend/gloo/gloo_backend.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_library.hpp>
#include <troupe/collectives/backend/nccl/nccl_options.hpp>
#include <troupe/device/cuda/cuda_driver.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <algorithm>
#include <thread>
#include <utility>

namespace troupe::program {

namespace {

#if defined(__clang__)
constexpr const char* compiler_name = "clang " __clang_version__;
#else
constexpr const char* compiler_name = "g++ " __VERSION__;
#endif

/// Runs \p look. If it throws, the error is recorded as the missing part \p part.
template <class Look>
void look_at(const std::string& part, doctor_findings& findings, Look&& look, bool needed_by_gpus = true) {
  try {
    look();
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
    look_at("GPU " + to_string(id), findings, [&] {
      api.open(id);
      findings.devices.push_back({id, api.describe(id)});
      opened.push_back(id);
    });
  }
  look_at(
      "topology", findings, [&] { findings.where = topology::examine(api, opened, host); }, false);
}

namespace {

void examine_capabilities(const configuration& settings, const std::shared_ptr<driver>& api,
                          doctor_findings& findings) {
  look_at("capabilities", findings, [&] {
    if (settings.backend == backend_choice::gloo) {
      findings.able = make_gloo_backend(settings.gloo)->examine({});
      return;
    }
    if (settings.backend == backend_choice::mock || api == nullptr || !findings.nccl || findings.devices.empty()) {
      findings.able = make_mock_backend(settings.mock_without)->examine({});
      return;
    }
    std::vector<std::shared_ptr<device>> devices;
    for (const found_device& one : findings.devices) devices.push_back(device::open(api, one.id));
    findings.able = make_nccl_backend(settings.nccl_library, settings.nccl)->examine(devices);
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
  const machine& host = machine::here();
  look_at(
      "hwloc", findings,
      [&] {
        findings.host = found_host{.cores = std::thread::hardware_concurrency(),
                                   .usable_cpus = usable_cpus(host),
                                   .numa_nodes = host.numa_node_count(),
                                   .hwloc_version = host.library_version()};
      },
      false);
  std::shared_ptr<driver> api;
  look_at("driver", findings, [&] {
    api = make_cuda_driver();
    findings.driver_version = api->version();
    examine_devices(*api, host, findings);
  });
  look_at("NCCL", findings, [&] {
    static_cast<void>(
        set_environment(settings.nccl_environment, settings.nccl_library)); // A replaced variable is not a finding.
    const auto library = nccl_library::open(settings.nccl_library);
    findings.nccl = found_nccl{.version = library->version(), .path = library->path().string()};
  });
  examine_capabilities(settings, api, findings);
  if (probing)
    look_at(
        "probe", findings, [&] { findings.probed = probe(settings, findings.where); }, false);
  return findings;
}

} // namespace troupe::program
