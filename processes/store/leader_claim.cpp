#include <troupe/processes/store/leader_claim.hpp>

#include <troupe/processes/control/controller_terms.hpp>

#include <utility>

namespace troupe {

std::unique_ptr<leader_claim> leader_claim::campaign(std::shared_ptr<controller_store> store, const std::string& leader,
                                                     nanoseconds length, boot_time now) {
  auto claim = store->campaign(leader, length);
  if (!claim) return nullptr;
  return std::unique_ptr<leader_claim>{new leader_claim{std::move(store), *std::move(claim), now}};
}

leader_claim::leader_claim(std::shared_ptr<controller_store> store, store_claim claim, boot_time asked)
  : store_{std::move(store)}, claim_{std::move(claim)} {
  note(asked);
}

void leader_claim::note(boot_time asked) noexcept {
  valid_until_.store(asked + claim_.length - lease_bound(claim_.length), std::memory_order_release);
}

void leader_claim::renew(boot_time now) noexcept {
  try {
    if (store_->renew(claim_))
      note(now);
    else
      is_lost_ = true;
    failure_ = {};
  } catch (...) {
    failure_ = current_error();
  }
}

bool leader_claim::decide(const std::string& record) noexcept {
  try {
    const bool is_written = store_->decide(claim_, record);
    if (!is_written) is_lost_ = true;
    failure_ = {};
    return is_written;
  } catch (...) {
    failure_ = current_error();
    return false;
  }
}

void leader_claim::resign() noexcept {
  try {
    store_->resign(claim_);
  } catch (...) { // the claim ends by itself
    failure_ = current_error();
  }
  is_lost_ = true;
}

} // namespace troupe
