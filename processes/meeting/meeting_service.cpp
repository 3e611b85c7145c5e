#include <troupe/processes/meeting/meeting_service.hpp>

#include <troupe/collectives/backend/one_shot/one_shot_rule.hpp>
#include <troupe/device/topology/thread_binding.hpp>
#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>
#include <troupe/processes/transport/shared_memory/local_socket.hpp>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr int pending_connections = 128;

static_assert(most_meeting_bytes <= most_passing_bytes);
static_assert(std::size_t{most_one_shot_ranks} <= most_passed_descriptors);

} // namespace

std::string meeting_address(std::uint16_t port) {
  return "troupe-meetings-" + std::to_string(port);
}

meeting_service::meeting_service(const std::string& address, const meeting_service_limits& limits)
  : limits_{limits},
    listener_{listen_locally(address, pending_connections)},
    stopping_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
    table_{limits.meetings} {
  if (!listener_ || !stopping_)
    throw_system_error(errc::unsupported, "bind",
                       "the Unix socket @" + address +
                           ", at which processes of this host exchange memory for one-shot kernels, cannot be opened");
  thread_ = worker{[this] {
    name_this_thread("troupe/meetings");
    run();
  }};
}

meeting_service::~meeting_service() {
  const std::uint64_t one = 1;
  while (::write(stopping_.native(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void meeting_service::run() {
  std::vector<pollfd> waiting;
  std::vector<meeting_table::connection> readable;
  for (;;) {
    time_point now = steady_now();
    table_.expire(now);
    send();
    const time_point due = std::min(expire(now), table_.next_due());

    waiting.clear();
    waiting.push_back({.fd = stopping_.native(), .events = POLLIN, .revents = 0});
    // Without room for one more, the kernel keeps those that connect.
    const bool has_room = clients_.size() < limits_.connections;
    waiting.push_back({.fd = has_room ? listener_.native() : -1, .events = POLLIN, .revents = 0});
    for (const auto& [number, one] : clients_)
      waiting.push_back({.fd = one.socket.native(), .events = POLLIN, .revents = 0});
    const auto left = due == time_point::max() ? -1 : std::chrono::ceil<std::chrono::milliseconds>(due - now).count();
    const auto limit = static_cast<int>(std::clamp<std::int64_t>(left, -1, 60'000));
    if (::poll(waiting.data(), waiting.size(), limit) <= 0) continue;
    if (waiting[0].revents != 0) return;

    now = steady_now();
    readable.clear();
    auto state = waiting.begin() + 2;
    for (const auto& [number, one] : clients_)
      if ((state++)->revents != 0) readable.push_back(number);
    for (const meeting_table::connection one : readable) read(one, now);
    if (waiting[1].revents != 0) accept(now);
  }
}

void meeting_service::accept(time_point now) {
  file_descriptor one = accept_locally(listener_);
  if (!one || !is_of_this_user(one)) return;
  clients_.emplace(++last_, client{std::move(one), later(now, limits_.admission)});
}

void meeting_service::read(meeting_table::connection from, time_point now) {
  const auto found = clients_.find(from);
  if (found == clients_.end()) return; // closed by a message of another rank
  try {
    passed_descriptors got = receive_passed(found->second.socket, most_meeting_bytes, most_passed_descriptors, now);
    if (!table_.receive(from, got.bytes, std::move(got.descriptors), now)) return;
  } catch (const exception&) { // it has ended, or sends what nobody expects
  }
  drop(from);
}

void meeting_service::drop(meeting_table::connection one) {
  clients_.erase(one);
  table_.lose(one);
}

void meeting_service::send() {
  // A failure breaks the meeting of its rank, which makes more messages.
  for (auto messages = table_.take_outgoing(); !messages.empty(); messages = table_.take_outgoing())
    for (const auto& one : messages) {
      const auto to = clients_.find(one.to);
      if (to == clients_.end()) continue;
      std::vector<int> natives;
      for (const auto& each : one.descriptors) natives.push_back(each->native());
      try {
        send_descriptors(to->second.socket, one.bytes, natives);
      } catch (const exception&) { // the rank has ended
        drop(one.to);
        continue;
      }
      if (one.is_last) clients_.erase(to);
    }
}

time_point meeting_service::expire(time_point now) {
  time_point first = time_point::max();
  std::erase_if(clients_, [&](const auto& one) {
    if (table_.is_present(one.first)) return false;
    if (one.second.until <= now) return true;
    first = std::min(first, one.second.until);
    return false;
  });
  return first;
}

} // namespace troupe
