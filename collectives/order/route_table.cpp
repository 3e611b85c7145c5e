#include <troupe/collectives/order/route_table.hpp>

namespace troupe {

transfer_end* route_table::meet(transfer_end& one) {
  const auto [found, is_new] = routes_.try_emplace(route{one.source, one.destination, one.tag});
  queue& waiting = found->second;
  one.next = nullptr;
  if (is_new) {
    waiting.first = waiting.last = &one;
    return nullptr;
  }
  if (waiting.first->is_send == one.is_send) {
    waiting.last->next = &one;
    waiting.last = &one;
    return nullptr;
  }
  transfer_end* const other = waiting.first;
  waiting.first = other->next;
  other->next = nullptr;
  if (waiting.first == nullptr) routes_.erase(found);
  return other;
}

} // namespace troupe
