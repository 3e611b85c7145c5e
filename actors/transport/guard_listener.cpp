#include <troupe/actors/transport/guard_listener.hpp>

#include <troupe/actors/transport/guard_loop.hpp>
#include <troupe/actors/transport/guard_start.hpp>
#include <troupe/actors/transport/incoming_connection.hpp>
#include <troupe/device/error.hpp>

#include <optional>

namespace troupe {

struct guard_listener::parts {
  explicit parts(guard_listener_options& options)
    : terms{options.mode, options.limits, options.credentials.token, options.credentials.expected_peer} {}

  guard_terms terms;
  guard_address where;
  std::string where_text;
  std::optional<guard_loop> loop;
};

guard_listener::guard_listener(guard_listener_options options) {
  require_sensible(options.limits);
  if (!options.connect_inside)
    throw exception{errc::invalid_argument,
                    "a TLS proxy needs a way to connect to its control port: set connect_inside"};
  const std::vector<guard_address> addresses = resolve_guard_address(options.address, options.port);
  require_protected(options.mode, options.address, addresses);
  parts_ = std::make_unique<parts>(options);
  guard_terms& terms = parts_->terms;
  terms.on_event = std::move(options.on_event);
  terms.connect_inside = std::move(options.connect_inside);
  arm(terms, guard_side::listener, options.credentials);

  guard_socket listening = listen_at(addresses.front());
  parts_->where = guard_address::of_socket(listening.descriptor());
  parts_->where_text = parts_->where.text();
  parts_->loop.emplace(terms, std::move(listening),
                       [&terms](guard_socket socket, const guard_address& peer, time_point now) {
                         return std::make_unique<incoming_connection>(terms, std::move(socket), peer, now);
                       });
}

guard_listener::~guard_listener() = default;

std::uint16_t guard_listener::port() const noexcept {
  return parts_->where.port();
}

const std::string& guard_listener::address() const noexcept {
  return parts_->where_text;
}

void guard_listener::stop() noexcept {
  parts_->loop->stop();
}

} // namespace troupe
