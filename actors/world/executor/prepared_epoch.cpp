#include <troupe/actors/world/executor/prepared_epoch.hpp>

#include <troupe/actors/world/recovery/world_recovery.hpp>

#include <utility>

namespace troupe {

void prepared_epoch::prepare(const prepare_directive& directive) {
  drop();
  if (directive.of <= of_.state.current_epoch() || of_.state.event().phase == world_phase::stopping) return;
  try {
    prepared_ = create_pipeline(
        of_, world_,
        of_.plan.backend->create(directive.id, directive.self, directive.world_size, of_.plan.locals.front().where), 0,
        directive.of);
  } catch (...) {
    return of_.plan.to_controller->tell(failed_report{.of = directive.of, .why = current_error()});
  }
  is_formed_ = false;
  of_.executor.on_each({prepared_}, "the preparation", of_.plan.deadlines.form, rank_report::kind::prepared,
                       [all = spares_](rank_pipeline& one) {
                         all.give_back(one); // the device makes no streams while operations wait for their peers
                         one.init();
                       });
}

bool prepared_epoch::on_report(const rank_report& one) {
  const bool is_it = prepared_ && one.epoch == prepared_->formed_in() && one.epoch != of_.state.current_epoch();
  if (!is_it) return one.what == rank_report::kind::prepared; // of one that was dropped
  if (one.failure) {
    of_.plan.to_controller->tell(failed_report{
        .of = one.epoch, .why = one.failure, .blamed = culprits_of(one.failure, nullptr, fault_time::forming)});
    drop();
  } else if (one.what == rank_report::kind::prepared) {
    is_formed_ = true;
    of_.plan.to_controller->tell(formed_report{one.epoch});
  }
  return true;
}

std::shared_ptr<rank_pipeline> prepared_epoch::take(epoch now) {
  if (prepared_ && prepared_->formed_in() == now && is_formed_) return std::exchange(prepared_, nullptr);
  drop();
  return nullptr;
}

void prepared_epoch::drop() {
  const auto gone = std::exchange(prepared_, nullptr);
  if (!gone) return;
  gone->fail({.code = errc::rebuilding, .text = "the epoch that was prepared does not begin"});
  of_.executor.on_each({gone}, "the abort", of_.plan.deadlines.abort, rank_report::kind::prepared,
                       [all = spares_](rank_pipeline& one) {
                         one.abort();
                         all.keep(one);
                       });
}

void prepared_epoch::drop(epoch of) {
  if (prepared_ && prepared_->formed_in() == of) drop();
}

} // namespace troupe
