// A program that ends with operations in flight, in the way that its first argument names; its second is the backend.
// It says "ending" when it begins to; whatever happens after that is what is looked at.
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/testing/fault_script.hpp>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;

/// What all ways have: a world that has worked, and operations in it that have not ended.
struct scene {
  explicit scene(const std::string& backend)
    : faults{std::make_shared<troupe::testing::fault_script>()}, rt{settings(backend, faults)}, where{rt.form_world()} {
    for (const troupe::rank self : where.local_ranks()) {
      from.push_back(where.allocate(self, bytes));
      to.push_back(where.allocate(self, bytes));
    }
    ask().get();
  }

  [[nodiscard]] std::future<troupe::completion> ask() {
    return where.all_reduce(from, to, bytes / sizeof(float), troupe::dtype::f32, troupe::reduction::sum);
  }
  void leave_in_flight() {
    for (int i = 0; i < 50; ++i) static_cast<void>(ask());
  }
  /// Its peers wait on their devices for a rank that does not come.
  void leave_hung() {
    auto withheld = faults->on(where.local_ranks().back()).next_operation().hang();
    static_cast<void>(ask());
    if (where.size() > 1) withheld.wait();
  }

  static troupe::configuration settings(const std::string& backend,
                                        std::shared_ptr<troupe::testing::fault_script> faults) {
    troupe::configuration all = troupe::configuration::from_environment();
    all.backend = troupe::parse_backend_choice(backend);
    all.deadlines.drain = 500ms;
    all.faults = std::move(faults);
    return all;
  }

  static constexpr std::size_t bytes = std::size_t{1} << 22U;
  std::shared_ptr<troupe::testing::fault_script> faults;
  troupe::runtime rt;
  troupe::world where;
  std::vector<troupe::buffer> from, to;
};

void say_ending() {
  std::puts("ending");
  std::fflush(stdout);
}

/// main() returns, and everything is given back on the way.
void return_in_flight(const std::string& backend) {
  scene all{backend};
  all.leave_in_flight();
  say_ending();
}

void return_hung(const std::string& backend) {
  scene all{backend};
  all.leave_hung();
  say_ending();
}

/// exit() from the middle: nothing of the scene is ever destroyed.
void exit_in_flight(const std::string& backend) {
  scene all{backend};
  all.leave_in_flight();
  say_ending();
  std::exit(0); // NOLINT(concurrency-mt-unsafe): that is what is tested
}

void exit_hung(const std::string& backend) {
  scene all{backend};
  all.leave_hung();
  say_ending();
  std::exit(0); // NOLINT(concurrency-mt-unsafe): that is what is tested
}

/// A static object owns the runtime.
void static_runtime(const std::string& backend) {
  static std::unique_ptr<scene> all;
  all = std::make_unique<scene>(backend);
  all->leave_in_flight();
  say_ending();
}

/// A forked child, which has none of the runtime's threads, calls exit(); its parent goes on.
void exit_forked(const std::string& backend) {
  scene all{backend};
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    std::exit(0); // NOLINT(concurrency-mt-unsafe): that is what is tested
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw std::runtime_error{"the forked child did not end with status 0"};
  all.ask().get();
  say_ending();
}

constexpr int child_status = 7;

[[noreturn]] void exit_of_child() {
  std::exit(child_status); // NOLINT(concurrency-mt-unsafe): that is what is tested
}

/// Calls \p what in a forked child, on whose threads exit() is called. Checks that it ends the child in time.
void end_in_child(const std::function<void()>& what) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    what();
    for (;;) ::pause();
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != child_status)
    throw std::runtime_error{"the child ended with wait status " + std::to_string(status) + " and not by its exit()"};
  say_ending();
}

void exit_in_event(const std::string& backend) {
  end_in_child([&] {
    scene all{backend};
    all.where.on_event([](const troupe::world_event&) { exit_of_child(); });
    all.leave_hung();
    all.where.stop();
  });
}

void exit_in_function(const std::string& backend) {
  end_in_child([&] {
    scene all{backend};
    const auto function = all.where.register_function("exit", [](const troupe::rank_call&) { exit_of_child(); });
    all.where.ask(troupe::rank{0}, troupe::call{function}).get();
  });
}

void exit_in_reply(const std::string& backend) {
  end_in_child([&] {
    scene all{backend};
    all.leave_in_flight();
    troupe::ask_into(all.where, troupe::rank{0},
                     {.what = troupe::copy{all.from[0], all.to[0]}, .epoch = all.where.epoch()},
                     troupe::make_reply_promise([](const troupe::outcome&) { exit_of_child(); }));
    for (;;) ::pause();
  });
}

/// Standard error is a full pipe that nobody reads.
void exit_unread(const std::string& backend) {
  end_in_child([&] {
    int ends[2];
    if (::pipe2(ends, O_NONBLOCK) != 0) throw std::runtime_error{"no pipe"};
    const std::string filling(4096, 'x');
    while (::write(ends[1], filling.data(), filling.size()) > 0) {
    }
    while (::write(ends[1], filling.data(), 1) > 0) {
    }
    ::fcntl(ends[1], F_SETFL, 0);
    ::dup2(ends[1], STDERR_FILENO);
    ::setenv("TROUPE_LOG", "info", 1); // NOLINT(concurrency-mt-unsafe): there are no other threads
    scene all{backend};
    all.leave_in_flight();
    exit_of_child();
  });
}

} // namespace

int main(int count, char** arguments) try {
  const std::map<std::string, std::function<void(const std::string&)>> ways{
      {"return", return_in_flight}, {"return-hung", return_hung},   {"exit", exit_in_flight},
      {"exit-hung", exit_hung},     {"static", static_runtime},     {"forked", exit_forked},
      {"event", exit_in_event},     {"function", exit_in_function}, {"reply", exit_in_reply},
      {"unread", exit_unread}};
  const auto way = count == 3 ? ways.find(arguments[1]) : ways.end();
  if (way == ways.end()) {
    std::fputs(
        "usage: troupe_exits return|return-hung|exit|exit-hung|static|forked|event|function|reply|unread BACKEND\n",
        stderr);
    return 2;
  }
  way->second(arguments[2]);
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
