/// The bytes of what a controller and its processes say to each other.
#include <troupe/processes/control/control_codec.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <variant>
#include <vector>

namespace troupe::tests {

namespace {

const error sample_error{.code = errc::device_failed,
                         .effect = effect::unknown_outcome,
                         .text = "a GPU fell off the bus",
                         .call = "ncclAllReduce",
                         .native_code = -3,
                         .native_text = "unhandled",
                         .rank = rank{3},
                         .epoch = epoch{1ULL << 40U}};

unique_id sample_id() {
  unique_id id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::byte>(i * 7);
  return id;
}

std::vector<process_frame> process_frames() {
  const join_request join{
      .token = std::string{"a\0b", 3},
      .who = {.name = "s1", .host = "here", .pid = 4711, .gpu = "0000:1b:00.0", .life = 0xC0FFEE0000000001},
      .facts = {{"troupe", "1"}, {"ordering", "agreed"}},
      .place = 7,
      .world_size = 9,
      .spare = true,
      .attempt = 2,
      .local_device = 1,
      .device_count = 8,
      .last_epoch = epoch{5},
      .last_ranks = {"0", "s1"},
      .begun = epoch{8},
      .prepared = epoch{6},
      .wall_clock_ns = -12,
      .nonce = ring_session{{~0ULL, 5}}};
  return {{0, join},
          {9, heartbeat{}},
          {9, id_offer{epoch{2}, sample_id()}},
          {9, commits_report{.of = epoch{2},
                             .told = {.of = epoch{1},
                                      .has_survivors = false,
                                      .lanes = {{.where = lane::named("codec"), .seen = 2, .number = 7}, {}}}}},
          {9, formed_report{epoch{2}}},
          {9, failed_report{epoch{2}, sample_error, {rank{1}, rank{2}}}},
          {9, drained_report{epoch{2}, 77}},
          {9, held_notice{epoch{2}, epoch{3}}},
          {9, order_held_report{epoch{2}, epoch{3}, true}},
          {9, order_batch{epoch{2}, std::string(1000, '\0')}},
          {~0ULL, leave_notice{sample_error}},
          {0, attach_request{.token = "secret",
                             .who = {.name = "a:7", .host = "a", .pid = 7},
                             .is_order_service = true,
                             .nonce = ring_session{{8, 9}}}},
          {9, serving_report{.of = epoch{4}, .ranks = {rank{2}, rank{5}}, .retiring = {process_address{-7}}}},
          {9, gate_notice{ring_session{{~0ULL, 4}}}},
          {9, gate_closed{ring_session{{~0ULL, 5}}}},
          {9, change_request{4, {.kind = rank_change_kind::leave, .place = 3, .renumbers = true}}},
          {9, change_request{5, {.kind = rank_change_kind::drain, .host = "there"}}}};
}

std::shared_ptr<const resume_points> sample_points() {
  return std::make_shared<const resume_points>(
      resume_points{.lanes = {{.where = lane::named("codec"),
                               .complete = 120,
                               .commit = 12,
                               .incomplete = 40,
                               .later = {{.position = 120, .succeeded = {rank{0}}, .unknown = {rank{1}}}}},
                              {.complete = 3}},
                    .counted_from = epoch{3},
                    .has_survivors = false});
}

std::vector<controller_frame> controller_frames() {
  return {
      {1, join_welcome{.session = 1,
                       .heartbeat = nanoseconds{5},
                       .suspicion = nanoseconds{6},
                       .is_spare = true,
                       .latest = epoch{7}}},
      {1, join_refusal{sample_error}},
      {1, heartbeat{}},
      {1, id_wanted{epoch{3}}},
      {1, commits_wanted{epoch{3}}},
      {1, formation_directive{.of = epoch{3},
                              .self = rank{1},
                              .world_size = 2,
                              .id = sample_id(),
                              .reason = sample_error,
                              .has_newcomers = true,
                              .hosts = {"here", "there"},
                              .names = {"0", "1"},
                              .has_rings = true,
                              .is_on_one_node = true,
                              .resume = sample_points()}},
      {1, failure_directive{epoch{3}, sample_error}},
      {1, quiesce_directive{epoch{3}, sample_error, 1ULL << 40U, true}},
      {1, prepare_directive{epoch{4}, rank{2}, 3, sample_id(), {"a", "b", "a"}, true}},
      {1, hold_wanted{epoch{3}, epoch{4}}},
      {1, drop_directive{epoch{4}}},
      {1, hold_order_directive{epoch{3}, epoch{4}}},
      {1, order_batch{epoch{3}, "bytes"}},
      {1, fence_notice{sample_error}},
      {1, stop_directive{sample_error, 9}},
      {1, claim_directive{ring_session{{3, ~0ULL}}}},
      {1, serve_directive{.of = epoch{4},
                          .world_size = 6,
                          .previous = epoch{3},
                          .limits = {.lead = 512, .straggling = nanoseconds{7}},
                          .candidates = {{rank{2}, ring_session{{1, 2}}}, {rank{5}, ring_session{{3, 4}}}},
                          .continued = {.before = {rank{1}, std::nullopt}, .successes = {1ULL << 40U, 0}}}},
      {1, change_reply{.number = 4, .why = sample_error}},
      {1, change_reply{
              .number = 5,
              .processes = {{.name = "0", .host = "here", .pid = 7, .place = 0, .self = rank{0}},
                            {.name = "s", .host = "there", .pid = 1LL << 40U, .is_leaving = true, .is_away = true}}}}};
}

/// Returns the first frame with a message of that type.
template <class Message, class Frame>
Frame of_type(const std::vector<Frame>& all) {
  const auto found =
      std::ranges::find_if(all, [](const Frame& one) { return std::holds_alternative<Message>(one.what); });
  REQUIRE(found != all.end());
  return *found;
}

} // namespace

TEST_CASE("every message crosses as it is", "[control]") {
  error why;
  for (const process_frame& one : process_frames()) {
    const std::string bytes = encode(one);
    const auto back = decode_process_frame(bytes, why);
    INFO("kind " << one.what.index() << ": " << why.text);
    REQUIRE(back);
    CHECK(back->session == one.session);
    CHECK(back->what.index() == one.what.index());
    CHECK(encode(*back) == bytes);
  }
  for (const controller_frame& one : controller_frames()) {
    const std::string bytes = encode(one);
    const auto back = decode_controller_frame(bytes, why);
    INFO("kind " << one.what.index() << ": " << why.text);
    REQUIRE(back);
    CHECK(back->what.index() == one.what.index());
    CHECK(encode(*back) == bytes);
  }
  const auto back = decode_process_frame(encode(of_type<failed_report>(process_frames())), why);
  REQUIRE(back);
  const auto& failed = std::get<failed_report>(back->what);
  CHECK(failed.why.text == sample_error.text);
  CHECK(failed.why.rank == rank{3});
  CHECK(failed.why.native_code == -3);
  CHECK(failed.why.effect == effect::unknown_outcome);
  CHECK(failed.blamed.size() == 2);
}

TEST_CASE("bytes that are cut short, continue or are no message are refused", "[control]") {
  for (const process_frame& one : process_frames()) {
    const std::string bytes = encode(one);
    error why;
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      CHECK_FALSE(decode_process_frame(std::string_view{bytes}.substr(0, size), why));
      CHECK(why);
    }
    CHECK_FALSE(decode_process_frame(bytes + "x", why));
  }
  std::mt19937_64 draw{20261122};
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes(draw() % 200, '\0');
    for (char& one : bytes) one = static_cast<char>(draw());
    error why;
    if (const auto read = decode_controller_frame(bytes, why); !read) CHECK(why);
    if (const auto read = decode_process_frame(bytes, why); !read) CHECK(why);
  }
  error why;
  CHECK_FALSE(decode_process_frame(std::string(control_frame_limit + 1, '\0'), why));
  CHECK(why.text.find("bytes") != std::string::npos);
}

