/// Lets a process run out of file descriptors.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/file_descriptor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fcntl.h>
#include <sys/resource.h>

#include <vector>

namespace troupe::tests {

/// Call before a test leaves no descriptor free and expects an exception. UndefinedBehaviorSanitizer opens a pipe when
/// it first meets an object of a polymorphic class, and reports a wrong class if it cannot; a class that it has met
/// needs none.
inline void meet_exception() {
  try {
    throw exception{errc::internal, "met"};
  } catch (const exception& met) {
    static_cast<void>(met.why());
  }
}

/// Lowers the limit of descriptors, so that \p spare further ones can be opened.
class few_descriptors_left {
public:
  explicit few_descriptors_left(int spare = 0) {
    meet_exception();
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before_) == 0);
    for (int i = 0; i <= spare; ++i) lowest_free_.emplace_back(::fcntl(0, F_DUPFD_CLOEXEC, 0));
    const rlimit few{.rlim_cur = static_cast<rlim_t>(lowest_free_.back().native() + 1), .rlim_max = before_.rlim_max};
    lowest_free_.erase(lowest_free_.begin(), lowest_free_.end() - 1);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  few_descriptors_left(const few_descriptors_left&) = delete;
  few_descriptors_left& operator=(const few_descriptors_left&) = delete;
  ~few_descriptors_left() { ::setrlimit(RLIMIT_NOFILE, &before_); }

private:
  rlimit before_{};
  std::vector<file_descriptor> lowest_free_;
};

} // namespace troupe::tests
