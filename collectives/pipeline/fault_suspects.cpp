#include <troupe/collectives/pipeline/fault_suspects.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

namespace troupe {

namespace {

using standing = fault_report::standing;
using standings = std::vector<const standing*>;

/// Returns, e.g., "18th".
std::string ordinal(std::uint64_t number) {
  const std::uint64_t teens = number % 100;
  const char* end = "th";
  if (teens < 11 || teens > 13) {
    if (number % 10 == 1) end = "st";
    if (number % 10 == 2) end = "nd";
    if (number % 10 == 3) end = "rd";
  }
  return std::to_string(number) + end;
}

std::string count_of_collectives(std::uint64_t count) {
  return std::to_string(count) + (count == 1 ? " collective" : " collectives");
}

std::string names_of(const standings& all) {
  std::vector<rank> ranks;
  for (const standing* one : all) ranks.push_back(one->rank);
  return name_ranks(ranks);
}

/// Finds the suspects with a sequence of checks. Each check runs only if the earlier ones have found none.
class suspect_finder {
public:
  explicit suspect_finder(const fault_report& report) : report_{report} {
    for (const standing& one : report.ranks) all_.push_back(&one);
    // The oldest collective that some rank has not finished.
    stuck_ = 1 + std::ranges::min(report.ranks, {}, finished_by).progress.collectives.finished;
  }

  diagnosis find() {
    for (const auto check :
         {&suspect_finder::check_verdict, &suspect_finder::check_reports, &suspect_finder::check_missing_launches,
          &suspect_finder::check_absent_peers, &suspect_finder::check_launch_calls, &suspect_finder::check_running,
          &suspect_finder::check_minority, &suspect_finder::check_unlaunched}) {
      std::invoke(check, this);
      if (!found_.suspects.empty()) return std::move(found_);
    }
    found_.remark = reason_for_none();
    return std::move(found_);
  }

private:
  static std::uint64_t finished_by(const standing& one) noexcept { return one.progress.collectives.finished; }

  void add_suspect(const standing& one, suspicion why, std::string reason) {
    found_.suspects.push_back({one.rank, why, std::move(reason)});
  }
  [[nodiscard]] bool is_here(rank who) const {
    return std::ranges::find(all_, who, [](const standing* one) { return one->rank; }) != all_.end();
  }
  [[nodiscard]] standings standings_where(const std::function<bool(const standing&)>& which) const {
    standings some;
    for (const standing* one : all_)
      if (which(*one)) some.push_back(one);
    return some;
  }
  [[nodiscard]] bool has_launched(const standing& one) const noexcept {
    return one.progress.collectives.launched >= stuck_;
  }
  [[nodiscard]] bool is_launching(const standing& one) const noexcept {
    return !has_launched(one) && one.progress.launching_since && one.progress.collectives.submitted >= stuck_;
  }
  [[nodiscard]] std::string in_call(const standing& one) const {
    return "its launch call has not returned for " + describe(report_.taken - *one.progress.launching_since);
  }
  /// Names the stuck collective, with the description of a rank for which it is the last launch.
  [[nodiscard]] std::string stuck_name() const {
    std::string name = "the " + ordinal(stuck_);
    for (const standing* one : all_) {
      const auto& launched = one->progress.launched;
      if (one->progress.collectives.launched != stuck_ || !launched || launched->reach != operation_reach::all_ranks)
        continue;
      return name + ", " + describe(*launched);
    }
    return name;
  }

  void check_verdict() {
    const auto& named = report_.fault.rank;
    if (named && (report_.is_verdict || !is_here(*named)))
      found_.suspects.push_back({*named, suspicion::named, "the fault names it"});
  }

