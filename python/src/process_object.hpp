/// Defines objects of which each process has one of its own.
#pragma once

#include <pthread.h>

namespace troupe::python {

/// Returns this process's object of type \p T. It is never destroyed, because threads of troupe may use it while the
/// process exits. A fork begins with a new one: a thread of the parent may have held a lock of the other. Threads: any.
template <class T>
[[nodiscard]] T& process_object() {
  static auto* object = new T;
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, [] { object = new T; });
  return *object;
}

} // namespace troupe::python
