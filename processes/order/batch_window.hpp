/// Flow control of the batches that one side of a connection to an order_server sends.
#pragma once

#include <troupe/processes/order/codec/batch_header.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>

namespace troupe {

/// Sends batches in order while few enough bytes are unacknowledged, and keeps later ones until the other side has
/// acknowledged earlier ones (batch_header::seen). Rings and control connections end when too many bytes wait in them,
/// so without this limit many long messages at one time would end the connection, and with it the epoch.
///
/// A batch is sent in any case if all earlier ones are acknowledged, or all but one short one: the other side may wait
/// with its acknowledgement (longest_unseen_batch_bytes). The count of unacknowledged bytes is an upper bound. It is
/// exact if at most the last batch is unacknowledged. Threads: one at a time.
class batch_window {
public:
  static constexpr std::size_t most_unseen_bytes = std::size_t{4} << 20U;

  /// \p send: passes a batch to the connection.
  explicit batch_window(std::function<void(std::string)> send) : send_{std::move(send)} {}

  /// Sends the next batch, or keeps it. Returns whether batches are kept.
  bool send(std::string batch) {
    if (waiting_.empty() && has_room(batch.size()))
      pass(std::move(batch));
    else
      waiting_.push_back(std::move(batch));
    return is_waiting();
  }
  /// Notes that the other side has received the batches up to number \p seen, and sends what it has room for now.
  /// Returns whether batches are still kept.
  bool acknowledge(std::uint64_t seen) {
    if (seen < mark_ && seen + 1 < sent_) return is_waiting();
    unseen_bytes_ = seen >= sent_ ? 0 : seen + 1 == sent_ ? last_bytes_ : later_bytes_;
    later_bytes_ = 0;
    mark_ = sent_;
    while (!waiting_.empty() && has_room(waiting_.front().size())) {
      std::string next = std::move(waiting_.front());
      waiting_.pop_front();
      pass(std::move(next));
    }
    return is_waiting();
  }
  [[nodiscard]] bool is_waiting() const noexcept { return !waiting_.empty(); }

private:
  [[nodiscard]] bool has_room(std::size_t size_bytes) const noexcept {
    const std::size_t unseen = unseen_bytes_ + later_bytes_;
    return unseen <= longest_unseen_batch_bytes || unseen + size_bytes <= most_unseen_bytes;
  }
  void pass(std::string batch) {
    ++sent_;
    last_bytes_ = batch.size();
    later_bytes_ += last_bytes_;
    send_(std::move(batch));
  }

  const std::function<void(std::string)> send_;
  std::deque<std::string> waiting_;
  std::uint64_t sent_ = 0; ///< Number of batches passed to the connection.
  // Counters in place of the size of each batch, so that nothing is allocated for a batch that is sent.
  std::uint64_t mark_ = 0;       ///< The number of a sent batch.
  std::size_t unseen_bytes_ = 0; ///< Bytes of batches up to mark_, until that one is acknowledged.
  std::size_t later_bytes_ = 0;  ///< Bytes of the batches after it.
  std::size_t last_bytes_ = 0;   ///< Bytes of the batch that was sent last.
};

} // namespace troupe