TEST_CASE("every field crosses as it is", "[control]") {
  error why;
  const auto joins = decode_process_frame(encode(of_type<join_request>(process_frames())), why);
  REQUIRE(joins);
  const auto& join = std::get<join_request>(joins->what);
  CHECK(join.nonce == ring_session{{~0ULL, 5}});
  CHECK(join.token == std::string{"a\0b", 3});
  CHECK(join.who.name == "s1");
  CHECK(join.who.host == "here");
  CHECK(join.who.pid == 4711);
  CHECK(join.who.gpu == "0000:1b:00.0");
  CHECK(join.who.life == 0xC0FFEE0000000001);
  REQUIRE(join.facts.size() == 2);
  CHECK(join.facts[1].name == "ordering");
  CHECK(join.facts[1].value == "agreed");
  CHECK(join.place == 7);
  CHECK(join.world_size == 9);
  CHECK(join.spare);
  CHECK(join.attempt == 2);
  CHECK(join.local_device == 1);
  CHECK(join.device_count == 8);
  CHECK(join.last_epoch == epoch{5});
  CHECK(join.last_ranks == std::vector<std::string>{"0", "s1"});
  CHECK(join.begun == epoch{8});
  CHECK(join.prepared == epoch{6});
  CHECK(join.wall_clock_ns == -12);
  const auto offers = decode_process_frame(encode(of_type<id_offer>(process_frames())), why);
  REQUIRE(offers);
  CHECK(std::get<id_offer>(offers->what).of == epoch{2});
  CHECK(std::get<id_offer>(offers->what).id.bytes == sample_id().bytes);
  const auto tells = decode_process_frame(encode(of_type<commits_report>(process_frames())), why);
  REQUIRE(tells);
  const auto& report = std::get<commits_report>(tells->what);
  CHECK(report.of == epoch{2});
  CHECK(report.told.of == epoch{1});
  CHECK_FALSE(report.told.has_survivors);
  REQUIRE(report.told.lanes.size() == 2);
  CHECK(report.told.lanes[0].where == lane::named("codec"));
  CHECK(report.told.lanes[0].seen == 2);
  CHECK(report.told.lanes[0].number == 7);
  CHECK_FALSE(report.told.lanes[1].where);
  CHECK_FALSE(report.told.lanes[1].number);
  const auto fails = decode_process_frame(encode(of_type<failed_report>(process_frames())), why);
  REQUIRE(fails);
  const auto& failed = std::get<failed_report>(fails->what);
  CHECK(failed.of == epoch{2});
  CHECK(failed.why.code == sample_error.code);
  CHECK(failed.why.call == sample_error.call);
  CHECK(failed.why.native_text == sample_error.native_text);
  CHECK(failed.why.epoch == sample_error.epoch);
  CHECK(failed.blamed == std::vector{rank{1}, rank{2}});
  const auto batches = decode_process_frame(encode(of_type<order_batch>(process_frames())), why);
  REQUIRE(batches);
  CHECK(std::get<order_batch>(batches->what).of == epoch{2});
  CHECK(std::get<order_batch>(batches->what).bytes == std::string(1000, '\0'));

  const auto welcomes = decode_controller_frame(encode(of_type<join_welcome>(controller_frames())), why);
  REQUIRE(welcomes);
  CHECK(welcomes->session == 1);
  const auto& welcome = std::get<join_welcome>(welcomes->what);
  CHECK(welcome.latest == epoch{7});
  CHECK(welcome.session == 1);
  CHECK(welcome.heartbeat == nanoseconds{5});
  CHECK(welcome.suspicion == nanoseconds{6});
  CHECK(welcome.is_spare);
  const auto forms = decode_controller_frame(encode(of_type<formation_directive>(controller_frames())), why);
  REQUIRE(forms);
  const auto& directive = std::get<formation_directive>(forms->what);
  CHECK(directive.of == epoch{3});
  CHECK(directive.self == rank{1});
  CHECK(directive.world_size == 2);
  CHECK(directive.id.bytes == sample_id().bytes);
  CHECK(directive.reason.text == sample_error.text);
  CHECK(directive.has_newcomers);
  CHECK(directive.hosts == std::vector<std::string>{"here", "there"});
  CHECK(directive.names == std::vector<std::string>{"0", "1"});
  CHECK(directive.has_rings);
  CHECK(directive.is_on_one_node);
  REQUIRE(directive.resume);
  CHECK(describe(*directive.resume) == describe(*sample_points()));
  CHECK(directive.resume->counted_from == epoch{3});
  REQUIRE(directive.resume->lanes.front().later.size() == 1);
  CHECK(directive.resume->lanes.front().later[0].position == 120);
  CHECK(directive.resume->lanes.front().later[0].succeeded == std::vector{rank{0}});
  CHECK(directive.resume->lanes.front().later[0].unknown == std::vector{rank{1}});
  const auto quiesces = decode_controller_frame(encode(of_type<quiesce_directive>(controller_frames())), why);
  REQUIRE(quiesces);
  CHECK(std::get<quiesce_directive>(quiesces->what).decided == 1ULL << 40U);
  CHECK(std::get<quiesce_directive>(quiesces->what).is_planned);
  const auto prepares = decode_controller_frame(encode(of_type<prepare_directive>(controller_frames())), why);
  REQUIRE(prepares);
  CHECK(std::get<prepare_directive>(prepares->what).hosts == std::vector<std::string>{"a", "b", "a"});
  const auto stops = decode_controller_frame(encode(of_type<stop_directive>(controller_frames())), why);
  REQUIRE(stops);
  CHECK(std::get<stop_directive>(stops->what).decided == 9);
}

