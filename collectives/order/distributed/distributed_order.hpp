/// One rank's way into the order of a world whose ranks live in processes of their own: what it asks goes to the
/// controller, and what comes back goes to its pipeline in the order in which it comes (ORD-1).
#pragma once

#include <troupe/collectives/order/combining_queue.hpp>
#include <troupe/collectives/order/distributed/ask_table.hpp>
#include <troupe/collectives/order/distributed/decision_codec.hpp>
#include <troupe/collectives/order/distributed/request_codec.hpp>
#include <troupe/collectives/order/rank_order.hpp>
#include <troupe/collectives/pipeline/rank_pipeline.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe {

/// The process's side of an order_keeper, for one rank in one epoch.
///
/// Requests go out in batches: the first ones at once; while two batches are on their way, what comes meanwhile is
/// collected until the controller has seen one, or there is enough of it. So a lone request waits for nothing, and a
/// stream of them costs few messages.
///
/// Lifetime: whoever calls it holds it. Its end is a close(). Threads: receive() and expire() from one at a time, the
/// rest from any.
class distributed_order final : public rank_order {
public:
  /// Gives a batch to the controller's order_keeper. Called from any thread, once at a time, in the order in which
  /// batches must arrive. It neither blocks nor throws, nor calls back in here but for close().
  using sender = std::function<void(std::string)>;

  distributed_order(std::shared_ptr<rank_pipeline> pipeline, epoch formed_in, std::shared_ptr<const clock> time,
                    sender send);
  ~distributed_order() override;

  /// Refused here: what is too long to be told (invalid_argument), and whatever comes after close().
  void ask(rank self, lane_request asked) override;
  void cancel(rank self, lane where, std::uint64_t position) override;
  void withdraw(rank self, std::uint64_t client, error why) override;
  /// What failed here may have been done by others, who are not asked whether they may do it again.
  [[nodiscard]] bool can_retry() const noexcept override { return false; }

  /// A place in the order that all ranks ask for, the k-th of each being one: \p work runs here when all have asked,
  /// in receive(), behind what has been released before and before what is later. Dropped where close() comes first.
  void turn(std::function<void()> work);

  /// Does what the controller has decided. Errors: internal (bytes that cannot be read, or that decide what has not
  /// been asked): the order is lost, and the world must fail. A batch of an older epoch is dropped.
  [[nodiscard]] error receive(std::string_view batch);

  /// Answers what has waited for longer than its deadline and a second, since the controller, which does so at the
  /// deadline, is silent. It keeps its place: if it is released in the end, it is launched (ORD-1).
  void expire(time_point now);

  /// Answers what has not been released with \p why, rejected, and so what comes later; sends nothing any more, but for
  /// a batch that another thread is sending. Only the first call counts.
  void close(error why);

  /// Requests that have not been decided.
  [[nodiscard]] std::size_t waiting() const;
  /// Batches that have been sent.
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_.load(std::memory_order_relaxed); }

private:
  class asking;
  struct asking_terms;
  struct refused_call {
    std::shared_ptr<pipeline_call> call;
    error why;
  };
  /// What is next here: a launch, an answer, or the work of a turn.
  using step = std::variant<std::shared_ptr<pipeline_call>, refused_call, std::function<void()>>;

  void take(const asking_terms& terms, std::shared_ptr<pipeline_call> call);
  void end_round() noexcept;
  [[nodiscard]] bool may_send() const noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return is_closed_.load(std::memory_order_acquire); }
  [[nodiscard]] error decide(decision_record& one);
  void follow(step& next);

  const std::shared_ptr<rank_pipeline> pipeline_;
  const epoch epoch_;
  const std::shared_ptr<const clock> time_;
  const sender send_;

  // Touched in turns alone, but for the atomics.
  request_writer out_;
  alignas(64) std::atomic<std::uint64_t> sent_{0};
  std::atomic<bool> holds_back_{false}; ///< Something waits until the controller has seen more.

  // receive()'s own, but for the atomic.
  alignas(64) std::atomic<std::uint64_t> seen_{0}; ///< Batches that the controller has seen.
  std::uint64_t received_ = 0;
  decision_reader in_;
  std::vector<step> steps_; ///< Kept for its memory.

  mutable std::mutex guard_;
  ask_table asks_;
  std::deque<std::function<void()>> turns_asked_;
  time_point due_ = time_point::max(); ///< Nobody gives up before.
  error closed_;
  std::atomic<bool> is_closed_{false}; ///< The same, to be looked at without the lock.

  combining_queue queue_; ///< Last: what it runs uses all of the above.
};

} // namespace troupe
