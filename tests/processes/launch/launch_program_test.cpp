/// The program `troupe launch`: what its processes begin with, and how it ends when it cannot begin.

#include "captured_lines.hpp"
#include "support/outcomes.hpp"

#include <troupe/processes/controller.hpp>
#include <troupe/processes/launch/child_process.hpp>
#include <troupe/processes/launch/process_supervisor.hpp>
#include <troupe/processes/transport/certificates.hpp>
#include <troupe/runtime/runtime.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;
using launch::exit_status;
using launch::process_supervisor;

/// A run of the program troupe, with what it says.
class program_run {
public:
  explicit program_run(std::vector<std::string> words) {
    launch::process_spec spec{.program = troupe_program(), .arguments = std::move(words)};
    spec.environment = {{"TROUPE_JOIN_TOKEN", std::string(32, 'x')}};
    pid_ = supervisor_
               .start(spec, {.on_exit = [this](launch::process_number, pid_t,
                                               const exit_status& how) { ended_.set_value(how); }})
               .pid;
  }
  program_run(const program_run&) = delete;
  program_run& operator=(const program_run&) = delete;
  ~program_run() = default;

  [[nodiscard]] pid_t pid() const { return pid_; }
  captured_lines& output() { return output_; }
  captured_lines& errors() { return errors_; }
  /// How it ended; nothing when it does not for long.
  std::optional<exit_status> end() {
    auto future = ended_.get_future();
    if (future.wait_for(30s) != std::future_status::ready) return std::nullopt;
    return future.get();
  }

private:
  captured_lines output_;
  captured_lines errors_;
  std::promise<exit_status> ended_;
  pid_t pid_ = 0;
  process_supervisor supervisor_{{.output = output_.native(), .errors = errors_.native()}}; ///< Goes first.
};

class program_folder {
public:
  program_folder() : path_{"/tmp/troupe-launch-XXXXXX"} { REQUIRE(::mkdtemp(path_.data()) != nullptr); }
  program_folder(const program_folder&) = delete;
  program_folder& operator=(const program_folder&) = delete;
  ~program_folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string operator/(const char* name) const { return path_ + "/" + name; }

private:
  std::string path_;
};

controller_options one_process_at(std::uint16_t port) {
  controller_options options{.terms = {.world_size = 1}, .port = port};
  options.terms.token = std::string(32, 'x');
  return options;
}

/// Returns the line of /proc/self/status that names the signals that this process ignores, as its children do.
std::string ignored_here() {
  std::ifstream status{"/proc/self/status"};
  std::string line;
  while (std::getline(status, line) && !line.starts_with("SigIgn:")) {
  }
  return line;
}

std::string port_of(const controller& one) {
  return one.address().substr(one.address().rfind(':') + 1);
}

/// The program troupe with a standard error that is full before it starts, and that nobody reads.
class unread_run {
public:
  explicit unread_run(const std::vector<std::string>& words) : shell_{shell_of(words, folder_), no_signals()} {
    // The reading end, opened again, is a writing end: /proc has the pipe itself.
    const std::string pipe = "/proc/self/fd/" + std::to_string(shell_.errors().native());
    const file_descriptor filler{::open(pipe.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC)};
    const std::string page(4096, 'x');
    while (::write(filler.native(), page.data(), page.size()) > 0 || ::write(filler.native(), page.data(), 1) > 0) {
    }
    REQUIRE(errno == EAGAIN);
    std::ofstream{folder_ / "gate"} << "begin\n";
  }

  /// The address that `troupe controller` prints.
  [[nodiscard]] std::string address() {
    std::string line;
    for (pollfd one{.fd = shell_.output().native(), .events = POLLIN, .revents = 0};
         !line.ends_with('\n') && ::poll(&one, 1, patience_ms) == 1;) {
      char next = 0;
      if (::read(one.fd, &next, 1) != 1) break;
      line += next;
    }
    REQUIRE(line.starts_with("TROUPE_CONTROL="));
    return line.substr(line.find('=') + 1, line.size() - line.find('=') - 2);
  }
  /// How it ended; nothing when it does not for long.
  std::optional<exit_status> end() {
    pollfd one{.fd = shell_.ended(), .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, patience_ms) == 1 ? shell_.reap() : std::nullopt;
  }

private:
  static constexpr int patience_ms = 30'000;

