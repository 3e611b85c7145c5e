#include <troupe/processes/store/kubernetes_store.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/threads/boot_clock.hpp>
#include <troupe/processes/control/controller_terms.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/recording/record_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <utility>

namespace troupe {

namespace {

using nlohmann::json;

constexpr const char* record_annotation = "troupe/record";
constexpr std::size_t most_annotation_bytes = 256U << 10U; // TotalAnnotationSizeLimitB of Kubernetes
constexpr int most_attempts = 4;
constexpr std::string_view pod_form = "kubernetes://NAMESPACE/LEASE";
constexpr std::string_view address_form = "kubernetes://HOST:PORT/NAMESPACE/LEASE";

/// An annotation is text, a record any bytes. Each byte is written as the character of that number, in UTF-8, so that a
/// record in ASCII can be read in the annotation.
std::string to_annotation(std::string_view bytes) {
  std::string made;
  for (const char one : bytes) {
    const auto byte = static_cast<unsigned char>(one);
    if (byte >= 0x80U) made += static_cast<char>(0xc0U | byte >> 6U);
    made += static_cast<char>(byte < 0x80U ? byte : 0x80U | (byte & 0x3fU));
  }
  return made;
}

std::string from_annotation(std::string_view text) {
  std::string made;
  for (std::size_t i = 0; i < text.size(); ++i) {
    auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x80U && i + 1 < text.size()) byte = static_cast<unsigned char>(byte << 6U | (text[++i] & 0x3f));
    made += static_cast<char>(byte);
  }
  return made;
}

bool is_dns_label(std::string_view text) {
  const auto is_inner = [](char one) { return (one >= 'a' && one <= 'z') || (one >= '0' && one <= '9') || one == '-'; };
  return !text.empty() && text.size() <= 63 && std::ranges::all_of(text, is_inner) && text.front() != '-' &&
         text.back() != '-';
}

std::string line_of(const std::filesystem::path& file) {
  std::string line;
  std::getline(std::ifstream{file}, line);
  return line;
}

/// What the API server says about a request that it has refused.
std::string reason_in(const http_response& answer) {
  const auto status = json::parse(answer.body, nullptr, false);
  const bool has_message = status.is_object() && status.contains("message") && status["message"].is_string();
  return std::to_string(answer.status) + ": " +
         (has_message ? status["message"].get<std::string>() : answer.body.substr(0, 256));
}

/// Returns what \p read makes of the JSON in \p answer. Errors: missing if it is not what Kubernetes sends.
template <class Read>
auto read_object(const http_response& answer, const Read& read) {
  try {
    return read(json::parse(answer.body));
  } catch (const json::exception& failure) {
    throw exception{errc::missing, std::string{"what answers is not Kubernetes: "} + failure.what()};
  }
}

} // namespace

kubernetes_options parse_kubernetes_url(std::string_view url, http_options access, const variable_lookup& variables,
                                        const std::filesystem::path& account) {
  const auto refuse = [&](const std::string& why) {
    throw exception{errc::invalid_argument, "the store '" + std::string{url} + "' " + why};
  };
  const bool has_tls = url.starts_with("kubernetes://");
  if (!has_tls && !url.starts_with("kubernetes+http://"))
    refuse("is not known: write " + std::string{pod_form} + " or " + std::string{address_form});
  std::string_view rest = url.substr(url.find("://") + 3);
  kubernetes_options made{.http = std::move(access)};
  if (const auto first = rest.substr(0, rest.find('/')); first.find(':') != std::string_view::npos) {
    const control_address where = parse_control_address(first);
    if (!has_tls && !where.is_loopback()) refuse("is on another machine, which needs TLS: write kubernetes://");
    made.server = (has_tls ? "https://" : "http://") + to_string(where);
    rest.remove_prefix(std::min(first.size() + 1, rest.size()));
  } else {
    const auto host = variables("KUBERNETES_SERVICE_HOST"), port = variables("KUBERNETES_SERVICE_PORT");
    if (!has_tls || !host || !port)
      refuse("has no address, and KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are set in pods only: write " +
             std::string{address_form});
    made.server = "https://" + (host->find(':') != std::string::npos ? "[" + *host + "]" : *host) + ":" + *port;
    if (made.http.ca_file.empty()) made.http.ca_file = account / "ca.crt";
    if (made.http.bearer_file.empty() && made.http.certificate_file.empty()) made.http.bearer_file = account / "token";
    for (const std::string& file : {made.http.ca_file, made.http.bearer_file})
      if (!file.empty() && !std::filesystem::exists(file))
        refuse("needs the pod's service account, and there is no " + file + ": set automountServiceAccountToken");
  }
  const auto slash = rest.find('/');
  if (slash == std::string_view::npos) refuse("names no Lease: write " + std::string{pod_form});
  made.lease_namespace = slash != 0 ? std::string{rest.substr(0, slash)} : line_of(account / "namespace");
  made.lease = rest.substr(slash + 1);
  for (const std::string& one : {made.lease_namespace, made.lease})
    if (!is_dns_label(one))
      refuse("has '" + one + "' for a namespace or Lease: write up to 63 of the characters a-z, 0-9 and - there");
  return made;
}

