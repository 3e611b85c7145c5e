/// What a rank's process tells the controller: requests, and what becomes of them there, a few bytes each.
///
/// What stays the same from request to request is told once: an outline has a number in a table of 64 until another
/// one takes its place there; a lane has the number that it has in the sender's process, told with its name before its
/// first use; lane and client, and the time to wait, are told where they differ from the request before. Requests are
/// not numbered: both sides count. So the usual request takes two bytes.
#pragma once

#include <troupe/collectives/order/distributed/batch_header.hpp>
#include <troupe/collectives/order/distributed/outline.hpp>
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

/// How often the outline of a request may have been told before.
inline constexpr std::size_t outline_slots = 64;

/// For one connection, in one epoch: what it has told, it does not tell again.
class request_writer {
public:
  /// Errors: invalid_argument (see write_outline()); then nothing has been written.
  [[nodiscard]] error ask(const operation& what, lane where, std::uint64_t client,
                          const std::optional<std::uint64_t>& position, nanoseconds deadline);
  void cancel(lane where, std::uint64_t position);
  void withdraw(std::uint64_t client, const error& why);
  void turn();

  [[nodiscard]] bool empty() const noexcept { return records_ == 0; }
  /// Records since the last take().
  [[nodiscard]] std::size_t records() const noexcept { return records_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return out_.size_bytes(); }
  /// All of them as a batch.
  [[nodiscard]] std::string take(const batch_header& header);

private:
  void introduce(lane where);

  wire_writer out_;
  std::size_t records_ = 0;
  std::array<std::string, outline_slots> told_;
  wire_writer outline_; ///< Kept for its memory.
  std::vector<bool> lanes_{true};
  lane where_{};
  std::uint64_t client_ = 0;
  nanoseconds deadline_{0};
};

/// One of these.
struct request_record {
  /// Which of them.
  enum class form : std::uint8_t { ask, cancel, withdraw, turn };

  form kind = form::ask;
  std::shared_ptr<const operation_outline> what{}; ///< Of an ask.
  lane where{};                                    ///< Of an ask, or a cancel.
  std::uint64_t client = 0;                        ///< Of an ask, or a withdraw.
  std::optional<std::uint64_t> position{};         ///< Of an ask, or a cancel.
  nanoseconds deadline{0};                         ///< Of an ask.
  /// Of a withdraw: why. Of an ask or a cancel: why there can be no such lane here.
  error why{};
};

/// The other end of it.
class request_reader {
public:
  /// The next record, or nothing at the end or where \p in has failed.
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

  std::array<std::shared_ptr<const operation_outline>, outline_slots> told_;
  std::vector<named_lane> lanes_{{.known = true}}; ///< By their number in the other process.
  std::uint64_t where_ = 0;
  std::uint64_t client_ = 0;
  nanoseconds deadline_{0};
};

} // namespace troupe
