/// Encodes what a rank's process sends to the controller: requests, cancellations and withdrawals, a few bytes each.
///
/// Repeated data is sent once. An operation's outline gets one of 64 slots until another outline replaces it. A lane is
/// identified by its number in the sender's process, which is sent together with the lane's name before the first use.
/// Lane, client and deadline are sent only if they differ from those of the previous request. Requests are not
/// numbered, because both sides count them. The usual request therefore takes two bytes.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/order/compact_signature.hpp>
#include <troupe/collectives/order/distributed/batch_header.hpp>
#include <troupe/collectives/order/distributed/wire.hpp>
#include <troupe/collectives/order/lane.hpp>
#include <troupe/device/time.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// The data that a sequencer needs about another process's request. Its operands are empty. `staged` says whether it is
/// launched in chunks, for any reason. The plan of a replay is a placeholder that has only the number.
struct operation_outline {
  operation what;
  compact_signature sketch{}; ///< Includes the size of a copy, which `what` does not have.
};

/// Limit of the parts of a group, and of the counts of a v-form, for writers and readers.
inline constexpr std::size_t most_outline_parts = 65'536;

inline constexpr std::size_t longest_outline_bytes = std::size_t{1} << 20U;

/// Writes an operation. Errors: invalid_argument (too many parts to be read); nothing is written then.
[[nodiscard]] error write_outline(wire_writer& out, const operation& what);
/// Reads an operation. Returns nullopt if \p in has failed.
[[nodiscard]] std::optional<operation_outline> read_outline(wire_reader& in);

/// Number of outlines that both sides remember.
inline constexpr std::size_t outline_slots = 64;

/// Writes the requests of one connection in one epoch. Data that was sent before is not repeated.
class request_writer {
public:
  /// Adds a request. Errors: invalid_argument (see write_outline()); nothing is written then.
  [[nodiscard]] error ask(const operation& what, lane where, std::uint64_t client,
                          const std::optional<std::uint64_t>& position, nanoseconds deadline);
  void cancel(lane where, std::uint64_t position);
  void withdraw(std::uint64_t client, const error& why);
  void turn();

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
  lane where_{};
  std::uint64_t client_ = 0;
  nanoseconds deadline_{0};
};

/// One record.
struct request_record {
  /// Kind of the record.
  enum class form : std::uint8_t { ask, cancel, withdraw, turn };

  form kind = form::ask;
  std::shared_ptr<const operation_outline> what{}; ///< For an ask.
  lane where{};                                    ///< For an ask or a cancel.
  std::uint64_t client = 0;                        ///< For an ask or a withdraw.
  std::optional<std::uint64_t> position{};         ///< For an ask or a cancel.
  nanoseconds deadline{0};                         ///< For an ask.
  /// For a withdraw: the reason. For an ask or a cancel: the reason why the lane cannot exist here.
  error why{};
};

/// Reads what a request_writer wrote.
class request_reader {
public:
  /// Reads the next record. Returns false at the end, or if \p in has failed.
  [[nodiscard]] bool next(wire_reader& in, request_record& into);

private:
  struct named_lane {
    bool known = false;
    lane here{};
    error objection{};
  };

  void read_ask(wire_reader& in, std::uint8_t head, request_record& into);
  void read_name(wire_reader& in);
  std::uint64_t read_lane(wire_reader& in, request_record& into);
  void read_lane(std::uint64_t number, request_record& into) const;

  std::array<std::shared_ptr<const operation_outline>, outline_slots> outlines_;
  std::vector<named_lane> lanes_{{.known = true}}; ///< Indexed by their number in the other process.
  std::uint64_t where_ = 0;
  std::uint64_t client_ = 0;
  nanoseconds deadline_{0};
};

} // namespace troupe
