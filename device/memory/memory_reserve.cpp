#include <troupe/device/memory/memory_reserve.hpp>

#include <sys/mman.h>

#include <array>
#include <atomic>
#include <mutex>
#include <new>
#include <string>

namespace troupe {

namespace {

// Each piece is mapped separately, because memory returned to a heap arena serves only the threads that share it.
using pieces = std::array<std::atomic<void*>, memory_reserve::piece_count>;
constinit pieces reserve_pieces{};
constinit std::atomic<bool> is_short{false};
constinit std::atomic<std::new_handler> before{nullptr};

constinit std::mutex mutex;
constinit std::size_t owners = 0;

/// Fills the reserve. Returns whether it is complete.
bool fill() noexcept {
  for (auto& place : reserve_pieces) {
    if (place.load(std::memory_order_acquire) != nullptr) continue;
    void* const piece =
        ::mmap(nullptr, memory_reserve::piece_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (piece == MAP_FAILED) return false;
    void* none = nullptr;
    if (!place.compare_exchange_strong(none, piece)) ::munmap(piece, memory_reserve::piece_bytes);
  }
  return true;
}

/// Releases one piece. Returns whether there was one.
bool release_piece() noexcept {
  for (auto& place : reserve_pieces)
    if (void* const piece = place.exchange(nullptr)) {
      ::munmap(piece, memory_reserve::piece_bytes);
      return true;
    }
  return false;
}

void handle_failed_new() {
  is_short.store(true);
  if (release_piece()) return; // the allocation is tried again
  if (const std::new_handler next = before.load()) return next();
  throw std::bad_alloc{};
}

} // namespace

memory_reserve::memory_reserve() {
  const std::lock_guard lock{mutex};
  if (owners == 0) {
    if (!fill()) {
      while (release_piece()) {
      }
      throw exception{errc::out_of_memory,
                      std::to_string(piece_count * piece_bytes >> 20U) +
                          " MiB of address space could not be reserved, which troupe needs to answer requests when "
                          "memory runs out: raise the limit on memory (ulimit -v)"};
    }
    is_short.store(false);
    before.store(std::set_new_handler(handle_failed_new));
  }
  ++owners;
}

memory_reserve::~memory_reserve() {
  const std::lock_guard lock{mutex};
  if (--owners > 0) return;
  if (std::get_new_handler() == handle_failed_new) std::set_new_handler(before.load());
  while (release_piece()) {
  }
  is_short.store(false);
}

bool host_memory_is_short() noexcept {
  if (!is_short.load(std::memory_order_relaxed)) [[likely]]
    return false;
  is_short.store(false); // cleared first: a thread that uses a piece meanwhile sets it again
  if (fill()) return false;
  is_short.store(true);
  return true;
}

error no_host_memory() {
  return {.code = errc::out_of_memory,
          .text = "out of host memory, and the rest is reserved for pending requests: free memory, and ask again"};
}

} // namespace troupe