  void check_reports() {
    const auto add = [&](const standing& one, const error& why) {
      add_suspect(one, suspicion::reported, "it reported " + describe_reason(why));
    };
    const auto own = standings_where([](const standing& one) { return is_of_its_own(one.fault.code); });
    const auto first = std::ranges::find_if(all_, [&](const standing* one) {
      return report_.fault.rank == one->rank && is_of_its_own(report_.fault.code);
    });
    if (first != all_.end()) add(**first, report_.fault);
    // A sticky error reaches every device of the process. Ranks that report it later are only affected by it.
    const bool spreads = first != all_.end() && report_.fault.code == errc::process_poisoned;
    for (const standing* one : own) {
      const bool is_first = first != all_.end() && one == *first;
      if (!is_first && !(spreads && one->fault.code == errc::process_poisoned)) add(*one, one->fault);
    }
    if (!found_.suspects.empty()) return;
    const auto broken =
        standings_where([](const standing& one) { return one.fault.code == errc::communicator_failed; });
    if (broken.size() == all_.size() && all_.size() > 1) return; // each rank may report another rank's failure
    for (const standing* one : broken) add(*one, one->fault);
  }

  void check_missing_launches() {
    if (is_disagreement()) return;
    const auto there = standings_where([&](const standing& one) { return has_launched(one) || is_launching(one); });
    if (there.empty() || there.size() == all_.size()) return;
    for (const standing* one : all_) {
      if (has_launched(*one) || is_launching(*one)) continue;
      const std::uint64_t asked = one->progress.collectives.submitted;
      const std::string others = names_of(there) + (there.size() == 1 ? " waits" : " wait") + " in " + stuck_name();
      if (asked < stuck_)
        add_suspect(*one, suspicion::not_asked,
                    "it has been asked for " + count_of_collectives(asked) + ", and " + others +
                        ": it has not been asked for that");
      else
        add_suspect(
            *one, suspicion::not_launched,
            "it has been asked for " + count_of_collectives(asked) + " and has launched " +
                std::to_string(one->progress.collectives.launched) + ", and " + others +
                (one->progress.launching_since ? ": " + in_call(*one) : ": its launcher is blocked or has ended"));
    }
  }

  void check_absent_peers() {
    for (const standing* one : all_) {
      const auto& runs = one->progress.started;
      if (!one->progress.running_since || !runs || !runs->peer) continue;
      const auto peer = std::ranges::find(all_, *runs->peer, [](const standing* other) { return other->rank; });
      if (peer == all_.end() || runs_transfer_with(**peer, one->rank) || has_suspect((*peer)->rank)) continue;
      const bool is_done = has_finished(**peer, *runs);
      add_suspect(**peer, is_done ? suspicion::alone_done : suspicion::absent_peer,
                  "rank " + to_string(one->rank) + " has waited in " + describe(*runs) + " for " +
                      describe(report_.taken - *one->progress.running_since) + ", and it " +
                      (is_done ? "reports that it has finished its end, which may never have reached the device"
                       : (*peer)->in_flight == 0 ? "has nothing in flight"
                                                 : "runs no matching transfer"));
    }
  }

  void check_launch_calls() {
    const auto inside = standings_where([](const standing& one) { return one.progress.launching_since.has_value(); });
    if (inside.size() == all_.size() && all_.size() > 1) return;
    for (const standing* one : inside) add_suspect(*one, suspicion::stuck_launch, in_call(*one));
  }

  void check_running() {
    if (is_disagreement()) return;
    for (const standing* one : unfinished()) {
      const auto& runs = one->progress.started;
      const bool others_wait = has_launched(*one);
      if (!one->progress.running_since) {
        if (others_wait)
          add_suspect(*one, suspicion::not_started,
                      "it has launched " + stuck_name() +
                          ", and its device has not begun: a client's event or earlier work, which it waits for, has "
                          "not completed");
      } else if (runs &&
                 (others_wait ? runs->reach != operation_reach::all_ranks : runs->reach == operation_reach::itself)) {
        add_suspect(*one, suspicion::runs_other,
                    "its device has been in " + describe(*runs) + " for " +
                        describe(report_.taken - *one->progress.running_since) +
                        (others_wait ? ", before " + stuck_name() : ""));
      }
    }
    // If all ranks are suspected, the reason does not distinguish them.
    if (found_.suspects.size() == all_.size() && all_.size() > 1) found_.suspects.clear();
  }

