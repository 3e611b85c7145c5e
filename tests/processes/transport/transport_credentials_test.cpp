/// Credentials that cannot work are refused before anything listens, by the name of the file.
#include "support/transport/transport_rig.hpp"

#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <string>

namespace troupe::tests::transport_credentials_test {

namespace {

std::vector<std::string> checked(connection_side side, const transport_credentials& credentials) {
  return check_credentials(transport_mode::mutual_tls, side, credentials);
}

std::string refusal_of(connection_side side, const transport_credentials& credentials) {
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

TEST_CASE("credentials by one CA are accepted, without a warning", "[transport]") {
  const certificate_rig ours;
  CHECK(checked(connection_side::listener, ours.credentials(certificate_use::controller)).empty());
  CHECK(checked(connection_side::dialer, ours.credentials(certificate_use::host)).empty());
  CHECK(check_credentials(transport_mode::plain, connection_side::dialer, {.token = good_token}).empty());
}

TEST_CASE("a file that is missing, empty or something else is named", "[transport]") {
  const certificate_rig ours;
  const transport_credentials good = ours.credentials(certificate_use::host);
  const auto noise =
      ours.folder().write("noise.pem", "-----BEGIN CERTIFICATE-----\nnoise\n-----END CERTIFICATE-----\n");
  const auto empty = ours.folder().write("empty.pem", "");
  const auto huge = ours.folder().write("huge.pem", std::string((1U << 20U) + 1, 'x'));
  const auto none = ours.folder().path() / "none.pem";
  for (const auto member :
       {&transport_credentials::ca_file, &transport_credentials::certificate_file, &transport_credentials::key_file}) {
    for (const auto& bad : {noise, empty, huge, none, ours.folder().path()}) {
      transport_credentials wrong = good;
      wrong.*member = bad;
      CHECK(says(refusal_of(connection_side::dialer, wrong), bad.string()));
    }
    transport_credentials unnamed = good;
    (unnamed.*member).clear();
    CHECK(says(refusal_of(connection_side::dialer, unnamed), "troupe certs"));
  }
}

TEST_CASE("a key of another certificate, and a certificate of another CA, are found", "[transport]") {
  const certificate_rig ours;
  const certificate_rig theirs{"theirs"};
  transport_credentials wrong = ours.credentials(certificate_use::host);
  wrong.key_file = ours.credentials(certificate_use::host).key_file;
  CHECK(says(refusal_of(connection_side::dialer, wrong), "the key file '" + wrong.key_file.string() +
                                                             "' does not belong to the certificate in '" +
                                                             wrong.certificate_file.string() + "'"));
  wrong = ours.credentials(certificate_use::host);
  wrong.ca_file = theirs.ca_file();
  CHECK(
      says(refusal_of(connection_side::dialer, wrong),
           "'" + wrong.certificate_file.string() + "' is not signed by the CA in '" + theirs.ca_file().string() + "'"));
}

TEST_CASE("certificates outside of their days are found", "[transport]") {
  const certificate_rig ours;
  const auto now = std::chrono::system_clock::now();
  const std::chrono::hours day{24};
  const transport_credentials old = ours.credentials(certificate_use::host, {.from = now - 2 * day, .to = now - day});
  CHECK(says(refusal_of(connection_side::dialer, old), "'" + old.certificate_file.string() + "' has expired on 20"));
  const transport_credentials early = ours.credentials(certificate_use::host, {.from = now + day, .to = now + 2 * day});
  CHECK(says(refusal_of(connection_side::dialer, early),
             "'" + early.certificate_file.string() + "' is not valid before 20"));
  const auto warnings = checked(connection_side::dialer, ours.credentials(certificate_use::host, valid_for(6 * day)));
  REQUIRE(warnings.size() == 1);
  CHECK(says(warnings.front(), "expires on 20"));
}

TEST_CASE("a certificate for the other side is found", "[transport]") {
  const certificate_rig ours;
  CHECK(says(refusal_of(connection_side::listener, ours.credentials(certificate_use::host)), "not made for a server"));
  CHECK(says(refusal_of(connection_side::dialer, ours.credentials(certificate_use::controller)),
             "not made for a client"));
}

TEST_CASE("a key that others may read is warned of, when checked and when a listener starts", "[transport]") {
  transport_rig rig{transport_mode::mutual_tls};
  transport_listener_options options = rig.listener_options();
  std::filesystem::permissions(options.credentials.key_file, std::filesystem::perms::group_read,
                               std::filesystem::perm_options::add);
  const auto warnings = checked(connection_side::listener, options.credentials);
  REQUIRE(warnings.size() == 1);
  CHECK(says(warnings.front(), "chmod 600"));
  const transport_listener listener{options};
  REQUIRE(rig.heard.count(transport_event_kind::warning) == 1);
  CHECK(rig.heard.first(transport_event_kind::warning)->text == warnings.front());
}

TEST_CASE("an encrypted key is refused without asking for its passphrase", "[transport]") {
  const certificate_rig ours;
  transport_credentials wrong = ours.credentials(certificate_use::host);
  wrong.key_file =
      ours.folder().write("locked.key", "-----BEGIN ENCRYPTED PRIVATE KEY-----\n"
                                        "MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAgAAAAAAAAAAAICCAAw\n"
                                        "DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEAAAAAAAAAAAAAAAAAAAAAAEAAA=\n"
                                        "-----END ENCRYPTED PRIVATE KEY-----\n");
  CHECK(says(refusal_of(connection_side::dialer, wrong), "use a key without a passphrase"));
}

} // namespace troupe::tests::transport_credentials_test
