#include "deferred_release.hpp"

#include "process_object.hpp"

#include <utility>

namespace troupe::python {

namespace {

struct pending_release {
  void (*release)(void*);
  void* what;
};

struct release_list {
  std::mutex mutex;
  std::vector<pending_release> due;
  bool closed = false;
};

thread_local int postponing = 0;

int release_when_called(void*) noexcept {
  release_due();
  return 0;
}

} // namespace

void release_later(void (*release)(void*), void* what) noexcept {
  auto& list = process_object<release_list>();
  const std::lock_guard lock{list.mutex};
  if (list.closed) return;
  const bool first = list.due.empty();
  list.due.push_back({release, what});
  // The interpreter makes this call between two instructions of its main thread. If its queue of pending calls is full,
  // the next request releases the objects. The lock is held, so that no call is added after stop_releasing().
  if (first) static_cast<void>(Py_AddPendingCall(&release_when_called, nullptr));
}

void release_due() noexcept {
  if (PyGILState_Check() == 0) return; // the thread ends
  thread_bound_objects::of_this_thread()->destroy();
  if (postponing > 0) return;
  std::vector<pending_release> now;
  {
    auto& list = process_object<release_list>();
    const std::lock_guard lock{list.mutex};
    if (list.due.empty()) return;
    now.swap(list.due);
  }
  // A release may run Python code and call this function again. It must not affect an exception in flight.
  PyObject *type = nullptr, *value = nullptr, *trace = nullptr;
  PyErr_Fetch(&type, &value, &trace);
  for (const pending_release& one : now) one.release(one.what);
  PyErr_Restore(type, value, trace);
}

const std::shared_ptr<thread_bound_objects>& thread_bound_objects::of_this_thread() {
  struct owner {
    const std::shared_ptr<thread_bound_objects> held = std::make_shared<thread_bound_objects>();

    owner() = default;
    owner(const owner&) = delete;
    owner& operator=(const owner&) = delete;
    ~owner() { held->destroy(true); }
  };
  static thread_local const owner mine;
  return mine.held;
}

bool thread_bound_objects::give(std::shared_ptr<void>& one) {
  const std::lock_guard lock{mutex_};
  if (!has_ended_) due_.push_back(std::move(one));
  return !has_ended_;
}

void thread_bound_objects::destroy(bool at_end) {
  std::vector<std::shared_ptr<void>> now; // destroyed without the lock: it may come back here
  const std::lock_guard lock{mutex_};
  now.swap(due_);
  has_ended_ = at_end;
}

postponed_releases::postponed_releases() {
  release_due();
  ++postponing;
}

postponed_releases::~postponed_releases() {
  --postponing;
  release_due();
}

bool is_postponing() noexcept {
  return postponing > 0;
}

void stop_releasing() noexcept {
  release_due();
  auto& list = process_object<release_list>();
  const std::lock_guard lock{list.mutex};
  list.closed = true;
}

held_object::held_object(pybind11::object what)
  : held_{what.release().ptr(),
          [](void* object) { release_later([](void* one) { Py_DECREF(static_cast<PyObject*>(one)); }, object); }} {}

pybind11::object held_object::get() const {
  if (!held_) return pybind11::none();
  return pybind11::reinterpret_borrow<pybind11::object>(static_cast<PyObject*>(held_.get()));
}

} // namespace troupe::python