  static launch::process_spec shell_of(const std::vector<std::string>& words, const program_folder& folder) {
    const std::string gate = folder / "gate";
    REQUIRE(::mkfifo(gate.c_str(), 0600) == 0);
    launch::process_spec spec = shell_script("read go <" + gate + "; exec \"$0\" \"$@\"");
    spec.arguments.push_back(troupe_program());
    spec.arguments.insert(spec.arguments.end(), words.begin(), words.end());
    spec.environment = {{"TROUPE_JOIN_TOKEN", std::string(32, 'x')}};
    return spec;
  }
  static sigset_t no_signals() {
    sigset_t none;
    sigemptyset(&none);
    return none;
  }

  program_folder folder_;
  launch::child_process shell_;
};

} // namespace

// Programs that do not set their signal mask: shells clear it, and would hide what they inherit.

TEST_CASE("launched processes begin with the signals of the launcher's start", "[launch]") {
  program_run run{{"launch", "-n", "1", "--", "grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"}};
  CHECK(run.output().next() == "[0] SigBlk:\t0000000000000000");
  CHECK(run.output().next() == "[0] " + ignored_here()); // e.g. SIGHUP if nohup runs the tests
  CHECK(run.end() == exit_status{});
}

TEST_CASE("a program that never heard of signal masks ends at the SIGTERM of a drain", "[launch]") {
  const program_folder folder;
  std::ofstream{folder / "mark"} << "ready\n";
  // tail says that it runs, and then waits.
  program_run run{{"launch", "-n", "2", "--grace", "10min", "--", "tail", "-f", folder / "mark"}};
  for (int i = 0; i < 2; ++i) CHECK_FALSE(run.output().await("ready").empty());
  ::kill(run.pid(), SIGTERM);
  CHECK(run.end() == exit_status{.code = 128 + SIGTERM});
  CHECK(run.errors().await("ends with status").find("was ended by signal 15 (SIGTERM)") != std::string::npos);
}

TEST_CASE("a controller that cannot begin is an error, and nothing of it is left", "[launch][processes]") {
  const controller first{one_process_at(0)};
  const auto port = static_cast<std::uint16_t>(std::stoi(port_of(first)));
  CHECK(code_of([&] { const controller second{one_process_at(port)}; }) == errc::invalid_argument);
  controller_options guarded = one_process_at(0);
  guarded.certificates = transport_credentials{
      .ca_file = "/no/such/ca.pem", .certificate_file = "/no/such/controller.pem", .key_file = "/no/such/key"};
  CHECK(code_of([&] { const controller third{guarded}; }) == errc::missing);
}

TEST_CASE("a launcher or controller that cannot start says why, and ends", "[launch]") {
  const program_folder folder;
  for (const char* const name : {"one", "two"})
    static_cast<void>(make_certificates({.folder = folder / name, .hosts = {}, .days = 1}));
  std::filesystem::copy_file(folder / "two/ca.pem", folder / "one/ca.pem",
                             std::filesystem::copy_options::overwrite_existing);
  const controller other{one_process_at(0)};
  struct mistake {
    std::vector<std::string> options;
    std::string said;
  };
  const std::vector<mistake> mistakes{
      {{"--port", port_of(other)}, port_of(other)},
      {{"--certs", folder / "none"}, "none/ca.pem' cannot be read"},
      {{"--certs", folder / "one"}, "one/controller.pem' is not signed by the CA in"},
      {{"--certs", folder / "two", "--port", port_of(other)}, "cannot listen at 127.0.0.1:" + port_of(other)},
      {{"--certs", folder / "two", "--bind", "192.0.2.1"}, "cannot listen at 192.0.2.1"},
  };
  for (const mistake& one : mistakes)
    for (const char* const command : {"launch", "controller"}) {
      std::vector<std::string> words{command, "-n", "1"};
      words.insert(words.end(), one.options.begin(), one.options.end());
      if (words.front() == "launch") words.insert(words.end(), {"--", "sleep", "1000"});
      INFO(command << " " << one.options.front() << " " << one.options[1]);
      program_run run{words};
      CHECK(run.end() == exit_status{.code = 1});
      CHECK_FALSE(run.errors().await(one.said).empty());
    }
}