  void check_minority() {
    if (is_disagreement()) return;
    const auto open = unfinished();
    const std::size_t ended = all_.size() - open.size();
    if (!std::ranges::all_of(open, [&](const standing* one) { return has_launched(*one); })) return;
    if (open.size() < ended || all_.size() == 1) {
      for (const standing* one : open)
        add_suspect(*one, suspicion::unfinished,
                    "its device has not finished " + stuck_name() + (ended > 0 ? ", which others have" : "") +
                        ": it hangs");
    } else if (ended < open.size()) {
      for (const standing* one : all_)
        if (finished_by(*one) >= stuck_)
          add_suspect(*one, suspicion::alone_done,
                      "it reports that it has finished " + stuck_name() + ", in which " + names_of(open) +
                          " still wait: its part may never have reached the device");
    }
  }

  void check_unlaunched() {
    if (is_disagreement()) return;
    const auto holding = standings_where(
        [](const standing& one) { return one.progress.collectives.submitted > one.progress.collectives.launched; });
    if (holding.size() == all_.size() && all_.size() > 1) return;
    for (const standing* one : holding)
      add_suspect(*one, suspicion::not_launched,
                  "it has been asked for " + count_of_collectives(one->progress.collectives.submitted) +
                      " and has launched " + std::to_string(one->progress.collectives.launched) +
                      ": its launcher is blocked or has ended");
  }

  [[nodiscard]] std::string reason_for_none() const {
    if (is_disagreement()) return "the ranks disagree about an operation; the fault names two of them";
    std::string text;
    const auto busy =
        standings_where([](const standing& one) { return one.in_flight > 0 || one.progress.launching_since; });
    if (busy.empty())
      text = "no rank here has anything in flight";
    else if (std::ranges::all_of(all_, [](const standing* one) { return one->progress.launching_since.has_value(); }))
      text = "all ranks here are inside a launch call";
    else if (std::ranges::none_of(all_, [&](const standing* one) { return has_launched(*one); }))
      text = std::string{"no collective is in flight, and "} +
             (std::ranges::any_of(all_, runs_several_transfers)
                  ? "it cannot be determined for which of its peers a group of transfers waits"
                  : "both ends of each transfer in flight have made the same progress");
    else
      text = "all ranks here have made the same progress in " + stuck_name() +
             ": a device or a link hangs, but it cannot be determined which";
    const auto elsewhere = report_.world_size - static_cast<int>(all_.size());
    if (elsewhere > 0)
      text += "; " + std::to_string(elsewhere) + (elsewhere == 1 ? " rank" : " ranks") +
              " of other processes cannot be seen from here";
    return text;
  }

  [[nodiscard]] bool is_disagreement() const noexcept { return report_.fault.code == errc::mismatch; }
  [[nodiscard]] standings unfinished() const {
    return standings_where([&](const standing& one) { return finished_by(one) < stuck_ && one.in_flight > 0; });
  }
  [[nodiscard]] bool has_suspect(rank who) const {
    return std::ranges::find(found_.suspects, who, &suspect::rank) != found_.suspects.end();
  }
  [[nodiscard]] static bool runs_several_transfers(const standing* one) {
    const auto& runs = one->progress.started;
    return one->progress.running_since && runs && runs->reach == operation_reach::peers && !runs->peer;
  }
  /// Returns whether \p one has finished its end of \p transfer, which is one request to both ranks.
  [[nodiscard]] static bool has_finished(const standing& one, const operation_mark& transfer) {
    const auto& last = one.progress.finished;
    return last && last->reach == operation_reach::peers && last->lane == transfer.lane &&
           last->position == transfer.position;
  }
  [[nodiscard]] static bool runs_transfer_with(const standing& one, rank who) {
    return one.progress.running_since && one.progress.started &&
           one.progress.started->reach == operation_reach::peers && one.progress.started->peer.value_or(who) == who;
  }

  const fault_report& report_;
  standings all_;
  std::uint64_t stuck_ = 1;
  diagnosis found_;
};

} // namespace

bool is_of_its_own(errc code) noexcept {
  switch (code) {
    case errc::device_failed:
    case errc::process_poisoned:
    case errc::out_of_memory:
    case errc::abandoned:
    case errc::stale_buffer:
    case errc::invalid_argument:
    case errc::unsupported:
    case errc::internal: return true;
    default: return false;
  }
}

diagnosis diagnose(const fault_report& report) {
  if (report.ranks.empty()) return {.remark = "no rank of this process had been formed"};
  return suspect_finder{report}.find();
}

} // namespace troupe
