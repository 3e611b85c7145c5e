#include <troupe/processes/meeting/meeting_service.hpp>
#include <troupe/processes/meeting/process_meetings.hpp>
#include <troupe/processes/membership/controlled_membership.hpp>
#include <troupe/processes/mock/process_rendezvous.hpp>
#include <troupe/processes/transport/shared_memory/local_socket.hpp>
#include <troupe/runtime/packages.hpp>

#include <memory>

namespace troupe {

namespace {

std::shared_ptr<membership> join(const membership_terms& terms) {
  return std::make_shared<controlled_membership>(
      describe_process(terms.settings, *terms.selected.api, *terms.selected.collectives, terms.where), terms);
}

std::shared_ptr<one_shot_meeting_place> make_meetings(const configuration& settings) {
  if (settings.control.address.empty()) return std::make_shared<process_meetings>([] { return file_descriptor{}; });
  return std::make_shared<process_meetings>(
      [address = meeting_address(gate_port(settings.control))] { return connect_locally(address); });
}

} // namespace

} // namespace troupe

const troupe::processes_package* troupe_processes_package() noexcept {
  static constexpr troupe::processes_package package{
      .join = troupe::join, .connect_mocks = troupe::connect_over_processes, .make_meetings = troupe::make_meetings};
  return &package;
}
