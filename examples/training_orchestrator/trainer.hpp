/// One rank's trainer: an actor that enqueues steps on its GPU, and asks its rank to sum their gradients.
#pragma once

#include "messages.hpp"

#include <array>
#include <latch>
#include <memory>

namespace training {

class trainer final : public trainer_handle::base {
public:
  trainer(caf::actor_config& settings, troupe::world where, troupe::rank self, const model_shape& shape,
          std::latch* ended);
  behavior_type make_behavior() override;
  void on_exit() override;

private:
  using promise = caf::typed_response_promise<report>;
  struct saved_state {
    std::uint64_t step = 0;
    troupe::buffer memory;
  };

  void begin_steps();
  void begin_step();
  void sum(std::size_t bucket);
  void finish_steps();
  void save(const checkpoint& order);
  void restore(std::uint64_t step);
  [[nodiscard]] troupe::buffer new_checkpoint() const;
  /// Of its rank. Nothing is done with a reply once another request of the order has failed.
  template <class Answer, class Request, class Reply>
  void ask(Request what, Reply on_reply);
  void settle();

  troupe::world world_;
  troupe::rank self_;
  model_shape shape_;
  std::latch& ended_;
  std::unique_ptr<replica> replica_;
  std::vector<std::unique_ptr<replica>> retired_; ///< What an epoch that is over may still work on.
  std::array<saved_state, 2> saved_;              ///< In turn: a fault while one is written leaves the other.
  troupe::buffer error_;

  promise reply_; ///< To the order under way.
  report report_;
  train order_;
  std::uint64_t begun_ = 0;    ///< Steps of the order.
  std::size_t enqueued_ = 0;   ///< Buckets of these in their GPU's queue,
  std::size_t summed_ = 0;     ///< and done.
  std::size_t unanswered_ = 0; ///< Requests.
  bool finishing_ = false;
};

} // namespace training
