#include <troupe/processes/store/control_record.hpp>

#include <nlohmann/json.hpp>

#include <array>
#include <exception>

namespace troupe {

namespace {

using nlohmann::ordered_json;

constexpr int format = 1;

ordered_json to_json(const control_record::holder& one) {
  ordered_json made{{"name", one.who.name}, {"host", one.who.host}, {"pid", one.who.pid},      {"gpu", one.who.gpu},
                    {"life", one.who.life}, {"place", one.place},   {"rank", one.self.value()}};
  if (one.nonce) made["nonce"] = one.nonce->words;
  return made;
}

control_record::holder holder_of(const ordered_json& from) {
  control_record::holder made{.who = {.name = from.at("name").get<std::string>(),
                                      .host = from.at("host").get<std::string>(),
                                      .pid = from.at("pid").get<std::int64_t>(),
                                      .gpu = from.at("gpu").get<std::string>(),
                                      .life = from.at("life").get<std::uint64_t>()},
                              .place = from.at("place").get<int>(),
                              .self = rank{from.at("rank").get<int>()}};
  if (const auto nonce = from.find("nonce"); nonce != from.end())
    made.nonce = ring_session{nonce->get<std::array<std::uint64_t, 2>>()};
  return made;
}

ordered_json to_json(const std::vector<control_record::holder>& all) {
  ordered_json made = ordered_json::array();
  for (const auto& one : all) made.push_back(to_json(one));
  return made;
}

std::vector<control_record::holder> holders_of(const ordered_json& from) {
  std::vector<control_record::holder> made;
  for (const ordered_json& one : from) made.push_back(holder_of(one));
  return made;
}

} // namespace

std::string encode(const control_record& one) {
  const ordered_json made{{"format", format},
                          {"incarnation", one.incarnation},
                          {"world_size", one.world_size},
                          {"epoch", one.of.value()},
                          {"size", one.size},
                          {"latest_epoch", one.latest.value()},
                          {"ranks", to_json(one.ranks)},
                          {"others", to_json(one.others)},
                          {"longest_lease_ns", one.longest_lease.count()},
                          {"is_finishing", one.is_finishing},
                          {"is_over", one.is_over},
                          {"code", static_cast<int>(one.why.code)},
                          {"why", one.why.text}};
  return made.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::optional<control_record> decode_control_record(std::string_view text, error& why) {
  try {
    const ordered_json from = ordered_json::parse(text);
    if (const int found = from.at("format").get<int>(); found != format)
      throw exception{errc::internal,
                      "its format is " + std::to_string(found) + ", and this troupe reads " + std::to_string(format)};
    control_record made{.incarnation = from.at("incarnation").get<std::uint64_t>(),
                        .world_size = from.at("world_size").get<int>(),
                        .of = epoch{from.at("epoch").get<std::uint64_t>()},
                        .size = from.at("size").get<int>(),
                        .latest = epoch{from.at("latest_epoch").get<std::uint64_t>()},
                        .ranks = holders_of(from.at("ranks")),
                        .others = holders_of(from.at("others")),
                        .longest_lease = nanoseconds{from.at("longest_lease_ns").get<std::int64_t>()},
                        .is_finishing = from.at("is_finishing").get<bool>(),
                        .is_over = from.at("is_over").get<bool>()};
    const int code = from.at("code").get<int>();
    if (code < 0 || code > static_cast<int>(errc::internal)) throw exception{errc::internal, "its code is unknown"};
    made.why = {.code = static_cast<errc>(code), .text = from.at("why").get<std::string>()};
    return made;
  } catch (const std::exception& failure) {
    why = {.code = errc::internal,
           .text = std::string{"what the store keeps for this world cannot be read: "} + failure.what() +
                   "; start the world under another name"};
    return std::nullopt;
  }
}

} // namespace troupe
