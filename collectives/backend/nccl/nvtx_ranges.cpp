#include <troupe/collectives/backend/nccl/nvtx_ranges.hpp>
#include <troupe/collectives/operation/extents.hpp>

#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace troupe {

namespace {

class nvtx_ranges final : public launch_observer {
public:
  nvtx_ranges() : domain_{::nvtxDomainCreateA("troupe")} {}
  // The domain is never destroyed: a launcher that does not return may still be in a range.

  void about_to_launch(const launch_notice& next) noexcept override {
    if (next.all.empty()) return; // a capture: launch_ended() is not called for it
    try {
      open(next);
    } catch (...) { // out of memory for the name
      open("a launch", 0);
    }
  }
  void launch_ended() noexcept override { ::nvtxDomainRangePop(domain_); }

private:
  void open(const launch_notice& next) {
    std::size_t bytes = 0;
    for (const launched_request& one : next.all) bytes += payload_of(*one.what);
    const launched_request& first = next.all.front();
    std::string name = next.all.size() > 1 ? std::to_string(next.all.size()) + " together: " : std::string{};
    name += describe(*first.what);
    name += first.from.of_world
                ? " (world, request " + to_string(first.name) + ')'
                : " (lane " + first.from.lane.name() + ", request " + std::to_string(first.from.position) + ')';
    open(name.c_str(), bytes);
  }
  void open(const char* name, std::size_t bytes) noexcept {
    ::nvtxEventAttributes_t what{};
    what.version = NVTX_VERSION;
    what.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    what.messageType = NVTX_MESSAGE_TYPE_ASCII;
    what.message.ascii = name;
    what.payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64;
    what.payload.ullValue = bytes;
    ::nvtxDomainRangePushEx(domain_, &what);
  }

  ::nvtxDomainHandle_t domain_;
};

} // namespace

std::shared_ptr<launch_observer> make_nvtx_ranges() {
  return std::make_shared<nvtx_ranges>();
}

bool nvtx_is_heard() noexcept {
  return std::getenv("NVTX_INJECTION64_PATH") != nullptr; // NOLINT(concurrency-mt-unsafe): troupe sets none
}

} // namespace troupe
