#include <troupe/program/bench/frame/reference_values.hpp>
#include <troupe/program/stress/stress_order.hpp>

#include <stdlib.h> // NOLINT(modernize-deprecated-headers): for mkdtemp()

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

namespace troupe::program {

std::vector<rank_group> stress_groups(int ranks) {
  std::vector<rank_group> made{{"low", {}}, {"high", {}}, {"reversed", {}}};
  for (int r = 0; r < ranks; ++r) made[r < (ranks + 1) / 2 ? 0 : 1].members.emplace_back(r);
  for (int r = ranks - 1; r >= 0; --r) made[2].members.emplace_back(r);
  std::erase_if(made, [](const rank_group& one) { return one.members.empty(); });
  return made;
}

std::size_t stress_kind(const std::string& name) {
  if (name == "whole") return 0;
  return name == "reversed" ? 2 : 1;
}

stress_scenes make_scenes(const order_options& options, const world& whole, ordering order, receipt_log* receipts) {
  stress_scenes made;
  const auto add = [&](const std::string& name, const world& where) {
    stress_decisions decisions;
    if (order == ordering::agreed) decisions.agree_percent = 10;
    if (receipts != nullptr)
      decisions = {.agree_percent = 50, .stamp = std::hash<std::string>{}(name), .commit_every = steps_between_commits};
    // not by make_unique, because a ledger and values cannot be moved
    made.emplace_back(new stress_scene{.name = name,
                                       .kind = stress_kind(name),
                                       .where = where,
                                       .script = {where.size(), options.seed, options.largest, decisions},
                                       .ledger = stress_ledger{static_cast<std::size_t>(where.size())},
                                       .values = {where.size(), options.seed},
                                       .bounded = options.pending > 0,
                                       .receipts = receipts});
    if (receipts != nullptr) made.back()->ledger.write_to(*receipts);
  };
  add("whole", whole);
  world splitting = whole;
  if (options.splits)
    for (split_world& one : splitting.split(stress_groups(whole.size())))
      if (one.handle) add(one.group.name, *one.handle);
  return made;
}

log_folder::log_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "troupe-stress-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    throw exception{errc::missing, "a temporary folder cannot be created: set TMPDIR to a writable folder"};
  path_ = std::move(name);
}

log_folder::~log_folder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

} // namespace troupe::program
