#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/lanes/lane_names.hpp>

namespace troupe {

namespace {

lane_names& names_of_this_process() {
  // Never destroyed: names are read until the last thread has ended.
  static auto& names = *new lane_names; // NOLINT(cppcoreguidelines-owning-memory)
  return names;
}

} // namespace

lane lane::named(std::string_view name) {
  return lane{names_of_this_process().index_of(name)};
}

const std::string& lane::name() const {
  return names_of_this_process().name_of(index_);
}

} // namespace troupe
