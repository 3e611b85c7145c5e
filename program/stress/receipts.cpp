#include <troupe/program/stress/receipts.hpp>

#include <troupe/collectives/operation/wire.hpp>
#include <troupe/collectives/order/codec/report_codec.hpp>
#include <troupe/completion/poller/clock.hpp>
#include <troupe/device/error.hpp>
#include <troupe/program/bench/frame/reference_values.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string_view>
#include <system_error>

namespace troupe::program {

namespace {

constexpr std::size_t most_text = 65'536;
constexpr int most_ranks = 65'536;
constexpr std::size_t most_faults = 20; ///< That are described.

/// Lists the fields of a receipt for both directions.
template <class Wire, class Receipt>
void fields_of(Wire& wire, Receipt& one) {
  wire.field(one.kind, receipt_kind::ended);
  wire.field(one.world, most_text);
  wire.field(one.where, most_text);
  wire.field(one.rank);
  wire.field(one.at_ns);
  wire.field(one.epoch);
  wire.field(one.step);
  if (one.kind == receipt_kind::answered || one.kind == receipt_kind::heard) agreed_field(wire, one.value);
  if (one.kind == receipt_kind::resumed) points_field(wire, one.points, most_ranks);
  wire.field(one.text, most_text);
}

std::string encoded(const std::shared_ptr<const resume_points>& points) {
  wire_writer out;
  points_field(out, points, most_ranks);
  return out.take();
}

std::uint64_t digest_of(const agreed_value& value) {
  std::uint64_t digest = scramble(std::hash<std::string_view>{}(value.text()));
  for (const std::uint32_t size : value.part_sizes) digest = scramble(digest ^ size);
  return digest;
}

std::string shortened(const agreed_value& value) {
  constexpr std::size_t most = 24;
  std::string text = std::to_string(value.bytes.size()) + " bytes ";
  for (std::size_t i = 0; i < std::min(most, value.bytes.size()); ++i) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto byte = std::to_integer<unsigned>(value.bytes[i]);
    text += {digits[byte >> 4U], digits[byte & 15U]};
  }
  return text + (value.bytes.size() > most ? "…" : "");
}

/// Returns the point of the lane with this name, or nullptr.
const resume_point* find_named(const resume_points& all, const std::string& name) {
  const auto found = std::ranges::find_if(
      all.lanes, [&name](const resume_point& one) { return one.where && one.where->name() == name; });
  return found == all.lanes.end() ? nullptr : &*found;
}

} // namespace

std::string receipts_name(const std::string& name, std::int64_t pid) {
  return name + '-' + std::to_string(pid);
}

