#include <troupe/program/support/finished_program.hpp>

#include <troupe/processes/launch/child_process.hpp>

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

namespace troupe::program {

namespace {

using launch::throw_system_error;

/// Makes an unnamed file in memory. Unlike a pipe it accepts any amount without a reader, so that one thread suffices.
file_descriptor memory_file(const char* name) {
  file_descriptor made{::memfd_create(name, MFD_CLOEXEC)};
  if (!made) throw_system_error("memfd_create", "a file in memory could not be created");
  return made;
}

void fill(const file_descriptor& file, std::string_view text) {
  while (!text.empty()) {
    const auto written = ::write(file.native(), text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) throw_system_error("write", "a file in memory could not be written");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  ::lseek(file.native(), 0, SEEK_SET);
}

std::string content(const file_descriptor& file) {
  std::string text;
  std::array<char, 65536> part; // NOLINT(cppcoreguidelines-pro-type-member-init): read() fills it
  ::lseek(file.native(), 0, SEEK_SET);
  while (true) {
    const auto got = ::read(file.native(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw_system_error("read", "a file in memory could not be read");
    if (got == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

launch::exit_status await(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return {.lost = true};
  if (WIFSIGNALED(status)) return {.signal = WTERMSIG(status)};
  return {.code = WEXITSTATUS(status)};
}

} // namespace

std::string finished_program::last_words() const {
  const std::size_t end = errors.find_last_not_of(" \r\n");
  if (end == std::string::npos) return "it " + to_string(status);
  const std::size_t before = errors.find_last_of("\r\n", end);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  return errors.substr(begin, end + 1 - begin);
}

finished_program run_to_end(const std::vector<std::string>& words, std::string_view input) {
  const std::string path = launch::find_program(words.at(0));
  const std::array files{memory_file("input"), memory_file("output"), memory_file("errors")};
  fill(files[0], input);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (std::size_t i = 0; i < files.size(); ++i)
    ::posix_spawn_file_actions_adddup2(&actions, files[i].native(), static_cast<int>(i));
  std::vector<std::string> owned = words;
  std::vector<char*> arguments;
  for (std::string& word : owned) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int problem = ::posix_spawn(&child, path.c_str(), &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (problem != 0) {
    errno = problem;
    throw_system_error("posix_spawn", "the program '" + path + "' could not be started");
  }
  finished_program done{.status = await(child)};
  done.output = content(files[1]);
  done.errors = content(files[2]);
  return done;
}

} // namespace troupe::program
