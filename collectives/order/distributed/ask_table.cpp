#include <troupe/collectives/order/distributed/ask_table.hpp>

#include <utility>

namespace troupe {

std::uint64_t ask_table::put(undecided_ask one) {
  undecided_ask& place = at(last_ + 1);
  if (place.call) overtaken_.emplace(last_ + 1 - ring_length, std::exchange(place, {}));
  place = std::move(one);
  ++size_;
  return ++last_;
}

std::optional<undecided_ask> ask_table::take(std::uint64_t number) {
  if (number == 0 || number > last_) return std::nullopt;
  std::optional<undecided_ask> found;
  if (last_ - number < ring_length)
    if (undecided_ask& place = at(number); place.call) found = std::exchange(place, {});
  if (!found && !overtaken_.empty())
    if (const auto place = overtaken_.find(number); place != overtaken_.end()) {
      found = std::move(place->second);
      overtaken_.erase(place);
    }
  if (found) --size_;
  return found;
}

void ask_table::put_back(std::uint64_t number, undecided_ask one) {
  overtaken_.emplace(number, std::move(one));
  ++size_;
}

std::vector<undecided_ask> ask_table::take_all() {
  std::vector<undecided_ask> all;
  all.reserve(size_);
  for (auto& [number, one] : overtaken_) all.push_back(std::move(one));
  for (undecided_ask& one : ring_)
    if (one.call) all.push_back(std::exchange(one, {}));
  overtaken_.clear();
  size_ = 0;
  return all;
}

} // namespace troupe
