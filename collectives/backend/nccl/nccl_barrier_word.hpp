/// What a barrier reduces: NCCL has no barrier, and an all-reduce of one word is one.
#pragma once

#include <troupe/device/event.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace troupe {

/// One i32 of a device's memory, always zero, for the barriers of all its communicators: to get memory, or to give it
/// back, may wait for a device on which operations hang, and a world forms beside such (BUF-1). Threads: safe from any.
class nccl_barrier_memory {
public:
  explicit nccl_barrier_memory(const std::shared_ptr<device>& where);
  nccl_barrier_memory(const nccl_barrier_memory&) = delete;
  nccl_barrier_memory& operator=(const nccl_barrier_memory&) = delete;
  ~nccl_barrier_memory();

  [[nodiscard]] void* address() const noexcept { return word_.data(); }
  /// The memory is given back behind \p last_use, in stream order: no thread waits.
  void outlast(const event& last_use);

private:
  std::mutex guard_;
  stream side_; ///< Carries nothing but the first fill and the last waits.
  buffer word_;
};

/// That of each device, made when it is first asked for and kept. Threads: safe from any.
class nccl_barrier_memories {
public:
  /// May wait for the device the first time.
  [[nodiscard]] std::shared_ptr<nccl_barrier_memory> of(const std::shared_ptr<device>& where);

private:
  std::mutex guard_;
  std::map<std::shared_ptr<device>, std::shared_ptr<nccl_barrier_memory>> all_;
};

/// One communicator's use of it. It may be destroyed while a barrier, hung or not, still uses the word.
class nccl_barrier_word {
public:
  nccl_barrier_word(std::shared_ptr<nccl_barrier_memory> memory, const std::shared_ptr<device>& where)
    : memory_{std::move(memory)}, last_use_{where} {}
  nccl_barrier_word(const nccl_barrier_word&) = delete;
  nccl_barrier_word& operator=(const nccl_barrier_word&) = delete;
  ~nccl_barrier_word();

  [[nodiscard]] void* address() const noexcept { return memory_->address(); }
  /// A barrier that uses the word has just been launched in \p stream, in which all others were.
  void used_in(stream_ref stream) { last_use_.record(stream); }

private:
  std::shared_ptr<nccl_barrier_memory> memory_;
  event last_use_;
};

} // namespace troupe
