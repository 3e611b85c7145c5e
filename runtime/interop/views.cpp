#include <troupe/runtime/interop/views.hpp>
#include <troupe/runtime/world.hpp>

#include <limits>
#include <string>
#include <utility>

namespace troupe {

tensor adopt_elements(const world& where, rank target, void* first, std::size_t count, dtype type,
                      std::shared_ptr<void> owner) {
  if (size_bytes(type) == 0)
    throw exception{errc::invalid_argument, "the value " + std::to_string(static_cast<int>(type)) + " is not a dtype"};
  if (count > std::numeric_limits<std::size_t>::max() / size_bytes(type))
    throw exception{errc::invalid_argument, std::to_string(count) + " elements are more than any memory holds"};
  const std::shared_ptr<device>& local = where.device_of(target);
  tensor made{.type = type, .shape = {count}};
  if (count == 0) return made;
  const std::size_t size = count * size_bytes(type);
  if (first == nullptr)
    throw exception{errc::invalid_argument, "there are " + std::to_string(count) + " elements at a null address"};
  if (local->api().describe(first).kind != memory_kind::device) {
    made.memory = where.adopt_host(first, size, std::move(owner));
    return made;
  }
  made.memory = adopt(local, first, size, std::move(owner));
  made.on = target;
  return made;
}

} // namespace troupe
