/// `troupe doctor`: what this machine has, what troupe found of it, what is missing and how to get it.

#include "commands.hpp"
#include "runtime_options.hpp"

#include <troupe/actors/caf_compat.hpp>
#include <troupe/collectives/nccl/nccl_library.hpp>
#include <troupe/device/cuda/cuda_driver.hpp>
#include <troupe/device/device.hpp>

#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::program {

namespace {

/// A line for each part, and what to do about those that are missing.
class report {
public:
  void found(const char* part, const std::string& what) { std::printf("%-10s ok       %s\n", part, what.c_str()); }
  void missing(const char* part, const error& why) {
    std::printf("%-10s %-8s %s\n", part, why.code == errc::missing ? "missing" : "bad",
                why.code == errc::missing ? why.text.c_str() : to_string(why).c_str());
    ++missing_;
  }
  [[nodiscard]] int missing_count() const noexcept { return missing_; }

private:
  int missing_ = 0;
};

void examine_devices(report& findings) {
  const auto api = make_cuda_driver();
  findings.found("driver", api->version());
  for (int i = 0; i < api->device_count(); ++i) {
    const device_id id{i};
    const std::string part = "GPU " + to_string(id);
    try {
      static_cast<void>(device::open(api, id));
      const device_description what = api->describe(id);
      char line[256];
      std::snprintf(line, sizeof line, "%s, compute capability %d.%d, %.1f of %.1f GiB free, PCI %s", what.name.c_str(),
                    what.compute_major, what.compute_minor, static_cast<double>(what.free_bytes) / (1U << 30U),
                    static_cast<double>(what.total_bytes) / (1U << 30U), what.pci_bus_id.c_str());
      findings.found(part.c_str(), line);
    } catch (const exception& failure) {
      findings.missing(part.c_str(), failure.why());
    }
  }
}

int run(const configuration& settings) {
  report findings;
  findings.found("troupe", TROUPE_VERSION " with CAF " + std::to_string(CAF_MAJOR_VERSION) + "." +
                               std::to_string(CAF_MINOR_VERSION) + "." + std::to_string(CAF_PATCH_VERSION) +
                               (TROUPE_HAS_CUDA ? ", built with CUDA and NCCL" : ", built without CUDA"));
  findings.found("cores", std::to_string(std::thread::hardware_concurrency()));
  findings.found("mock", "always there: troupe demo --backend mock");
  try {
    examine_devices(findings);
  } catch (const exception& failure) {
    findings.missing("driver", failure.why());
  }
  try {
    const auto library = nccl_library::open(settings.nccl_library);
    findings.found("NCCL", library->version() + " from " + library->path().string());
  } catch (const exception& failure) {
    findings.missing("NCCL", failure.why());
  }
  if (findings.missing_count() == 0)
    std::printf("ready for GPUs\n");
  else
    std::printf("ready for the mock; %d missing for GPUs\n", findings.missing_count());
  return 0;
}

} // namespace

void add_doctor(CLI::App& program, action& chosen) {
  auto options = std::make_shared<runtime_options>();
  CLI::App* command = program.add_subcommand("doctor", "say what is there, what is missing and how to get it");
  options->add_to(*command);
  command->callback([options, &chosen] { chosen = [options] { return run(options->settings()); }; });
}

} // namespace troupe::program
