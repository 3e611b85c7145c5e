// A world of four that is asked, faults and comes back, in a process that may have n threads at once, or that gets no
// more memory from its n-th allocation on. For each n, in a process of its own: every request is answered once
// (ONE-1), nothing terminates, and where there is enough again the world serves again.
//   troupe_failing_points threads|memory FIRST STEP
#include <troupe/device/memory/memory_reserve.hpp>
#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/testing/fault_script.hpp>

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <memory>
#include <new>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr long long never = -1;
constinit std::atomic<long long> most_threads{never};
constinit std::atomic<long long> allocations_left{never}; ///< Until there are no more.
constinit std::atomic<bool> is_out_of_memory{false};
constinit std::atomic<bool> was_out{false};
constinit std::atomic<long long> live_bytes{0};
constinit std::atomic<long long> most_bytes{0}; ///< From when memory is out.

void count_down() noexcept {
  if (allocations_left.load(std::memory_order_relaxed) < 0 || allocations_left.fetch_sub(1) != 0) return;
  allocations_left = never;
  most_bytes = live_bytes.load();
  was_out = true;
  is_out_of_memory = true;
}

/// Without memory: this is asked where there may be none.
long long living_threads() noexcept {
  char text[2048];
  const int file = ::open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
  const ssize_t length = ::read(file, text, sizeof text - 1);
  ::close(file);
  text[std::max<ssize_t>(length, 0)] = 0;
  const char* field = std::strrchr(text, ')'); // the second field's end; that of threads is the 20th
  for (int i = 2; field != nullptr && i < 20; ++i) field = std::strchr(field + 1, ' ');
  return field != nullptr ? std::atoll(field) : 0;
}

/// Whether \p size_bytes more may be had.
bool may_take(std::size_t size_bytes) noexcept {
  count_down();
  return !is_out_of_memory || live_bytes + static_cast<long long>(size_bytes) <= most_bytes;
}

void* take(std::size_t size_bytes, std::size_t alignment) {
  for (;;) {
    if (may_take(size_bytes))
      if (void* const found =
              alignment <= alignof(std::max_align_t)
                  // NOLINTNEXTLINE(cppcoreguidelines-no-malloc): of operator new
                  ? std::malloc(std::max<std::size_t>(size_bytes, 1))
                  : std::aligned_alloc(alignment, (size_bytes + alignment - 1) / alignment * alignment)) {
        live_bytes += static_cast<long long>(::malloc_usable_size(found));
        return found;
      }
    const std::new_handler handler = std::get_new_handler();
    if (handler == nullptr) throw std::bad_alloc{};
    handler(); // returns when it has given a piece of the reserve
    most_bytes += static_cast<long long>(troupe::memory_reserve::piece_bytes);
  }
}

void give(void* block) noexcept {
  if (block != nullptr) live_bytes -= static_cast<long long>(::malloc_usable_size(block));
  std::free(block); // NOLINT(cppcoreguidelines-no-malloc): of operator delete
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name)); // NOLINT(cppcoreguidelines-pro-type-reinterpret-cast)
}

} // namespace

void* operator new(std::size_t size_bytes) {
  return take(size_bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t size_bytes, std::align_val_t alignment) {
  return take(size_bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* block) noexcept {
  give(block);
}
void operator delete(void* block, std::size_t) noexcept {
  give(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
  give(block);
}
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  give(block);
}

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*start_routine)(void*),
                              void* arg) noexcept {
  static auto* const real = next<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
  if (most_threads < 0 || living_threads() < most_threads) return real(thread, attr, start_routine, arg);
  was_out = true;
  return EAGAIN;
}

extern "C" void* mmap(void* addr, std::size_t len, int prot, int flags, int fd, off_t offset) noexcept {
  static auto* const real = next<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
  if (!is_out_of_memory || len != troupe::memory_reserve::piece_bytes) return real(addr, len, prot, flags, fd, offset);
  errno = ENOMEM;
  return MAP_FAILED;
}

namespace {

constexpr int status_of_enough = 3; ///< There was no n-th.
constexpr unsigned deadline_s = 120;
constexpr std::size_t count = 1024;

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  ::_exit(1);
}

struct scene {
  explicit scene() : rt{settings(faults)}, where{rt.form_world()} {
    for (const troupe::rank self : where.local_ranks()) memory.push_back(where.allocate(self, count * sizeof(float)));
  }

