/// Pinned memory that a device and a mock device use in turns, with the words by which they signal each other.
#pragma once

#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// One piece of memory, used by one communicator at a time. Turns are counted from its construction on, over all its
/// users. Threads: the launcher's only, except release().
class host_staged_memory {
public:
  host_staged_memory(const std::shared_ptr<device>& where, std::size_t size_bytes, std::shared_ptr<mock_waker> host);
  host_staged_memory(const host_staged_memory&) = delete;
  host_staged_memory& operator=(const host_staged_memory&) = delete;
  ~host_staged_memory() = default;

  [[nodiscard]] const buffer& data() const noexcept { return data_; }
  /// Makes later work in \p stream wait for the end of the last turn.
  void wait_for_last(stream_ref stream) const { stream.wait(last_use_); }
  /// Returns the next turn's number.
  [[nodiscard]] std::uint32_t next_turn() noexcept;
  /// Signals from the device's \p stream that its inputs have been copied, then makes that stream wait for the host.
  void hand_over(stream_ref stream, std::uint32_t turn);
  /// The host's side, where \p stream is the mock device's: await() waits for the inputs, hand_back() signals the
  /// results.
  void await(stream_ref stream, std::uint32_t turn);
  void hand_back(stream_ref stream, std::uint32_t turn);
  /// Marks the end of a turn in \p stream, the device's stream.
  void note_use(stream_ref stream) { last_use_.record(stream); }
  [[nodiscard]] bool is_idle() const { return last_use_.reached(); }
  /// Ends the waits of all turns so far, whether or not the other side does its part.
  void release() noexcept;

private:
  struct words {
    std::uint32_t brought; ///< The last turn whose inputs the device has copied.
    std::uint32_t done;    ///< The last turn that the host has finished.
  };
  [[nodiscard]] words* words_at() const noexcept { return reinterpret_cast<words*>(words_.data()); }

  const std::shared_ptr<mock_waker> host_; ///< Woken by signals; otherwise it checks words only now and then.
  buffer words_;
  buffer data_;
  event last_use_;
  std::mutex guard_;
  std::uint32_t turns_ = 0; ///< Protected by guard_.
};

/// A device's unused pieces of memory. Threads: safe from any.
class host_staged_stock {
public:
  /// \p host runs the streams of the mock device.
  host_staged_stock(std::shared_ptr<device> where, std::shared_ptr<mock_waker> host) noexcept
    : where_{std::move(where)}, host_{std::move(host)} {}

  /// Returns a piece of at least this many bytes. May allocate. Errors: out_of_memory.
  [[nodiscard]] std::unique_ptr<host_staged_memory> take(std::size_t size_bytes);
  /// Keeps the piece for reuse after its last use has ended.
  void give_back(std::unique_ptr<host_staged_memory> one) noexcept;

private:
  std::shared_ptr<device> where_;
  std::shared_ptr<mock_waker> host_;
  std::mutex guard_;
  std::vector<std::unique_ptr<host_staged_memory>> resting_;
};

/// The resources for moving a device's data over the host.
struct host_staged_device {
  std::shared_ptr<host_staged_stock> memory;
  std::shared_ptr<device> host; ///< A mock device of the same number, whose streams run the host's side.
};

/// The resources of each device, created on first use and kept. Threads: safe from any.
class host_staged_devices {
public:
  /// Returns the resources of \p where. Errors: unsupported for a device whose streams cannot wait for words.
  [[nodiscard]] host_staged_device of(const std::shared_ptr<device>& where);

private:
  std::mutex guard_;
  std::map<std::shared_ptr<device>, host_staged_device> all_;
  std::shared_ptr<mock_driver> host_; // last: destroyed first, so that none of its tasks accesses freed memory
};

} // namespace troupe
