#include "released_gil.hpp"

#include <chrono>
#include <thread>

namespace troupe::python {

namespace {

thread_local bool ends_interpreter = false;

bool is_interpreter_ending() noexcept {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

} // namespace

void interpreter_ends_here() noexcept {
  ends_interpreter = true;
}

void stay_if_interpreter_ends() noexcept {
  while (!ends_interpreter && is_interpreter_ending()) std::this_thread::sleep_for(std::chrono::hours{1});
}

} // namespace troupe::python
