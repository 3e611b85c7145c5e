#include <troupe/collectives/backend/hierarchy/hierarchy_scratch.hpp>

namespace troupe {

hierarchy_memory::hierarchy_memory(const std::shared_ptr<device>& where, std::size_t size_bytes)
  : size_bytes_{size_bytes}, pool_{memory_pool::create(where)}, side_{where} {
  pool_->reserve(2 * size_bytes_);
}

void hierarchy_memory::give_back(buffer scratch, const event& last_use) {
  const std::lock_guard lock{guard_};
  side_.ref().wait(last_use);
  scratch.note_use(side_);
}

std::shared_ptr<hierarchy_memory> hierarchy_memories::of(const std::shared_ptr<device>& where) {
  const std::lock_guard lock{guard_};
  auto& one = all_[where];
  if (one == nullptr) one = std::make_shared<hierarchy_memory>(where, size_bytes_);
  return one;
}

hierarchy_scratch::~hierarchy_scratch() {
  try {
    home_->give_back(memory_, last_use_);
  } catch (const exception&) { // a device in error no longer accesses memory
  }
}

void hierarchy_scratch::used_in(stream_ref stream) {
  const device& where = stream.where();
  if (where.api().status_of_capture(where.id(), stream.native()) == capture_status::none) last_use_.record(stream);
}

} // namespace troupe
