/// Handles to memory of other processes. In a request to all ranks of a world they are the operands of ranks in those
/// processes.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/time.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace troupe {

/// Refers to a range of memory that the process of a rank has exported (world::export_memory()). It can be sent to
/// other processes of the same world, as text or as its members, and holds no address: the exporter looks it up.
///
/// Lifetime: it does not own the memory. The exporter holds it until world::unexport() or the end of its lease, and
/// requests in flight hold it until their outcome (BUF-1). Later requests that name it are refused with stale_buffer,
/// and the error names the exporter. The same holds after the exporter's process has ended (BUF-2).
struct remote_buffer {
  rank exporter{};           ///< The number of the exporter's rank when it exported the memory. For messages only.
  std::uint64_t session = 0; ///< Identifies the exporter's process in the world.
  std::uint64_t id = 0;      ///< Identifies the memory in that process.
  std::size_t offset_bytes = 0;
  std::size_t size_bytes = 0;
  bool on_host = false; ///< Whether it is host memory; requests with it are then staged: see operand.

  /// Returns the range [\p from_bytes, \p from_bytes + \p length_bytes) of this one. Errors: invalid_argument if the
  /// range exceeds it.
  [[nodiscard]] remote_buffer slice(std::size_t from_bytes, std::size_t length_bytes) const;
  /// Returns the handle as an operand of a request.
  [[nodiscard]] buffer as_buffer() const;

  friend bool operator==(const remote_buffer&, const remote_buffer&) = default;
};

/// Returns the handle as text without spaces: exporter, session, id, offset and size in decimal ("2:4711:17:0:4096"),
/// and ":host" for host memory.
[[nodiscard]] std::string to_string(const remote_buffer& one);
/// Returns the handle that to_string() has written. Errors: invalid_argument.
[[nodiscard]] remote_buffer parse_remote_buffer(std::string_view text);

/// Returns whether \p one is memory of another process.
[[nodiscard]] bool is_remote(const buffer& one) noexcept;
/// Returns the handle of \p one. Precondition: is_remote(one).
[[nodiscard]] remote_buffer remote_of(const buffer& one);

inline constexpr std::size_t longest_export_name_bytes = 256;

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
  /// Releases memory whose lease has ended. \p pause: time since the last call in which this process did not run. It
  /// could not read renewals that arrived meanwhile, so this time does not count.
  void expire(time_point now, nanoseconds pause = nanoseconds{0});
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
    time_point ends = time_point::max();
  };

  [[nodiscard]] remote_buffer hold(rank self, range what, const std::string& name);

  const std::uint64_t session_;
  mutable std::mutex mutex_;
  std::uint64_t last_ = 0;
  std::map<std::uint64_t, range> held_;
  std::map<std::string, std::map<rank, std::uint64_t>, std::less<>> names_; ///< Keys of held_, by name and rank.
};

} // namespace troupe
