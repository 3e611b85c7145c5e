#include <troupe/collectives/order/matching/operation_match.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

exchange& unite(exchange& one, exchange& other) noexcept {
  exchange* large = &one.root();
  exchange* small = &other.root();
  if (large == small) return *large;
  if (large->size < small->size) std::swap(large, small);
  small->above = large;
  std::swap(small->next, large->next); // joins two rings into one
  large->size += small->size;
  large->partnerless += small->partnerless;
  large->heads += small->heads;
  large->differs = large->differs || small->differs;
  large->straggling_reported = large->straggling_reported || small->straggling_reported;
  large->oldest = std::min(large->oldest, small->oldest);
  return *large;
}

} // namespace troupe