  /// None: the call itself was refused.
  [[nodiscard]] std::future<troupe::completion> ask() {
    try {
      return where.all_reduce(memory, memory, count, troupe::dtype::f32, troupe::reduction::max);
    } catch (const std::bad_alloc&) {
    } catch (const troupe::exception&) {
    }
    return {};
  }
  /// Returns whether it succeeded.
  static bool is_answered_well(std::future<troupe::completion> reply) {
    if (!reply.valid()) return false;
    if (reply.wait_for(60s) != std::future_status::ready) fail("a request was not answered within 60 s");
    try {
      reply.get();
      return true;
    } catch (const std::future_error& lost) {
      fail(std::string{"a request was dropped: "} + lost.what());
    } catch (const std::exception&) {
      return false;
    }
  }
  /// All ranks agree: each gets the same value, or none gets one. What is refused at one rank is refused at all.
  void agree_at_all() const {
    std::vector<std::future<troupe::completion>> replies;
    replies.reserve(memory.size());
    for (const troupe::rank self : where.local_ranks()) try {
        troupe::rank_lane lane{where, self, agreeing};
        replies.push_back(lane.agree(troupe::agreement_rule::sum, 1, {.deadline = 100ms}));
      } catch (const std::bad_alloc&) {
      } catch (const troupe::exception&) {
      }
    std::size_t values = 0;
    for (auto& one : replies) {
      if (one.wait_for(60s) != std::future_status::ready) fail("an agree was not answered within 60 s");
      try {
        if (one.get().agreed->integer() != static_cast<std::int64_t>(memory.size()))
          fail("an agree gave a wrong value");
        ++values;
      } catch (const std::future_error& lost) {
        fail(std::string{"an agree was dropped: "} + lost.what());
      } catch (const std::exception&) { // refused
      }
    }
    if (values != 0 && values != memory.size()) fail("an agree gave its value to some ranks only");
  }
  bool ask_until_served(std::chrono::seconds patience) {
    for (const auto until = std::chrono::steady_clock::now() + patience; std::chrono::steady_clock::now() < until;) {
      if (is_answered_well(ask())) return true;
      if (is_out_of_memory) return false;
      std::this_thread::sleep_for(5ms); // the world is being formed
    }
    return false;
  }

  static troupe::configuration settings(std::shared_ptr<troupe::testing::fault_script> faults) {
    troupe::configuration all;
    all.backend = troupe::backend_choice::mock;
    all.mock.devices = 4;
    all.mock.memory_bytes = 1U << 20U;
    all.profile = troupe::latency_profile::frugal;
    all.log_level = "off";
    all.deadlines.form = all.deadlines.abort = all.deadlines.drain = all.deadlines.release = 5s;
    all.recovery = {.policy = troupe::recovery_policy::keep_size, .rebuilds = 20, .window = 10min, .backoff = 10ms};
    all.faults = std::move(faults);
    return all;
  }

  std::shared_ptr<troupe::testing::fault_script> faults = std::make_shared<troupe::testing::fault_script>();
  troupe::runtime rt;
  troupe::world where;
  std::vector<troupe::buffer> memory;
  troupe::lane agreeing = troupe::lane::named("agreeing"); ///< Named while there is memory.
};

void play(bool is_of_memory, long long n) {
  if (!is_of_memory) most_threads = n;
  std::unique_ptr<scene> all;
  try {
    all = std::make_unique<scene>();
  } catch (const troupe::exception& refused) {
    if (was_out && refused.why().code == troupe::errc::out_of_memory) return; // said before anything was asked
    fail(std::string{"the beginning failed otherwise: "} + refused.what());
  }
  if (!all->ask_until_served(60s)) fail("the world did not serve at all");
  if (is_of_memory) allocations_left = n;

  for (int i = 0; i < 4; ++i) all->agree_at_all();
  std::vector<std::future<troupe::completion>> replies;
  replies.reserve(64);
  for (const bool is_launch : {true, false}) {
    const auto target = all->faults->on(troupe::rank{2});
    auto happened = is_launch ? target.next_operation().fail() : target.next_check().fail();
    for (int i = 0; i < 8; ++i) replies.push_back(all->ask());
    for (auto& one : replies) static_cast<void>(scene::is_answered_well(std::move(one)));
    replies.clear();
    if (!all->ask_until_served(60s) && !is_out_of_memory) fail("the world did not come back");
    all->agree_at_all();
  }
  all->faults->release();
  is_out_of_memory = false; // threads stay out: what recovery needs is there
  allocations_left = never;
  if (!all->ask_until_served(60s)) fail("the world did not serve again: " + describe(all->where.status()));
  all->where.stop();
}

/// Returns the status that one with \p n ends with.
int play_in_child(bool is_of_memory, long long n) {
  const pid_t child = ::fork();
  if (child < 0) fail("no process can be forked");
  if (child == 0) {
    ::alarm(deadline_s);
    try {
      play(is_of_memory, n);
    } catch (const std::exception& failure) {
      fail(failure.what());
    }
    ::_exit(was_out ? 0 : status_of_enough);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

} // namespace

int main(int argument_count, char** arguments) {
  const std::string kind = argument_count == 4 ? arguments[1] : "";
  const long long step = argument_count == 4 ? std::atoll(arguments[3]) : 0;
  if ((kind != "threads" && kind != "memory") || step <= 0) {
    std::fputs("usage: troupe_failing_points threads|memory FIRST STEP\n", stderr);
    return 2;
  }
  int failed = 0;
  int points = 0;
  for (long long n = std::atoll(arguments[2]);; n += step) {
    const int status = play_in_child(kind == "memory", n);
    if (status == status_of_enough) break;
    ++points;
    if (status == 0) continue;
    std::fprintf(stderr, "with %s limited at %lld the process ended with %d\n", kind.c_str(), n, status);
    if (++failed == 5) break;
  }
  std::printf("%s: %d failure points, %d failed\n", kind.c_str(), points, failed);
  return failed > 0 || points == 0 ? 1 : 0;
}
