#include <troupe/collectives/operation/collective_methods_definitions.hpp>

#include <utility>

namespace troupe {

world_request request_builder::ask(std::vector<operation> parts, request_options options, call_site from) const {
  if (options.epoch == epoch{}) options.epoch = epoch_;
  return make_request(std::move(parts), std::move(options), from);
}

template class collective_methods<request_builder, arguments_of_all, world_request>;

} // namespace troupe
