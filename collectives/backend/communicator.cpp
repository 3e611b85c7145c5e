#include <troupe/collectives/backend/communicator.hpp>

namespace troupe {

void communicator::warm_up(stream_ref) {}

void communicator::prepare_kernels(stream_ref) {}

bool communicator::do_launch(const operation& what, stream_ref stream, completion_word at_end) {
  const operation* const one = &what;
  return do_launch_together({&one, 1}, stream, at_end);
}

bool communicator::do_launch_together(std::span<const operation* const>, stream_ref, completion_word) {
  throw exception{errc::unsupported, "this kind of communicator launches one operation at a time: set fusion to off"};
}

std::shared_ptr<communicator> communicator::split(const split_spec&) {
  throw exception{errc::unsupported, "this kind of communicator cannot be split: form a world of its own instead"};
}

void communicator::split_none() {
  throw exception{errc::unsupported, "this kind of communicator cannot be split: form a world of its own instead"};
}

std::shared_ptr<communicator> communicator::shrink(const shrink_spec&) {
  throw exception{errc::unsupported, "this kind of communicator cannot be shrunk: form a new one instead"};
}

std::shared_ptr<communicator> communicator::revoke_and_split() {
  throw exception{errc::unsupported, "this kind of communicator cannot be revoked: form a new one instead"};
}

std::shared_ptr<registered_region> communicator::allocate_region(std::size_t) {
  throw exception{errc::unsupported, "this kind of communicator has no memory to register: use the pools' memory"};
}

void communicator::register_region(registered_region&) {
  throw exception{errc::unsupported, "this kind of communicator registers no memory: use the pools' memory"};
}

std::size_t communicator::suspend() {
  throw exception{errc::unsupported, "this kind of communicator cannot release its memory: stop the world instead"};
}

void communicator::resume() {
  throw exception{errc::unsupported,
                  "this kind of communicator cannot release its memory, so it cannot allocate it again"};
}

} // namespace troupe
