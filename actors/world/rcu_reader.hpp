/// Records which objects threads are reading, so that a writer knows when it may destroy a replaced object.
#pragma once

#include <atomic>

namespace troupe {

/// A hazard pointer of the calling thread (Michael, IEEE TPDS 15(6), 2004). Threads: any.
class rcu_reader {
public:
  /// Reserves a place. Errors: std::bad_alloc, only at the first use on a thread.
  rcu_reader();
  rcu_reader(const rcu_reader&) = delete;
  rcu_reader& operator=(const rcu_reader&) = delete;
  ~rcu_reader();

  /// Returns the object that \p source points to. It stays alive as long as this reader, provided that writers check
  /// is_read() before they destroy it.
  template <class Value>
  [[nodiscard]] const Value* hold(const std::atomic<const Value*>& source) noexcept {
    const Value* seen = source.load(std::memory_order_relaxed);
    for (;;) {
      place_->store(seen); // before the second load: either that sees a later value, or is_read() sees this one
      const Value* const again = source.load();
      if (again == seen) return seen;
      seen = again;
    }
  }

  /// Returns whether a thread holds \p what. The caller must have replaced it, so that no thread can begin to hold it.
  [[nodiscard]] static bool is_read(const void* what) noexcept;

private:
  std::atomic<const void*>* place_;
};

} // namespace troupe
