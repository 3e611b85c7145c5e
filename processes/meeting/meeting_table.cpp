#include <troupe/processes/meeting/meeting_table.hpp>

#include <algorithm>

namespace troupe {

namespace {

error refusal(std::string text) {
  return {.code = errc::internal, .text = std::move(text)};
}

std::string differ(const char* what, int other, std::uint64_t theirs, std::uint64_t first) {
  return std::string{what} + " is " + std::to_string(theirs) + " at rank " + std::to_string(other) + " and " +
         std::to_string(first) + " at rank 0";
}

bool is_same_layout(const line_layout& one, const line_layout& other) {
  return one.ranks == other.ranks && one.blocks == other.blocks && one.lines_per_block == other.lines_per_block;
}

} // namespace

error meeting_table::receive(connection from, std::string_view bytes, std::vector<file_descriptor> descriptors,
                             time_point now) {
  const auto known = places_.find(from);
  if (known == places_.end()) return arrive(from, bytes, std::move(descriptors), now);
  return confirm(from, meetings_.find(known->second.first), known->second.second, bytes, descriptors.empty());
}

error meeting_table::arrive(connection from, std::string_view bytes, std::vector<file_descriptor> descriptors,
                            time_point now) {
  error why;
  auto offer = decode_meeting_offer(bytes, why);
  if (!offer) return why;
  if (descriptors.size() != (offer->why.empty() ? 1U : 0U))
    return refusal("an offer of scratch has come with " + std::to_string(descriptors.size()) + " descriptors");
  const auto earlier = std::ranges::find(ended_, offer->name, [](const auto& one) { return one.first; });
  if (earlier != ended_.end()) {
    outgoing_.push_back({.to = from, .bytes = earlier->second, .is_last = true});
    return {};
  }
  const auto found = meetings_.find(offer->name);
  const auto size = static_cast<std::size_t>(offer->world_size);
  const auto self = static_cast<std::size_t>(offer->self);
  if (found != meetings_.end() && (found->second.seats.size() != size || found->second.seats[self]))
    return refusal("rank " + std::to_string(self) + " has come twice, or names another number of ranks than its peers");
  meeting& all = meetings_[offer->name];
  if (all.seats.empty()) {
    all.seats.resize(size);
    all.due = later(now, limits_.patience);
  }
  places_.emplace(from, std::pair{offer->name, offer->self});
  seat& made = all.seats[self].emplace(seat{.by = from, .offer = *std::move(offer)});
  if (!descriptors.empty()) made.scratch = std::make_shared<const file_descriptor>(std::move(descriptors.front()));
  if (++all.arrived < size) return {};
  if (const std::string no = objection(all); no.empty())
    share(all, now);
  else
    end(meetings_.find(made.offer.name), meeting_answer::form::concluded, no);
  return {};
}

std::string meeting_table::objection(const meeting& all) {
  const meeting_offer& first = all.seats.front()->offer;
  for (const auto& one : all.seats) {
    const meeting_offer& offer = one->offer;
    if (offer.version != first.version) // nothing else that it says can be relied on
      return differ("the version of the protocol", offer.self, offer.version, first.version);
  }
  for (const auto& one : all.seats) {
    const meeting_offer& offer = one->offer;
    if (!offer.why.empty()) return "rank " + std::to_string(offer.self) + ": " + offer.why;
    if (offer.part_bytes != first.part_bytes)
      return differ("one_shot_bytes", offer.self, offer.part_bytes, first.part_bytes);
    if (!is_same_layout(offer.layout, first.layout))
      return "rank " + std::to_string(offer.self) + " has another layout than rank 0";
    if (offer.scratch_bytes < offer.layout.scratch_bytes())
      return "the scratch of rank " + std::to_string(offer.self) + " is too small";
  }
  return {};
}

void meeting_table::share(meeting& all, time_point now) {
  meeting_answer answer{.kind = meeting_answer::form::shared, .blocks = all.seats.front()->offer.blocks};
  for (const auto& one : all.seats) {
    answer.blocks = std::min(answer.blocks, one->offer.blocks);
    answer.seats.push_back({one->offer.gpu, one->offer.scratch_bytes});
  }
  const std::string bytes = encode(answer);
  for (const auto& one : all.seats) {
    message made{.to = one->by, .bytes = bytes};
    for (const auto& other : all.seats)
      if (&other != &one) made.descriptors.push_back(other->scratch);
    outgoing_.push_back(std::move(made));
  }
  for (auto& one : all.seats) one->scratch.reset(); // the messages hold them until they are sent
  all.due = later(now, limits_.patience);
}

error meeting_table::confirm(connection from, meetings::iterator in, int self, std::string_view bytes, bool is_pure) {
  meeting& all = in->second;
  seat& mine = *all.seats[static_cast<std::size_t>(self)];
  error why;
  auto said = decode_meeting_confirmation(bytes, why);
  if (!said) return why;
  if (!is_pure || all.arrived < all.seats.size() || mine.by != from || mine.confirmed)
    return refusal("a confirmation of scratch has come too early, twice, or with descriptors");
  mine.confirmed = std::move(said->why);
  if (++all.confirmed < all.seats.size()) return {};
  for (const auto& one : all.seats)
    if (!one->confirmed->empty()) {
      end(in, meeting_answer::form::concluded, "rank " + std::to_string(one->offer.self) + ": " + *one->confirmed);
      return {};
    }
  end(in, meeting_answer::form::concluded, {});
  return {};
}

void meeting_table::end(meetings::iterator which, meeting_answer::form how, const std::string& why) {
  const std::string bytes = encode(meeting_answer{.kind = how, .why = why});
  if (!why.empty()) {
    ended_.emplace_back(which->first, bytes);
    if (ended_.size() > limits_.remembered) ended_.pop_front();
  }
  for (const auto& one : which->second.seats) {
    if (!one) continue;
    outgoing_.push_back({.to = one->by, .bytes = bytes, .is_last = true});
    places_.erase(one->by);
  }
  meetings_.erase(which);
}

void meeting_table::lose(connection from) {
  const auto known = places_.find(from);
  if (known == places_.end()) return;
  const auto [name, self] = known->second;
  places_.erase(known);
  const auto found = meetings_.find(name);
  found->second.seats[static_cast<std::size_t>(self)].reset();
  end(found, meeting_answer::form::broken,
      "rank " + std::to_string(self) + " has ended, or has aborted its communicator");
}

void meeting_table::expire(time_point now) {
  for (auto next = meetings_.begin(); next != meetings_.end();) {
    const auto one = next++;
    meeting& all = one->second;
    if (now < all.due) continue;
    const bool is_shared = all.arrived == all.seats.size();
    std::string absent;
    for (std::size_t r = 0; r < all.seats.size(); ++r) {
      if (is_shared ? all.seats[r]->confirmed.has_value() : all.seats[r].has_value()) continue;
      absent += (absent.empty() ? "" : ", ") + std::to_string(r);
    }
    const auto span = std::chrono::ceil<std::chrono::milliseconds>(limits_.patience).count();
    const std::string why = "rank " + absent + (is_shared ? " has not mapped" : " has not brought") +
                            " the scratch memory within " + std::to_string(span) + " ms";
    end(one, meeting_answer::form::concluded, why);
  }
}

time_point meeting_table::next_due() const noexcept {
  time_point first = time_point::max();
  for (const auto& [name, one] : meetings_) first = std::min(first, one.due);
  return first;
}

} // namespace troupe
