/// Test rig with the proxies of both sides in front of an echo server, and certificates for them.
#pragma once

#include "support/proxy/loopback_peers.hpp"
#include "support/proxy/proxy_events.hpp"

#include <troupe/actors/transport/certificates.hpp>
#include <troupe/actors/transport/control_proxy.hpp>

#include <stdlib.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

namespace troupe::tests {

inline const std::string good_token = "a-token-of-the-tests-0123456789";
inline const std::string bad_token = "another-token-of-them-9876543210";

/// A temporary folder that the destructor removes.
class scratch_folder {
public:
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-proxy-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) path_ = name;
  }
  scratch_folder(const scratch_folder&) = delete;
  scratch_folder& operator=(const scratch_folder&) = delete;
  ~scratch_folder() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  /// Writes a file that only its owner can read and write.
  std::filesystem::path write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::ofstream{file} << text;
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return file;
  }

private:
  std::filesystem::path path_;
};

/// A certificate authority, and credentials that it issues.
class certificate_rig {
public:
  explicit certificate_rig(const std::string& name = "ours") : name_{name} {
    ca_file_ = folder_.write("ca.pem", authority_.own().certificate);
  }

  /// Issues credentials that are valid during \p span, which may lie in the past.
  [[nodiscard]] proxy_credentials credentials(certificate_use use, certificate_span span) const {
    const certificate_pair made = authority_.issue(use, {"localhost", "127.0.0.1"}, span);
    const std::string stem = (use == certificate_use::host ? "host" : "controller") + std::to_string(++made_);
    return {.ca_file = ca_file_,
            .certificate_file = folder_.write(stem + ".pem", made.certificate),
            .key_file = folder_.write(stem + ".key", made.key),
            .token = good_token};
  }
  [[nodiscard]] proxy_credentials credentials(certificate_use use) const {
    return credentials(use, valid_for(std::chrono::hours{24 * 30}));
  }

  [[nodiscard]] const std::filesystem::path& ca_file() const { return ca_file_; }
  [[nodiscard]] const scratch_folder& folder() const { return folder_; }

private:
  std::string name_;
  scratch_folder folder_;
  certificate_authority authority_{"CA of a test, " + name_, valid_for(std::chrono::hours{24 * 365})};
  std::filesystem::path ca_file_;
  mutable int made_ = 0;
};

/// Makes options for a listener in front of an echo server, in either mode, and for dialers that reach it.
class proxy_rig {
public:
  explicit proxy_rig(proxy_mode mode, proxy_limits limits = {}) : mode_{mode}, limits_{limits} {}

  /// Returns valid options of a listener.
  proxy_listener_options listener_options() {
    proxy_listener_options made{
        .mode = mode_,
        .connect_inside = [port = echo.port()] { return begin_connect(proxy_address::loopback(port)); },
        .limits = limits_,
        .on_event = heard.sink()};
    made.credentials = mode_ == proxy_mode::plain ? proxy_credentials{.token = good_token}
                                                  : ours.credentials(certificate_use::controller);
    return made;
  }

  /// Returns valid options of a dialer to \p port.
  proxy_dialer_options dialer_options(std::uint16_t port) {
    proxy_dialer_options made{.mode = mode_, .port = port, .limits = limits_, .on_event = said.sink()};
    made.credentials =
        mode_ == proxy_mode::plain ? proxy_credentials{.token = good_token} : ours.credentials(certificate_use::host);
    return made;
  }

  /// Returns whether no event text of either side contains a secret.
  [[nodiscard]] bool keeps_secrets() const {
    const std::string all = heard.all_text() + said.all_text();
    return all.find(good_token) == std::string::npos && all.find(bad_token) == std::string::npos &&
           all.find("PRIVATE") == std::string::npos;
  }

  certificate_rig ours;
  echo_server echo;
  proxy_events heard; ///< The listener's events.
  proxy_events said;  ///< The dialers' events.

private:
  proxy_mode mode_;
  proxy_limits limits_;
};

} // namespace troupe::tests
