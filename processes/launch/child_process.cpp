#include <troupe/processes/launch/child_process.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/runtime/configuration/launch_environment.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>
#include <vector>

namespace troupe::launch {

std::string to_string(const exit_status& status) {
  if (status.lost) return "was lost: its exit status is unknown";
  if (status.signal != 0) return "was ended by signal " + describe_signal(status.signal);
  return "ended with exit status " + std::to_string(status.code);
}

std::string describe_signal(int signal) {
  const char* const name = ::sigabbrev_np(signal);
  return std::to_string(signal) + (name != nullptr ? " (SIG" + std::string{name} + ")" : "");
}

namespace {

constexpr const char* out_of_descriptors = "no file descriptor is left: raise the limit (ulimit -n)";

/// Returns a descriptor above 2. The child's descriptors 0, 1 and 2 are set one after the other, which must not
/// overwrite one that is still needed.
file_descriptor above_standard(file_descriptor given) {
  if (given.native() > STDERR_FILENO) return given;
  file_descriptor moved{::fcntl(given.native(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1)};
  if (!moved) throw_system_error("fcntl", out_of_descriptors);
  return moved;
}

void make_nonblocking(const file_descriptor& descriptor) {
  const int flags = ::fcntl(descriptor.native(), F_GETFL);
  if (flags < 0 || ::fcntl(descriptor.native(), F_SETFL, flags | O_NONBLOCK) != 0)
    throw_system_error("fcntl", "a pipe could not be made non-blocking");
}

} // namespace

pipe_ends make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw_system_error("pipe2", out_of_descriptors);
  file_descriptor reading{ends[0]};
  file_descriptor writing{ends[1]};
  return {above_standard(std::move(reading)), above_standard(std::move(writing))};
}

void throw_system_error(const char* call, const std::string& text) {
  troupe::throw_system_error(errc::unsupported, call, text);
}

namespace {

bool is_executable(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) && ::access(path.c_str(), X_OK) == 0;
}

} // namespace

std::string find_program(const std::string& program) {
  if (program.find('/') != std::string::npos) {
    if (is_executable(program)) return program;
    std::error_code ignored;
    throw exception{errc::missing,
                    "the program '" + program + "' " +
                        (std::filesystem::exists(program, ignored) ? "is not an executable file" : "does not exist")};
  }
  std::istringstream folders{process_variables()("PATH").value_or("/usr/local/bin:/usr/bin:/bin")};
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = (folder.empty() ? "." : folder) + "/" + program;
    if (!program.empty() && is_executable(path)) return path;
  }
  throw exception{errc::missing, "the program '" + program + "' is not in PATH: write its path, as in ./" + program};
}

std::string own_program() {
  std::error_code problem;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", problem);
  if (problem) throw exception{errc::unsupported, "/proc/self/exe cannot be read: " + problem.message()};
  return path.string();
}

namespace {

/// The data that the child needs between fork and exec, where allocation is not allowed.
struct exec_plan {
  std::string program;
  std::vector<std::string> words;
  std::vector<std::string> variables;
  std::vector<char*> argument_pointers{};
  std::vector<char*> variable_pointers{};
  sigset_t signals{};
  int standard[3]{-1, -1, -1};
  int tell = -1;
};

/// The step that failed between fork and exec. The child writes it to a pipe that exec closes.
struct exec_failure {
  enum class step : int { start, exec } at;
  int code;
};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> changed_environment(const std::vector<variable_change>& changes) {
  const auto is_changed = [&](std::string_view name) {
    return std::ranges::any_of(changes, [&](const variable_change& one) { return one.name == name; });
  };
  std::vector<std::string> all;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view text{*one};
    if (!is_changed(text.substr(0, text.find('=')))) all.emplace_back(text);
  }
  for (const auto& [name, value] : changes)
    if (value) all.push_back(name + "=" + *value);
  return all;
}

constexpr int not_run_status = 127;

[[noreturn]] void fail(const exec_plan& plan, exec_failure::step at) noexcept {
  const exec_failure why{at, errno};
  [[maybe_unused]] const ssize_t told = ::write(plan.tell, &why, sizeof why);
  ::_exit(not_run_status);
}

