#include <troupe/device/mock/mock_handle.hpp>
#include <troupe/device/mock/mock_memory.hpp>

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t alignment = 256;
constexpr int fresh_byte = 0xA5;

std::uintptr_t key_of(const void* address) noexcept {
  return reinterpret_cast<std::uintptr_t>(address);
}

/// Does not use operator new, because a client's request must not consume the memory reserve that is kept for answers.
std::byte* allocate_aligned(std::size_t size_bytes) {
  const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  // The second limit is for sanitizers, whose allocators end the process if more is requested.
  constexpr std::size_t most_bytes = std::size_t{1} << 39U;
  void* const found = rounded < size_bytes || rounded > most_bytes ? nullptr : std::aligned_alloc(alignment, rounded);
  if (found == nullptr)
    throw exception{errc::out_of_memory, "the machine has no " + std::to_string(size_bytes) +
                                             " bytes of memory for the mock's devices: request less"};
  return static_cast<std::byte*>(found);
}

void require_some(std::size_t size_bytes) {
  if (size_bytes == 0) throw exception{errc::invalid_argument, "an allocation needs at least one byte"};
}

} // namespace

void mock_memory::aligned_delete::operator()(std::byte* address) const noexcept {
  std::free(address); // NOLINT(cppcoreguidelines-no-malloc)
}

mock_memory::mock_memory(int device_count, std::size_t limit_bytes)
  : accounts_(static_cast<std::size_t>(device_count), account{.limit_bytes = limit_bytes, .being_freed = {}}) {}

native_pool mock_memory::create_pool(device_id id) {
  const std::lock_guard lock{mutex_};
  const auto pool = to_native<native_pool>(next_mock_handle());
  pools_.emplace(pool, id);
  return pool;
}

void mock_memory::destroy_pool(device_id id, native_pool pool) {
  const std::lock_guard lock{mutex_};
  require_pool(id, pool);
  pools_.erase(pool);
}

void mock_memory::require_pool(device_id id, native_pool pool) const {
  const auto found = pools_.find(pool);
  if (found == pools_.end() || found->second != id)
    throw exception{errc::invalid_argument, "no such pool on device " + to_string(id)};
}

void* mock_memory::add(std::size_t size_bytes, std::optional<device_id> device) {
  std::unique_ptr<std::byte, aligned_delete> storage{allocate_aligned(size_bytes)};
  void* const address = storage.get();
  ranges_.emplace(key_of(address), range{std::move(storage), size_bytes, device, nullptr});
  return address;
}

void* mock_memory::allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream) {
  require_some(size_bytes);
  void* address = nullptr;
  {
    const std::lock_guard lock{mutex_};
    require_pool(id, pool);
    account& books = account_of(id);
    const auto returning = books.being_freed.find(stream);
    const std::size_t used = books.used_bytes - (returning == books.being_freed.end() ? 0 : returning->second);
    const std::size_t available = used < books.limit_bytes ? books.limit_bytes - used : 0;
    if (size_bytes > available)
      throw exception{errc::out_of_memory, "device " + to_string(id) + " has no " + std::to_string(size_bytes) +
                                               " bytes: " + std::to_string(available) + " are free of its limit of " +
                                               std::to_string(books.limit_bytes)};
    address = add(size_bytes, id);
    books.used_bytes += size_bytes;
  }
  return std::memset(address, fresh_byte, size_bytes); // the address is not published yet
}

std::shared_ptr<void> mock_memory::begin_free(device_id id, native_pool pool, void* address, native_stream stream) {
  const std::lock_guard lock{mutex_};
  require_pool(id, pool);
  const auto found = ranges_.find(key_of(address));
  if (found == ranges_.end() || found->second.device != id)
    throw exception{errc::invalid_argument, "the address was not allocated on device " + to_string(id)};
  range& freed = found->second;
  if (freed.freed_in != nullptr) throw exception{errc::invalid_argument, "the address has been freed already"};
  std::size_t& returning = account_of(id).being_freed[stream];
  std::shared_ptr<void> held{address, [this](void* gone) { release(gone); }};
  freed.freed_in = stream;
  returning += freed.size_bytes;
  return held;
}

void mock_memory::release(void* address) noexcept {
  const std::lock_guard lock{mutex_};
  const auto found = ranges_.find(key_of(address));
  if (found == ranges_.end() || !found->second.device) return;
  account& books = account_of(*found->second.device);
  books.used_bytes -= found->second.size_bytes;
  if (const auto returning = books.being_freed.find(found->second.freed_in); returning != books.being_freed.end()) {
    returning->second -= found->second.size_bytes;
    if (returning->second == 0) books.being_freed.erase(returning);
  }
  ranges_.erase(found);
}

void* mock_memory::allocate_pinned(std::size_t size_bytes) {
  require_some(size_bytes);
  void* address = nullptr;
  {
    const std::lock_guard lock{mutex_};
    address = add(size_bytes, std::nullopt);
  }
  return std::memset(address, fresh_byte, size_bytes);
}

void mock_memory::free_pinned(void* address) {
  const std::lock_guard lock{mutex_};
  const auto found = ranges_.find(key_of(address));
  if (found == ranges_.end() || found->second.device)
    throw exception{errc::invalid_argument, "the address is not pinned memory of this driver"};
  ranges_.erase(found);
}

pointer_description mock_memory::describe(const void* address) const {
  const std::lock_guard lock{mutex_};
  auto found = ranges_.upper_bound(key_of(address));
  if (found == ranges_.begin()) return {};
  --found;
  if (key_of(address) - found->first >= found->second.size_bytes) return {};
  return {found->second.device ? memory_kind::device : memory_kind::pinned, found->second.device};
}

std::size_t mock_memory::limit_bytes(device_id id) const {
  const std::lock_guard lock{mutex_};
  return account_of(id).limit_bytes;
}

std::size_t mock_memory::free_bytes(device_id id) const {
  const std::lock_guard lock{mutex_};
  const account& books = account_of(id);
  return books.limit_bytes > books.used_bytes ? books.limit_bytes - books.used_bytes : 0;
}

void mock_memory::exhaust_after(device_id id, std::size_t size_bytes) {
  const std::lock_guard lock{mutex_};
  account& books = account_of(id);
  std::size_t staying = books.used_bytes;
  for (const auto& [stream, returning] : books.being_freed) staying -= returning;
  books.limit_bytes = staying + size_bytes;
}

} // namespace troupe
