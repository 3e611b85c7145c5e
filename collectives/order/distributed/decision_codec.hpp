/// What the controller tells a rank's process: which requests are launched next, which never will be.
///
/// Requests go by the number that both sides have counted, from 1. A release that follows the one before takes a byte,
/// and some more where its client did not say at which position of its lane it stands.
#pragma once

#include <troupe/collectives/order/absence_report.hpp>
#include <troupe/collectives/order/distributed/batch_header.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

/// For one rank, in one epoch.
class decision_writer {
public:
  explicit decision_writer(troupe::epoch of) noexcept : epoch_{of} {}

  void release(std::uint64_t number, const std::optional<std::uint64_t>& position);
  void refuse(std::uint64_t number, const error& why, const std::shared_ptr<absence_report>& absence);
  void turn();
  /// The rank's batch of this number has been read: that is told with the next batch, which there is then.
  void has_seen(std::uint64_t number) noexcept {
    seen_ = number;
    owes_ = true;
  }
  /// The next batch; empty where there is nothing to tell.
  [[nodiscard]] std::string take();

private:
  void end_record();

  troupe::epoch epoch_;
  wire_writer out_;
  std::deque<std::string> full_; ///< Without their headers.
  std::uint64_t batches_ = 0;
  std::uint64_t seen_ = 0;
  bool owes_ = false;
  std::uint64_t released_ = 0; ///< The last one.
  std::shared_ptr<absence_report> reported_;
};

/// One of these.
struct decision_record {
  /// Which of them.
  enum class form : std::uint8_t { release, refusal, turn };

  form kind = form::release;
  std::uint64_t number = 0;                ///< Of a request.
  std::optional<std::uint64_t> position{}; ///< Of a release, where its client named none.
  error why{};                             ///< Of a refusal.
  /// Of a refusal; the same for all those that are refused for one reason.
  std::shared_ptr<absence_report> absence{};
  bool absence_is_new = false; ///< Nobody else has seen it yet.
};

/// The other end of it.
class decision_reader {
public:
  explicit decision_reader(int world_size) noexcept : world_size_{world_size} {}

  /// The next record, or nothing at the end or where \p in has failed.
  [[nodiscard]] bool next(wire_reader& in, decision_record& into);

private:
  int world_size_;
  std::uint64_t released_ = 0;
  std::shared_ptr<absence_report> reported_;
};

} // namespace troupe
