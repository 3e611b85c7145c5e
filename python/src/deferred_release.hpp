/// Releases Python objects that threads of troupe no longer need. These threads never take the GIL: waiting for it
/// would delay every request of the process, and would not end once the interpreter has ended. They add the objects to
/// a list instead, which Python's own threads empty.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>
#include <vector>

namespace troupe::python {

/// Enqueues a call of \p release with \p what for a thread that holds the GIL. Once the interpreter ends, such calls
/// are dropped; the operating system then frees the memory. Threads: any, with or without the GIL.
void release_later(void (*release)(void*), void* what) noexcept;

/// Makes the enqueued calls, and destroys the objects that are bound to the calling thread. The caller must hold the
/// GIL.
void release_due() noexcept;

/// While an object of this class lives, nothing is released on the thread that constructed it. Virtual worlds need
/// this, because no object of a world in real time may be destroyed on their thread. The caller must hold the GIL.
class postponed_releases {
public:
  postponed_releases();
  postponed_releases(const postponed_releases&) = delete;
  postponed_releases& operator=(const postponed_releases&) = delete;
  ~postponed_releases();
};

/// Returns whether this thread has a postponed_releases.
[[nodiscard]] bool is_postponing() noexcept;

/// Objects that only one thread may destroy. It does so when it next uses troupe, or when it ends. Threads: give() from
/// any.
class thread_bound_objects {
public:
  /// Returns those of the calling thread.
  [[nodiscard]] static const std::shared_ptr<thread_bound_objects>& of_this_thread();

  /// Takes \p one, the last owner. Returns false, and takes nothing, if the thread has ended.
  [[nodiscard]] bool give(std::shared_ptr<void>& one);
  /// Called on the thread.
  void destroy(bool at_end = false);

private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<void>> due_;
  bool has_ended_ = false;
};

/// Deletes an object that holds a world in real time, or its memory. Python's garbage collector may do so on any
/// thread; on the thread of a virtual world the deletion is postponed.
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

/// Makes release_later() drop all later calls, because the interpreter ends. The caller must hold the GIL.
void stop_releasing() noexcept;

/// A reference to a Python object that can be copied and destroyed without the GIL.
class held_object {
public:
  held_object() = default;
  /// The caller must hold the GIL.
  explicit held_object(pybind11::object what);

  [[nodiscard]] explicit operator bool() const noexcept { return held_ != nullptr; }
  /// Returns the object, or None if it is empty. The caller must hold the GIL.
  [[nodiscard]] pybind11::object get() const;
  /// Returns an owner that keeps the object alive.
  [[nodiscard]] const std::shared_ptr<void>& owner() const noexcept { return held_; }

private:
  std::shared_ptr<void> held_; ///< The PyObject.
};

} // namespace troupe::python
