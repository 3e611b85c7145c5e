/// Tells whether the calling thread is one for which the end of a runtime, a world or the process would wait.
#pragma once

namespace troupe {

/// Returns whether the calling thread is a worker, or is inside an own_thread_scope. Such a thread must not wait for
/// the end of what it serves: it would wait for itself.
[[nodiscard]] bool is_own_thread() noexcept;

/// While an object of this class lives, its thread counts as one of troupe's: it calls a function of the client.
class own_thread_scope {
public:
  own_thread_scope() noexcept;
  own_thread_scope(const own_thread_scope&) = delete;
  own_thread_scope& operator=(const own_thread_scope&) = delete;
  ~own_thread_scope();
};

} // namespace troupe
