#include <troupe/collectives/operation/extents.hpp>
#include <troupe/collectives/operation/retry_objection.hpp>
#include <troupe/collectives/order/memory_ranges.hpp>

#include <cstdint>
#include <string>

namespace troupe {

namespace {

memory_range addresses_of(const extent& one) {
  const auto begin = reinterpret_cast<std::uintptr_t>(one.memory->data()) + one.first * size_bytes(one.type);
  return {begin, begin + one.count * size_bytes(one.type), one.written};
}

} // namespace

error two_step_retry() {
  return {.code = errc::invalid_argument,
          .text = "a request in two steps cannot be retry_safe: kernels behind its event would already have run before "
                  "the retry. Ask for its outcome alone, or leave the mark out"};
}

error objection_to_retry(const operation& what, rank self, int world_size) {
  if (std::holds_alternative<replay>(what))
    return {.code = errc::unsupported,
            .text =
                "a replay cannot be retry_safe: what the captured kernels read and write is not known, so ask for it "
                "again yourself",
            .rank = self};
  memory_ranges read;
  auto note_read = [&](const extent& one) {
    if (!one.written && one.count > 0) read.add(addresses_of(one));
  };
  visit_extents(what, self, world_size, note_read);
  bool in_place = false;
  auto look = [&](const extent& one) {
    in_place = in_place || (one.written && one.count > 0 && read.conflicts(addresses_of(one)));
  };
  visit_extents(what, self, world_size, look);
  if (!in_place) return {};
  return {.code = errc::invalid_argument,
          .text = "an operation in place cannot be retry_safe: its input is overwritten once it has run, so give the "
                  "result its own memory, or leave the mark out (" +
                  describe(what) + ")",
          .rank = self};
}

} // namespace troupe
