/// An etcd server for tests, on loopback.
#pragma once

#include "processes/launch/captured_lines.hpp"
#include "support/transport/loopback_client.hpp"

#include <troupe/processes/launch/child_process.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/store/etcd_store.hpp>

#include <catch2/catch_test_macros.hpp>

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests {

/// Ends the test as skipped if this machine has no etcd or this troupe no libcurl.
inline void need_etcd() {
  try {
    static_cast<void>(launch::find_program("etcd"));
    static_cast<void>(http_client{{}});
  } catch (const exception& failure) {
    SKIP("no store: " << failure.why().text << " (Debian: apt-get install etcd-server libcurl4-openssl-dev)");
  }
}

class etcd_server {
public:
  etcd_server() : folder_{"/tmp/troupe-etcd-XXXXXX"}, port_{free_port()}, peer_port_{free_port()} {
    need_etcd();
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    start();
  }
  etcd_server(const etcd_server&) = delete;
  etcd_server& operator=(const etcd_server&) = delete;
  ~etcd_server() {
    supervisor_.reset();
    std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::string url(const std::string& prefix) const { return "etcd://" + address() + "/" + prefix; }
  [[nodiscard]] std::unique_ptr<etcd_store> open(const std::string& prefix) const {
    return std::make_unique<etcd_store>(parse_etcd_url(url(prefix)));
  }

  /// Starts it, with what it has kept, and waits until it serves.
  void start() {
    const std::string here = "http://" + address(), peer = "http://127.0.0.1:" + std::to_string(peer_port_);
    supervisor_ = std::make_unique<launch::process_supervisor>(
        launch::supervisor_options{.output = log_.native(), .errors = log_.native()});
    static_cast<void>(supervisor_->start(
        {.program = "etcd",
         .arguments = {"--data-dir", folder_ + "/data", "--log-level", "fatal", "--listen-client-urls", here,
                       "--advertise-client-urls", here, "--listen-peer-urls", peer, "--initial-advertise-peer-urls",
                       peer, "--initial-cluster", "default=" + peer}},
        {}));
    const auto store = open("probe");
    for (int i = 0; i < 600; ++i) {
      try {
        static_cast<void>(store->observe());
        return;
      } catch (const exception&) {
        std::this_thread::sleep_for(std::chrono::milliseconds{50}); // it is asked by polling, for half a minute
      }
    }
    FAIL("etcd does not serve");
  }
  /// Kills it.
  void stop() { supervisor_.reset(); }

private:
  std::string folder_;
  const std::uint16_t port_;
  const std::uint16_t peer_port_;
  captured_lines log_;
  std::unique_ptr<launch::process_supervisor> supervisor_;
};

} // namespace troupe::tests
