/// Keeps what must not be destroyed.
#pragma once

#include <memory>

namespace troupe {

/// Keeps \p one until the process ends, because its destructor would wait for threads that this process does not have
/// (a fork, see process_mark), or that do not return. Threads: any; takes no lock.
void keep_for_good(std::shared_ptr<const void> one);

} // namespace troupe
