#include <troupe/processes/store/memory_store.hpp>

#include <troupe/device/error.hpp>

namespace troupe {

void memory_store_state::cut(bool is_cut) {
  const std::lock_guard lock{mutex_};
  is_cut_ = is_cut;
}

store_view memory_store_state::view() {
  const std::lock_guard lock{mutex_};
  return {.leader = elected_ != 0 && now_() < ends_ ? std::optional{leader_} : std::nullopt, .record = record_};
}

std::size_t memory_store_state::decisions() {
  const std::lock_guard lock{mutex_};
  return decisions_;
}

void memory_store_state::require_reachable() const {
  if (is_cut_) throw exception{errc::missing, "the store does not answer"};
}

bool memory_store_state::holds(const store_claim& claim) const {
  return elected_ != 0 && claim.revision == elected_ && now_() < ends_;
}

std::optional<store_claim> memory_store::campaign(const std::string& leader, nanoseconds length) {
  const std::lock_guard lock{shared_->mutex_};
  shared_->require_reachable();
  const boot_time now = shared_->now_();
  if (shared_->elected_ != 0 && now < shared_->ends_ && shared_->leader_ != leader) return std::nullopt;
  shared_->elected_ = ++shared_->revision_;
  shared_->leader_ = leader;
  shared_->length_ = length;
  shared_->ends_ = now + length;
  return store_claim{.revision = shared_->elected_, .length = length, .record = shared_->record_};
}

bool memory_store::renew(const store_claim& claim) {
  const std::lock_guard lock{shared_->mutex_};
  shared_->require_reachable();
  if (!shared_->holds(claim)) return false;
  shared_->ends_ = shared_->now_() + shared_->length_;
  return true;
}

bool memory_store::decide(const store_claim& claim, const std::string& record) {
  const std::lock_guard lock{shared_->mutex_};
  shared_->require_reachable();
  if (!shared_->holds(claim)) return false;
  shared_->record_ = record;
  ++shared_->decisions_;
  return true;
}

store_view memory_store::observe() {
  {
    const std::lock_guard lock{shared_->mutex_};
    shared_->require_reachable();
  }
  return shared_->view();
}

void memory_store::resign(const store_claim& claim) {
  const std::lock_guard lock{shared_->mutex_};
  shared_->require_reachable();
  if (shared_->holds(claim)) shared_->elected_ = 0;
}

} // namespace troupe
