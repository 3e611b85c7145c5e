// A controller without CAF: what it does with the frames of processes and of order services of other hosts.
#include <troupe/actors/control/control_codec.hpp>
#include <troupe/actors/control/control_server.hpp>
#include <troupe/collectives/order/distributed/codec/request_codec.hpp>

#include <catch2/catch_test_macros.hpp>

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace troupe::tests::control_server_test {

namespace {

/// A controller of a world of two processes, whose connections are the test.
struct server_scene {
  server_scene()
    : server{{.world_size = 2},
             {},
             nullptr,
             {.send =
                  [this](peer_id to, const std::string& bytes) {
                    error why;
                    auto frame = decode_controller_frame(bytes, why);
                    REQUIRE(frame);
                    sent.emplace_back(to, *std::move(frame));
                  },
              .refused = [this](const error& why) { refused.push_back(why); },
              .batch_added = [this](rank self, epoch) { added.push_back(self); },
              .order_closed = [this](epoch of) { closed.push_back(of); }},
             {.draw_session = [this] { return ++last_session; }, .wall_clock = [] { return std::int64_t{0}; }}} {}

  void hear(peer_id from, session_id session, process_message what) {
    server.hear(from, encode(process_frame{session, std::move(what)}));
  }
  /// A process joins. Returns its session.
  session_id join(peer_id from, int place, std::optional<ring_session> nonce = {}) {
    const std::string name = std::to_string(place);
    hear(from, 0,
         join_request{.who = {.name = name, .host = "h" + name, .pid = place + 1}, .place = place, .nonce = nonce});
    return last_session;
  }
  template <class Message>
  [[nodiscard]] std::vector<Message> told(peer_id to) const {
    std::vector<Message> found;
    for (const auto& [receiver, frame] : sent)
      if (const auto* what = std::get_if<Message>(&frame.what); what && receiver == to) found.push_back(*what);
    return found;
  }

  std::vector<std::pair<peer_id, controller_frame>> sent{};
  std::vector<error> refused{};
  std::vector<rank> added{};
  std::vector<epoch> closed{};
  session_id last_session = 100;
  control_server server;
};

constexpr peer_id first{1};
constexpr peer_id second{2};
constexpr peer_id service{3};

} // namespace

TEST_CASE("bytes that are no message, and messages of no session, change nothing (SEC-2)", "[control]") {
  server_scene at;
  at.server.hear(first, "no frame");
  CHECK(at.refused.size() == 1);
  at.hear(first, 7, leave_notice{});
  at.hear(first, 7, serving_report{.of = epoch{1}});
  at.server.lose(first);
  CHECK(at.sent.empty());
  CHECK(at.server.state().event().phase == control_phase::gathering);
}

TEST_CASE("batches of requests are added to the order of their epoch, and one that cannot be read ends it",
          "[control]") {
  server_scene at;
  const session_id one = at.join(first, 0);
  const session_id other = at.join(second, 1);
  at.hear(first, one, commits_report{.of = epoch{1}});
  at.hear(second, other, commits_report{.of = epoch{1}});
  at.hear(first, one, id_offer{epoch{1}, {}});
  REQUIRE(at.told<formation_order>(second).size() == 1);
  const auto batch = [](epoch of) { return order_batch{of, request_writer{}.take({.epoch = of, .number = 1})}; };
  at.hear(second, other, batch(epoch{1}));
  CHECK(at.added == std::vector{rank{1}});
  at.hear(first, one, batch(epoch{2})); // no such epoch
  at.hear(first, 7, batch(epoch{1}));   // no such process
  CHECK(at.added.size() == 1);
  CHECK(at.closed.empty());

  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  at.hear(first, one, order_batch{epoch{1}, "no batch"});
  CHECK(at.added.size() == 1);
  CHECK(at.closed == std::vector{epoch{1}});
  CHECK(at.told<failure_order>(second).size() == 1);
}

TEST_CASE("orders to form wait until the order services of other hosts have answered", "[control]") {
  server_scene at;
  at.hear(service, 0, attach_request{.who = {.name = "s", .host = "h0", .pid = 9}, .is_order_service = true});
  const session_id host = at.last_session;
  REQUIRE(at.told<join_welcome>(service).size() == 1);
  const session_id one = at.join(first, 0, ring_session{{1, 0}});
  const session_id other = at.join(second, 1, ring_session{{2, 0}});
  CHECK(at.told<claim_order>(service).size() == 2);
  at.hear(first, one, commits_report{.of = epoch{1}});
  at.hear(second, other, commits_report{.of = epoch{1}});
  at.hear(first, one, id_offer{epoch{1}, {}});
  REQUIRE(at.told<serve_order>(service).size() == 1);
  CHECK(at.told<serve_order>(service)[0].candidates.size() == 2);
  CHECK(at.told<formation_order>(first).empty());

  at.hear(service, host, serving_report{.of = epoch{1}, .ranks = {rank{0}, rank{1}}});
  REQUIRE(at.told<formation_order>(second).size() == 1);
  CHECK(at.told<formation_order>(second)[0].has_rings);
  at.hear(first, one, formed_report{epoch{1}});
  at.hear(second, other, formed_report{epoch{1}});
  CHECK(at.server.state().event().phase == control_phase::serving);

  at.server.lose(service);
  REQUIRE(at.told<failure_order>(second).size() == 1);
  CHECK(at.told<failure_order>(second)[0].why.text.find("the order service of process s") != std::string::npos);
}

} // namespace troupe::tests::control_server_test
