/// A connection between a rank's process and the order service of its host: two rings in shared memory.
#pragma once

#include <troupe/completion/completion_settings.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/threads/running_clock.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>
#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

/// A longer message is refused by both sides.
inline constexpr std::size_t longest_ring_message_bytes = std::size_t{8} << 20U;

/// Limits of a connection.
struct ring_settings {
  std::size_t capacity_bytes = std::size_t{256} << 10U; ///< The capacity of each ring.
  /// A peer that reads nothing for this long, while a message waits for room in its ring, is fenced. Of the time
  /// between two attempts to write, at most a sixteenth of this limit counts: the sender may have been paused together
  /// with the peer, or may have been busy. (docs/design/0050-failure-detection.md)
  nanoseconds behind{std::chrono::seconds{1}};
  /// A peer for which more bytes wait is fenced at once.
  std::size_t most_waiting_bytes = 2 * longest_ring_message_bytes;
};

/// The sending half of a ring_connection. Never waits for the peer: messages that do not fit into its ring are kept,
/// within limits, and written by flush(). After a failure nothing is sent any more. Threads: one at a time; the other
/// half may be used by another thread.
class ring_sender {
public:
  /// Interval at which flush() should be called while a message waits, because a peer that has read wakes nobody.
  static constexpr nanoseconds room_interval = std::chrono::microseconds{100};

  ring_sender(std::string self, std::string peer, const ring_settings& settings, shared_ring out,
              std::shared_ptr<shared_doorbell> peer_bell);

  /// Sends \p message, or keeps the part that does not fit. Errors: see failure(); invalid_argument (too long; not a
  /// failure of the connection).
  error send(std::string_view message, time_point now);
  /// As send(), but does not wake the peer. A sender to several peers calls post() for all of them,
  /// doorbell_caller::fence() once, and then wake_posted() for each.
  error post(std::string_view message, time_point now);
  [[nodiscard]] bool has_posted() const noexcept { return has_posted_; }
  void wake_posted();
  /// Writes as much of the kept messages as fits.
  error flush(time_point now);
  /// Returns whether a message was kept.
  [[nodiscard]] bool is_waiting() const noexcept { return !kept_.empty(); }
  /// Returns errc::none, or why sending has ended: internal (the peer has written what the protocol does not allow),
  /// deadline_exceeded (the peer is fenced, because it fell behind).
  [[nodiscard]] const error& failure() const noexcept { return failure_; }

private:
  error fail(errc code, std::string text);
  /// Writes \p message from offset \p from on. Returns the offset at which the ring was full; npos if all is written.
  std::size_t write(std::string_view message, std::size_t from);
  error keep(std::string_view message, std::size_t from);
  /// Fences a peer that has read nothing for settings_.behind. Call it after an attempt to write: only that looks at
  /// what the peer has read.
  error check_progress(time_point real);

  std::string self_;
  std::string peer_;
  ring_settings settings_;
  shared_ring out_;
  std::shared_ptr<shared_doorbell> peer_bell_;
  ring_writer<shared_words> writer_;
  error failure_;

  std::deque<std::string> kept_;
  std::size_t kept_from_ = 0; ///< Bytes of the first kept message that are written.
  std::size_t kept_bytes_ = 0;
  bool has_posted_ = false;      ///< Something was written of which the peer's bell does not know.
  std::uint64_t read_words_ = 0; ///< The peer's read position at progress_.
  running_clock running_;        ///< Read at each attempt to write while a message waits.
  running_time progress_{};
};

/// The receiving half of a ring_connection, which also watches the peer's process. After a failure nothing is received
/// any more. Threads: one at a time; the other half may be used by another thread.
class ring_receiver {
public:
  /// Default of the longest park. It bounds the delay if a peer's process ends while it writes, because it then wakes
  /// nobody.
  static constexpr nanoseconds usual_park = std::chrono::milliseconds{5};

  ring_receiver(std::string self, std::string peer, peer_process process, shared_ring in,
                std::shared_ptr<shared_doorbell> own_bell);

