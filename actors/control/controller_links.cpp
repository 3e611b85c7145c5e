// Decides which link between two ranks is broken, and which ranks the world excludes because of it.
// (docs/design/0051-broken-links.md)
#include <troupe/actors/control/controller_state.hpp>
#include <troupe/collectives/pipeline/fault_suspects.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

using directed_links = std::set<std::pair<rank, rank>>;

constexpr std::chrono::seconds first_pause{1}; ///< Delay before another forming with the same processes as the last.
constexpr int most_pause_doublings = 5;

bool is_mutual(const directed_links& all, const std::pair<rank, rank>& one) {
  return all.contains({one.second, one.first});
}

/// Prefers links that both ends have reported: a rank that waits for a peer which is itself stuck reports a link, too.
std::pair<rank, rank> surest_of(const directed_links& all) {
  const auto found = std::ranges::find_if(all, [&](const auto& one) { return is_mutual(all, one); });
  return found == all.end() ? *all.begin() : *found;
}

} // namespace

controller_state::link_name controller_state::name_link(const process_identity& one, const process_identity& other) {
  const bool is_inside = one.host == other.host;
  link_name made{is_inside ? one.host + "/" + one.name : one.host,
                 is_inside ? other.host + "/" + other.name : other.host};
  if (made.second < made.first) std::swap(made.first, made.second);
  return made;
}

void controller_state::on_forming_failed(member& one, const failed_report& report, time_point now,
                                         control_effects& out) {
  one.reported = true;
  if (unreached_.empty()) judged_at_ = later(now, terms_.judge);
  for (const rank peer : report.blamed)
    if (peer != *one.self && peer.value() < ranks_) unreached_.emplace(*one.self, peer);
  // Ranks whose connections were closed by others fail after those: such a report adds nothing.
  if (unreached_.empty() || is_of_its_own(report.why.code)) {
    error why = report.why;
    if (!why.rank && report.blamed.empty()) why.rank = one.self;
    return fail_epoch(std::move(why), {}, terms_.settle, now, out);
  }
  if (all_reported()) judge_links(now, out);
}

/// Returns the links of the ranks to exclude. This is the rank with the most broken links (of equal ranks the last). If
/// its broken links lead to other hosts, all ranks of its host are excluded, or those of the host at the other end if
/// these are fewer.
std::vector<link_id> controller_state::choose_side(const directed_links& unreached) const {
  std::map<rank, std::set<rank>> ends;
  for (const auto& [from, to] : unreached) {
    ends[from].insert(to);
    ends[to].insert(from);
  }
  const bool has_mutual = is_mutual(unreached, surest_of(unreached));
  rank worst = surest_of(unreached).first;
  for (const auto& one : unreached) {
    if (has_mutual && !is_mutual(unreached, one)) continue;
    for (const rank end : {one.first, one.second})
      if (std::pair{ends[end].size(), end} > std::pair{ends[worst].size(), worst}) worst = end;
  }
  const auto host_of = [&](rank one) -> const std::string& { return members_.at(*link_of(one)).who.host; };
  const auto ranks_on = [&](const std::string& host) {
    std::vector<link_id> found;
    for (const auto& [link, one] : members_)
      if (one.self && one.who.host == host) found.push_back(link);
    return found;
  };
  const std::string& here = host_of(worst);
  const std::string& there = host_of(*ends[worst].begin());
  if (here == there) return {*link_of(worst)};
  auto side = ranks_on(here), other = ranks_on(there);
  const bool is_one_link = std::ranges::all_of(ends[worst], [&](rank end) { return host_of(end) == there; });
  return is_one_link && other.size() < side.size() ? other : side;
}

void controller_state::judge_links(time_point now, control_effects& out) {
  const auto unreached = std::exchange(unreached_, {});
  const std::vector<link_id> side = choose_side(unreached);
  const auto is_aside = [&](rank one) { return std::ranges::find(side, *link_of(one)) != side.end(); };
  std::set<link_name> names;
  directed_links across;
  for (const auto& one : unreached) {
    if (is_aside(one.first) == is_aside(one.second)) continue;
    across.insert(one);
    names.insert(name_link(members_.at(*link_of(one.first)).who, members_.at(*link_of(one.second)).who));
  }
  const auto [from, to] = surest_of(across);
  error why{.code = errc::communicator_failed,
            .text = describe(members_.at(*link_of(from)).who) + " could not reach " +
                    describe(members_.at(*link_of(to)).who) +
                    ", though the controller hears both: see to the network between them",
            .rank = is_aside(from) ? from : to};
  std::erase_if(broken_, [&](const auto& one) { return later(one.second.at, terms_.link_retry_most) < now; });
  const auto is_known = [&](const link_name& one) { return broken_.contains(one); };
  const bool is_old = std::ranges::any_of(names, is_known);
  // A single report may be a short network outage or a pause of one process. The same report twice is not.
  if (!is_old && std::ranges::none_of(names, [&](const link_name& one) { return suspected_.contains(one); })) {
    suspected_ = std::move(names);
    return fail_epoch(std::move(why), {}, terms_.settle, now, out);
  }
  if (terms_.policy == loss_policy::fail)
    return fail_epoch(std::move(why), members_.at(side.front()).who, nanoseconds{0}, now, out);
  for (const link_name& one : names) {
    link_retry& next = broken_[one];
    next.wait = next.wait == nanoseconds{0} ? terms_.link_retry : std::min(2 * next.wait, terms_.link_retry_most);
    next.at = later(now, next.wait);
  }
  if (set_aside(side, now)) {
    const auto wait = std::chrono::duration_cast<std::chrono::seconds>(broken_.at(*names.begin()).wait);
    why.text += "; the world goes on without ";
    for (const link_id one : side)
      why.text += (one == side.front() ? "" : ", ") + std::string{"process "} + members_.at(one).who.name;
    why.text += ", and tries again after " + std::to_string(wait.count()) + " s";
    return fail_epoch(std::move(why), {}, nanoseconds{0}, now, out, !is_old);
  }
  why.text += "; the world cannot form without either, and tries again";
  const nanoseconds pause = first_pause * (1 << std::min(vain_formings_++, most_pause_doublings));
  fail_epoch(std::move(why), {}, std::min(pause, terms_.gather / 2), now, out);
}

bool controller_state::set_aside(const std::vector<link_id>& side, time_point now) {
  members before = members_;
  for (const link_id one : side) members_.at(one).spare = true;
  fill_places(now);
  const auto free = free_places();
  const int present = terms_.world_size - static_cast<int>(free.size());
  const bool can_form =
      free.empty() || (terms_.policy == loss_policy::shrink && present > 0 && present >= terms_.smallest);
  if (!can_form) members_ = std::move(before);
  return can_form;
}

bool controller_state::is_cut_off(const member& one, time_point now) const {
  return std::ranges::any_of(members_, [&](const auto& other) {
    if (other.second.spare || &other.second == &one) return false;
    const auto found = broken_.find(name_link(one.who, other.second.who));
    return found != broken_.end() && now < found->second.at;
  });
}

void controller_state::forget_links_of_ranks() {
  vain_formings_ = 0;
  suspected_.clear();
  if (broken_.empty()) return;
  for (const auto& [link, one] : members_)
    for (const auto& [other_link, other] : members_)
      if (one.self && other.self && link != other_link) broken_.erase(name_link(one.who, other.who));
}

} // namespace troupe
