/// `troupe certs`: what it makes works, and is for its owner alone.
#include "support/transport/join_token_file.hpp"
#include "support/transport/transport_rig.hpp"

#include <troupe/device/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <sys/stat.h>

#include <algorithm>
#include <string>

namespace troupe::tests::certificates_test {

namespace {

std::string refusal_of(const certificate_options& options) {
  try {
    static_cast<void>(make_certificates(options));
    return {};
  } catch (const exception& why) {
    CHECK(why.why().code == errc::invalid_argument);
    return why.why().text;
  }
}

transport_credentials credentials_in(const std::filesystem::path& folder, const std::string& who) {
  return {.ca_file = folder / "ca.pem",
          .certificate_file = folder / (who + ".pem"),
          .key_file = folder / (who + ".key"),
          .token = read_join_token(folder / "join.token")};
}

mode_t mode_of(const std::filesystem::path& file) {
  struct stat found {};
  REQUIRE(::stat(file.c_str(), &found) == 0);
  return found.st_mode & 0777U;
}

} // namespace

TEST_CASE("certificates made for controller and hosts admit them, under the names asked for", "[transport]") {
  const scratch_folder scratch;
  const std::filesystem::path folder = scratch.path() / "new" / "certs";
  const auto made = make_certificates({.folder = folder, .hosts = {"gpu-1.example.org", "10.1.2.3"}, .days = 20});
  CHECK(made.size() == 7);
  CHECK(mode_of(folder) == 0700U);
  for (const made_file& one : made) {
    INFO(one.file);
    CHECK(mode_of(one.file) == 0600U);
    CHECK_FALSE(one.purpose.empty());
  }
  CHECK(read_join_token(folder / "join.token").size() == 64);

  transport_rig rig{transport_mode::mutual_tls};
  transport_listener_options options = rig.listener_options();
  options.credentials = credentials_in(folder, "controller");
  transport_listener& listener = rig.listen(options);
  for (const char* name : {"", "localhost", "127.0.0.1", "::1", "gpu-1.example.org", "10.1.2.3"}) {
    transport_dialer_options to = rig.dialer_options(listener.port());
    to.credentials = credentials_in(folder, "host");
    to.credentials.expected_peer = name;
    test_dialer dialer{to};
    REQUIRE(dialer.join());
    CHECK(dialer.exchanges("five!"));
  }
  CHECK(rig.heard.count(transport_event_kind::warning) == 0);
}

TEST_CASE("nothing is overwritten, and nothing written where one file is there", "[transport]") {
  const scratch_folder scratch;
  static_cast<void>(scratch.write("host.key", "precious"));
  CHECK(refusal_of({.folder = scratch.path()}).find("host.key' already exists") != std::string::npos);
  CHECK(std::distance(std::filesystem::directory_iterator{scratch.path()}, std::filesystem::directory_iterator{}) == 1);
  std::filesystem::remove(scratch.path() / "host.key");
  std::filesystem::create_symlink("nowhere", scratch.path() / "ca.pem");
  CHECK(refusal_of({.folder = scratch.path()}).find("ca.pem' already exists") != std::string::npos);
}

TEST_CASE("options that cannot be met are refused", "[transport]") {
  const scratch_folder scratch;
  CHECK_FALSE(refusal_of({.folder = {}}).empty());
  CHECK_FALSE(refusal_of({.folder = scratch.path(), .days = 0}).empty());
  CHECK_FALSE(refusal_of({.folder = scratch.path(), .days = 3'651}).empty());
  for (const char* host : {"two words", "a,DNS:b", "", "x/y"})
    CHECK_FALSE(refusal_of({.folder = scratch.path(), .hosts = {host}}).empty());
  CHECK(std::filesystem::is_empty(scratch.path()));
}

} // namespace troupe::tests::certificates_test
