#include <troupe/actors/guard/guard_dialer.hpp>

#include <troupe/actors/guard/guard_loop.hpp>
#include <troupe/actors/guard/guard_start.hpp>
#include <troupe/actors/guard/outgoing_connection.hpp>
#include <troupe/device/error.hpp>

#include <mutex>
#include <optional>

namespace troupe {

struct guard_dialer::parts {
  explicit parts(guard_dialer_options& options)
    : terms{options.mode, options.limits, options.credentials.token, options.credentials.expected_peer} {}

  /// Remembers failures, then tells the owner.
  void note(const guard_event& event, const guard_event_sink& owner) {
    if (event.kind != guard_event_kind::warning && event.kind != guard_event_kind::ended) {
      const std::scoped_lock lock{guard};
      last_error = event.kind == guard_event_kind::admitted ? std::string{} : event.text;
    }
    if (owner) owner(event);
  }

  guard_terms terms;
  guard_destination to;
  std::uint16_t port = 0;
  std::mutex guard;
  std::string last_error;
  std::optional<guard_loop> loop;
};

guard_dialer::guard_dialer(guard_dialer_options options) {
  require_sensible(options.limits);
  if (options.port == 0) throw exception{errc::invalid_argument, "port 0 of '" + options.host + "' cannot be dialed"};
  std::vector<guard_address> addresses = resolve_guard_address(options.host, options.port);
  require_protected(options.mode, options.host, addresses);
  parts_ = std::make_unique<parts>(options);
  parts_->to = {host_and_port(options.host, options.port), std::move(addresses)};
  guard_terms& terms = parts_->terms;
  terms.on_event = [all = parts_.get(), owner = std::move(options.on_event)](const guard_event& event) {
    all->note(event, owner);
  };
  arm(terms, guard_side::dialer, options.credentials);

  guard_socket listening = listen_at(guard_address::loopback(0));
  parts_->port = guard_address::of_socket(listening.descriptor()).port();
  parts_->loop.emplace(terms, std::move(listening),
                       [&terms, &to = parts_->to](guard_socket socket, const guard_address&, time_point now) {
                         return std::make_unique<outgoing_connection>(terms, std::move(socket), to, now);
                       });
}

guard_dialer::~guard_dialer() = default;

std::uint16_t guard_dialer::port() const noexcept {
  return parts_->port;
}

std::string guard_dialer::last_error() const {
  const std::scoped_lock lock{parts_->guard};
  return parts_->last_error;
}

void guard_dialer::stop() noexcept {
  parts_->loop->stop();
}

} // namespace troupe
