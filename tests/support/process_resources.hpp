/// Counts threads, descriptors and listening sockets of the test process. Threads left by other tests and sockets of
/// other processes do not affect the counts.
#pragma once

#include <pthread.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace troupe::tests {

/// Returns the ids of the threads of this process whose kernel name begins with \p name. A listing of /proc/self/task
/// can miss threads when another one ends meanwhile, so this repeats it until two listings in a row agree.
inline std::vector<int> threads_named(const std::string& name) {
  const auto listed = [&] {
    std::vector<int> found;
    for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
      std::string seen;
      std::getline(std::ifstream{task.path() / "comm"}, seen);
      if (!seen.starts_with(name)) continue;
      const std::string id = task.path().filename();
      std::from_chars(id.data(), id.data() + id.size(), found.emplace_back());
    }
    return found;
  };
  for (auto last = listed();;) {
    auto next = listed();
    if (next == last) return next;
    last = std::move(next);
  }
}

/// Waits until this process has \p expected threads whose kernel name begins with \p name: a thread sets its name
/// after it has begun, and the kernel lists a joined thread for a moment after the join.
inline bool threads_come_to(const std::string& name, std::size_t expected,
                            std::chrono::seconds patience = std::chrono::seconds{20}) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (threads_named(name).size() != expected) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  return true;
}

/// Counts the threads that the calling thread starts during the life of this object, directly or through threads that
/// it has started. A thread inherits the kernel name of the thread that starts it, so this gives the calling thread a
/// name of its own. Threads that set a name themselves are not counted.
class started_threads {
public:
  static constexpr const char* name = "counted-test";

  started_threads() {
    std::thread{[] {}}.join(); // ThreadSanitizer starts a thread of its own with the first one, which would be counted
    pthread_getname_np(pthread_self(), previous_.data(), previous_.size());
    pthread_setname_np(pthread_self(), name);
  }
  started_threads(const started_threads&) = delete;
  started_threads& operator=(const started_threads&) = delete;
  ~started_threads() { pthread_setname_np(pthread_self(), previous_.data()); }

  [[nodiscard]] std::size_t count() const { return threads_named(name).size() - 1; }

  [[nodiscard]] bool comes_to(std::size_t expected) const { return threads_come_to(name, expected + 1); }

private:
  std::array<char, 16> previous_{};
};

/// Returns the number of open descriptors of this process.
inline std::size_t open_descriptors() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator{"/proc/self/fd"}, {}));
}

/// Returns the inodes of the TCP and Unix sockets on which this process listens.
inline std::set<std::string> listening_sockets() {
  std::set<std::string> own, found;
  for (const auto& one : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code none;
    const std::string to = std::filesystem::read_symlink(one.path(), none).string(); // "socket:[12345]"
    if (to.starts_with("socket:[")) own.insert(to.substr(8, to.size() - 9));
  }
  const auto look = [&](const char* table, std::size_t state_column, const std::string& listens,
                        std::size_t inode_column) {
    std::ifstream from{table};
    for (std::string line; std::getline(from, line);) {
      std::istringstream words{line};
      const std::vector<std::string> all{std::istream_iterator<std::string>{words}, {}};
      if (all.size() > inode_column && all[state_column] == listens && own.contains(all[inode_column]))
        found.insert(all[inode_column]);
    }
  };
  look("/proc/net/tcp", 3, "0A", 9);
  look("/proc/net/tcp6", 3, "0A", 9);
  look("/proc/net/unix", 3, "00010000", 6);
  return found;
}

} // namespace troupe::tests
