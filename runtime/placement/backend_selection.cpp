#include <troupe/runtime/placement/backend_selection.hpp>

#include <troupe/collectives/backend/faults/fault_injector.hpp>
#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_backend.hpp>
#include <troupe/device/cuda/cuda_driver.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/runtime/logging.hpp>
#include <troupe/runtime/packages.hpp>

#include <optional>
#include <string>
#include <utility>

namespace troupe {

std::shared_ptr<driver> make_mock_devices(const configuration& settings) {
  mock_options options{.device_count = settings.mock.devices, .memory_bytes = settings.mock.memory_bytes};
  for (const cpu_set& cpus : settings.mock.cpus)
    options.places.push_back({.local = cpus.empty() ? std::nullopt : std::optional{locality{.cpus = cpus}}});
  return make_mock_driver(std::move(options));
}

namespace {

bool spans_processes(const configuration& settings) {
  return !settings.control.address.empty() || (settings.position && settings.position->world_size > 1);
}

selected_backend select_mock(const configuration& settings, std::string why) {
  const auto connect =
      spans_processes(settings)
          ? need_processes_package("the mock over several processes needs worlds over processes").connect_mocks
          : nullptr;
  return {.api = make_mock_devices(settings),
          .collectives = make_mock_backend(settings.mock.without, settings.mock.results, connect),
          .why = std::move(why)};
}

selected_backend select_nccl(const configuration& settings, std::shared_ptr<driver> api, std::string why) {
  set_environment(settings.nccl.environment, settings.nccl.library);
  return {.api = std::move(api),
          .collectives = make_nccl_backend(settings.nccl.library, settings.nccl.config),
          .why = std::move(why)};
}

selected_backend select_library(const configuration& settings) {
  switch (settings.backend) {
    case backend_choice::mock: return select_mock(settings, "the mock was asked for");
    case backend_choice::nccl: return select_nccl(settings, make_cuda_driver(), "NCCL was asked for");
    case backend_choice::gloo:
      return need_backends_package("the backend gloo is one of the optional backends").select_gloo(settings);
    case backend_choice::automatic: break;
  }
  std::shared_ptr<driver> api;
  try {
    api = make_cuda_driver();
  } catch (const exception& absent) {
    if (absent.why().code != errc::missing) throw;
    return select_mock(settings, "no GPU, so the mock: " + absent.why().text);
  }
  return select_nccl(settings, std::move(api), "there are GPUs");
}

/// Returns whether small collectives are kernels of troupe's own where the devices permit it.
bool wants_one_shot_kernels(const configuration& settings) {
  return settings.limits.one_shot_bytes != 0 && settings.backend != backend_choice::gloo;
}

} // namespace

selected_backend select_backend(const configuration& settings) {
  selected_backend selected = select_library(settings);
  selected.library = selected.collectives;
  if (wants_one_shot_kernels(settings)) {
    if (spans_processes(settings))
      selected.meetings = need_processes_package("one_shot_bytes needs worlds over processes").make_meetings(settings);
    selected.collectives = with_one_shot_kernels(std::move(selected.collectives),
                                                 {.part_bytes = settings.limits.one_shot_bytes,
                                                  .meetings = selected.meetings,
                                                  .on_absent = [](const std::string& why) {
                                                    log_warning("small collectives are left to the library: " + why);
                                                  }});
  }
  if (const backends_package* const linked = find_backends_package()) {
    linked->compose_over_nodes(selected, settings);
  } else if (settings.hierarchy.mode == hierarchy_mode::always || !settings.hierarchy.nodes.empty()) {
    static_cast<void>(need_backends_package("hierarchy.mode and hierarchy.nodes need the optional backends"));
  }
  if (settings.faults) selected.collectives = make_faulty_backend(std::move(selected.collectives), settings.faults);
  return selected;
}

device_id choose_local_device(const process_position& position, int device_count) {
  if (device_count == 1) return device_id{0};
  if (position.local_rank < device_count) return device_id{position.local_rank};
  throw exception{errc::invalid_argument,
                  std::string{names_for(position.launcher).local_rank} + " is " + std::to_string(position.local_rank) +
                      ", but this process sees " + std::to_string(device_count) +
                      " devices: start at most as many processes on a host as it has devices, or let the launcher show "
                      "each process one device (CUDA_VISIBLE_DEVICES; srun --gpus-per-task=1); on the mock, raise "
                      "mock.devices"};
}

} // namespace troupe
