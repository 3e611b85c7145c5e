/// Pinned memory that a device and a pretend device work on in turns, and the words by which they tell each other.
#pragma once

#include <troupe/device/event.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// One piece, of one communicator at a time. Turns are counted from its making on, by all who have had it.
/// Threads: the launcher's alone, but release().
class host_staged_memory {
public:
  host_staged_memory(const std::shared_ptr<device>& where, std::size_t size_bytes, std::shared_ptr<mock_waker> host);
  host_staged_memory(const host_staged_memory&) = delete;
  host_staged_memory& operator=(const host_staged_memory&) = delete;
  ~host_staged_memory() = default;

  [[nodiscard]] const buffer& data() const noexcept { return data_; }
  /// What is in \p stream from now on comes behind the last turn.
  void wait_for_last(stream_ref stream) const { stream.wait(last_use_); }
  /// The next turn's number.
  [[nodiscard]] std::uint32_t next_turn() noexcept;
  /// The device has brought what it reads: the host may go on. The device waits for the host's word.
  void hand_over(stream_ref stream, std::uint32_t turn);
  /// The same at the host: \p stream is the pretend device's.
  void await(stream_ref stream, std::uint32_t turn);
  void hand_back(stream_ref stream, std::uint32_t turn);
  /// All of a turn is in \p stream, the device's.
  void note_use(stream_ref stream) { last_use_.record(stream); }
  [[nodiscard]] bool is_idle() const { return last_use_.reached(); }
  /// Lets all turns so far come to their end, whether or not the other side comes to its part.
  void release() noexcept;

private:
  struct words {
    std::uint32_t brought; ///< Turns whose memory the device has brought.
    std::uint32_t done;    ///< Turns that the host is done with.
  };
  [[nodiscard]] words* words_at() const noexcept { return reinterpret_cast<words*>(words_.data()); }

  const std::shared_ptr<mock_waker> host_; ///< Looks for words now and then only.
  buffer words_;
  buffer data_;
  event last_use_;
  std::mutex guard_;
  std::uint32_t turns_ = 0; ///< Guarded.
};

/// A device's pieces that nobody has. Threads: safe from any.
class host_staged_stock {
public:
  /// \p host: what runs the host's side.
  host_staged_stock(std::shared_ptr<device> where, std::shared_ptr<mock_waker> host) noexcept
    : where_{std::move(where)}, host_{std::move(host)} {}

  /// One of at least so many bytes. May allocate. Errors: out_of_memory.
  [[nodiscard]] std::unique_ptr<host_staged_memory> take(std::size_t size_bytes);
  /// It is given out again once its last use is over.
  void give_back(std::unique_ptr<host_staged_memory> one) noexcept;

private:
  std::shared_ptr<device> where_;
  std::shared_ptr<mock_waker> host_;
  std::mutex guard_;
  std::vector<std::unique_ptr<host_staged_memory>> resting_;
};

/// Where a device's data is moved by way of the host.
struct host_staged_device {
  std::shared_ptr<host_staged_stock> memory;
  std::shared_ptr<device> host; ///< A pretend device of the same number, whose streams run the host's side.
};

/// That of each device, made when it is first asked for and kept. Threads: safe from any.
class host_staged_devices {
public:
  /// Errors: unsupported for a device whose streams cannot wait for words.
  [[nodiscard]] host_staged_device of(const std::shared_ptr<device>& where);

private:
  std::mutex guard_;
  std::map<std::shared_ptr<device>, host_staged_device> all_;
  std::shared_ptr<mock_driver> host_; // last: no task of its touches memory that is gone
};

} // namespace troupe
