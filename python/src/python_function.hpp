/// Makes functions in Python callable by requests, on the launcher threads of the ranks' GPUs.
#pragma once

#include <troupe/collectives/operation/rank_function.hpp>

#include <pybind11/pybind11.h>

#include <string>

namespace troupe::python {

/// Returns a function that takes the GIL and calls \p what with (rank, epoch, stream, memory, values): int, int, the
/// stream's handle as an int, a list of troupe.Buffers of bytes, and bytes. An exception of \p what is reported to
/// sys.unraisablehook and thrown as a troupe::exception. Once stop_calling() has begun, every call throws. Errors:
/// invalid_argument (\p what cannot be called). The caller must hold the GIL.
[[nodiscard]] rank_function::work make_rank_function(std::string name, const pybind11::object& what);

/// Prevents further calls of functions, and waits for the calls in progress: once the interpreter ends, it terminates
/// threads that take the GIL. The caller must hold the GIL.
void stop_calling() noexcept;

} // namespace troupe::python
