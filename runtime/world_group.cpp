#include <troupe/collectives/operation/collective_methods_definitions.hpp>
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
  send(source, std::move(from), count, type, destination, tag);
  return recv(destination, std::move(to), count, type, source, tag);
}

world_group& world_group::send(rank self, operand memory, std::size_t count, dtype type, rank peer, int tag) {
  return on(self, troupe::send{std::move(memory), count, type, peer, tag});
}

world_group& world_group::recv(rank self, operand memory, std::size_t count, dtype type, rank peer, int tag) {
  return on(self, troupe::recv{std::move(memory), count, type, peer, tag});
}

world_group& world_group::copy(rank self, operand from, operand to) {
  return on(self, troupe::copy{std::move(from), std::move(to)});
}

void world_group::add(std::vector<operation> parts, const part_options& options) {
  if (parts.size() != groups_.size())
    throw exception{errc::invalid_argument, "there are " + std::to_string(parts.size()) + " operands for " +
                                                std::to_string(groups_.size()) + " ranks: give one for each"};
  prepare_operands(parts, options.ready, options.staged);
  for (std::size_t i = 0; i < groups_.size(); ++i) groups_[i].parts.push_back(std::move(parts[i]));
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

std::future<completion> world_group::ask(request_options options, call_site from) {
  return where_.ask(parts(), std::move(options), from);
}

template class collective_methods<world_group, arguments_of_all, void, part_options>;

} // namespace troupe
