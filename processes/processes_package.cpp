#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/processes/mock/process_rendezvous.hpp>
#include <troupe/runtime/packages.hpp>

#include <memory>

namespace troupe {

namespace {

std::shared_ptr<membership> join(const membership_terms& terms) {
  return std::make_shared<controlled_membership>(
      describe_process(terms.settings, *terms.selected.api, *terms.selected.collectives, terms.where), terms.settings,
      terms.helpers, terms.selected, terms.time, terms.wait);
}

} // namespace

} // namespace troupe

const troupe::processes_package* troupe_processes_package() noexcept {
  static constexpr troupe::processes_package package{.join = troupe::join,
                                                     .connect_mocks = troupe::connect_over_processes};
  return &package;
}
