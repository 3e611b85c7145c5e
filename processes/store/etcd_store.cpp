#include <troupe/processes/store/etcd_store.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

using nlohmann::json;

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr std::string_view usual_form = "etcd://HOST:PORT[,HOST:PORT]/PREFIX";

std::string to_base64(std::string_view bytes) {
  std::string made;
  made.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t word = 0;
    for (std::size_t k = 0; k < 3; ++k) word = word << 8U | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k) made += k <= count ? alphabet[word >> (18U - 6U * k) & 63U] : '=';
  }
  return made;
}

std::string from_base64(std::string_view text) {
  std::string made;
  std::uint32_t word = 0;
  unsigned bits = 0;
  for (const char one : text) {
    if (one == '=') break;
    const auto value = alphabet.find(one);
    if (value == std::string_view::npos) throw exception{errc::missing, "etcd has sent what is not base64"};
    word = word << 6U | static_cast<std::uint32_t>(value);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    made += static_cast<char>(word >> bits & 255U);
  }
  return made;
}

/// The gateway writes 64-bit numbers as strings, and leaves out those that are 0.
std::uint64_t number_at(const json& from, const char* name) {
  const auto found = from.find(name);
  if (found == from.end()) return 0;
  if (found->is_number()) return found->get<std::uint64_t>();
  const auto& text = found->get_ref<const std::string&>();
  std::uint64_t value = 0;
  const auto [end, why] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (why != std::errc{} || end != text.data() + text.size())
    throw exception{errc::missing, "etcd has sent '" + text + "' for the number " + name};
  return value;
}

json range_of(const std::string& key) {
  return {{"key", to_base64(key)}};
}

json is_created_in(const std::string& key, std::uint64_t revision) {
  return {{"key", to_base64(key)},
          {"target", "CREATE"},
          {"result", "EQUAL"},
          {"create_revision", std::to_string(revision)}};
}

/// Calls \p read, and reports an answer of another form than etcd's.
template <class Read>
auto read_answer(const Read& read) {
  try {
    return read();
  } catch (const json::exception& failure) {
    throw exception{errc::missing, std::string{"what answers is not etcd's gateway: "} + failure.what()};
  }
}

} // namespace

etcd_options parse_etcd_url(std::string_view url) {
  const auto refuse = [&](const std::string& why) {
    throw exception{errc::invalid_argument, "the store '" + std::string{url} + "' " + why};
  };
  const bool has_tls = url.starts_with("etcds://");
  std::string_view rest = url;
  if (has_tls)
    rest.remove_prefix(8);
  else if (url.starts_with("etcd://"))
    rest.remove_prefix(7);
  else
    refuse("is not known: write " + std::string{usual_form} + " or kubernetes://NAMESPACE/LEASE");
  const auto slash = rest.find('/');
  if (slash == std::string_view::npos || slash + 1 == rest.size())
    refuse("names no world: write " + std::string{usual_form});
  etcd_options made{.prefix = std::string{rest.substr(slash)}};
  while (made.prefix.ends_with('/')) made.prefix.pop_back();
  if (made.prefix.empty()) refuse("names no world: write " + std::string{usual_form});
  for (std::string_view all = rest.substr(0, slash);;) {
    const auto comma = all.find(',');
    const control_address where = parse_control_address(all.substr(0, comma));
    if (!has_tls && !where.is_loopback())
      refuse("is on another machine, which needs TLS: write etcds://, and give --store-ca, --store-certificate and "
             "--store-key");
    made.endpoints.push_back((has_tls ? "https://" : "http://") + to_string(where));
    if (comma == std::string_view::npos) break;
    all.remove_prefix(comma + 1);
  }
  return made;
}

etcd_store::etcd_store(etcd_options options)
  : options_{std::move(options)},
    leader_key_{options_.prefix + "/leader"},
    record_key_{options_.prefix + "/world"},
    http_{options_.http} {
  if (options_.endpoints.empty() || options_.prefix.empty())
    throw exception{errc::invalid_argument, "a store in etcd needs an address and a prefix"};
}

std::string etcd_store::name() const {
  std::string made = "etcd at ";
  for (const std::string& one : options_.endpoints) made += (made.ends_with(' ') ? "" : ", ") + one;
  return made + ", " + options_.prefix;
}

std::string etcd_store::call(const std::string& path, const std::string& body) {
  std::string why;
  for (std::size_t i = 0; i < options_.endpoints.size(); ++i) {
    const std::size_t which = (present_ + i) % options_.endpoints.size();
    try {
      http_response answer = http_.send("POST", options_.endpoints[which] + path, body);
      if (answer.status == 200) {
        present_ = which;
        return std::move(answer.body);
      }
      why = options_.endpoints[which] + " answers " + std::to_string(answer.status) + ": " + answer.body.substr(0, 256);
    } catch (const exception& failure) {
      why = failure.why().text;
    }
  }
  throw exception{errc::missing, "etcd does not serve: " + why};
}

