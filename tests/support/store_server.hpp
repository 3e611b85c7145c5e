/// Servers of stores for tests, on loopback: etcd, and a program that plays the part of Kubernetes' API server.
#pragma once

#include "processes/launch/captured_lines.hpp"
#include "support/transport/loopback_client.hpp"

#include <troupe/processes/launch/child_process.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/store/etcd_store.hpp>
#include <troupe/processes/store/kubernetes_store.hpp>

#include <catch2/catch_test_macros.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace troupe::tests {

/// Skips the test if \p program is not installed, or troupe was built without libcurl.
inline void need_store(const std::string& program) {
  try {
    static_cast<void>(launch::find_program(program));
    static_cast<void>(http_client{{}});
  } catch (const exception& failure) {
    SKIP("no store: " << failure.why().text << " (Debian: apt-get install etcd-server python3 libcurl4-openssl-dev)");
  }
}

/// A server that keeps the decisions of worlds, each under a name of its own.
class store_server {
public:
  store_server() = default;
  store_server(const store_server&) = delete;
  store_server& operator=(const store_server&) = delete;
  virtual ~store_server() = default;

  [[nodiscard]] virtual std::string url(const std::string& world) const = 0;
  [[nodiscard]] virtual std::unique_ptr<controller_store> open(const std::string& world) const = 0;
  /// Lets it serve nobody.
  virtual void stop() = 0;
  /// Lets it serve, with what it has kept.
  virtual void start() = 0;

protected:
  void await_service() const {
    const auto store = open("probe");
    for (int i = 0; i < 600; ++i) {
      try {
        static_cast<void>(store->observe());
        return;
      } catch (const exception&) {
        std::this_thread::sleep_for(std::chrono::milliseconds{50}); // it is asked by polling, for half a minute
      }
    }
    FAIL("the store does not serve");
  }

  captured_lines log_;
};

/// Returns a name for mkdtemp(), in memory where there is room for etcd: on a disk to which others write, one
/// fdatasync() of etcd's has taken 6.8 s, and it serves nobody meanwhile.
inline std::string etcd_folder() {
  constexpr std::uintmax_t needed = 256U << 20U; // etcd allocates 64 MiB at once
  std::error_code none;
  const bool has_room = std::filesystem::space("/dev/shm", none).available >= needed && !none;
  return (has_room ? "/dev/shm" : "/tmp") + std::string{"/troupe-etcd-XXXXXX"};
}

class etcd_server final : public store_server {
public:
  etcd_server() {
    need_store("etcd");
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    etcd_server::start();
  }
  ~etcd_server() override {
    supervisor_.reset();
    std::filesystem::remove_all(folder_);
  }

  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] std::string url(const std::string& world) const override { return "etcd://" + address() + "/" + world; }
  [[nodiscard]] std::unique_ptr<controller_store> open(const std::string& world) const override {
    return std::make_unique<etcd_store>(parse_etcd_url(url(world)));
  }

  void start() override {
    const std::string here = "http://" + address(), peer = "http://127.0.0.1:" + std::to_string(peer_port_);
    supervisor_ = std::make_unique<launch::process_supervisor>(
        launch::supervisor_options{.output = log_.native(), .errors = log_.native()});
    static_cast<void>(supervisor_->start(
        {.program = "etcd",
         .arguments = {"--data-dir", folder_ + "/data", "--log-level", "fatal", "--listen-client-urls", here,
                       "--advertise-client-urls", here, "--listen-peer-urls", peer, "--initial-advertise-peer-urls",
                       peer, "--initial-cluster", "default=" + peer}},
        {}));
    await_service();
  }
  void stop() override { supervisor_.reset(); }

private:
  std::string folder_ = etcd_folder();
  const std::uint16_t port_ = free_port();
  const std::uint16_t peer_port_ = free_port();
  std::unique_ptr<launch::process_supervisor> supervisor_;
};

/// tests/support/kubernetes_api.py, whose namespace is "team". Stopped, it does what was asked when it is started.
class kubernetes_server final : public store_server {
public:
  /// \p tls: the files of its certificate, its key and the tokens that it accepts.
  explicit kubernetes_server(const std::vector<std::string>& tls = {}) {
    need_store("python3");
    std::vector<std::string> arguments{"-B", TROUPE_SOURCE_DIR "/tests/support/kubernetes_api.py",
                                       std::to_string(port_)};
    arguments.insert(arguments.end(), tls.begin(), tls.end());
    pid_ = supervisor_.start({.program = "python3", .arguments = std::move(arguments)}, {}).pid;
    if (tls.empty()) await_service();
  }

  [[nodiscard]] std::uint16_t port() const { return port_; }
  [[nodiscard]] std::string url(const std::string& world) const override {
    return "kubernetes+http://127.0.0.1:" + std::to_string(port_) + "/team/" + world;
  }
  [[nodiscard]] std::unique_ptr<controller_store> open(const std::string& world) const override {
    // Longer than by default: what plays its part is slow on a busy machine.
    return std::make_unique<kubernetes_store>(parse_kubernetes_url(url(world), {.timeout = std::chrono::seconds{2}}));
  }
  void stop() override {
    siginfo_t stopped{};
    REQUIRE(::kill(pid_, SIGSTOP) == 0);
    REQUIRE(::waitid(P_PID, static_cast<id_t>(pid_), &stopped, WSTOPPED) == 0);
  }
  void start() override { REQUIRE(::kill(pid_, SIGCONT) == 0); }

  /// Sends a request of a test. Returns the answer's body.
  std::string ask(const char* method, const std::string& path, const std::string& body = {}) {
    const http_response answer = http_.send(method, "http://127.0.0.1:" + std::to_string(port_) + path, body);
    INFO(answer.body);
    REQUIRE(answer.status < 300);
    return answer.body;
  }
  /// Plays a fault of the next request: see the program.
  void fault(const std::string& what) { static_cast<void>(ask("POST", "/faults", what)); }
  /// Lets it do what it holds, and waits for that.
  void release() { static_cast<void>(ask("POST", "/release")); }

private:
  const std::uint16_t port_ = free_port();
  pid_t pid_ = 0;
  http_client http_{{.timeout = std::chrono::seconds{30}}};
  launch::process_supervisor supervisor_{{.output = log_.native(), .errors = log_.native()}}; ///< Goes first.
};

/// Returns what \p call returns when the store answers. Until then it calls again, as controllers do.
template <class Call>
auto answer_of(const Call& call) {
  for (int i = 0;; ++i) {
    try {
      return call();
    } catch (const exception& failure) {
      if (failure.why().code != errc::missing || i == 20) throw;
    }
  }
}

/// Starts the server of this \p kind: "etcd" or "kubernetes".
inline std::unique_ptr<store_server> start_store(const std::string& kind) {
  if (kind == "etcd") return std::make_unique<etcd_server>();
  return std::make_unique<kubernetes_server>();
}

} // namespace troupe::tests
