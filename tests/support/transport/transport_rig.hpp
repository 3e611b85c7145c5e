/// Listeners that echo, dialers with blocking calls, and certificates for both.
#pragma once

#include "support/transport/loopback_client.hpp"
#include "support/transport/transport_events.hpp"

#include <troupe/processes/transport/certificates.hpp>
#include <troupe/processes/transport/frame_cipher.hpp>
#include <troupe/processes/transport/join_handshake.hpp>
#include <troupe/processes/transport/transport.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

inline const std::string good_token = "a-token-of-the-tests-0123456789";
inline const std::string bad_token = "another-token-of-them-9876543210";

/// A temporary folder. The destructor removes it with its contents.
class scratch_folder {
public:
  scratch_folder() {
    std::string name = (std::filesystem::temp_directory_path() / "troupe-transport-XXXXXX").string();
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
  [[nodiscard]] std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::filesystem::path file = path_ / name;
    std::ofstream{file} << text;
    std::filesystem::permissions(file, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return file;
  }

private:
  std::filesystem::path path_;
};

/// A CA, and credentials that it has signed.
class certificate_rig {
public:
  explicit certificate_rig(std::string name = "ours") : name_{std::move(name)} {
    ca_file_ = folder_.write("ca.pem", authority_.own().certificate);
  }

  /// \p span may lie in the past.
  [[nodiscard]] transport_credentials credentials(certificate_use use, certificate_span span) const {
    const certificate_pair made = authority_.issue(use, {"localhost", "127.0.0.1"}, span);
    const std::string stem = (use == certificate_use::host ? "host" : "controller") + std::to_string(++made_);
    return {.ca_file = ca_file_,
            .certificate_file = folder_.write(stem + ".pem", made.certificate),
            .key_file = folder_.write(stem + ".key", made.key),
            .token = good_token};
  }
  [[nodiscard]] transport_credentials credentials(certificate_use use) const {
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

inline const std::string test_version = "1.2.3";

inline constexpr std::size_t greeting_frame_bytes = frame_header_bytes + join_greeting_bytes;
inline constexpr std::size_t claim_frame_bytes = frame_header_bytes + join_claim_bytes;
inline constexpr std::size_t answer_frame_bytes = frame_header_bytes + join_answer_bytes;

/// Returns the frame in \p bytes, or nothing if they are not a frame.
inline std::optional<frame> parsed(const std::string& bytes) {
  frame_parser parser;
  std::optional<frame> found;
  static_cast<void>(parser.receive(bytes, found));
  return found;
}

/// Returns the claim with which a dialer that knows \p token answers a listener's greeting, without TLS.
inline std::string claim_for(const std::string& greeting, const std::string& token,
                             const std::string& version = test_version, handshake_transcript* into = nullptr) {
  const auto from = parsed(greeting);
  const auto read = from ? decode_greeting(*from) : std::nullopt;
  if (!read) return {};
  const handshake_transcript transcript{.of_listener = read->nonce,
                                        .of_dialer = fresh_nonce(),
                                        .channel = {},
                                        .version_of_listener = read->version,
                                        .version_of_dialer = encode_version(version)};
  if (into != nullptr) *into = transcript;
  return encode(join_claim{transcript.of_dialer, transcript.version_of_dialer,
                           join_secret{token}.proof(connection_side::dialer, transcript)});
}

inline std::optional<join_verdict> verdict_in(const std::string& answer) {
  const auto from = parsed(answer);
  const auto read = from ? decode_answer(*from) : std::nullopt;
  return read ? std::optional{read->verdict} : std::nullopt;
}

inline std::string message_frame(std::string_view payload) {
  return encode_frame(frame_kind::message, payload);
}

/// A client that has been admitted without TLS, and can then send any bytes.
class admitted_client : public loopback_client {
public:
  explicit admitted_client(std::uint16_t port) : loopback_client{port} {
    handshake_transcript transcript;
    send(claim_for(receive(greeting_frame_bytes), good_token, test_version, &transcript));
    if (verdict_in(receive(answer_frame_bytes)) != join_verdict::admitted)
      throw std::runtime_error{"a test's client was not admitted"};
    sealing_.emplace(join_secret{good_token}.message_key(connection_side::dialer, transcript));
  }

  /// Returns the frame of the next message, which the listener can open.
  [[nodiscard]] std::string frame_of(std::string_view payload) { return message_frame(sealing_->seal(payload)); }

private:
  std::optional<frame_cipher> sealing_;
};

/// A dialer with blocking calls, which wait for at most ten seconds.
class test_dialer {
public:
  explicit test_dialer(transport_dialer_options options) : dialer_{std::move(options)} {}
  test_dialer(const test_dialer&) = delete;
  test_dialer& operator=(const test_dialer&) = delete;
  ~test_dialer() { dialer_.stop(); }

  /// Connects. Returns whether it was admitted; otherwise loss() returns the reason.
  bool join() {
    {
      const std::scoped_lock lock{mutex_};
      is_admitted_ = false;
      loss_.reset();
      messages_.clear();
    }
    dialer_.connect({.on_admitted = [this] { set([this] { is_admitted_ = true; }); },
                     .on_message = [this](std::string bytes) { set([&] { messages_.push_back(std::move(bytes)); }); },
                     .on_lost = [this](const transport_fault& why) { set([&] { loss_ = why; }); }});
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, std::chrono::seconds{10}, [this] { return is_admitted_ || loss_; });
    return is_admitted_;
  }

  void send(std::string bytes) { dialer_.send(std::move(bytes)); }

  /// Returns the next message, or nothing if the connection ends first.
  std::optional<std::string> receive() {
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, std::chrono::seconds{10}, [this] { return !messages_.empty() || loss_; });
    if (messages_.empty()) return std::nullopt;
    std::string got = std::move(messages_.front());
    messages_.pop_front();
    return got;
  }

