#include <troupe/collectives/backend/gloo/gloo_network.hpp>

#include <gloo/transport/tcp/device.h>

#include <csignal>
#include <exception>
#include <utility>

namespace troupe {

namespace {

/// Blocks SIGPIPE while it lives. Threads started meanwhile inherit the mask: a failed write to the socket of a lost
/// peer must not end the process.
class broken_pipes_blocked {
public:
  broken_pipes_blocked() noexcept {
    sigset_t set;
    ::sigemptyset(&set);
    ::sigaddset(&set, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  broken_pipes_blocked(const broken_pipes_blocked&) = delete;
  broken_pipes_blocked& operator=(const broken_pipes_blocked&) = delete;
  ~broken_pipes_blocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

private:
  sigset_t before_;
};

} // namespace

gloo_network::gloo_network(gloo_options options)
  : options_{std::move(options)}, stores_{parse_socket_address(options_.interface_address)} {}

std::shared_ptr<gloo::transport::Device> gloo_network::transport() {
  const std::lock_guard lock{guard_};
  auto found = transport_.lock();
  if (found) return found;
  const broken_pipes_blocked blocked;
  try {
    transport_ = found = gloo::transport::tcp::CreateDevice(options_.interface_address.c_str());
  } catch (const std::exception& refused) { // from Gloo
    throw exception{error{.code = errc::invalid_argument,
                          .text = "Gloo cannot use the address " + options_.interface_address +
                                  ": name one of this machine's (gloo.interface_address)",
                          .call = "gloo::transport::tcp::CreateDevice",
                          .native_text = refused.what()}};
  }
  return found;
}

} // namespace troupe
