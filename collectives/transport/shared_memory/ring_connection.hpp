/// A connection between a rank's process and the order service of its host: two rings in shared memory.
#pragma once

#include <troupe/collectives/transport/shared_memory/peer_process.hpp>
#include <troupe/collectives/transport/shared_memory/shared_ring.hpp>
#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/error.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

namespace troupe {

/// A longer message is refused by both sides.
inline constexpr std::size_t longest_ring_message_bytes = std::size_t{8} << 20U;

/// Limits of a connection.
struct ring_settings {
  std::size_t capacity_bytes = std::size_t{256} << 10U; ///< Of each ring.
  /// A peer that reads nothing for this long, while a message waits for room in its ring, is fenced.
  nanoseconds behind{std::chrono::seconds{1}};
  /// A peer for which more bytes wait is fenced at once.
  std::size_t most_waiting_bytes = 2 * longest_ring_message_bytes;
};

/// Sends and receives whole messages of any size up to longest_ring_message_bytes. Never waits for the peer: what does
/// not fit into its ring is kept, within limits, and written by flush(). Once anything has failed, nothing is sent or
/// received any more. Every failure names both sides. Threads: one at a time.
class ring_connection {
public:
  /// The order service's side. Makes the rings and hands them to \p peer, which is at the other end of \p socket and
  /// authenticated. Errors: those of shared_ring::create() and send_descriptors().
  [[nodiscard]] static ring_connection offer(const file_descriptor& socket, const ring_session& session, rank to,
                                             peer_process peer, std::shared_ptr<shared_doorbell> service_bell,
                                             const ring_settings& settings = {});
  /// The rank's side. \p service is the process that has made the offer. \p settings.capacity_bytes is ignored: the
  /// offer has it. Errors: those of receive_descriptors() and shared_ring::open(); internal (another version, session
  /// or rank).
  [[nodiscard]] static ring_connection accept(const file_descriptor& socket, const ring_session& session, rank self,
                                              peer_process service, std::chrono::steady_clock::time_point until,
                                              const ring_settings& settings = {});

  /// Sends \p message, or keeps what does not fit. Errors: see failure(); invalid_argument (too long; not a failure of
  /// the connection).
  error send(std::string_view message, time_point now);
  /// Writes what was kept, as far as it fits.
  error flush(time_point now);
  /// Returns whether a message was kept.
  [[nodiscard]] bool is_waiting() const noexcept { return !kept_.empty(); }

  /// Replaces \p into by the next message. Returns false if there is none yet, or after a failure.
  [[nodiscard]] bool receive(std::string& into);
  /// Returns whether there may be something to receive. Sequentially consistent, for parking.
  [[nodiscard]] bool has_news() { return failure_.code != errc::none || reader_.has_news(); }

  /// Notices the end of the peer's process. A system call.
  error check_peer();
  /// Returns errc::none, or why the connection has ended: rank_lost (the peer's process has ended), internal (the peer
  /// has written what the protocol does not allow), deadline_exceeded (the peer is fenced, because it fell behind).
  [[nodiscard]] const error& failure() const noexcept { return failure_; }

  /// The rank's side: waits until there is something to receive, the connection has failed, or \p until. Spins for
  /// profile.spin, then parks. Returns has_news(). Notices the end of the service within some milliseconds.
  bool wait(const wait_profile& profile, time_point until);

private:
  ring_connection(std::string self, std::string peer, peer_process process, const ring_settings& settings,
                  shared_ring out, shared_ring in, std::shared_ptr<shared_doorbell> own_bell,
                  std::shared_ptr<shared_doorbell> peer_bell);

  error fail(errc code, std::string text);
  error fail_forged(ring_fault fault, std::string_view ring);
  /// Writes the part of \p message behind \p from. Returns where it stopped.
  std::size_t write(std::string_view message, std::size_t from);
  error keep(std::string_view message, std::size_t from, time_point now);
  error check_progress(time_point now);

  std::string self_;
  std::string peer_;
  peer_process process_;
  ring_settings settings_;
  shared_ring out_;
  shared_ring in_;
  std::shared_ptr<shared_doorbell> own_bell_;
  std::shared_ptr<shared_doorbell> peer_bell_;
  ring_writer<shared_words> writer_;
  ring_reader<shared_words> reader_;
  error failure_;

  std::string partial_; ///< The first records of a message that is not complete.
  std::deque<std::string> kept_;
  std::size_t kept_from_ = 0; ///< Bytes of the first kept message that are written.
  std::size_t kept_bytes_ = 0;
  std::uint64_t read_words_ = 0; ///< How far the peer had read at progress_.
  time_point progress_{};
};

} // namespace troupe
