#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/held_bytes.hpp>

namespace troupe {

std::size_t held_bytes(const operation& what) {
  std::size_t sum = 0;
  const std::byte* last = nullptr;
  visit_operands(what, [&](const operand& one, std::string_view) {
    if (one.memory.size_bytes() == 0 || one.memory.data() == last) return;
    last = one.memory.data();
    sum += one.memory.size_bytes();
  });
  return sum;
}

} // namespace troupe
