/// The memory that the processes of one formation of mock ranks share, and how they find it.
#pragma once

#include <troupe/collectives/transport/shared_memory/shared_memory.hpp>
#include <troupe/collectives/transport/shared_memory/shared_ring.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace troupe {

/// The folder of boards: /dev/shm, or /tmp if that cannot be written.
[[nodiscard]] std::string board_folder();
/// The name of the board of a formation in that folder.
[[nodiscard]] std::string board_name(const unique_id& id);

/// A slot for each rank of a formation, and a ring of records from each rank to each other one, in one sealed memfd.
///
/// The first rank that comes makes it, and puts up a *board*: a symbolic link, named after the id, whose text says
/// which descriptor of which process the memory is. The link is made and read by one system call each, so that there is
/// no half-written board, and it is never mapped, so that no access ends in SIGBUS. The others open the descriptor
/// through /proc. The board is removed as soon as all ranks have joined, or when the rank that put it up gives up or
/// has ended; the next formation of the same user removes boards whose process has ended. Neither side trusts what it
/// reads here: a value that the protocol does not allow is an error of the formation.
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
  /// As retire_own().
  ~formation_memory();

  /// What a rank says when it joins.
  struct seat {
    pid_t process = 0;    ///< 0: it has not joined yet.
    int bell = -1;        ///< The descriptor of its process's doorbell.
    ring_session bells{}; ///< Identifies that doorbell.
  };
  enum class presence : std::uint8_t {
    here,
    aborted, ///< abort() of the rank.
    gone,    ///< It has left after its work.
  };

  /// Takes this rank's seat. Errors: invalid_argument (it is taken).
  void take(const seat& mine);
  [[nodiscard]] seat seat_of(rank one) const;
  void leave(presence as) noexcept;
  [[nodiscard]] presence presence_of(rank one) const;

  /// Counts this rank as connected to all others. Returns when it is known how many are, not when all are.
  void connected() noexcept;
  [[nodiscard]] bool all_are_connected() const;
  /// Sleeps until something has changed since \p seen = changes(), or for \p at_most.
  void sleep(std::uint64_t seen, nanoseconds at_most) const noexcept;
  [[nodiscard]] std::uint64_t changes() const noexcept;
  /// Wakes the ranks that sleep.
  void wake() noexcept;

  /// Removes the board, and closes the descriptor, when all are connected.
  void retire() noexcept;
  /// The same if this rank gives up: only if it has put the board up.
  void retire_own() noexcept;

  [[nodiscard]] ring_writer<shared_words> writer(rank to) const;
  [[nodiscard]] ring_reader<shared_words> reader(rank from) const;

private:
  [[nodiscard]] bool open_board();
  [[nodiscard]] bool put_up_board();
  [[nodiscard]] std::array<std::uint64_t, 6> header() const noexcept;
  [[nodiscard]] shared_words words_of(std::size_t at) const noexcept;
  [[nodiscard]] std::size_t slot(rank one) const noexcept;
  [[nodiscard]] std::size_t ring(rank from, rank to) const noexcept;
  [[nodiscard]] ring_layout layout(rank from, rank to) const noexcept;
  [[nodiscard]] std::string what() const;

  std::array<std::uint64_t, 2>
      digest_; ///< A digest of the id, because the id itself must not be written anywhere (SEC-1).
  rank self_;
  std::size_t world_size_;
  std::size_t capacity_words_; ///< The capacity of each ring.
  std::size_t size_bytes_;
  std::string path_;  ///< The path of the board.
  std::string board_; ///< Its text.
  bool has_put_up_ = false;
  std::optional<shared_memory> memory_;
};

} // namespace troupe
