/// What threads are reading at this moment, so that whoever has replaced it knows whether it may go.
#pragma once

#include <atomic>

namespace troupe {

/// A place per thread where it says what it reads (hazard pointers: Michael, IEEE TPDS 15(6), 2004). Threads: any.
class rcu_reader {
public:
  /// Errors: std::bad_alloc, the first time on a thread.
  rcu_reader();
  rcu_reader(const rcu_reader&) = delete;
  rcu_reader& operator=(const rcu_reader&) = delete;
  ~rcu_reader();

  /// What \p source points to, which stays as long as this does, if whoever replaces it asks is_read() first.
  template <class Value>
  [[nodiscard]] const Value* hold(const std::atomic<const Value*>& source) noexcept {
    const Value* seen = source.load(std::memory_order_relaxed);
    for (;;) {
      place_->store(seen); // before the second look: either that sees a later value, or is_read() sees this one
      const Value* const again = source.load();
      if (again == seen) return seen;
      seen = again;
    }
  }

  /// Whether some thread holds \p what, which nobody can begin to hold any more.
  [[nodiscard]] static bool is_read(const void* what) noexcept;

private:
  std::atomic<const void*>* place_;
};

} // namespace troupe
