/// Credentials that cannot work are refused before anything listens, by the name of the file.
#include "support/proxy/proxy_rig.hpp"

#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>

namespace troupe::tests::proxy_credentials_test {

namespace {

std::vector<std::string> checked(proxy_side side, const proxy_credentials& credentials) {
  return check_credentials(proxy_mode::mutual_tls, side, credentials);
}

std::string refusal_of(proxy_side side, const proxy_credentials& credentials) {
  try {
    static_cast<void>(checked(side, credentials));
    return {};
  } catch (const exception& why) {
    CHECK(why.why().text.find(credentials.token) == std::string::npos);
    return why.why().text;
  }
}

bool says(const std::string& text, const std::string& what) {
  INFO(text);
  return text.find(what) != std::string::npos;
}

} // namespace

TEST_CASE("credentials by one CA are accepted, without a warning", "[guard]") {
  const certificate_rig ours;
  CHECK(checked(proxy_side::listener, ours.credentials(certificate_use::controller)).empty());
  CHECK(checked(proxy_side::dialer, ours.credentials(certificate_use::host)).empty());
  CHECK(check_credentials(proxy_mode::plain, proxy_side::dialer, {.token = good_token}).empty());
}

TEST_CASE("a file that is missing, empty or something else is named", "[guard]") {
  const certificate_rig ours;
  const proxy_credentials good = ours.credentials(certificate_use::host);
  const auto noise =
      ours.folder().write("noise.pem", "-----BEGIN CERTIFICATE-----\nnoise\n-----END CERTIFICATE-----\n");
  const auto empty = ours.folder().write("empty.pem", "");
  const auto huge = ours.folder().write("huge.pem", std::string((1u << 20u) + 1, 'x'));
  const auto none = ours.folder().path() / "none.pem";
  for (const auto member :
       {&proxy_credentials::ca_file, &proxy_credentials::certificate_file, &proxy_credentials::key_file}) {
    for (const auto& bad : {noise, empty, huge, none, ours.folder().path()}) {
      proxy_credentials wrong = good;
      wrong.*member = bad;
      CHECK(says(refusal_of(proxy_side::dialer, wrong), bad.string()));
    }
    proxy_credentials unnamed = good;
    (unnamed.*member).clear();
    CHECK(says(refusal_of(proxy_side::dialer, unnamed), "troupe certs"));
  }
}

TEST_CASE("a key of another certificate, and a certificate of another CA, are found", "[guard]") {
  const certificate_rig ours;
  const certificate_rig theirs{"theirs"};
  proxy_credentials wrong = ours.credentials(certificate_use::host);
  wrong.key_file = ours.credentials(certificate_use::host).key_file;
  CHECK(says(refusal_of(proxy_side::dialer, wrong), "the key file '" + wrong.key_file.string() +
                                                        "' does not belong to the certificate in '" +
                                                        wrong.certificate_file.string() + "'"));
  wrong = ours.credentials(certificate_use::host);
  wrong.ca_file = theirs.ca_file();
  CHECK(
      says(refusal_of(proxy_side::dialer, wrong),
           "'" + wrong.certificate_file.string() + "' is not signed by the CA in '" + theirs.ca_file().string() + "'"));
}

TEST_CASE("certificates outside of their days are found", "[guard]") {
  const certificate_rig ours;
  const auto now = std::chrono::system_clock::now();
  const std::chrono::hours day{24};
  const proxy_credentials old = ours.credentials(certificate_use::host, {.from = now - 2 * day, .to = now - day});
  CHECK(says(refusal_of(proxy_side::dialer, old), "'" + old.certificate_file.string() + "' has expired on 20"));
  const proxy_credentials early = ours.credentials(certificate_use::host, {.from = now + day, .to = now + 2 * day});
  CHECK(
      says(refusal_of(proxy_side::dialer, early), "'" + early.certificate_file.string() + "' is not valid before 20"));
  const auto warnings = checked(proxy_side::dialer, ours.credentials(certificate_use::host, valid_for(6 * day)));
  REQUIRE(warnings.size() == 1);
  CHECK(says(warnings.front(), "expires on 20"));
}

TEST_CASE("a certificate for the other side is found", "[guard]") {
  const certificate_rig ours;
  CHECK(says(refusal_of(proxy_side::listener, ours.credentials(certificate_use::host)), "not made for a server"));
  CHECK(says(refusal_of(proxy_side::dialer, ours.credentials(certificate_use::controller)), "not made for a client"));
}

TEST_CASE("a key that others may read is warned of, when checked and when a guard starts", "[guard]") {
  proxy_rig rig{proxy_mode::mutual_tls};
  proxy_listener_options options = rig.listener_options();
  std::filesystem::permissions(options.credentials.key_file, std::filesystem::perms::group_read,
                               std::filesystem::perm_options::add);
  const auto warnings = checked(proxy_side::listener, options.credentials);
  REQUIRE(warnings.size() == 1);
  CHECK(says(warnings.front(), "chmod 600"));
  const proxy_listener listener{options};
  REQUIRE(rig.heard.count(proxy_event_kind::warning) == 1);
  CHECK(rig.heard.first(proxy_event_kind::warning)->text == warnings.front());
}

TEST_CASE("an encrypted key is refused without asking for its passphrase", "[guard]") {
  const certificate_rig ours;
  proxy_credentials wrong = ours.credentials(certificate_use::host);
  wrong.key_file =
      ours.folder().write("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
                                        "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgAAAAAAAAAAAICCAAw\n"
                                        "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEAAAAAAAAAAAAAAAAAAAAAAEAAA=\n"
                                        "-----END ENCRYPTED PRIVATE KEY-----\n");
  CHECK(says(refusal_of(proxy_side::dialer, wrong), "use a key without a passphrase"));
}

} // namespace troupe::tests::proxy_credentials_test
