/// Where launched processes' lines go in tests, so that one can wait for what they say instead of sleeping.
#pragma once

#include <troupe/processes/launch/child_process.hpp>

#include <catch2/catch_test_macros.hpp>

#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace troupe::tests {

/// A pipe whose lines are read one by one. What is in it and not read fits, or the writer waits.
class captured_lines {
public:
  [[nodiscard]] int native() const { return ends_.writing.native(); }

  /// The next line, without its end; empty when none comes for long.
  std::string next() {
    std::size_t end = 0;
    while ((end = text_.find('\n')) == std::string::npos)
      if (!read_more(patience_ms)) return {};
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }
  /// The next \p count lines; fewer when no more come for long. A job may end before all that it took has been written.
  std::vector<std::string> next(std::size_t count) {
    std::vector<std::string> lines;
    while (lines.size() < count) {
      lines.push_back(next());
      if (lines.back().empty()) break;
    }
    return lines;
  }
  /// Reads until a line holds \p part, and returns that line; empty when none comes.
  std::string await(const std::string& part) {
    for (;;) {
      std::string line = next();
      if (line.empty() || line.find(part) != std::string::npos) return line;
    }
  }
  /// All lines there are now. Call it when who writes is gone.
  std::vector<std::string> rest() {
    while (read_more(0)) {
    }
    std::vector<std::string> lines;
    while (text_.find('\n') != std::string::npos) lines.push_back(next());
    CHECK(text_.empty());
    return lines;
  }

private:
  static constexpr int patience_ms = 30'000;

  bool read_more(int wait_ms) {
    pollfd one{.fd = ends_.reading.native(), .events = POLLIN, .revents = 0};
    if (::poll(&one, 1, wait_ms) <= 0) return false;
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(ends_.reading.native(), buffer.data(), buffer.size());
    if (count <= 0) return false;
    text_.append(buffer.data(), static_cast<std::size_t>(count));
    return true;
  }

  launch::pipe_ends ends_ = launch::make_pipe();
  std::string text_;
};

/// Runs \p script in a shell.
[[nodiscard]] inline launch::process_spec shell_script(std::string script) {
  return {.program = "sh", .arguments = {"-c", std::move(script)}};
}

/// The program troupe, which is built beside the tests.
[[nodiscard]] inline std::string troupe_program() {
  const auto path = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "troupe";
  INFO(path << " is built with the tests");
  REQUIRE(std::filesystem::exists(path));
  return path.string();
}

/// Whether a process of this number is there that has not ended: one that nobody has reaped has ended.
[[nodiscard]] inline bool runs(pid_t pid) {
  std::error_code ended;
  return ::kill(pid, 0) == 0 && !std::filesystem::read_symlink("/proc/" + std::to_string(pid) + "/exe", ended).empty();
}

} // namespace troupe::tests