/// A Lease object, as it was read from the API server or will be written there.
struct kubernetes_store::lease {
  /// Takes the fields from the JSON of a Lease. Throws json::exception if one has another type.
  explicit lease(json whole) : object(std::move(whole)) { // in braces it would be put into an array
    const json& metadata = object.at("metadata");
    version = metadata.value("resourceVersion", std::string{});
    const json spec = object.value("spec", json::object());
    holder = spec.value("holderIdentity", std::string{});
    length = std::chrono::seconds{spec.value("leaseDurationSeconds", 0)};
    transitions = spec.value("leaseTransitions", std::uint64_t{0});
    const json annotations = metadata.value("annotations", json::object());
    if (const auto found = annotations.find(record_annotation); found != annotations.end())
      record = from_annotation(found->get<std::string>());
  }

  json object;           ///< With what others have written into it, which stays.
  std::string version{}; ///< Empty: there is none yet.
  std::string holder{};
  std::chrono::seconds length{};
  std::uint64_t transitions = 0;
  std::optional<std::string> record{};
};

kubernetes_store::kubernetes_store(kubernetes_options options)
  : options_{std::move(options)},
    leases_{options_.server + "/apis/coordination.k8s.io/v1/namespaces/" + options_.lease_namespace + "/leases"},
    http_{options_.http} {}

kubernetes_store::~kubernetes_store() = default;

std::string kubernetes_store::name() const {
  return "the Lease " + options_.lease_namespace + "/" + options_.lease + " of Kubernetes at " + options_.server;
}

http_response kubernetes_store::ask(std::string_view verb, const std::string& body) {
  const bool creates = verb == "create";
  http_response answer = http_.send(creates         ? "POST"
                                    : verb == "get" ? "GET"
                                                    : "PUT",
                                    creates ? leases_ : leases_ + "/" + options_.lease, body);
  std::string why;
  switch (answer.status) {
    case 404:
      if (creates) {
        why = "create the namespace first";
        break;
      }
      [[fallthrough]];
    case 200:
    case 201:
    case 409: return answer;
    case 401:
      why = options_.http.bearer_file.empty() ? "give --store-token"
                                              : "the token in " + options_.http.bearer_file + " is not valid there";
      break;
    case 403:
      why = "the sender needs a Role with apiGroups [coordination.k8s.io], resources [leases], verbs [get, create, "
            "update] in this namespace";
      break;
    default: why = "it is asked again"; break;
  }
  throw exception{errc::missing, "cannot " + std::string{verb} + " " + name() + " (" + reason_in(answer) + "): " + why};
}

void kubernetes_store::note(lease present) {
  if (present.version != watched_) {
    watched_ = present.version;
    watched_since_ = boot_clock::now(); // it was written before
  }
  seen_ = std::make_unique<lease>(std::move(present));
}