std::optional<etcd_store::key_value> etcd_store::read(const std::string& key) {
  const std::string answer = call("/v3/kv/range", range_of(key).dump());
  return read_answer([&]() -> std::optional<key_value> {
    const json from = json::parse(answer);
    const auto found = from.find("kvs");
    if (found == from.end() || found->empty()) return std::nullopt;
    const json& one = found->at(0);
    return key_value{.value = from_base64(one.value("value", std::string{})),
                     .created = number_at(one, "create_revision"),
                     .lease = number_at(one, "lease")};
  });
}

std::uint64_t etcd_store::lease_of(nanoseconds length) {
  // An earlier call may have ended with an error after it had made one. It counts from now on, as a new one does.
  if (lease_ != 0 && keep_alive(lease_)) return lease_;
  const auto seconds = std::max<std::int64_t>(1, std::chrono::ceil<std::chrono::seconds>(length).count());
  const std::string answer = call("/v3/lease/grant", json{{"TTL", std::to_string(seconds)}}.dump());
  read_answer([&] {
    const json from = json::parse(answer);
    lease_ = number_at(from, "ID");
    lease_length_ = std::chrono::seconds{number_at(from, "TTL")};
  });
  return lease_;
}

bool etcd_store::keep_alive(std::uint64_t lease) {
  const std::string answer = call("/v3/lease/keepalive", json{{"ID", std::to_string(lease)}}.dump());
  return read_answer([&] { return number_at(json::parse(answer).at("result"), "TTL") > 0; });
}

std::optional<store_claim> etcd_store::campaign(const std::string& leader, nanoseconds length) {
  if (const auto present = read(leader_key_)) {
    if (present->value != leader) return std::nullopt;
    // An earlier call was successful, and its answer was lost. Its lease may be about to end.
    const store_claim claim{.revision = present->created, .lease = present->lease, .length = lease_length_};
    if (!renew(claim)) return std::nullopt;
    const auto record = read(record_key_);
    return store_claim{.revision = claim.revision,
                       .lease = claim.lease,
                       .length = claim.length,
                       .record = record ? std::optional{record->value} : std::nullopt};
  }
  const std::uint64_t lease = lease_of(length);
  const json asked{
      {"compare", json::array({is_created_in(leader_key_, 0)})},
      {"success",
       json::array(
           {{{"request_put",
              {{"key", to_base64(leader_key_)}, {"value", to_base64(leader)}, {"lease", std::to_string(lease)}}}},
            {{"request_range", range_of(record_key_)}}})}};
  const std::string answer = call("/v3/kv/txn", asked.dump());
  return read_answer([&]() -> std::optional<store_claim> {
    const json from = json::parse(answer);
    if (!from.value("succeeded", false)) return std::nullopt;
    lease_ = 0; // it is the claim's now
    store_claim made{.revision = number_at(from.at("header"), "revision"), .lease = lease, .length = lease_length_};
    const json& found = from.at("responses").at(1).at("response_range");
    if (const auto kvs = found.find("kvs"); kvs != found.end() && !kvs->empty())
      made.record = from_base64(kvs->at(0).value("value", std::string{}));
    return made;
  });
}

bool etcd_store::renew(const store_claim& claim) {
  if (!keep_alive(claim.lease)) return false;
  const auto present = read(leader_key_); // somebody may have deleted it
  return present && present->created == claim.revision;
}

bool etcd_store::decide(const store_claim& claim, const std::string& record) {
  const json asked{
      {"compare", json::array({is_created_in(leader_key_, claim.revision)})},
      {"success",
       json::array({json{{"request_put", {{"key", to_base64(record_key_)}, {"value", to_base64(record)}}}}})}};
  const std::string answer = call("/v3/kv/txn", asked.dump());
  return read_answer([&] { return json::parse(answer).value("succeeded", false); });
}

store_view etcd_store::observe() {
  store_view made;
  if (const auto leader = read(leader_key_)) made.leader = leader->value;
  if (const auto record = read(record_key_)) made.record = record->value;
  return made;
}

void etcd_store::resign(const store_claim& claim) {
  const json asked{{"compare", json::array({is_created_in(leader_key_, claim.revision)})},
                   {"success", json::array({json{{"request_delete_range", range_of(leader_key_)}}})}};
  const std::string answer = call("/v3/kv/txn", asked.dump());
  if (!read_answer([&] { return json::parse(answer).value("succeeded", false); })) return; // it has ended before
  static_cast<void>(call("/v3/lease/revoke", json{{"ID", std::to_string(claim.lease)}}.dump()));
}

} // namespace troupe
