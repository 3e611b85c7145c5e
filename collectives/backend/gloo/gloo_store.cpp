#include <troupe/collectives/backend/gloo/gloo_store.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

using store_clock = std::chrono::steady_clock;

[[noreturn]] void report_lost_store(const char* call, int code) {
  throw exception{error{.code = errc::communicator_failed,
                        .text = "the formation's store does not answer: the process that made the unique id has ended, "
                                "cannot be reached, or has given the formation up. Form again with a new id",
                        .call = call,
                        .native_code = code,
                        .native_text = code == 0 ? "connection closed" : std::generic_category().message(code)}};
}

} // namespace

gloo_store::gloo_store(const gloo_door& door, std::uint32_t comers, std::string prefix)
  : door_{door}, comers_{comers}, prefix_{std::move(prefix)} {}

void gloo_store::interrupt() noexcept {
  interrupted_ = true;
  bell_.ring();
}

/// Waits until the socket is ready for \p what.
void gloo_store::await(short what, time_point until) {
  while (true) {
    if (interrupted_) throw exception{errc::communicator_failed, "the communicator was aborted"};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - store_clock::now()).count();
    if (left <= 0)
      throw exception{
          errc::deadline_exceeded,
          "other ranks did not join the formation in time: check that all are started and have the same unique id"};
    std::array looks{pollfd{.fd = socket_.number(), .events = what, .revents = 0},
                     pollfd{.fd = bell_.number(), .events = POLLIN, .revents = 0}};
    ::poll(looks.data(), looks.size(), static_cast<int>(std::min<decltype(left)>(left, 60'000)));
    if (looks[0].revents != 0 && !interrupted_) return;
  }
}

void gloo_store::send_all(const void* from, std::size_t size_bytes, time_point until) {
  const auto* next = static_cast<const std::byte*>(from);
  while (size_bytes > 0) {
    await(POLLOUT, until);
    const ssize_t count = ::send(socket_.number(), next, size_bytes, MSG_NOSIGNAL);
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) report_lost_store("send", errno);
    if (count <= 0) continue;
    next += count;
    size_bytes -= static_cast<std::size_t>(count);
  }
}

void gloo_store::receive_all(void* to, std::size_t size_bytes, time_point until) {
  auto* next = static_cast<std::byte*>(to);
  while (size_bytes > 0) {
    await(POLLIN, until);
    const ssize_t count = ::recv(socket_.number(), next, size_bytes, 0);
    if (count == 0) report_lost_store("recv", 0);
    if (count < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) report_lost_store("recv", errno);
    if (count < 0) continue;
    next += count;
    size_bytes -= static_cast<std::size_t>(count);
  }
}

void gloo_store::connect() {
  connect(store_clock::now() + gloo_wire::time_for_forming);
}

void gloo_store::connect(time_point until) {
  if (socket_) return;
  socket_ = open_file{::socket(door_.where.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)};
  if (!socket_) report_lost_store("socket", errno);
  if (::connect(socket_.number(), door_.where.get(), door_.where.size_bytes) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) report_lost_store("connect", errno);
    await(POLLOUT, until);
    int code = 0;
    socklen_t size = sizeof code;
    if (::getsockopt(socket_.number(), SOL_SOCKET, SO_ERROR, &code, &size) != 0 || code != 0)
      report_lost_store("connect", code);
  }
  const gloo_wire::hello words{
      .magic = gloo_wire::hello_magic, .secret = door_.secret, .comers = comers_, .reserved = 0};
  send_all(&words, sizeof words, until);
  expect_agreement(until);
}

void gloo_store::ask(gloo_wire::request what, const std::string& key, const std::vector<char>& value,
                     time_point until) {
  if (const auto reach = reach_.lock()) reach->connected();
  if (key.size() > gloo_wire::most_key_bytes || value.size() > gloo_wire::most_value_bytes)
    throw exception{errc::invalid_argument, "a key of " + std::to_string(key.size()) + " bytes and a value of " +
                                                std::to_string(value.size()) +
                                                " bytes exceed the limits of a formation's store (" +
                                                std::to_string(gloo_wire::most_key_bytes) + " and " +
                                                std::to_string(gloo_wire::most_value_bytes) + ")"};
  connect(until);
  const gloo_wire::heading wish{.what = what,
                                .key_bytes = static_cast<std::uint32_t>(key.size()),
                                .value_bytes = static_cast<std::uint32_t>(value.size())};
  std::vector<char> all(sizeof wish + key.size() + value.size());
  std::memcpy(all.data(), &wish, sizeof wish);
  std::ranges::copy(value, std::ranges::copy(key, all.begin() + sizeof wish).out);
  send_all(all.data(), all.size(), until);
}

void gloo_store::expect_agreement(time_point until) {
  std::byte answer{};
  receive_all(&answer, 1, until);
  if (answer != gloo_wire::agreed) report_lost_store("recv", EPROTO);
}

std::vector<char> gloo_store::fetch(const std::string& key, time_point until) {
  ask(gloo_wire::request::get, prefix_ + key, {}, until);
  std::uint32_t size = 0;
  receive_all(&size, sizeof size, until);
  if (size > gloo_wire::most_value_bytes) report_lost_store("recv", EPROTO);
  std::vector<char> value(size);
  receive_all(value.data(), value.size(), until);
  return value;
}

void gloo_store::set(const std::string& key, const std::vector<char>& data) {
  const auto until = store_clock::now() + gloo_wire::time_for_forming;
  ask(gloo_wire::request::set, prefix_ + key, data, until);
  expect_agreement(until);
}

std::vector<char> gloo_store::get(const std::string& key) {
  wait({key}, gloo_wire::time_for_forming);
  return known_.at(key);
}

void gloo_store::wait(const std::vector<std::string>& keys) {
  wait(keys, gloo_wire::time_for_forming);
}

void gloo_store::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const auto until = store_clock::now() + timeout;
  for (const std::string& key : keys)
    if (!known_.contains(key)) known_.emplace(key, fetch(key, until));
}

void gloo_store::formed() {
  const auto until = store_clock::now() + gloo_wire::time_for_forming;
  ask(gloo_wire::request::formed, {}, {}, until);
  expect_agreement(until);
  socket_ = open_file{};
}

} // namespace troupe
