/// The operand of a barrier. NCCL has no barrier, so troupe uses an all-reduce of one word.
#pragma once

#include <troupe/device/event.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {

/// One i32 in a device's memory, always zero, for the barriers of all communicators of that device. It is shared
/// because allocating and freeing memory may wait for a device on which operations hang, and a new world is formed
/// beside such operations (BUF-1). Threads: safe from any.
class nccl_barrier_memory {
public:
  explicit nccl_barrier_memory(const std::shared_ptr<device>& where);
  nccl_barrier_memory(const nccl_barrier_memory&) = delete;
  nccl_barrier_memory& operator=(const nccl_barrier_memory&) = delete;
  ~nccl_barrier_memory();

  [[nodiscard]] void* address() const noexcept { return word_.data(); }
  /// The memory is freed after \p last_use, in stream order. No thread waits.
  void outlast(const event& last_use);

private:
  std::mutex guard_;
  stream side_; ///< Used only for the initial fill and for the waits for last uses.
  buffer word_;
};

/// The word of each device, made on first use and kept. Threads: safe from any.
class nccl_barrier_memories {
public:
  /// Waits for the device on the first call for it.
  [[nodiscard]] std::shared_ptr<nccl_barrier_memory> of(const std::shared_ptr<device>& where);

private:
  std::mutex guard_;
  std::map<std::shared_ptr<device>, std::shared_ptr<nccl_barrier_memory>> all_;
};

/// One communicator's use of the word. It may be destroyed while a barrier, hung or not, still uses the word.
class nccl_barrier_word {
public:
  nccl_barrier_word(std::shared_ptr<nccl_barrier_memory> memory, const std::shared_ptr<device>& where)
    : memory_{std::move(memory)}, last_use_{where} {}
  nccl_barrier_word(const nccl_barrier_word&) = delete;
  nccl_barrier_word& operator=(const nccl_barrier_word&) = delete;
  ~nccl_barrier_word();

  [[nodiscard]] void* address() const noexcept { return memory_->address(); }
  /// Records the use by a barrier that was just launched in \p stream. All barriers of the communicator use the same
  /// stream.
  void used_in(stream_ref stream) { last_use_.record(stream); }

private:
  std::shared_ptr<nccl_barrier_memory> memory_;
  event last_use_;
};

} // namespace troupe
