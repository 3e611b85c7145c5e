/// Makes the kernel refuse chosen system calls in tests, so that failures that need an old kernel or an exhausted
/// system can be seen.
#pragma once

#include <catch2/catch_test_macros.hpp>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>

namespace troupe::tests {

/// A system call that fails with \p code: if \p second_argument is given, only with this value of it.
struct refused_call {
  unsigned number;
  unsigned code;
  std::optional<unsigned> second_argument{};
};

// The calls behind dup2() and readlink() differ between machines.
#ifdef SYS_dup2
constexpr unsigned call_of_dup2 = SYS_dup2;
constexpr unsigned call_of_readlink = SYS_readlink;
#else
constexpr unsigned call_of_dup2 = SYS_dup3;
constexpr unsigned call_of_readlink = SYS_readlinkat;
#endif

/// Runs \p body on a thread of its own for which \p refused fails, also in the threads and processes that it starts.
/// Throws what \p body throws.
inline void with_refused(const refused_call& refused, const std::function<void()>& body) {
  const auto load = [](std::size_t at) {
    return sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<unsigned>(at)};
  };
  const auto skip_unless = [](unsigned value, unsigned char count) {
    return sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, count, value};
  };
  constexpr std::size_t second_argument = offsetof(seccomp_data, args) + sizeof(__u64); // of little-endian machines
  const bool is_any = !refused.second_argument;
  sock_filter steps[]{load(offsetof(seccomp_data, nr)),
                      skip_unless(refused.number, 3),
                      load(is_any ? offsetof(seccomp_data, nr) : second_argument),
                      skip_unless(refused.second_argument.value_or(refused.number), 1),
                      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | refused.code},
                      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog filter{static_cast<unsigned short>(std::size(steps)), steps};
  bool is_refused = false;
  std::exception_ptr thrown;
  std::thread{[&] {
    is_refused =
        ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
    if (!is_refused) return;
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
  }}.join();
  REQUIRE(is_refused);
  if (thrown) std::rethrow_exception(thrown);
}

} // namespace troupe::tests
