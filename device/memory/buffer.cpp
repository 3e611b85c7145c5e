#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// Page-locked host memory allocated by troupe.
class pinned_block final : public memory_block {
public:
  pinned_block(const std::shared_ptr<device>& where, std::size_t size_bytes)
    : memory_block{where, memory_kind::pinned, size_bytes > 0 ? where->api().allocate_pinned(size_bytes) : nullptr,
                   size_bytes} {}

  ~pinned_block() override {
    if (address() != nullptr) return_or_report("pinned memory", [this] { where()->api().free_pinned(address()); });
  }

  void note_use(stream_ref) override {
    throw exception{errc::unsupported, "note_use() needs device memory: for pinned memory, keep a handle instead"};
  }
};

/// Memory of another owner, held through a shared pointer to that owner.
class adopted_block final : public memory_block {
public:
  adopted_block(std::shared_ptr<device> where, memory_kind kind, void* address, std::size_t size_bytes,
                std::shared_ptr<void> owner)
    : memory_block{std::move(where), kind, address, size_bytes}, owner_{std::move(owner)} {}

  void note_use(stream_ref) override {
    throw exception{errc::unsupported,
                    "note_use() needs memory of troupe's pools: let the owner of this memory wait instead"};
  }

private:
  std::shared_ptr<void> owner_;
};

} // namespace

memory_block::memory_block(std::shared_ptr<device> where, memory_kind kind, void* address, std::size_t size_bytes)
  : device_{std::move(where)},
    kind_{kind},
    made_in_{device_ ? device_->current_epoch() : device_epoch{}},
    address_{address},
    size_bytes_{size_bytes} {}

event memory_block::event_behind(stream_ref stream) const {
  const device& its = stream.where();
  if (its.shared_api() != device_->shared_api() || its.id() != device_->id())
    throw exception{errc::wrong_device,
                    "note_use() needs a stream of the buffer's own device " + to_string(device_->id())};
  if (its.api().status_of_capture(its.id(), stream.native()) != capture_status::none)
    throw exception{errc::invalid_argument, "note_use() cannot follow work that is being captured: keep a handle of "
                                            "the buffer for as long as the graph exists"};
  event behind{device_};
  behind.record(stream);
  return behind;
}

buffer::buffer(std::shared_ptr<memory_block> block) noexcept
  : block_{std::move(block)}, size_bytes_{block_ ? block_->size_bytes() : 0} {}

std::byte* buffer::data() const noexcept {
  return block_ && block_->address() != nullptr ? block_->address() + offset_bytes_ : nullptr;
}

buffer buffer::slice(std::size_t offset_bytes, std::size_t length_bytes) const {
  if (offset_bytes > size_bytes_ || length_bytes > size_bytes_ - offset_bytes)
    throw exception{errc::invalid_argument, "the slice of " + std::to_string(length_bytes) + " bytes at " +
                                                std::to_string(offset_bytes) + " exceeds the buffer's " +
                                                std::to_string(size_bytes_) + " bytes"};
  buffer part = *this;
  part.offset_bytes_ += offset_bytes;
  part.size_bytes_ = length_bytes;
  return part;
}

memory_kind buffer::kind() const noexcept {
  return block_ ? block_->kind() : memory_kind::pageable;
}

const device* buffer::where() const noexcept {
  return block_ ? block_->where().get() : nullptr;
}

bool buffer::stale() const noexcept {
  return block_ && block_->where() && block_->kind() == memory_kind::device &&
         block_->made_in() != block_->where()->current_epoch();
}

void buffer::note_use(stream_ref stream) const {
  if (block_) block_->note_use(stream);
}

void* buffer::host_address(std::size_t element_bytes, std::size_t alignment) const {
  if (block_ && !on_host())
    throw exception{errc::invalid_argument, "host_span() needs host memory, and this is device memory: copy it first"};
  if (block_ && !block_->where())
    throw exception{errc::invalid_argument, "host_span() needs memory of this process, and this is of another one"};
  if (size_bytes_ % element_bytes != 0 || reinterpret_cast<std::uintptr_t>(data()) % alignment != 0)
    throw exception{errc::invalid_argument, "a buffer of " + std::to_string(size_bytes_) +
                                                " bytes is not a whole number of aligned elements of " +
                                                std::to_string(element_bytes) + " bytes"};
  return data();
}

buffer allocate_pinned(const std::shared_ptr<device>& where, std::size_t size_bytes) {
  return buffer{std::make_shared<pinned_block>(where, size_bytes)};
}

buffer adopt(const std::shared_ptr<device>& where, void* address, std::size_t size_bytes, std::shared_ptr<void> owner) {
  if (address == nullptr) throw exception{errc::invalid_argument, "a null address cannot be adopted"};
  const pointer_description found = where->api().describe(address);
  if (found.kind == memory_kind::pageable)
    throw exception{errc::invalid_argument,
                    "adopt() needs device or pinned memory, and this address is ordinary host memory to the " +
                        std::string{where->api().name()} + " driver: use adopt_host()"};
  if (found.kind == memory_kind::device && found.device && *found.device != where->id())
    throw exception{errc::wrong_device, "the address lives on device " + to_string(*found.device) + ", not on device " +
                                            to_string(where->id())};
  return buffer{std::make_shared<adopted_block>(where, found.kind, address, size_bytes, std::move(owner))};
}

buffer adopt_host(const std::shared_ptr<device>& where, void* address, std::size_t size_bytes,
                  std::shared_ptr<void> owner) {
  memory_kind kind = memory_kind::pageable;
  if (address == nullptr) {
    if (size_bytes > 0) throw exception{errc::invalid_argument, "a null address cannot be adopted"};
  } else {
    kind = where->api().describe(address).kind;
  }
  if (kind == memory_kind::device)
    throw exception{errc::invalid_argument,
                    "adopt_host() needs host memory, and this address is device memory to the " +
                        std::string{where->api().name()} + " driver: use adopt()"};
  return buffer{std::make_shared<adopted_block>(where, kind, address, size_bytes, std::move(owner))};
}

} // namespace troupe