  /// Replaces \p into by the next message. Returns false if there is none yet, or after a failure.
  [[nodiscard]] bool receive(std::string& into);
  /// Returns whether there may be something to receive. Sequentially consistent, for parking.
  [[nodiscard]] bool has_news() { return failure_.code != errc::none || reader_.has_news(); }
  /// Waits until there is something to receive, receiving has failed, or \p until. Spins for profile.spin, then parks,
  /// for at most \p longest_park each time. Returns has_news(). Notices the end of the peer's process after a park.
  bool wait(const wait_profile& profile, time_point until, nanoseconds longest_park = usual_park);
  /// Wakes the thread that parks in wait(). Threads: safe from any.
  void wake() const { own_bell_->caller().ring(); }

  /// Notices the end of the peer's process. A system call.
  error check_peer();
  /// Returns errc::none, or why receiving has ended: rank_lost (the peer's process has ended), internal (the peer has
  /// written what the protocol does not allow).
  [[nodiscard]] const error& failure() const noexcept { return failure_; }

private:
  error fail(errc code, std::string text);

  std::string self_;
  std::string peer_;
  peer_process process_;
  shared_ring in_;
  std::shared_ptr<shared_doorbell> own_bell_;
  ring_reader<shared_words> reader_;
  error failure_;
  std::string partial_; ///< The first records of a message that is not complete.
};

/// Sends and receives whole messages of any size up to longest_ring_message_bytes. Once anything has failed, nothing is
/// sent or received any more. Every failure names both sides. Threads: one at a time; or one for each half, which then
/// fail independently of each other.
class ring_connection {
public:
  /// The order service's side. Makes the rings and hands them to \p peer, which is at the other end of \p socket and
  /// authenticated. Errors: those of shared_ring::create() and send_descriptors().
  [[nodiscard]] static ring_connection offer(const file_descriptor& socket, const ring_session& session, rank to,
                                             peer_process peer, std::shared_ptr<shared_doorbell> service_bell,
                                             const ring_settings& settings = {});
  /// The rank's side. \p service is the process that has made the offer. Offers for other epochs of the same connection
  /// (session_in()), which were not used, are dropped. \p settings.capacity_bytes is ignored: the offer has it. Errors:
  /// those of receive_descriptors() and shared_ring::open(); internal (another session or rank).
  [[nodiscard]] static ring_connection accept(const file_descriptor& socket, const ring_session& session, rank self,
                                              peer_process service, std::chrono::steady_clock::time_point until,
                                              const ring_settings& settings = {});

  /// As the functions of both halves.
  error send(std::string_view message, time_point now) { return failure() ? failure() : out_.send(message, now); }
  error post(std::string_view message, time_point now) { return failure() ? failure() : out_.post(message, now); }
  [[nodiscard]] bool has_posted() const noexcept { return out_.has_posted(); }
  void wake_posted() { out_.wake_posted(); }
  error flush(time_point now) { return failure() ? failure() : out_.flush(now); }
  [[nodiscard]] bool is_waiting() const noexcept { return out_.is_waiting() && !in_.failure(); }
  [[nodiscard]] bool receive(std::string& into) { return !out_.failure() && in_.receive(into); }
  [[nodiscard]] bool has_news() { return out_.failure().code != errc::none || in_.has_news(); }
  bool wait(const wait_profile& profile, time_point until) { return out_.failure() || in_.wait(profile, until); }
  error check_peer() { return out_.failure() ? out_.failure() : in_.check_peer(); }
  /// Returns errc::none, or why one half has failed.
  [[nodiscard]] const error& failure() const noexcept { return in_.failure() ? in_.failure() : out_.failure(); }

  [[nodiscard]] ring_sender& sending() noexcept { return out_; }
  [[nodiscard]] ring_receiver& receiving() noexcept { return in_; }

private:
  ring_connection(ring_sender out, ring_receiver in) : out_{std::move(out)}, in_{std::move(in)} {}

  ring_sender out_;
  ring_receiver in_;
};

} // namespace troupe
