/// Python objects that threads of troupe let go of. Those threads never take the GIL: they would wait for whatever
/// Python is doing, and with them every request of the process; and at the interpreter's end they would wait for ever.
/// What they let go of is kept in a list, which Python's own threads empty.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

namespace troupe::python {

/// Calls \p release with \p what later, on a thread that holds the GIL; never once the interpreter ends, whose memory
/// the operating system takes back. Threads: any, with the GIL or without.
void release_later(void (*release)(void*), void* what) noexcept;

/// Releases what is due. With the GIL.
void release_due() noexcept;

/// While one lives, nothing is released on the thread that made it: for virtual worlds, on whose thread nothing of a
/// world in real time may end. With the GIL.
class postponed_releases {
public:
  postponed_releases();
  postponed_releases(const postponed_releases&) = delete;
  postponed_releases& operator=(const postponed_releases&) = delete;
  ~postponed_releases();
};

/// Whether this thread has one.
[[nodiscard]] bool is_postponing() noexcept;

/// How what holds a world in real time, or its memory, is deleted: Python's collector may come to it in any thread.
template <class T>
struct ends_in_real_time {
  void operator()(T* one) const noexcept {
    if constexpr (requires { one->is_virtual; }) {
      if (one->is_virtual) return delete one;
    }
    if (!is_postponing()) return delete one;
    release_later([](void* what) { delete static_cast<T*>(what); }, one);
  }
};
template <class T>
using real_time_ptr = std::unique_ptr<T, ends_in_real_time<T>>;

/// From now on nothing is released: the interpreter ends. With the GIL.
void stop_releasing() noexcept;

/// A reference to a Python object that is copied and let go of without the GIL.
class held_object {
public:
  held_object() = default;
  /// With the GIL.
  explicit held_object(pybind11::object what);

  [[nodiscard]] explicit operator bool() const noexcept { return held_ != nullptr; }
  /// With the GIL; None where there is none.
  [[nodiscard]] pybind11::object get() const;
  /// For whoever only has to keep it.
  [[nodiscard]] const std::shared_ptr<void>& owner() const noexcept { return held_; }

private:
  std::shared_ptr<void> held_; ///< The PyObject.
};

} // namespace troupe::python
