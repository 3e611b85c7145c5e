/// Defines objects of which each process has one of its own.
#pragma once

#include <troupe/device/error.hpp>

#include <pthread.h>

#include <string>

namespace troupe::python {

/// Returns this process's object of type \p T. It is never destroyed, because threads of troupe may use it while the
/// process exits. A fork begins with a new one: a thread of the parent may have held a lock of the other. Threads: any.
template <class T>
[[nodiscard]] T& process_object() {
  static auto* object = new T;
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, [] { object = new T; });
  return *object;
}

/// The process in which an object was made. A fork has a copy of the object, but no thread that would use it, and a
/// thread of the parent may have held its lock. Threads: any.
class home_process {
public:
  /// Returns whether this process is a fork of the one that made the object.
  [[nodiscard]] bool is_inherited() const noexcept { return made_in_ != &process_object<identity>(); }
  /// \p what is for example "this reply". Errors: unsupported (a fork).
  void require_own(const char* what) const {
    if (!is_inherited()) return;
    throw exception{errc::unsupported, "this process is a fork of the one that made " + std::string{what} +
                                           ", whose threads a fork does not have: fork before the runtime is made, or "
                                           "start the process by multiprocessing's \"spawn\""};
  }

private:
  struct identity {
    char unused; // so that the address is its own
  };
  const identity* made_in_ = &process_object<identity>();
};

} // namespace troupe::python
