// Counting NVLinks from what NVML says link by link, with a pretend NVML: two GPUs, 10:00.0 and 20:00.0.
#include <troupe/device/cuda/nvlink.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

using namespace troupe;

namespace {

constexpr int not_supported = 3;
constexpr int not_found = 6;

struct pretend_link {
  bool active = true;
  int type = nvml_remote_gpu; ///< −1: NVML refuses to tell.
  unsigned remote_bus = 0;    ///< 0: NVML refuses to tell.
};

struct pretend_gpu {
  unsigned bus = 0;
  std::vector<pretend_link> links{};
};

struct pretend_machine {
  std::array<pretend_gpu, 2> gpus{pretend_gpu{.bus = 0x10}, pretend_gpu{.bus = 0x20}};
  int p2p_result = nvml_success;
  int p2p_status = nvml_p2p_ok;
};

pretend_machine now; // NVML's functions carry no argument of ours

const pretend_link* link_of(nvml_device device, unsigned link) {
  const auto& links = reinterpret_cast<const pretend_gpu*>(device)->links;
  return link < links.size() ? &links[link] : nullptr;
}

int device_by_pci_bus_id(const char* bus_id, nvml_device* device) {
  const auto wanted = pci_address::parse(bus_id);
  const auto found = std::ranges::find_if(now.gpus, [&](const auto& gpu) { return wanted && gpu.bus == wanted->bus; });
  if (found == now.gpus.end()) return not_found;
  *device = reinterpret_cast<nvml_device>(&*found);
  return nvml_success;
}

int p2p_status(nvml_device, nvml_device, int ability, int* status) {
  *status = ability == nvml_p2p_nvlink ? now.p2p_status : -1;
  return now.p2p_result;
}

int nvlink_state(nvml_device device, unsigned link, int* active) {
  const pretend_link* const found = link_of(device, link);
  if (found == nullptr) return not_supported;
  *active = found->active ? 1 : 0;
  return nvml_success;
}

int nvlink_remote_type(nvml_device device, unsigned link, int* type) {
  const pretend_link* const found = link_of(device, link);
  if (found == nullptr || found->type < 0) return not_supported;
  *type = found->type;
  return nvml_success;
}

int nvlink_remote_pci(nvml_device device, unsigned link, nvml_pci_info* remote) {
  const pretend_link* const found = link_of(device, link);
  if (found == nullptr || found->remote_bus == 0) return not_supported;
  remote->bus = found->remote_bus;
  return nvml_success;
}

const nvml_functions pretend_nvml{
    .init = [] { return nvml_success; },
    .error_string = [](int result) -> const char* { return result == not_found ? "Not Found" : "Not Supported"; },
    .device_by_pci_bus_id = device_by_pci_bus_id,
    .p2p_status = p2p_status,
    .nvlink_state = nvlink_state,
    .nvlink_remote_type = nvlink_remote_type,
    .nvlink_remote_pci = nvlink_remote_pci};

nvlink_finding find_in(pretend_machine described) {
  now = std::move(described);
  return find_nvlink(pretend_nvml, {.bus = 0x10}, {.bus = 0x20});
}

pretend_machine with_links(std::vector<pretend_link> left, std::vector<pretend_link> right) {
  pretend_machine made;
  made.gpus[0].links = std::move(left);
  made.gpus[1].links = std::move(right);
  return made;
}

} // namespace

TEST_CASE("behind switches the links of the GPU with fewer of them count", "[device]") {
  const pretend_link up{.type = nvml_remote_switch, .remote_bus = 0xc0};
  const pretend_link down{.active = false, .type = nvml_remote_switch};
  std::vector<pretend_link> one_down(17, up);
  one_down.push_back(down);
  CHECK(find_in(with_links(std::vector(18, up), std::vector(18, up))).count == 18);
  CHECK(find_in(with_links(std::vector(18, up), one_down)).count == 17);
}

TEST_CASE("only direct links to the other GPU count", "[device]") {
  const pretend_link to_right{.remote_bus = 0x20};
  const pretend_link to_left{.remote_bus = 0x10};
  const pretend_link elsewhere{.remote_bus = 0x30};
  const auto found = find_in(with_links({to_right, elsewhere, to_right, elsewhere}, {to_left, to_left, elsewhere}));
  CHECK(found.joined == true);
  CHECK(found.count == 2);
}

TEST_CASE("where NVML hides what is behind the links, all active ones count", "[device]") {
  const pretend_link hidden{.type = -1};
  CHECK(find_in(with_links({hidden, hidden, hidden}, {hidden, hidden})).count == 2);
}

TEST_CASE("GPUs that NVML says are joined, by links that it does not show, have no number", "[device]") {
  const auto found = find_in(with_links({}, {}));
  CHECK(found.joined == true);
  CHECK_FALSE(found.count);
}

TEST_CASE("GPUs that NVML says are not joined have no NVLink, whatever their links go to", "[device]") {
  auto described = with_links({{.remote_bus = 0x30}}, {{.remote_bus = 0x40}});
  described.p2p_status = 5;
  const auto found = find_in(described);
  CHECK(found.joined == false);
  CHECK_FALSE(found.count);
  CHECK(found.failure.empty());
}

TEST_CASE("a fact that NVML does not report stays unknown, with the call that failed", "[device]") {
  pretend_machine silent;
  silent.p2p_result = not_supported;
  const auto found = find_in(silent);
  CHECK_FALSE(found.joined);
  CHECK(found.failure == "nvmlDeviceGetP2PStatus: Not Supported");

  pretend_machine elsewhere;
  elsewhere.gpus[1].bus = 0x21;
  CHECK(find_in(elsewhere).failure == "nvmlDeviceGetHandleByPciBusId: Not Found");
}

TEST_CASE("without NVML there are no functions but a reason, and with it all of them", "[device]") {
  const nvml_access& access = open_nvml();
  CHECK(access.failure.empty() == (access.functions != nullptr));
  CHECK(&access == &open_nvml());
}