/// Runs in the child. Only functions that are safe after fork() in a process with threads may be called.
[[noreturn]] void become(const exec_plan& plan, pid_t parent) noexcept {
  using step = exec_failure::step;
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) fail(plan, step::start);
  if (::getppid() != parent) ::_exit(not_run_status); // the parent ended before prctl()
  if (::setpgid(0, 0) != 0) fail(plan, step::start);
  for (int i = 0; i < 3; ++i)
    if (::dup2(plan.standard[i], i) < 0) fail(plan, step::start);
  ::sigprocmask(SIG_SETMASK, &plan.signals, nullptr); // NOLINT(concurrency-mt-unsafe): the child has one thread
  ::execve(plan.program.c_str(), plan.argument_pointers.data(), plan.variable_pointers.data());
  fail(plan, step::exec);
}

} // namespace

child_process::child_process(const process_spec& what, const sigset_t& signals) {
  exec_plan plan{.program = find_program(what.program),
                 .words = what.arguments,
                 .variables = changed_environment(what.environment),
                 .signals = signals};
  plan.words.insert(plan.words.begin(), what.program);
  plan.argument_pointers = pointers_to(plan.words);
  plan.variable_pointers = pointers_to(plan.variables);

  const file_descriptor nothing = make_pipe().reading; // its input ends at once
  auto [output, its_output] = make_pipe();
  auto [errors, its_errors] = make_pipe();
  auto [told, tell] = make_pipe();
  // NOLINTBEGIN(cppcoreguidelines-prefer-member-initializer): the pipes are made after what can fail without them
  output_ = std::move(output);
  errors_ = std::move(errors);
  // NOLINTEND(cppcoreguidelines-prefer-member-initializer)
  make_nonblocking(output_);
  make_nonblocking(errors_);
  plan.standard[STDIN_FILENO] = nothing.native();
  plan.standard[STDOUT_FILENO] = its_output.native();
  plan.standard[STDERR_FILENO] = its_errors.native();
  plan.tell = tell.native();

  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) become(plan, parent);
  if (child < 0) throw_system_error("fork", "no process could be started: raise the limit (ulimit -u)");
  pid_ = child;
  tell.close();
  ended_ = file_descriptor{static_cast<int>(::syscall(SYS_pidfd_open, child, 0))};
  if (!ended_) {
    const int code = errno;
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    troupe::throw_system_error(errc::unsupported, "pidfd_open",
                               "a process cannot be monitored: this needs Linux 5.3 or newer", code);
  }
  await_exec(std::move(told), what);
}

void child_process::await_exec(file_descriptor told, const process_spec& what) const {
  exec_failure why{};
  const ssize_t count = TEMP_FAILURE_RETRY(::read(told.native(), &why, sizeof why));
  if (count != static_cast<ssize_t>(sizeof why)) return; // exec closed the pipe
  ::waitpid(pid_, nullptr, 0);
  troupe::throw_system_error(why.at == exec_failure::step::start ? errc::unsupported : errc::missing, "execve",
                             "'" + what.program + "' cannot be started", why.code);
}

child_process::~child_process() {
  if (!ended_ || made_.is_inherited()) return;
  kill(SIGKILL);
  await_end();
  return_or_report("a process", [&] {
    if (!reap())
      throw exception{errc::unsupported,
                      "process " + std::to_string(pid_) + " was killed and does not end: a driver may block it"};
  });
}

void child_process::kill(int signal) noexcept {
  if (ended_) ::kill(-pid_, signal);
}

void child_process::await_end() const noexcept {
  constexpr int patience_ms = 5000;
  pollfd waiting{ended_.native(), POLLIN, {}};
  static_cast<void>(TEMP_FAILURE_RETRY(::poll(&waiting, 1, patience_ms)));
}

std::optional<exit_status> child_process::reap() noexcept {
  siginfo_t how{};
  if (!ended_) return std::nullopt;
  if (::waitid(P_PID, static_cast<id_t>(pid_), &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid == 0)
    return std::nullopt;
  // Until the process is reaped, no other process or group can have its number.
  ::kill(-pid_, SIGKILL);
  ::waitpid(pid_, nullptr, WNOHANG);
  ended_.close();
  if (how.si_code == CLD_EXITED) return exit_status{.code = how.si_status};
  if (how.si_pid == 0) return exit_status{.lost = true}; // another part of the program has reaped it
  return exit_status{.signal = how.si_status};
}

} // namespace troupe::launch