receipt_log::receipt_log(const std::filesystem::path& folder, const std::string& process) {
  const std::filesystem::path path = folder / receipts_name(process, ::getpid());
  file_ = file_descriptor{::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
  if (!file_)
    throw exception{errc::missing, path.string() + " cannot be created: name a folder that can be written to"};
}

void receipt_log::write(receipt one) {
  one.at_ns = steady_now().time_since_epoch().count();
  wire_writer body;
  fields_of(body, one);
  wire_writer out;
  out.bytes(body.view());
  // By one call, so that receipts of several threads do not mix. What is written is the kernel's, and stays.
  if (::write(file_.native(), out.view().data(), out.size_bytes()) != static_cast<ssize_t>(out.size_bytes()))
    throw std::system_error{errno, std::generic_category(), "a receipt cannot be written"};
}

void receipt_reader::read(const std::function<void(const std::string& process, const receipt& one)>& each) {
  for (const auto& entry : std::filesystem::directory_iterator{folder_}) {
    const std::string name = entry.path().filename().string();
    std::uint64_t& done = read_[name];
    std::error_code failed;
    const std::uint64_t size = entry.file_size(failed);
    if (failed || size <= done) continue;
    std::ifstream file{entry.path(), std::ios::binary};
    file.seekg(static_cast<std::streamoff>(done));
    std::string bytes(size - done, '\0');
    file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    bytes.resize(static_cast<std::size_t>(file.gcount()));
    for (std::string_view rest = bytes;;) {
      wire_reader in{rest};
      const std::string_view body = in.bytes(bytes.size());
      if (!in.ok() || body.empty()) break; // its end is not written yet, or never will be
      const std::size_t length = rest.size() - in.left_bytes();
      rest.remove_prefix(length);
      done += length;
      wire_reader fields{body};
      receipt one;
      fields_of(fields, one);
      if (!fields.ok()) throw exception{errc::internal, entry.path().string() + " has a receipt that cannot be read"};
      each(name, one);
    }
  }
}

std::size_t receipt_judge::place_hash::operator()(const place& one) const noexcept {
  const std::uint64_t lane = (std::uint64_t{one.world} << 32U) | one.where;
  return static_cast<std::size_t>(scramble(one.position ^ scramble(one.epoch ^ scramble(lane))));
}

receipt_judge::number receipt_judge::number_of(const std::string& name) {
  const auto [found, is_new] = numbers_.try_emplace(name, static_cast<number>(names_.size()));
  if (is_new) names_.push_back(name);
  return found->second;
}

std::string receipt_judge::describe(const place& where) const {
  return "position " + std::to_string(where.position) + " of lane " + names_[where.where] + " of world " +
         names_[where.world] + " in epoch " + std::to_string(where.epoch);
}

void receipt_judge::fault(std::string what) {
  ++totals_.faults;
  if (faults_.size() < most_faults) faults_.push_back(std::move(what));
}

void receipt_judge::take(const std::string& process, const receipt& one) {
  const number from = number_of(process);
  switch (one.kind) {
    case receipt_kind::answered: return take_answer(from, one);
    case receipt_kind::heard:
      ++totals_.heard;
      take_value(from, {number_of(one.world), number_of(one.where), one.value.epoch.value(), one.value.position},
                 one.value);
      return;
    case receipt_kind::refused: {
      ++totals_.refused;
      const lane_step key{number_of(one.world), number_of(one.where), one.epoch.value(), one.step};
      const auto [known, is_new] = refused_.try_emplace(key, one.text, from);
      if (!is_new && known->second.first != one.text)
        fault("the agree of step " + std::to_string(one.step) + " of lane " + one.where + " of world " + one.world +
              " in epoch " + to_string(one.epoch) + " was refused as " + known->second.first + " to " +
              names_[known->second.second] + " and as " + one.text + " to " + process);
      return;
    }
    case receipt_kind::rejected:
      ++totals_.rejected;
      rejected_.try_emplace({number_of(one.world), number_of(one.where), one.epoch.value(), one.step}, one.text, from);
      return;
    case receipt_kind::committed: {
      ++totals_.commits;
      auto& last = commits_[{number_of(one.world), number_of(one.where)}][{one.epoch.value(), from}];
      last = std::max(last, one.step);
      return;
    }
    case receipt_kind::resumed: return take_points(from, one);
    case receipt_kind::fault: return fault(process + ": " + one.text);
    case receipt_kind::counted:
    case receipt_kind::ended: return;
  }
}

receipt_judge::known_value* receipt_judge::take_value(number process, const place& at, const agreed_value& value) {
  const std::uint64_t digest = digest_of(value);
  const bool is_named = !names_[at.where].empty();
  const auto [found, is_new_value] = places_.try_emplace(digest, at);
  if (!is_new_value) {
    place& known = found->second;
    const bool is_same_lane = known.where == at.where || !is_named || names_[known.where].empty();
    if (known.world != at.world || known.epoch != at.epoch || known.position != at.position || !is_same_lane)
      fault("one value, " + shortened(value) + ", is at " + describe(known) + " and, received by " + names_[process] +
            ", at " + describe(at));
    if (names_[known.where].empty()) known = at;
  }
  if (!is_named) return nullptr;
  const auto [known, is_new] = values_.try_emplace(at);
  if (is_new) {
    known->second = {.digest = digest, .head = shortened(value), .first_holder = process};
  } else if (known->second.digest != digest) {
    fault("two values at " + describe(at) + ": " + known->second.head + ", received by " +
          names_[known->second.first_holder] + ", and " + shortened(value) + ", received by " + names_[process]);
    return nullptr;
  }
  return &known->second;
}

void receipt_judge::take_answer(number process, const receipt& one) {
  ++totals_.received;
  const number world = number_of(one.world), where = number_of(one.where);
  const std::string step = "the agree of step " + std::to_string(one.step) + " of lane " + one.where + " of world " +
                           one.world + " in epoch " + to_string(one.epoch);
  if (one.value.epoch != one.epoch)
    fault(step + " was answered to " + names_[process] + " with a value of epoch " + to_string(one.value.epoch));
  auto& epochs = answered_[{process, number_of(one.world + '\0' + one.where)}];
  if (!epochs[one.epoch.value()].insert(one.step).second) fault(step + " was answered twice to " + names_[process]);
  constexpr std::size_t kept = 2;
  while (epochs.size() > kept) epochs.erase(epochs.begin());
  known_value* const known =
      take_value(process, {world, where, one.value.epoch.value(), one.value.position}, one.value);
  if (known == nullptr) return;
  if (known->step && *known->step != one.step)
    fault(step + " was answered to " + names_[process] + " with the value of step " + std::to_string(*known->step));
  known->step = one.step;
  if (std::ranges::find(known->holders, process) == known->holders.end()) known->holders.push_back(process);
}

void receipt_judge::take_points(number process, const receipt& one) {
  const number world = number_of(one.world);
  const auto [found, is_new] = points_[world].try_emplace(one.epoch.value());
  told_points& told = found->second;
  std::string bytes = encoded(one.points);
  if (is_new) {
    ++totals_.epochs;
    told = {.bytes = std::move(bytes), .points = one.points, .first_process = process};
  } else if (told.bytes != bytes) {
    fault("world " + one.world + " in epoch " + to_string(one.epoch) + " has other resume points for " +
          names_[process] + " than for " + names_[told.first_process]);
  }
  if (!told.processes.insert(process).second || !one.points) return;
  for (const resume_point& point : one.points->lanes)
    for (const auto& value : point.agreed) {
      if (!value) continue;
      ++totals_.told;
      const std::string where = point.where ? point.where->name() : "(of the whole world)";
      const known_value* const known =
          take_value(process, {world, number_of(where), value->epoch.value(), value->position}, *value);
      if (known != nullptr && std::ranges::find(known->holders, process) == known->holders.end()) ++totals_.told_anew;
      // A value of an earlier epoch is told until the ranks agree again; copies may have moved the point meanwhile.
      if (value->epoch.value() + 1 == one.epoch.value() && value->position < point.complete)
        fault("world " + one.world + " in epoch " + to_string(one.epoch) + " is told a value at position " +
              std::to_string(value->position) + " of lane " + where + ", of which " + std::to_string(point.complete) +
              " are complete");
    }
}

void receipt_judge::judge_told(const place& at, const known_value& one) {
  if (one.holders.empty()) return;
  const auto world = points_.find(at.world);
  if (world == points_.end()) return;
  const auto next = world->second.upper_bound(at.epoch);
  if (next == world->second.end()) return; // no later epoch
  const told_points& told = next->second;
  const auto is_there = [&](number process) { return told.processes.contains(process); };
  if (!terms_.order_survives && std::ranges::none_of(one.holders, is_there)) return;
  const auto complain = [&](const std::string& why) {
    fault("the value at " + describe(at) + ", received by " + names_[one.holders.front()] + ", is not told in epoch " +
          std::to_string(next->first) + ": " + why);
  };
  if (!told.points) return complain("there are no resume points");
  if (told.points->counted_from.value() > at.epoch) return; // nobody knows the positions of that epoch any more
  const resume_point* const point = find_named(*told.points, names_[at.where]);
  if (point == nullptr) return complain("the lane has no resume point");
  if (at.position < point->complete || point->agreed_unlisted > 0) return;
  if (std::ranges::none_of(point->agreed, [&](const auto& value) {
        return value && value->epoch.value() == at.epoch && value->position == at.position;
      }))
    complain(std::to_string(point->complete) + " operations are complete, and " + std::to_string(point->agreed.size()) +
             " values are told");
}

void receipt_judge::judge_commits() {
  for (const auto& [lane, commits] : commits_) {
    const std::string& world = names_[lane.first];
    const std::string& where = names_[lane.second];
    std::uint64_t since = 0; // the epoch that was told last that later commits may have been complete before it
    for (const auto& [in, told] : points_[lane.first]) {
      if (told.points && !told.points->has_survivors) since = in;
      if (!told.points || !told.points->has_survivors) continue;
      std::uint64_t last = 0;
      std::pair<std::uint64_t, number> last_from{};
      for (const auto& [from, commit] : commits) {
        if (from.first < since || from.first >= in || commit < last) continue;
        if (!terms_.order_survives && !told.processes.contains(from.second)) continue;
        last = commit;
        last_from = from;
      }
      if (last < terms_.commit_every) continue;
      const resume_point* const point = find_named(*told.points, where);
      const std::optional<std::uint64_t> known = point == nullptr ? std::nullopt : point->commit;
      if (known && *known >= last - terms_.commit_every) continue;
      fault("world " + world + " in epoch " + std::to_string(in) + " is told " +
            (known ? "commit " + std::to_string(*known) : std::string{"no commit"}) + " of lane " + where +
            ", in which commit " + std::to_string(last) + " has succeeded before, in epoch " +
            std::to_string(last_from.first) + " at " + names_[last_from.second]);
    }
  }
}

void receipt_judge::judge_positions() {
  std::vector<std::pair<place, std::uint64_t>> all;
  for (const auto& [at, one] : values_) {
    if (!one.step) continue;
    all.emplace_back(at, *one.step);
    judge_refusal(refused_, at, one);
    judge_refusal(rejected_, at, one);
  }
  std::ranges::sort(all);
  for (std::size_t i = 1; i < all.size(); ++i) {
    const auto& [before, step_before] = all[i - 1];
    const auto& [at, step] = all[i];
    if (before.world == at.world && before.where == at.where && before.epoch == at.epoch && step_before >= step)
      fault("the agrees of steps " + std::to_string(step_before) + " and " + std::to_string(step) +
            " have positions in the opposite order: the latter is at " + describe(at));
  }
}

void receipt_judge::judge_refusal(const refusals& all, const place& at, const known_value& one) {
  const auto found = all.find({at.world, at.where, at.epoch, *one.step});
  if (found == all.end()) return;
  const auto& [code, told] = found->second;
  fault("the agree of step " + std::to_string(*one.step) + " was refused as " + code + " to " + names_[told] +
        ", and " + names_[one.first_holder] + " has received a value at " + describe(at));
}

void receipt_judge::finish() {
  totals_.positions = values_.size();
  for (const auto& [at, one] : values_) judge_told(at, one);
  judge_positions();
  judge_commits();
}

} // namespace troupe::program
