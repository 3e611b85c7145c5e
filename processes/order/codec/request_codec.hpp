/// Encodes what a rank's process sends to the controller: requests, cancellations, withdrawals, turns and captures, a
/// few bytes each.
///
/// Repeated data is sent once. An operation's outline gets one of 64 slots until another outline replaces it. A lane is
/// identified by its number in the sender's process, which is sent together with the lane's name before the first use.
/// World, lane, client and deadline are sent only if they differ from those of the previous request. Requests are not
/// numbered, because both sides count them. The usual request therefore takes two bytes.
#pragma once

#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/collectives/operation/wire.hpp>
#include <troupe/collectives/order/codec/outline_codec.hpp>
#include <troupe/collectives/order/codec/part_codec.hpp>
#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/collectives/progress/told_commits.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/order/codec/batch_header.hpp>
#include <troupe/processes/order/fusion_facts.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// Number of outlines that both sides remember.
inline constexpr std::size_t outline_slots = 64;

/// Limits of the groups of a split, for writers and readers.
inline constexpr std::size_t most_split_groups = 4096;
inline constexpr std::size_t longest_group_name_bytes = 256;
inline constexpr std::size_t longest_split_bytes = std::size_t{256} << 10U;

/// Encodes the groups of a split.
[[nodiscard]] std::string encode_groups(std::span<const rank_group> groups);
/// Returns errc::none, or invalid_argument if the groups of a split exceed a limit.
[[nodiscard]] error check_groups_size(std::span<const rank_group> groups);

/// The process that sends or receives a message: that of a rank of the world, by the rank's number, or a process
/// without a rank, by a negative number.
using process_address = strong_number<struct process_address_tag, int>;

/// One record.
struct request_record {
  /// Kind of the record. The order is part of the encoding. The reader does not return a name, a select or an
  /// objection.
  enum class form : std::uint8_t {
    ask,
    name,     ///< The name of a lane.
    cancel,   ///< Of a request in a lane.
    withdraw, ///< Of all requests of a client.
    turn,
    capture_launch, ///< The next launch of the rank in a capture.
    capture_end,
    capture_failure,
    progress, ///< What the rank has launched and finished last.
    select,   ///< The world of the records that follow.
    limits, ///< The limits of launches of several requests, the same at all ranks; before the first request with facts.
    succeeded, ///< How many requests of the sub-world have succeeded. batch_header::succeeded has those of the whole.
    close,     ///< The rank leaves the world.
    objection, ///< Why the rank cannot take part in the operation of the next ask.
    message    ///< To another process of the world.
  };

  form kind = form::ask;
  std::uint64_t world = 0;                         ///< Its number at the controller; 0: the whole world.
  std::shared_ptr<const operation_outline> what{}; ///< For an ask.
  lane where{};                                    ///< For an ask or a cancel.
  std::uint64_t client = 0;                        ///< For an ask or a withdraw.
  std::optional<std::uint64_t> position{};         ///< For an ask or a cancel.
  nanoseconds deadline{0};                         ///< For an ask.
  request_facts facts{};                           ///< For an ask.
  std::shared_ptr<const error> objection{};        ///< For an ask: see sequencing_terms.
  /// For a withdraw, a close, a capture_failure or an objection: the reason. For an ask or a cancel: the reason why the
  /// lane cannot exist here.
  error why{};
  turn_terms turn{};       ///< For a turn.
  std::uint64_t count = 0; ///< For a succeeded: of requests; for limits: of operations.
  std::uint64_t bytes = 0; ///< For limits.
  std::uint64_t place = 0; ///< For a record of a capture: the number of its turn among all that were granted, from 1.
  std::string outline{};   ///< For a capture_launch that is written: outline_of_launch().
  std::vector<operation> launch{};                      ///< For a capture_launch that was read.
  bool divisible = false;                               ///< As above.
  std::vector<std::uint64_t> places{};                  ///< As above: of its collectives, or empty if all are 0.
  std::optional<operation_mark> launched{}, finished{}; ///< For a progress.
  process_address to{};                                 ///< For a message.
  std::string message{};                                ///< For a message, at most longest_message_bytes.
};

/// Writes the requests of one connection in one epoch. Data that was sent before is not repeated.
class request_writer {
public:
  /// Selects the world of the records that follow, by its number at the controller. Initially it is 0, the whole world.
  void select(std::uint64_t world);
  /// Adds a request, with its objection unless null (see sequencing_terms). Errors: invalid_argument (see
  /// write_outline()); nothing is written then.
  [[nodiscard]] error ask(const operation& what, lane where, std::uint64_t client,
                          const std::optional<std::uint64_t>& position, nanoseconds deadline,
                          const request_facts& facts = {},
                          const std::optional<std::uint64_t>& copied_bytes = std::nullopt,
                          const error* objection = nullptr);
  /// Adds a record of another form, of the selected world; not an objection, which only ask() writes.
  void add(const request_record& one);

  [[nodiscard]] bool empty() const noexcept { return records_ == 0; }
  /// Returns the number of records since the last take().
  [[nodiscard]] std::size_t records() const noexcept { return records_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return out_.size_bytes(); }
  /// Returns all records as one batch.
  [[nodiscard]] std::string take(const batch_header& header);

private:
  void introduce(lane where);

  wire_writer out_;
  std::size_t records_ = 0;
  std::array<std::string, outline_slots> outlines_;
  wire_writer outline_; ///< A member so that its memory is reused.
  std::vector<bool> lanes_{true};
  std::uint64_t world_ = 0;
  lane where_{};
  std::uint64_t client_ = 0;
  nanoseconds deadline_{0};
};

/// Reads what a request_writer wrote.
class request_reader {
public:
  request_reader() = default;
  /// Makes a reader that refuses all records but messages: see order_server::attach().
  struct only_messages {};
  explicit request_reader(only_messages) noexcept : only_messages_{true} {}

  /// Reads the next record. Returns false at the end, or if \p in has failed.
  [[nodiscard]] bool next(wire_reader& in, request_record& into);

private:
  struct named_lane {
    bool known = false;
    lane here{};
    error objection{};
  };

  void read_ask(wire_reader& in, std::uint8_t head, request_record& into);
  static void read_launch(wire_reader& in, request_record& into);
  void read_name(wire_reader& in);
  std::uint64_t read_lane(wire_reader& in, request_record& into);
  void read_lane(std::uint64_t number, request_record& into) const;

  bool only_messages_ = false;
  std::array<std::shared_ptr<const operation_outline>, outline_slots> outlines_;
  std::vector<named_lane> lanes_{{.known = true}}; ///< Indexed by their number in the other process.
  std::uint64_t world_ = 0;
  std::uint64_t where_ = 0;
  std::uint64_t client_ = 0;
  nanoseconds deadline_{0};
  std::shared_ptr<const error> objection_; ///< For the next ask.
};

} // namespace troupe
