#include <troupe/actors/transport/guard_dialer.hpp>

#include <troupe/actors/transport/guard_loop.hpp>
#include <troupe/actors/transport/guard_start.hpp>
#include <troupe/actors/transport/outgoing_connection.hpp>
#include <troupe/device/error.hpp>

#include <mutex>
#include <optional>

namespace troupe {

struct guard_dialer::parts {
  explicit parts(guard_dialer_options& options)
    : terms{options.mode, options.limits, options.credentials.token, options.credentials.expected_peer} {}

  /// Stores failures, then reports the event to the owner.
  void note(const guard_event& event, const guard_event_sink& owner) {
    if (event.kind != guard_event_kind::warning && event.kind != guard_event_kind::ended) {
      const std::scoped_lock lock{guard};
      last_failure = {event.kind, event.kind == guard_event_kind::admitted ? std::string{} : event.text};
    }
    if (owner) owner(event);
  }

  guard_terms terms;
  guard_destination to;
  std::mutex guard;
  guard_fault last_failure;
  std::optional<guard_loop> loop;
};

guard_dialer::guard_dialer(guard_dialer_options options) {
  require_sensible(options.limits);
  if (options.port == 0)
    throw exception{errc::invalid_argument,
                    "port 0 of '" + options.host + "' is not a port to connect to: give the controller's port"};
  std::vector<guard_address> addresses = resolve_guard_address(options.host, options.port);
  require_protected(options.mode, options.host, addresses);
  parts_ = std::make_unique<parts>(options);
  parts_->to = {host_and_port(options.host, options.port), std::move(addresses)};
  guard_terms& terms = parts_->terms;
  terms.on_event = [all = parts_.get(), owner = std::move(options.on_event)](const guard_event& event) {
    all->note(event, owner);
  };
  arm(terms, guard_side::dialer, options.credentials);

  parts_->loop.emplace(terms, guard_socket{},
                       [&terms, &to = parts_->to](guard_socket socket, const guard_address&, time_point now) {
                         return std::make_unique<outgoing_connection>(terms, std::move(socket), to, now);
                       });
}

guard_dialer::~guard_dialer() = default;

guard_socket guard_dialer::connect() {
  auto [ours, theirs] = connected_sockets();
  parts_->loop->adopt(std::move(ours));
  return std::move(theirs);
}

guard_fault guard_dialer::last_failure() const {
  const std::scoped_lock lock{parts_->guard};
  return parts_->last_failure;
}

void guard_dialer::stop() noexcept {
  parts_->loop->stop();
}

} // namespace troupe
