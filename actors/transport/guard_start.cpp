#include <troupe/actors/transport/guard_start.hpp>

#include <troupe/actors/transport/guard_identity.hpp>
#include <troupe/device/error.hpp>

#include <algorithm>

namespace troupe {

void require_protected(guard_mode mode, const std::string& host, const std::vector<guard_address>& addresses) {
  if (mode == guard_mode::mutual_tls) return;
  if (std::all_of(addresses.begin(), addresses.end(), [](const auto& one) { return one.is_loopback(); })) return;
  throw exception{errc::invalid_argument,
                  "'" + host +
                      "' is not a loopback address, and beyond loopback a control socket needs mutual TLS: name "
                      "a CA, a certificate and a key (`troupe certs --out DIR` makes them), or use 127.0.0.1"};
}

void require_sensible(const guard_limits& limits) {
  const auto positive = [](const char* name, auto value) {
    if (value <= decltype(value){})
      throw exception{errc::invalid_argument,
                      std::string{"the limit "} + name + " of a control port's proxy must be positive"};
  };
  positive("admission", limits.admission);
  positive("connect", limits.connect);
  positive("stall", limits.stall);
  positive("closing", limits.closing);
  positive("frame_bytes", limits.frame_bytes);
  positive("connections", limits.connections);
  positive("pending", limits.pending);
  positive("reports", limits.reports);
  positive("report_window", limits.report_window);
}

void arm(guard_terms& terms, guard_side side, const guard_credentials& credentials) {
  if (terms.mode == guard_mode::plain) return;
  const guard_identity identity = read_guard_identity(side, credentials);
  terms.tls = make_tls_context(side, identity);
  for (const std::string& one : identity.warnings) terms.report(guard_event_kind::warning, {}, one);
}

} // namespace troupe
