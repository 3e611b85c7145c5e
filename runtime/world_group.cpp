#include <troupe/runtime/world_group.hpp>

#include <string>
#include <utility>

namespace troupe {

world_group::world_group(world where) : where_{std::move(where)}, groups_(static_cast<std::size_t>(where_.size())) {}

std::vector<operation>& world_group::parts_of(rank self) {
  if (self.value() < 0 || self.value() >= where_.size())
    throw exception{errc::invalid_argument, "rank " + to_string(self) + " is not in this world: its ranks are 0 to " +
                                                std::to_string(where_.size() - 1)};
  return groups_[static_cast<std::size_t>(self.value())].parts;
}

world_group& world_group::transfer(rank source, operand from, rank destination, operand to, std::size_t count,
                                   dtype type, int tag) {
  static_cast<void>(parts_of(destination)); // throws before either part is added
  on(source, send{.memory = std::move(from), .count = count, .type = type, .peer = destination, .tag = tag});
  return on(destination, recv{.memory = std::move(to), .count = count, .type = type, .peer = source, .tag = tag});
}

world_group& world_group::append(const world_group& other) {
  if (other.where_ != where_)
    throw exception{errc::invalid_argument, "the parts to append are for another world: one group is one launch on one "
                                            "world's communicator, so ask each world for its own"};
  for (std::size_t i = 0; i < groups_.size(); ++i)
    groups_[i].parts.insert(groups_[i].parts.end(), other.groups_[i].parts.begin(), other.groups_[i].parts.end());
  return *this;
}

std::vector<operation> world_group::parts() const {
  return {groups_.begin(), groups_.end()};
}

group world_group::of(rank self) const {
  return groups_.at(static_cast<std::size_t>(self.value()));
}

std::future<completion> world_group::ask(nanoseconds deadline) {
  return where_.ask(parts(), deadline);
}

} // namespace troupe
