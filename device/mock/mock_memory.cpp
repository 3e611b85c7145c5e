#include <troupe/device/mock/mock_handle.hpp>
#include <troupe/device/mock/mock_memory.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t alignment = 256;
constexpr int fresh_byte = 0xA5;
/// A rank's peer memory is megabytes, of which the mock uses few pages, and the first access to a page costs the
/// operating system some microseconds: writing to all of them took most of the time in which a mock world forms.
constexpr std::size_t fresh_peer_stride = std::size_t{64} << 10U;

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

[[noreturn]] void throw_no_shared_memory(std::size_t size_bytes) {
  const int code = errno;
  throw exception{errc::out_of_memory, "the machine has no " + std::to_string(size_bytes) +
                                           " bytes of shared memory for the mock's devices (" +
                                           std::system_category().message(code) + "): request less"};
}

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t in_whole_pages(std::size_t size_bytes) {
  const std::size_t page = page_bytes();
  return (size_bytes + page - 1) / page * page;
}

} // namespace

void mock_memory::storage_delete::operator()(std::byte* address) const noexcept {
  if (mapped_bytes > 0)
    static_cast<void>(::munmap(address, mapped_bytes)); // fails only for wrong arguments
  else
    std::free(address); // NOLINT(cppcoreguidelines-no-malloc)
}

mock_memory::mock_memory(int device_count, std::size_t limit_bytes)
  : limits_(static_cast<std::size_t>(device_count), limit_bytes),
    peer_bytes_(static_cast<std::size_t>(device_count), 0) {}

std::size_t mock_memory::account::returning_bytes() const noexcept {
  std::size_t all = 0;
  for (const auto& [stream, length] : being_freed) all += length;
  return all;
}

std::size_t mock_memory::account::room_for(native_stream stream) const noexcept {
  const auto own = being_freed.find(stream);
  const std::size_t taken = used_bytes + returning_bytes() - (own == being_freed.end() ? 0 : own->second);
  return reserved_bytes > taken ? reserved_bytes - taken : 0;
}

void mock_memory::account::trim(std::size_t keep_bytes) noexcept {
  reserved_bytes = std::min(reserved_bytes, std::max(keep_bytes, used_bytes + returning_bytes()));
}

native_pool mock_memory::create_pool(device_id id) {
  const std::lock_guard lock{mutex_};
  const auto pool = to_native<native_pool>(next_mock_handle());
  pools_.emplace(pool, account{.device = id, .being_freed = {}});
  return pool;
}

void mock_memory::destroy_pool(device_id id, native_pool pool) {
  const std::lock_guard lock{mutex_};
  account& books = account_of(id, pool);
  books.trim(0);
  books.is_destroyed = true;
  if (books.reserved_bytes == 0) pools_.erase(pool);
}

mock_memory::account& mock_memory::account_of(device_id id, native_pool pool) {
  const auto found = pools_.find(pool);
  if (found == pools_.end() || found->second.device != id || found->second.is_destroyed)
    throw exception{errc::invalid_argument, "no such pool on device " + to_string(id)};
  return found->second;
}

const mock_memory::account& mock_memory::account_of(device_id id, native_pool pool) const {
  return const_cast<mock_memory*>(this)->account_of(id, pool); // NOLINT(cppcoreguidelines-pro-type-const-cast)
}

pool_usage mock_memory::usage(device_id id, native_pool pool) const {
  const std::lock_guard lock{mutex_};
  const account& books = account_of(id, pool);
  return {books.reserved_bytes, books.used_bytes};
}

void mock_memory::trim(device_id id, native_pool pool, std::uint64_t keep_bytes) {
  const std::lock_guard lock{mutex_};
  account_of(id, pool).trim(keep_bytes);
}

std::size_t mock_memory::unreserved_bytes(device_id id) const noexcept {
  std::size_t taken = peer_bytes_[static_cast<std::size_t>(id.value())];
  for (const auto& [pool, books] : pools_)
    if (books.device == id) taken += books.reserved_bytes;
  const std::size_t limit = limits_[static_cast<std::size_t>(id.value())];
  return limit > taken ? limit - taken : 0;
}

void* mock_memory::add(std::size_t size_bytes, std::optional<device_id> device, native_pool pool) {
  storage bytes{allocate_aligned(size_bytes), storage_delete{0}};
  void* const address = bytes.get();
  ranges_.emplace(key_of(address), range{std::move(bytes), size_bytes, device, pool, nullptr, nullptr});
  return address;
}

