/// The memory of this process that other processes may name in their requests.
#pragma once

#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/device/time.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace troupe {

/// Leases that other processes renew last while this process runs, because it reads no renewals while it is stopped.
/// Their owner looks at them at least this often while they can be renewed.
inline constexpr nanoseconds lease_check_interval = std::chrono::milliseconds{250};

/// The memory that a process has exported in one world. Threads: all functions may be called from any thread.
class exported_memory {
public:
  /// \p session: see remote_buffer; not 0.
  explicit exported_memory(std::uint64_t session) noexcept : session_{session} {}

  /// Holds \p memory of rank \p self until remove(), and returns its handle. If \p name is not empty, other processes
  /// can find the memory by this name. A name that the rank already uses refers to the new memory from now on. Errors:
  /// invalid_argument (empty, or of another process; a name that is too long).
  [[nodiscard]] remote_buffer add(rank self, buffer memory, const std::string& name = {});
  /// Holds \p memory until remove(), or until \p holder has not renewed it for \p lease. Errors: as add().
  [[nodiscard]] remote_buffer lend(rank self, buffer memory, std::uint64_t holder, nanoseconds lease, time_point now);
  /// Renews the leases of \p holder: each lasts its full duration from \p now.
  void renew(std::uint64_t holder, time_point now);
  /// Releases memory whose lease has ended. Call it at least every lease_check_interval while leases can be renewed: of
  /// a longer time without calls only this much counts.
  void expire(time_point now);
  /// Releases the memory. Requests in flight keep it. Has no effect if it is not held.
  void remove(const remote_buffer& one) noexcept;
  /// Returns whether this process has exported \p one. It may have released the memory since.
  [[nodiscard]] bool has_exported(const remote_buffer& one) const noexcept { return one.session == session_; }
  /// Returns the memory of \p one. If there is none, returns an empty buffer and sets \p why to stale_buffer, or to
  /// invalid_argument for a range that exceeds the memory. \p self: the rank of this process.
  [[nodiscard]] buffer find(const remote_buffer& one, rank self, error& why) const;
  /// Returns the handle of the memory that rank \p self has exported under this name. \p is_only_rank: the process has
  /// only this rank, which may have had another number when it exported; the latest export under any number is then
  /// returned. Errors: missing.
  [[nodiscard]] remote_buffer find(const std::string& name, rank self, bool is_only_rank) const;
  /// Returns the number of ranges that are held.
  [[nodiscard]] std::size_t size() const;

private:
  struct range {
    buffer memory{};
    std::uint64_t holder = 0; ///< 0: the memory has no lease.
    nanoseconds lease{0};
    running_time ends = running_time::max();
  };

  /// Adds \p what, whose lease, if it has one, begins at \p now.
  [[nodiscard]] remote_buffer hold(rank self, range what, const std::string& name, time_point now = {});

  const std::uint64_t session_;
  mutable std::mutex mutex_;
  running_clock running_{time_point{}, lease_check_interval};
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, range> held_;
  std::map<std::string, std::map<rank, std::uint64_t>, std::less<>> names_; ///< Keys of held_, by name and rank.
};

} // namespace troupe
