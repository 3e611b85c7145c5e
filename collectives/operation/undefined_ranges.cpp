#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/undefined_ranges.hpp>
#include <troupe/collectives/pipeline/plans/captured_plan.hpp>

#include <new>
#include <utility>

namespace troupe {

namespace {

undefined_buffer name_range(const buffer& memory, rank self, std::size_t first_byte, std::size_t size_bytes) {
  undefined_buffer one{.rank = self, .address = memory.data() + first_byte, .size_bytes = size_bytes};
  if (!memory.on_host() && memory.where() != nullptr) one.device = memory.where()->id();
  return one;
}

} // namespace

std::shared_ptr<const undefined_buffers> undefined_ranges(const operation& what, rank self, int world_size,
                                                          device_id where) noexcept {
  try {
    auto all = std::make_shared<undefined_buffers>();
    if (const auto* again = std::get_if<replay>(&what)) {
      if (!again->of) return all;
      for (const buffer& one : again->of->written_on(where))
        if (one.size_bytes() > 0) all->push_back(name_range(one, self, 0, one.size_bytes()));
      return all;
    }
    auto note = [&](const extent& one) {
      if (!one.written || one.count == 0 || !*one.memory) return;
      const std::size_t width = size_bytes(one.type);
      all->push_back(name_range(*one.memory, self, one.first * width, one.count * width));
    };
    visit_extents(what, self, world_size, note);
    return all;
  } catch (const std::bad_alloc&) { // the original error matters more
    return nullptr;
  }
}

} // namespace troupe
