#include <troupe/processes/mock/process_pump.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/topology/thread_binding.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>

namespace troupe {

namespace {

using namespace std::chrono_literals;

// Limits of one sleep. A peer that writes wakes the pump. A peer that ends does not, and a peer that reads does so only
// after long messages.
constexpr nanoseconds longest_idle = 100ms;
constexpr nanoseconds longest_pending = 20ms;
constexpr nanoseconds longest_blocked = 1ms;

nanoseconds longest_park(process_pump::client::state state) {
  switch (state) {
    case process_pump::client::state::idle: return longest_idle;
    case process_pump::client::state::pending: return longest_pending;
    case process_pump::client::state::blocked: return longest_blocked;
    case process_pump::client::state::busy: break;
  }
  return nanoseconds{0};
}

ring_identity identity_of_bell(const ring_session& session) {
  return {.purpose = ring_purpose::process_bell, .session = session};
}

} // namespace

std::shared_ptr<process_pump> process_pump::of_this_process() {
  static std::mutex guard;
  static std::weak_ptr<process_pump> last;
  const std::lock_guard lock{guard};
  auto found = last.lock();
  if (!found || found->owner_ != ::getpid()) last = found = std::make_shared<process_pump>();
  return found;
}

process_pump::process_pump()
  : owner_{::getpid()},
    session_{ring_session::make()},
    bell_{shared_doorbell::create(identity_of_bell(session_))},
    thread_{[this] {
      name_this_thread("troupe/peers");
      run();
    }} {}

process_pump::~process_pump() {
  is_stopping_ = true;
  kick();
  thread_.join();
}

std::shared_ptr<peer_endpoint> process_pump::peer(pid_t id, int bell, const ring_session& session) {
  const std::lock_guard lock{peers_guard_};
  std::erase_if(peers_, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<peer_endpoint>& entry = peers_[{id, session.words[0]}];
  auto found = entry.lock();
  if (found) return found;
  peer_process process{id};
  const std::string path = "/proc/" + std::to_string(id) + "/fd/" + std::to_string(bell);
  file_descriptor opened{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
  if (!opened && errno == ENOENT)
    throw exception{errc::rank_lost, "process " + std::to_string(id) +
                                         (process.has_ended() ? " has ended" : " has closed its doorbell")};
  if (!opened)
    throw_memory_failure("open", "the doorbell of process " + std::to_string(id) +
                                     " could not be opened: if no descriptor is left, raise the limit (ulimit -n)");
  shared_doorbell opened_bell = shared_doorbell::open(std::move(opened), identity_of_bell(session),
                                                      "the doorbell of process " + std::to_string(id));
  opened_bell.memory().close_descriptor();
  entry = found = std::make_shared<peer_endpoint>(peer_endpoint{std::move(process), std::move(opened_bell)});
  return found;
}

void process_pump::add(client& one) {
  {
    const std::lock_guard lock{clients_guard_};
    clients_.push_back(&one);
  }
  kick();
}

void process_pump::remove(client& one) noexcept {
  const std::lock_guard lock{clients_guard_};
  std::erase(clients_, &one);
}

void process_pump::kick() noexcept {
  is_kicked_ = true;
  bell_.caller().ring();
}

void process_pump::run() {
  const auto has_news = [this] {
    if (is_kicked_) return true;
    const std::lock_guard lock{clients_guard_};
    return std::ranges::any_of(clients_, [](client* one) { return one->has_news(); });
  };
  while (!is_stopping_) {
    is_kicked_ = false;
    client::state state = client::state::idle;
    {
      const std::lock_guard lock{clients_guard_};
      for (client* const one : clients_) state = std::max(state, one->advance());
    }
    if (state != client::state::busy && !is_stopping_) bell_.sleeper().park(has_news, longest_park(state));
  }
}

} // namespace troupe