void* mock_memory::allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream) {
  require_some(size_bytes);
  void* address = nullptr;
  {
    const std::lock_guard lock{mutex_};
    account& books = account_of(id, pool);
    const std::size_t room = books.room_for(stream);
    const std::size_t left = unreserved_bytes(id);
    if (size_bytes > room && size_bytes - room > left) {
      ++refused_count_;
      books.reserved_bytes += left; // as CUDA does: it grows until no more is left, and keeps that
      throw exception{errc::out_of_memory, "device " + to_string(id) + " has no " + std::to_string(size_bytes) +
                                               " bytes: " + std::to_string(room + left) + " are free of its limit of " +
                                               std::to_string(limits_[static_cast<std::size_t>(id.value())])};
    }
    address = add(size_bytes, id, pool);
    books.reserved_bytes += size_bytes > room ? size_bytes - room : 0;
    books.used_bytes += size_bytes;
  }
  return std::memset(address, fresh_byte, size_bytes); // the address is not published yet
}

struct mock_memory::freed_range {
  freed_range(mock_memory& of, void* address) noexcept : of_{of}, address_{address} {}
  freed_range(const freed_range&) = delete;
  freed_range& operator=(const freed_range&) = delete;
  ~freed_range() { of_.release(address_); }

private:
  mock_memory& of_;
  void* address_;
};

std::shared_ptr<void> mock_memory::begin_free(device_id id, native_pool pool, void* address, native_stream stream) {
  const std::lock_guard lock{mutex_};
  account& books = account_of(id, pool);
  const auto found = ranges_.find(key_of(address));
  if (found == ranges_.end() || found->second.pool != pool)
    throw exception{errc::invalid_argument, "the address was not allocated on device " + to_string(id)};
  range& freed = found->second;
  if (freed.freed_in != nullptr) throw exception{errc::invalid_argument, "the address has been freed already"};
  std::size_t& returning = books.being_freed[stream];
  // Not a deleter: without memory for the handle it would run here, under the lock.
  auto held = std::make_shared<freed_range>(*this, address);
  freed.freed_in = stream;
  returning += freed.size_bytes;
  books.used_bytes -= freed.size_bytes;
  return held;
}

void mock_memory::release(void* address) noexcept {
  const std::lock_guard lock{mutex_};
  const auto found = ranges_.find(key_of(address));
  if (found == ranges_.end()) return;
  const auto of = pools_.find(found->second.pool);
  if (of == pools_.end()) return;
  account& books = of->second;
  if (const auto returning = books.being_freed.find(found->second.freed_in); returning != books.being_freed.end()) {
    returning->second -= found->second.size_bytes;
    if (returning->second == 0) books.being_freed.erase(returning);
  }
  ranges_.erase(found);
  if (!books.is_destroyed) return;
  books.trim(0);
  if (books.reserved_bytes == 0) pools_.erase(of);
}

