#include <troupe/device/file_descriptor.hpp>

#include <unistd.h>

namespace troupe {

void file_descriptor::close() noexcept {
  if (native_ >= 0) ::close(release());
}

} // namespace troupe
