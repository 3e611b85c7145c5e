#include <troupe/collectives/operation/rank_function.hpp>
#include <troupe/device/error.hpp>

#include <utility>

namespace troupe {

std::shared_ptr<const rank_function> function_directory::add(std::string name, rank_function::work what) {
  if (name.empty() || name.size() > longest_function_name_bytes || !what)
    throw exception{errc::invalid_argument, "a function needs a name of 1 to " +
                                                std::to_string(longest_function_name_bytes) +
                                                " bytes and something to call: '" + name.substr(0, 32) + "'"};
  auto made = std::make_shared<const rank_function>(name, std::move(what));
  std::shared_ptr<const rank_function> replaced = made; // the earlier one is destroyed without the lock
  const std::lock_guard lock{mutex_};
  all_[std::move(name)].swap(replaced);
  return made;
}

std::shared_ptr<const rank_function> function_directory::find(const std::string& name) const {
  const std::lock_guard lock{mutex_};
  const auto found = all_.find(name);
  return found != all_.end() ? found->second : nullptr;
}

} // namespace troupe
