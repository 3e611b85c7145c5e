#include <troupe/actors/world/executor/order_hand_over.hpp>

#include <troupe/actors/world/world_notes.hpp>
#include <troupe/collectives/operation/validation.hpp>

namespace troupe {

void order_hand_over::refuse(const error& why) {
  if (const auto held = take()) static_cast<void>(held->close(why));
}

void order_hand_over::begin(const std::shared_ptr<world_order>& from, const error& why) {
  const auto& one = of_.now.pipelines.front();
  from->hand_over(
      of_.now.order, one->self(),
      [one](const operation& what) {
        const rank_context at = one->context();
        error objection = validate(what, at);
        return objection ? objection : check_transfers_to_self({&what, 1}, at.self);
      },
      why,
      [mail = of_.mail, self = one->self(), of = of_.state.current_epoch()] {
        mail->post(rank_report{rank_report::kind::handed_over, self, of, {}});
      });
  ++under_way_;
  if (!entrance_) entrance_ = from;
}

bool order_hand_over::on_end() {
  if (--under_way_ > 0) return false;
  entrance_ = nullptr;
  return true;
}

} // namespace troupe
