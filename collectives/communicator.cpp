#include <troupe/collectives/communicator.hpp>

namespace troupe {

std::shared_ptr<communicator> communicator::split(const split_seat&) {
  throw exception{errc::unsupported, "this kind of communicator cannot be split: form a world of its own instead"};
}

void communicator::split_none() {
  throw exception{errc::unsupported, "this kind of communicator cannot be split: form a world of its own instead"};
}

} // namespace troupe
