// Connections between an order service and ranks, both in the test's process unless it forks.
#pragma once

#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/order/order_service.hpp>
#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>

#include <catch2/catch_test_macros.hpp>

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

/// A pair of connected Unix sockets: the service's and the rank's.
struct ring_sockets {
  file_descriptor service;
  file_descriptor rank;

  ring_sockets() {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    service = file_descriptor{ends[0]};
    rank = file_descriptor{ends[1]};
  }
};

inline std::chrono::steady_clock::time_point handover_limit() {
  return std::chrono::steady_clock::now() + std::chrono::seconds{10};
}

/// The two sides of one connection.
struct ring_pair {
  ring_connection service;
  ring_connection rank;
};

inline ring_pair connect_rank(troupe::rank self, const std::shared_ptr<shared_doorbell>& bell,
                              const ring_settings& settings = {}, peer_process of_rank = {},
                              peer_process of_service = {}) {
  const ring_sockets sockets;
  const ring_session session = ring_session::make();
  auto service = ring_connection::offer(sockets.service, session, self, std::move(of_rank), bell, settings);
  auto joined = ring_connection::accept(sockets.rank, session, self, std::move(of_service), handover_limit(), settings);
  return {std::move(service), std::move(joined)};
}

/// Rings whose decisions the test can forge.
struct forgeable_rings {
  ring_connection service;
  shared_ring decisions;

  /// Makes the next read of decisions fail.
  void forge() { decisions.memory().words()[ring_layout::first_data] = 77; }
};

/// Offers rings to whoever accepts from the other end of \p socket.
inline forgeable_rings offer_forgeable(const file_descriptor& socket, const ring_session& session, troupe::rank self,
                                       const std::shared_ptr<shared_doorbell>& bell) {
  constexpr std::size_t capacity_bytes = 256;
  const ring_sockets between;
  auto service = ring_connection::offer(between.service, session, self, {}, bell, {.capacity_bytes = capacity_bytes});
  auto passed = receive_descriptors(between.rank, 40, 4, handover_limit());
  std::vector<int> all;
  for (const auto& one : passed.descriptors) all.push_back(one.native());
  send_descriptors(socket, passed.bytes, all);
  return {std::move(service), shared_ring::open(std::move(passed.descriptors[1]),
                                                {ring_purpose::decisions, session, self}, capacity_bytes, "the ring")};
}

/// What a rank's process does: asks in batches, and reads what was decided.
class ring_client {
public:
  ring_client(ring_connection link, epoch of, int world_size) : link_{std::move(link)}, epoch_{of}, in_{world_size} {}

  /// Asks for an operation, in a batch of its own.
  error ask(const operation& what, nanoseconds deadline = std::chrono::seconds{30}, lane where = {}) {
    if (error why = out_.ask(what, where, 1, {}, deadline)) return why;
    ++asked_;
    return send();
  }
  error send() { return link_.send(out_.take({.epoch = epoch_, .number = ++sent_}), steady_now()); }
  request_writer& writer() { return out_; }
  ring_connection& link() { return link_; }

  /// Reads all that has come.
  void read() {
    static_cast<void>(link_.flush(steady_now()));
    while (link_.receive(message_)) {
      wire_reader in{message_};
      const batch_header header = batch_header::read(in);
      is_wrong_ = is_wrong_ || header.epoch != epoch_ || header.number != ++received_ || header.seen > sent_;
      for (decision_record one; in_.next(in, one);) {
        if (one.kind == decision_record::form::release) released.push_back(one.number);
        if (one.kind == decision_record::form::refusal) refused.emplace_back(one.number, one.why);
      }
      is_wrong_ = is_wrong_ || !in.ok();
    }
  }
  /// Waits until this many requests are decided. Returns whether they were before \p until.
  bool await(std::size_t count, const wait_profile& profile, time_point until) {
    for (read(); released.size() + refused.size() < count; read())
      if (!link_.wait(profile, until) || link_.failure()) return false;
    return true;
  }
  [[nodiscard]] bool is_wrong() const noexcept { return is_wrong_; }
  [[nodiscard]] std::size_t asked() const noexcept { return asked_; }

  std::vector<std::uint64_t> released{};
  std::vector<std::pair<std::uint64_t, error>> refused{};

private:
  ring_connection link_;
  epoch epoch_;
  request_writer out_{};
  decision_reader in_;
  std::string message_{};
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  std::size_t asked_ = 0;
  bool is_wrong_ = false;
};

} // namespace troupe::tests
