/// The shared memory of one formation of mock ranks in several processes, and how the processes find it.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/transport/shared_memory/shared_memory.hpp>
#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// Returns the folder of boards: /dev/shm, or /tmp if /dev/shm is not writable.
[[nodiscard]] std::string board_folder();
/// Returns the name of a formation's board in that folder.
[[nodiscard]] std::string board_name(const unique_id& id);

/// A slot for each rank of a formation, and a ring of records from each rank to each other one, in one sealed memfd.
///
/// The first rank to arrive creates the memory and publishes it by a *board*: a symbolic link, named after a digest of
/// the id, whose text names the process and the descriptor that hold the memory. The other ranks open the descriptor
/// through /proc. A link is created and read by one system call each, so no board is half-written. It is never mapped,
/// so no access ends in SIGBUS. The board is removed when all ranks have joined, or when the rank that published it
/// gives up. If its process has ended, the next formation of the same user removes it. No rank trusts what it reads
/// here: a value that the protocol does not allow is an error of the formation.
class formation_memory {
public:
  /// Opens the memory of \p id, or creates it. Does not wait for other ranks. \p has_rings: false for a formation that
  /// only synchronises; the same at all ranks.
  /// Errors: invalid_argument (it was created for another world size), communicator_failed (the process that created
  /// the board has ended), out_of_memory (also if no descriptor is left), internal (its contents are invalid),
  /// unsupported.
  formation_memory(const unique_id& id, rank self, int world_size, bool has_rings);
  formation_memory(const formation_memory&) = delete;
  formation_memory& operator=(const formation_memory&) = delete;
  /// Calls retire_own().
  ~formation_memory();

  /// The data that a rank publishes when it joins.
  struct seat {
    pid_t process = 0;    ///< 0: the rank has not joined yet.
    int bell = -1;        ///< The descriptor of its process's doorbell.
    ring_session bells{}; ///< Identifies that doorbell.
  };
  enum class presence : std::uint8_t {
    here,
    aborted, ///< The rank was aborted, or has given up joining.
    gone,    ///< The rank has left after the formation was complete.
  };

  /// Publishes this rank's data. Errors: invalid_argument (the rank has already joined).
  void take(const seat& mine);
  [[nodiscard]] seat seat_of(rank one) const;
  void leave(presence as) noexcept;
  [[nodiscard]] presence presence_of(rank one) const;

  /// Counts this rank as connected to all others. Does not wait for the other ranks.
  void connected() noexcept;
  [[nodiscard]] bool all_are_connected() const;
  /// Sleeps until changes() differs from \p seen, for at most \p at_most.
  void sleep(std::uint64_t seen, nanoseconds at_most) const noexcept;
  /// Returns the number of changes so far. take(), leave(), connected() and wake() each count one.
  [[nodiscard]] std::uint64_t changes() const noexcept;
  /// Wakes the ranks that sleep.
  void wake() noexcept;

  /// Removes the board and closes the descriptor. Call when all ranks are connected.
  void retire() noexcept;
  /// Does the same if this rank published the board. Call if this rank gives up joining.
  void retire_own() noexcept;

  [[nodiscard]] ring_writer<shared_words> writer(rank to) const;
  [[nodiscard]] ring_reader<shared_words> reader(rank from) const;

private:
  [[nodiscard]] bool open_board();
  [[nodiscard]] bool publish_board();
  [[nodiscard]] std::array<std::uint64_t, 6> header() const noexcept;
  [[nodiscard]] shared_words words_of(std::size_t at) const noexcept;
  [[nodiscard]] std::size_t slot(rank one) const noexcept;
  [[nodiscard]] std::size_t ring(rank from, rank to) const noexcept;
  [[nodiscard]] ring_layout layout(rank from, rank to) const noexcept;
  [[nodiscard]] std::string what() const;

  /// A digest of the id, because the id itself must not be written anywhere (SEC-1).
  std::array<std::uint64_t, 2> digest_;
  rank self_;
  std::size_t world_size_;
  std::size_t capacity_words_; ///< The capacity of each ring.
  std::size_t size_bytes_;
  std::string path_;  ///< Path of the board.
  std::string board_; ///< Text of the board.
  bool has_published_ = false;
  std::optional<shared_memory> memory_;
};

} // namespace troupe
