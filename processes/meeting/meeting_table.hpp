/// The meetings of a node: decides what is answered to the ranks of each communicator (meeting_messages.hpp).
#pragma once

#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/meeting/meeting_messages.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

struct meeting_limits {
  /// How long the first rank to come waits for the others, and all of them for the confirmations. Then none has
  /// kernels.
  nanoseconds patience{std::chrono::seconds{10}};
  /// The meetings without kernels whose last answer is kept for ranks that come later. The oldest are forgotten.
  std::size_t remembered = 256;
};

/// The state of the meetings, without sockets, threads or a clock. All ranks of a communicator get the same result: all
/// have kernels only if each of them has confirmed that it has mapped the others' scratch. A meeting lives as long as
/// connections of its ranks: if one of them ends before the result, the others are answered that it is broken, and the
/// descriptors are closed.
///
/// What a rank sends is not trusted. After each call, send what take_outgoing() returns. Threads: one at a time.
class meeting_table {
public:
  using connection = std::uint64_t; ///< Chosen by the caller, and never used again.

  explicit meeting_table(const meeting_limits& limits = {}) : limits_{limits} {}

  /// Handles a message. Errors: internal (it is not expected, or cannot be read): close the connection, after a call
  /// of lose().
  [[nodiscard]] error receive(connection from, std::string_view bytes, std::vector<file_descriptor> descriptors,
                              time_point now);
  /// Call it when a connection has ended before its last message. Does nothing for one that is not in a meeting.
  void lose(connection from);
  /// Ends the meetings whose patience is over.
  void expire(time_point now);
  /// Returns the time of the next expire().
  [[nodiscard]] time_point next_due() const noexcept;

  struct message {
    connection to = 0;
    std::string bytes{};
    std::vector<std::shared_ptr<const file_descriptor>> descriptors{};
    bool is_last = false; ///< Close the connection after it.
  };
  [[nodiscard]] std::vector<message> take_outgoing() { return std::exchange(outgoing_, {}); }

  /// Returns whether \p one is in a meeting.
  [[nodiscard]] bool is_present(connection one) const { return places_.contains(one); }
  /// Returns the number of meetings that have no result yet.
  [[nodiscard]] std::size_t size() const noexcept { return meetings_.size(); }

private:
  struct seat {
    connection by = 0;
    meeting_offer offer{};
    std::shared_ptr<const file_descriptor> scratch{};
    std::optional<std::string> confirmed{}; ///< meeting_confirmation::why
  };
  struct meeting {
    std::vector<std::optional<seat>> seats{};
    std::size_t arrived = 0;
    std::size_t confirmed = 0;
    time_point due{};
  };
  using meetings = std::map<meeting_name, meeting>;

  [[nodiscard]] error arrive(connection from, std::string_view bytes, std::vector<file_descriptor> descriptors,
                             time_point now);
  [[nodiscard]] error confirm(connection from, meetings::iterator in, int self, std::string_view bytes, bool is_pure);
  /// Returns why these ranks have no kernels; empty if they can have them.
  [[nodiscard]] static std::string objection(const meeting& all);
  void share(meeting& all, time_point now);
  /// Ends a meeting: answers all ranks that have come.
  void end(meetings::iterator which, meeting_answer::form how, const std::string& why);

  const meeting_limits limits_;
  meetings meetings_;
  std::map<connection, std::pair<meeting_name, int>> places_; ///< With the rank.
  std::deque<std::pair<meeting_name, std::string>> ended_;    ///< Answers: see meeting_limits::remembered.
  std::vector<message> outgoing_;
};

} // namespace troupe