void kubernetes_store::read() {
  seen_ = nullptr;
  const http_response answer = ask("get", {});
  if (answer.status == 404)
    note(lease(json::object({{"apiVersion", "coordination.k8s.io/v1"},
                             {"kind", "Lease"},
                             {"metadata", {{"name", options_.lease}, {"namespace", options_.lease_namespace}}}})));
  else
    note(read_object(answer, [](json object) { return lease(std::move(object)); }));
}

bool kubernetes_store::write(lease next) {
  const std::unique_ptr<lease> before = std::exchange(seen_, nullptr); // unknown until there is an answer
  const std::string now = utc_of(std::chrono::system_clock::now(), utc_form::separated); // for people
  json& spec = next.object["spec"];
  spec["holderIdentity"] = next.holder;
  spec["leaseDurationSeconds"] = next.length.count();
  spec["leaseTransitions"] = next.transitions;
  spec["renewTime"] = now;
  if (next.transitions != before->transitions) spec["acquireTime"] = now;
  if (next.record) {
    json& annotations = next.object["metadata"]["annotations"];
    annotations[record_annotation] = to_annotation(*next.record);
    std::size_t bytes = 0;
    for (const auto& [key, value] : annotations.items())
      bytes += key.size() + value.get_ref<const std::string&>().size();
    if (bytes > most_annotation_bytes)
      throw exception{errc::unsupported, "the decision of " + std::to_string(next.record->size()) +
                                             " bytes does not fit into the annotations of " + name() + ", which hold " +
                                             std::to_string(most_annotation_bytes) + ": keep this world in etcd"};
  }
  const http_response answer = ask(before->version.empty() ? "create" : "update", next.object.dump());
  if (answer.status != 200 && answer.status != 201) return false;
  note(read_object(answer, [](json object) { return lease(std::move(object)); }));
  return seen_->version != before->version; // else the same was there before, and nobody sees a sign of life
}

bool kubernetes_store::update(const std::function<bool(lease&)>& change) {
  for (int i = 0; i < most_attempts; ++i) {
    if (!seen_) read();
    lease next = *seen_;
    if (!change(next)) return false;
    if (write(std::move(next))) return true;
  }
  throw exception{errc::missing, "others write " + name() + " all the time"};
}

bool kubernetes_store::holds(const lease& present, const store_claim& claim) const {
  return present.holder == leader_ && present.transitions == claim.revision;
}

bool kubernetes_store::is_free(const lease& present) const {
  if (present.holder.empty()) return true;
  return boot_clock::now() - watched_since_ > present.length + lease_bound(present.length);
}

std::optional<store_claim> kubernetes_store::campaign(const std::string& leader, nanoseconds length) {
  leader_ = leader;
  seen_ = nullptr;
  store_claim made{.length = std::max(std::chrono::seconds{1}, std::chrono::ceil<std::chrono::seconds>(length))};
  const bool is_elected = update([&](lease& one) {
    // If it is this controller's, an earlier call was successful, and its answer was lost.
    if (one.holder != leader) {
      if (!is_free(one)) return false;
      one.holder = leader;
      ++one.transitions;
    }
    one.length = std::chrono::duration_cast<std::chrono::seconds>(made.length);
    made.revision = one.transitions;
    made.record = one.record;
    return true;
  });
  return is_elected ? std::optional{std::move(made)} : std::nullopt;
}

bool kubernetes_store::renew(const store_claim& claim) {
  return update([&](const lease& one) { return holds(one, claim); });
}

bool kubernetes_store::decide(const store_claim& claim, const std::string& record) {
  return update([&](lease& one) {
    if (!holds(one, claim)) return false;
    one.record = record;
    return true;
  });
}

store_view kubernetes_store::observe() {
  read();
  return {.leader = is_free(*seen_) ? std::nullopt : std::optional{seen_->holder}, .record = seen_->record};
}

void kubernetes_store::resign(const store_claim& claim) {
  static_cast<void>(update([&](lease& one) {
    if (!holds(one, claim)) return false;
    one.holder.clear();
    return true;
  }));
}

} // namespace troupe
