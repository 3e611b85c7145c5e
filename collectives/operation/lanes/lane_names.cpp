#include <troupe/collectives/operation/lanes/lane_names.hpp>
#include <troupe/device/error.hpp>

#include <mutex>

namespace troupe {

lane_names::lane_names(std::size_t most) : most_{most}, names_{"default"}, indices_{{names_.front(), 0}} {}

std::uint32_t lane_names::index_of(std::string_view name) {
  if (name.empty())
    throw exception{errc::invalid_argument, "a lane's name is empty: leave the lane out to use the default one"};
  if (name.size() > longest_bytes)
    throw exception{errc::invalid_argument, "a lane's name has " + std::to_string(name.size()) + " bytes, and " +
                                                std::to_string(longest_bytes) + " are allowed: '" +
                                                std::string{name.substr(0, longest_bytes)} + "…'"};
  {
    const std::shared_lock reading{mutex_};
    if (const auto found = indices_.find(name); found != indices_.end()) return found->second;
  }
  const std::unique_lock writing{mutex_};
  if (const auto found = indices_.find(name); found != indices_.end()) return found->second;
  if (names_.size() >= most_)
    throw exception{errc::invalid_argument,
                    "lane '" + std::string{name} + "' exceeds the limit of " + std::to_string(most_) +
                        " lane names in a process: reuse lanes instead of naming one for each request"};
  const auto index = static_cast<std::uint32_t>(names_.size());
  indices_.emplace(names_.emplace_back(name), index);
  return index;
}

const std::string& lane_names::name_of(std::uint32_t index) const {
  const std::shared_lock reading{mutex_};
  return names_.at(index);
}

} // namespace troupe