  /// Sends \p what. Returns whether the same bytes come back.
  bool exchanges(const std::string& what) {
    send(what);
    return receive() == what;
  }

  /// Returns why connecting failed or the connection ended; an empty fault if neither happens within ten seconds.
  transport_fault loss() {
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, std::chrono::seconds{10}, [this] { return loss_.has_value(); });
    return loss_.value_or(transport_fault{});
  }

  void stop() { dialer_.stop(); }

private:
  template <class Change>
  void set(Change change) {
    const std::scoped_lock lock{mutex_};
    change();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_admitted_ = false;
  std::optional<transport_fault> loss_;
  std::deque<std::string> messages_;
  transport_dialer dialer_;
};

/// A listener that sends messages back, in either mode, and the options with which dialers reach it.
class transport_rig {
public:
  explicit transport_rig(transport_mode mode, transport_limits limits = {}) : mode_{mode}, limits_{limits} {}

  /// Returns the options of a correctly configured listener.
  transport_listener_options listener_options() {
    transport_listener_options made{
        .mode = mode_,
        .version = test_version,
        .limits = limits_,
        .on_message = [this](peer_id from, std::string bytes) { hear(from, std::move(bytes)); },
        .on_lost =
            [this](peer_id, const transport_fault& why) {
              const std::scoped_lock lock{mutex_};
              losses_.push_back(why);
              changed_.notify_all();
            },
        .on_event = heard.sink()};
    made.credentials = mode_ == transport_mode::plain ? transport_credentials{.token = good_token}
                                                      : ours.credentials(certificate_use::controller);
    return made;
  }

  /// Starts a listener that sends each message back.
  transport_listener& listen(transport_listener_options options) {
    listener_ = std::make_unique<transport_listener>(std::move(options));
    const std::scoped_lock lock{mutex_};
    echo_ = listener_.get();
    return *listener_;
  }
  transport_listener& listen() { return listen(listener_options()); }

  /// Returns the options of a correctly configured dialer to \p port.
  transport_dialer_options dialer_options(std::uint16_t port) {
    transport_dialer_options made{
        .mode = mode_, .port = port, .version = test_version, .limits = limits_, .on_event = said.sink()};
    made.credentials = mode_ == transport_mode::plain ? transport_credentials{.token = good_token}
                                                      : ours.credentials(certificate_use::host);
    return made;
  }
  transport_dialer_options dialer_options() { return dialer_options(listener_->port()); }

  /// Returns the number of bytes in the messages that the listener has delivered.
  [[nodiscard]] std::size_t delivered_bytes() const {
    const std::scoped_lock lock{mutex_};
    return delivered_bytes_;
  }

  /// Returns whether the listener has lost \p count admitted peers within ten seconds.
  [[nodiscard]] bool loses(std::size_t count) const {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, std::chrono::seconds{10}, [&] { return losses_.size() >= count; });
  }

  /// Returns whether no text of either side's events contains a secret.
  [[nodiscard]] bool keeps_secrets() const {
    const std::string all = heard.all_text() + said.all_text();
    return all.find(good_token) == std::string::npos && all.find(bad_token) == std::string::npos &&
           all.find("PRIVATE") == std::string::npos;
  }

  certificate_rig ours;
  transport_events heard; ///< The listener's events.
  transport_events said;  ///< The dialers' events.

private:
  void hear(peer_id from, std::string bytes) {
    const std::scoped_lock lock{mutex_};
    delivered_bytes_ += bytes.size();
    if (echo_ != nullptr) echo_->send(from, std::move(bytes));
  }

  transport_mode mode_;
  transport_limits limits_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<transport_fault> losses_;
  std::size_t delivered_bytes_ = 0;
  transport_listener* echo_ = nullptr;
  std::unique_ptr<transport_listener> listener_; ///< Destroyed first, because it calls into the other members.
};

} // namespace troupe::tests