TEST_CASE("a launcher or a controller that fails ends, though nobody reads why", "[launch]") {
  const controller other{one_process_at(0)};
  const std::string taken = port_of(other);
  SECTION("a launcher that cannot listen") {
    CHECK(unread_run{{"launch", "-n", "1", "--port", taken, "--", "true"}}.end() == exit_status{.code = 1});
  }
  SECTION("a launcher that does not find its program") {
    CHECK(unread_run{{"launch", "-n", "1", "--", "/no/such/program"}}.end() == exit_status{.code = 127});
  }
  SECTION("a controller that cannot listen") {
    CHECK(unread_run{{"controller", "-n", "1", "--port", taken}}.end() == exit_status{.code = 1});
  }
  SECTION("a command line that cannot be understood") {
    const auto how = unread_run{{"lanch"}}.end();
    REQUIRE(how);
    CHECK(how->signal == 0);
    CHECK_FALSE(how->succeeded());
  }
  SECTION("a controller whose world fails") {
    unread_run run{{"controller", "-n", "2", "--gather", "100ms"}};
    configuration settings;
    settings.backend = backend_choice::mock;
    settings.profile = latency_profile::frugal;
    settings.mock.devices = 1;
    settings.log_level = "off";
    settings.control = {.address = run.address(), .patience = 60s};
    settings.control.assignment = {.token = std::string(32, 'x'), .name = "alone", .place = 0};
    CHECK(code_of([&] { static_cast<void>(runtime{settings}.form_world()); }) == errc::deadline_exceeded);
    CHECK(run.end() == exit_status{.code = 1});
  }
}

TEST_CASE("a launcher says whom its controller refuses", "[launch]") {
  program_run run{{"launch", "-n", "1", "--no-respawn", "--", "env", "TROUPE_JOIN_TOKEN=" + std::string(32, 'y'),
                   troupe_program(), "demo", "--backend", "mock"}};
  CHECK_FALSE(run.errors().await("[warning] 127.0.0.1").empty());
  CHECK_FALSE(run.end() == exit_status{});
}

TEST_CASE("a launcher whose output nobody reads ends at a later SIGTERM", "[launch]") {
  sigset_t none;
  sigemptyset(&none);
  // More than a pipe and the launcher's own buffer hold.
  launch::child_process launcher{
      {.program = troupe_program(),
       .arguments = {"launch", "-n", "1", "--grace", "10min", "--no-prefix", "--", "sh", "-c", "exec yes"}},
      none};
  const auto within = [](int descriptor, int patience_ms) {
    pollfd one{.fd = descriptor, .events = POLLIN, .revents = 0};
    return ::poll(&one, 1, patience_ms) == 1;
  };
  REQUIRE(within(launcher.output().native(), 30'000)); // its process runs
  // The first ends the job; one that comes when that is over ends the launcher.
  int asked = 0;
  do ::kill(launcher.pid(), SIGTERM);
  while (!within(launcher.ended(), 100) && ++asked < 300);
  REQUIRE(within(launcher.ended(), 0));
  // By the signal, or with the status of its process, which the first signal ended.
  const auto status = launcher.reap();
  REQUIRE(status);
  CHECK(status->as_shell_status() == 128 + SIGTERM);
}

} // namespace troupe::tests
