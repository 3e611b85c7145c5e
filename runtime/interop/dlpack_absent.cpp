/// Replaces dlpack.cpp if DLPack's header was not found when troupe was built.
#include <troupe/runtime/interop/dlpack.hpp>

namespace troupe {

namespace {

[[noreturn]] void refuse() {
  throw exception{errc::unsupported, "this troupe was built without DLPack: install its header (on Debian and Ubuntu: "
                                     "apt-get install libdlpack-dev) and build troupe again"};
}

} // namespace

bool has_dlpack() noexcept {
  return false;
}

// The tensor's deleter is not known here, and nothing here exports a tensor.
void dlpack_deleter::operator()(DLManagedTensor*) const noexcept {}
void dlpack_deleter::operator()(DLManagedTensorVersioned*) const noexcept {}

tensor from_dlpack(const world&, DLManagedTensor*, std::optional<stream_ref>) {
  refuse();
}

tensor from_dlpack(const world&, owned_dlpack, std::optional<stream_ref>) {
  refuse();
}

tensor from_dlpack(const world&, DLManagedTensorVersioned*, std::optional<stream_ref>, dlpack_use) {
  refuse();
}

tensor from_dlpack(const world&, owned_versioned_dlpack, std::optional<stream_ref>, dlpack_use) {
  refuse();
}

owned_dlpack to_dlpack(const buffer&, dtype, std::span<const std::int64_t>, const dlpack_reader&) {
  refuse();
}

owned_dlpack to_dlpack(const tensor&, dlpack_reader) {
  refuse();
}

owned_versioned_dlpack to_versioned_dlpack(const buffer&, dtype, std::span<const std::int64_t>, const dlpack_reader&) {
  refuse();
}

owned_versioned_dlpack to_versioned_dlpack(const tensor&, dlpack_reader) {
  refuse();
}

dlpack_device dlpack_device_of(const buffer&) {
  refuse();
}

} // namespace troupe