void* mock_memory::allocate_pinned(std::size_t size_bytes) {
  require_some(size_bytes);
  void* address = nullptr;
  {
    const std::lock_guard lock{mutex_};
    address = add(size_bytes, std::nullopt, nullptr);
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

peer_mapping mock_memory::allocate_peer(device_id id, std::size_t size_bytes) {
  require_some(size_bytes);
  const std::size_t whole_pages = in_whole_pages(size_bytes);
  peer_mapping made;
  {
    const std::lock_guard lock{mutex_};
    if (const std::size_t left = unreserved_bytes(id); whole_pages < size_bytes || whole_pages > left)
      throw exception{errc::out_of_memory, "device " + to_string(id) + " has no " + std::to_string(size_bytes) +
                                               " bytes for peer memory: " + std::to_string(left) + " are free"};
    auto block = std::make_shared<peer_block>(
        peer_block{id, whole_pages, file_descriptor{::memfd_create("troupe mock device", MFD_CLOEXEC)}});
    if (!block->memory || ::ftruncate(block->memory.native(), static_cast<::off_t>(whole_pages)) != 0)
      throw_no_shared_memory(whole_pages);
    made = map_peer(id, std::move(block));
    peer_bytes_[static_cast<std::size_t>(id.value())] += whole_pages;
  }
  for (std::size_t at = 0; at < made.size_bytes; at += fresh_peer_stride) // the address is not published yet
    std::memset(static_cast<std::byte*>(made.address) + at, fresh_byte, std::min(page_bytes(), made.size_bytes - at));
  return made;
}

peer_mapping mock_memory::map_peer(device_id id, std::shared_ptr<peer_block> block) {
  const std::size_t size_bytes = block->size_bytes;
  void* const address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, block->memory.native(),
                               0);                               // NOLINT(hicpp-signed-bitwise)
  if (address == MAP_FAILED) throw_no_shared_memory(size_bytes); // NOLINT(performance-no-int-to-ptr)
  storage bytes{static_cast<std::byte*>(address), storage_delete{size_bytes}};
  const device_id home = block->device.value_or(id);
  ranges_.emplace(key_of(address), range{std::move(bytes), size_bytes, home, nullptr, nullptr, std::move(block)});
  return {address, size_bytes};
}

file_descriptor mock_memory::export_peer(const void* address) const {
  const std::lock_guard lock{mutex_};
  const auto found = ranges_.find(key_of(address));
  if (found == ranges_.end() || !found->second.block)
    throw exception{errc::invalid_argument, "the address is not the begin of a mapping of peer memory"};
  file_descriptor exported{::fcntl(found->second.block->memory.native(), F_DUPFD_CLOEXEC, 0)};
  if (!exported)
    throw exception{errc::out_of_memory, "no file descriptor is left for peer memory (" +
                                             std::system_category().message(errno) + "): raise the limit (ulimit -n)"};
  return exported;
}

std::shared_ptr<mock_memory::peer_block> mock_memory::find_block(const file_descriptor& exported) const {
  struct ::stat asked {};
  if (::fstat(exported.native(), &asked) != 0)
    throw exception{errc::invalid_argument, "not a descriptor of peer memory"};
  for (const auto& [key, one] : ranges_) {
    struct ::stat seen {};
    if (one.block && ::fstat(one.block->memory.native(), &seen) == 0 && seen.st_dev == asked.st_dev &&
        seen.st_ino == asked.st_ino)
      return one.block;
  }
  const std::size_t size_bytes = S_ISREG(asked.st_mode) ? static_cast<std::size_t>(asked.st_size) : 0;
  return std::make_shared<peer_block>(peer_block{std::nullopt, size_bytes, {}});
}

std::optional<device_id> mock_memory::home_of_peer(const file_descriptor& exported) const {
  const std::lock_guard lock{mutex_};
  return find_block(exported)->device;
}

peer_mapping mock_memory::import_peer(device_id id, const file_descriptor& exported, std::size_t size_bytes) {
  require_some(size_bytes);
  const std::lock_guard lock{mutex_};
  auto block = find_block(exported);
  if (block->size_bytes != in_whole_pages(size_bytes))
    throw exception{errc::invalid_argument, "the descriptor is not of peer memory of " + std::to_string(size_bytes) +
                                                " bytes, but of " + std::to_string(block->size_bytes)};
  if (!block->memory) {
    block->memory = file_descriptor{::fcntl(exported.native(), F_DUPFD_CLOEXEC, 0)};
    if (!block->memory) throw_no_shared_memory(size_bytes);
  }
  return map_peer(id, std::move(block));
}

void mock_memory::unmap_peer(const peer_mapping& mapped) {
  const std::lock_guard lock{mutex_};
  const auto found = ranges_.find(key_of(mapped.address));
  if (found == ranges_.end() || !found->second.block || found->second.size_bytes != mapped.size_bytes)
    throw exception{errc::invalid_argument, "the address is not a mapping of peer memory"};
  const auto block = std::move(found->second.block);
  ranges_.erase(found);
  if (block->device && block.use_count() == 1)
    peer_bytes_[static_cast<std::size_t>(block->device->value())] -= block->size_bytes;
}

void mock_memory::fill(void* to, std::uint8_t value, std::size_t size_bytes) const {
  auto* const first = static_cast<std::byte*>(to);
  if (value == 0 && is_peer(to)) {
    const std::size_t page = page_bytes();
    const std::size_t before = std::min((page - key_of(to) % page) % page, size_bytes);
    const std::size_t whole = (size_bytes - before) / page * page;
    // Pages that are taken away are zero when they are next accessed, through all mappings.
    if (whole > 0 && ::madvise(first + before, whole, MADV_REMOVE) == 0) {
      std::memset(first, 0, before);
      std::memset(first + before + whole, 0, size_bytes - before - whole);
      return;
    }
  }
  std::memset(to, value, size_bytes);
}

bool mock_memory::is_peer(const void* address) const {
  const std::lock_guard lock{mutex_};
  auto found = ranges_.upper_bound(key_of(address));
  if (found == ranges_.begin()) return false;
  --found;
  return found->second.block && key_of(address) - found->first < found->second.size_bytes;
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
  return limits_.at(static_cast<std::size_t>(id.value()));
}

std::size_t mock_memory::free_bytes(device_id id) const {
  const std::lock_guard lock{mutex_};
  return unreserved_bytes(id);
}

std::size_t mock_memory::used_bytes(device_id id) const {
  const std::lock_guard lock{mutex_};
  std::size_t used = peer_bytes_[static_cast<std::size_t>(id.value())];
  for (const auto& [pool, books] : pools_)
    if (books.device == id) used += books.used_bytes + books.returning_bytes();
  return used;
}

std::size_t mock_memory::refused_count() const {
  const std::lock_guard lock{mutex_};
  return refused_count_;
}

void mock_memory::exhaust_after(device_id id, std::size_t size_bytes) {
  const std::lock_guard lock{mutex_};
  std::size_t staying = peer_bytes_.at(static_cast<std::size_t>(id.value()));
  for (auto& [pool, books] : pools_) {
    if (books.device != id) continue;
    books.reserved_bytes = books.used_bytes; // memory that is being freed does not count as allocated
    staying += books.used_bytes;
  }
  limits_.at(static_cast<std::size_t>(id.value())) = staying + size_bytes;
}

} // namespace troupe
