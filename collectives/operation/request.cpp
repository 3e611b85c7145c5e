#include <troupe/collectives/operation/request.hpp>

#include <string>

namespace troupe {

std::string_view to_string(ordering order) noexcept {
  return order == ordering::agreed ? "agreed" : "caller";
}

ordering parse_ordering(std::string_view name) {
  for (const ordering one : {ordering::agreed, ordering::caller})
    if (name == to_string(one)) return one;
  throw exception{errc::invalid_argument, "unknown ordering '" + std::string{name} + "': choose one of agreed, caller"};
}

} // namespace troupe