TEST_CASE("messages of the order services of other hosts are transferred unchanged", "[control]") {
  error why;
  const auto joins = decode_process_frame(encode(of_type<attach_request>(process_frames())), why);
  REQUIRE(joins);
  CHECK(std::get<attach_request>(joins->what).token == "secret");
  CHECK(std::get<attach_request>(joins->what).who.pid == 7);
  CHECK(std::get<attach_request>(joins->what).is_order_service);
  CHECK(std::get<attach_request>(joins->what).nonce == ring_session{{8, 9}});
  const serving_report report{.of = epoch{4},
                              .ranks = {rank{2}, rank{5}},
                              .resume = sample_points(),
                              .retiring = {process_address{-7}, process_address{-1 << 20}}};
  const auto serves = decode_process_frame(encode(process_frame{9, report}), why);
  REQUIRE(serves);
  CHECK(std::get<serving_report>(serves->what).of == epoch{4});
  CHECK(std::get<serving_report>(serves->what).ranks == std::vector{rank{2}, rank{5}});
  CHECK(std::get<serving_report>(serves->what).retiring == report.retiring);
  REQUIRE(std::get<serving_report>(serves->what).resume);
  CHECK(describe(*std::get<serving_report>(serves->what).resume) == describe(*sample_points()));
  const auto notice = decode_process_frame(encode(process_frame{9, gate_notice{ring_session{{~0ULL, 4}}}}), why);
  REQUIRE(notice);
  CHECK(std::get<gate_notice>(notice->what).nonce == ring_session{{~0ULL, 4}});
  const auto claims = decode_controller_frame(encode(of_type<claim_directive>(controller_frames())), why);
  REQUIRE(claims);
  CHECK(std::get<claim_directive>(claims->what).nonce == ring_session{{3, ~0ULL}});
  const auto serving = decode_controller_frame(encode(of_type<serve_directive>(controller_frames())), why);
  REQUIRE(serving);
  const auto& directive = std::get<serve_directive>(serving->what);
  CHECK(directive.of == epoch{4});
  CHECK(directive.world_size == 6);
  CHECK(directive.previous == epoch{3});
  CHECK(directive.limits.lead == 512);
  CHECK(directive.limits.straggling == nanoseconds{7});
  REQUIRE(directive.candidates.size() == 2);
  CHECK(directive.candidates[1].self == rank{5});
  CHECK(directive.candidates[1].nonce == ring_session{{3, 4}});
  CHECK(directive.continued.before == std::vector<std::optional<rank>>{rank{1}, std::nullopt});
  CHECK(directive.continued.successes == std::vector<std::uint64_t>{1ULL << 40U, 0});
}

TEST_CASE("a kind that there is not is refused", "[control]") {
  for (const char kind : {'\x08', '\x0b', '\x7f'}) {
    error why;
    CHECK_FALSE(decode_process_frame(std::string{'\x01', kind}, why));
    CHECK(why);
  }
  error why;
  CHECK_FALSE(decode_controller_frame(std::string{'\x01', '\x0a'}, why));
  CHECK(why);
}

TEST_CASE("fields have limits", "[control]") {
  join_request join;
  join.facts.assign(257, {"a", "b"});
  error why;
  CHECK_FALSE(decode_process_frame(encode(process_frame{0, join}), why));
  join.facts.clear();
  join.token = std::string(300, 't');
  CHECK_FALSE(decode_process_frame(encode(process_frame{0, join}), why));
  CHECK(why.text.find("ttt") == std::string::npos);
}

} // namespace troupe::tests
