#include "loop_mailbox.hpp"

#include <troupe/device/error.hpp>

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace troupe::python {

loop_mailbox::loop_mailbox() : descriptor_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {
  if (descriptor_ < 0)
    throw exception{errc::internal, "eventfd() failed: " + std::string{std::strerror(errno)} +
                                        ": raise the limit of open files (ulimit -n)"};
}

loop_mailbox::~loop_mailbox() {
  ::close(descriptor_);
}

void loop_mailbox::expect() {
  const std::lock_guard lock{guard_};
  come_.reserve(++expected_ + come_.size());
}

void loop_mailbox::put(std::uint64_t who) noexcept {
  const std::lock_guard lock{guard_};
  --expected_;
  come_.push_back(who); // which expect() has made room for
  if (come_.size() > 1) return;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(descriptor_, &one, sizeof one)); // it fails where the loop has not looked for 2^64 times
}

void loop_mailbox::expect_no_more() noexcept {
  const std::lock_guard lock{guard_};
  --expected_;
}

std::vector<std::uint64_t> loop_mailbox::take() {
  std::vector<std::uint64_t> next;
  const std::lock_guard lock{guard_};
  next.reserve(expected_);
  next.swap(come_);
  std::uint64_t count = 0;
  static_cast<void>(!::read(descriptor_, &count, sizeof count));
  return next;
}

} // namespace troupe::python
