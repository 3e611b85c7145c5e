/// Encodes the controller's decisions for a rank's process: which requests are launched next, and which are refused.
///
/// Requests are identified by a number that both sides count, from 1. A release that follows the previous one takes one
/// byte, and a few more if its client did not give its position in the lane.
#pragma once

#include <troupe/collectives/order/world_order.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/collectives/progress/told_commits.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/processes/order/codec/batch_header.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One decision.
struct decision_record {
  /// Kind of the decision. The values are part of the encoding.
  enum class form : std::uint8_t {
    release,
    refusal,
    turn,    ///< The rank's `number`-th turn in `world` is granted, or refused if `why` is set.
    capture, ///< The rank may continue in a capture, because its peers have launched the same; or it has failed.
    closed,  ///< Nothing more is decided in `world`, which the rank has left.
    message, ///< From another process of `world`.
    ending,  ///< The order is closed because of `why`: the refusals that follow are due to it.
  };

  form kind = form::release;
  std::uint64_t world = 0;  ///< For all but a release or a refusal.
  std::uint64_t number = 0; ///< The number of the request (release, refusal) or turn; the place of a capture.
  std::optional<std::uint64_t> position{}; ///< For a release: the position, if the client gave none.
  bool joins = false;                      ///< For a release: it is launched together with the previous one.
  /// For a release of an agree: its value. The releases of all ranks have the same.
  std::shared_ptr<const agreed_value> value{};
  error why{}; ///< For a refusal, also of a turn or a capture, and the end: the reason.
  /// For a refusal: the report. Requests that are refused for one reason share it.
  std::shared_ptr<absence_report> absence{};
  std::size_t agreed = 0;             ///< For a capture: the number of collectives to launch.
  std::vector<opened_world> opened{}; ///< For a turn: the worlds of the rank that a split opens there.
  process_address from{};             ///< For a message.
  std::string message{};              ///< For a message.
  bool absence_is_new = false;        ///< No earlier record of this reader has the same report.
};

/// Writes the decisions for one rank in one epoch.
class decision_writer {
public:
  explicit decision_writer(troupe::epoch of) noexcept : epoch_{of} {}

  /// \p joins: the request is launched together with the previous release. The caller ensures that take() returns both
  /// in one batch. \p value: of an agree, written by agreed_field(); else empty.
  void release(std::uint64_t number, const std::optional<std::uint64_t>& position, bool joins = false,
               std::string_view value = {});
  void refuse(std::uint64_t number, const error& why, const std::shared_ptr<absence_report>& absence);
  /// Adds a record of another form. Returns whether a new batch begins with it. If so, later releases cannot join
  /// earlier ones.
  bool add(const decision_record& one);
  /// Records that the rank's batch \p number, of \p size_bytes, was read. The next batch acknowledges it. That one is
  /// sent even without decisions if the rank may be waiting for it (most_unseen_batches).
  void has_seen(std::uint64_t number, std::size_t size_bytes) noexcept {
    seen_ = number;
    must_send_ = must_send_ || number >= sent_seen_ + most_unseen_batches || size_bytes > longest_unseen_batch_bytes;
  }
  /// Ensures that all batches that were read are acknowledged by the next take(), even if there are no decisions.
  void acknowledge() noexcept { must_send_ = must_send_ || seen_ != sent_seen_; }
  /// Ensures that take() returns another batch, even if there are no decisions.
  void mark() noexcept { must_send_ = true; }
  /// Says that the controller's decisions are passed on, of which there are none yet.
  void passes_on() noexcept { passed_on_ = 0; }
  /// Records that the decisions so far contain batch \p number of the controller (batch_header::controller_batch). The
  /// next batch names this number, and is sent even without decisions.
  void has_passed_on(std::uint64_t number) noexcept {
    passed_on_ = number;
    must_send_ = true;
  }
  [[nodiscard]] bool empty() const noexcept { return out_.empty() && !must_send_; }
  /// Replaces \p into by the next batch. Returns false, and leaves \p into as it is, if it is empty.
  [[nodiscard]] bool take(std::string& into);
  /// As above. Returns the batch; empty if there is nothing to send.
  [[nodiscard]] std::string take() {
    std::string batch;
    return take(batch) ? batch : std::string{};
  }
  /// Returns the size of the records that take() has not returned.
  [[nodiscard]] std::size_t waiting_bytes() const noexcept { return full_bytes_ + out_.size_bytes(); }
  /// Returns the number of batches so far, including those that take() has not returned yet.
  [[nodiscard]] std::uint64_t batches() const noexcept { return batches_ + full_.size() + (empty() ? 0 : 1); }

private:
  /// Returns whether a new batch begins.
  bool begin_record();

  troupe::epoch epoch_;
  wire_writer out_;
  std::deque<std::string> full_; ///< Finished batches, without their headers. Records follow them in out_.
  std::size_t full_bytes_ = 0;
  std::uint64_t batches_ = 0;
  std::uint64_t seen_ = 0, sent_seen_ = 0;
  std::optional<std::uint64_t> passed_on_{}; ///< Empty if there is no other order service.
  std::uint64_t sent_passed_on_ = 0;
  bool must_send_ = false;     ///< The next batch is sent even without decisions.
  std::uint64_t released_ = 0; ///< The number of the last release.
  std::shared_ptr<absence_report> reported_;
};

/// Reads what a decision_writer wrote.
class decision_reader {
public:
  /// \p world_size: the number of ranks of the whole world.
  explicit decision_reader(int world_size) noexcept : world_size_{world_size} {}

  /// Reads the next record. Returns false at the end, or if \p in has failed.
  [[nodiscard]] bool next(wire_reader& in, decision_record& into);

private:
  int world_size_;
  std::uint64_t released_ = 0;
  std::shared_ptr<absence_report> reported_;
};

} // namespace troupe
