#include <troupe/runtime/logging.hpp>

#include <catch2/catch_test_macros.hpp>

#include <spdlog/spdlog.h>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;

/// Standard error as a pipe that is full, while this lives.
class unread_errors {
public:
  unread_errors() {
    REQUIRE(::pipe2(ends_.data(), O_NONBLOCK) == 0);
    const std::string filling(4096, 'x');
    while (::write(ends_[1], filling.data(), filling.size()) > 0) {
    }
    while (::write(ends_[1], filling.data(), 1) > 0) {
    }
    ::fcntl(ends_[1], F_SETFL, 0);
    ::dup2(ends_[1], STDERR_FILENO);
  }
  unread_errors(const unread_errors&) = delete;
  unread_errors& operator=(const unread_errors&) = delete;
  ~unread_errors() {
    ::dup2(before_, STDERR_FILENO);
    for (const int one : {before_, ends_[0], ends_[1]}) ::close(one);
  }
  /// Reads, for at most 20 s, until \p enough returns true for what has been read.
  std::string read_until(const std::function<bool(const std::string&)>& enough) {
    std::string all;
    for (const auto until = std::chrono::steady_clock::now() + 20s;
         !enough(all) && std::chrono::steady_clock::now() < until;) {
      pollfd readable{.fd = ends_[0], .events = POLLIN, .revents = 0};
      ::poll(&readable, 1, 100);
      std::array<char, 65536> some{};
      if (const ssize_t count = ::read(ends_[0], some.data(), some.size()); count > 0)
        all.append(some.data(), static_cast<std::size_t>(count));
    }
    return all;
  }

private:
  int before_ = ::dup(STDERR_FILENO);
  std::array<int, 2> ends_{};
};

/// troupe's logger is made anew within the life of this, and what was there before comes back.
class fresh_logger {
public:
  fresh_logger() { spdlog::drop("troupe"); }
  fresh_logger(const fresh_logger&) = delete;
  fresh_logger& operator=(const fresh_logger&) = delete;
  ~fresh_logger() {
    spdlog::drop("troupe");
    if (before_) spdlog::register_logger(before_);
  }

private:
  std::shared_ptr<spdlog::logger> before_ = spdlog::get("troupe");
};

} // namespace

TEST_CASE("a log that nobody reads delays nobody, and counts the lines that it drops", "[runtime][logging]") {
  const fresh_logger logger;
  unread_errors errors;
  troupe::open_log("warn");
  constexpr int count = 20'000;
  std::promise<void> done;
  auto logged = done.get_future();
  std::thread client{[&] {
    const std::string text(200, 'y');
    for (int i = 0; i < count; ++i) troupe::log_warning(text);
    done.set_value();
  }};
  const bool was_delayed = logged.wait_for(20s) != std::future_status::ready;
  CHECK_FALSE(was_delayed);
  CHECK_FALSE(troupe::flush_log(0ns));
  const std::string text = errors.read_until([&](const std::string& all) { return all.ends_with("waited for it\n"); });
  client.join();
  CHECK(text.find("lines of this log were dropped, because its reader does not keep up") != std::string::npos);
  CHECK(troupe::flush_log(20s));
  const auto written = std::ranges::count(text, '\n') - 1;
  CHECK(text.find(std::to_string(count - written) + " lines of this log") != std::string::npos);
}

TEST_CASE("runtimes made at once on several threads have one logger", "[runtime]") {
  constexpr int rounds = 200;
  const auto before = spdlog::get("troupe");
  constexpr std::size_t thread_count = 4;
  std::barrier begin{thread_count, []() noexcept { spdlog::drop("troupe"); }};
  std::atomic<int> failures{0};
  std::array<std::jthread, thread_count> threads;
  for (std::jthread& one : threads)
    one = std::jthread{[&] {
      for (int i = 0; i < rounds; ++i) {
        begin.arrive_and_wait();
        try {
          troupe::open_log("warn");
        } catch (const spdlog::spdlog_ex&) {
          ++failures;
        }
      }
    }};
  for (std::jthread& one : threads) one.join();
  CHECK(failures == 0);
  spdlog::drop("troupe");
  if (before) spdlog::register_logger(before);
}
