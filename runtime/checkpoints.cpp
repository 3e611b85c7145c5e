#include <troupe/runtime/checkpoints.hpp>

#include <troupe/collectives/progress/resume_points.hpp>
#include <troupe/runtime/world_core.hpp>

#include <algorithm>
#include <future>
#include <string>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_kept = 2;

void wait_for(std::vector<std::future<completion>>& replies) {
  for (auto& one : replies) one.get();
}

} // namespace

checkpoints::checkpoints(rank_lane& in, std::vector<buffer> state) : lane_{in}, state_{std::move(state)} {
  if (core_of(in.where()).ordering == ordering::caller)
    throw exception{errc::unsupported, "ordering is caller, so after a fault nobody knows which commits are complete: "
                                       "checkpoints need ordering agreed"};
}

checkpoints::copy_of_state checkpoints::make_copy(std::uint64_t number) {
  copy_of_state made{.commit = number};
  if (!spare_.empty()) {
    made.memory = std::move(spare_.back());
    spare_.pop_back();
  } else {
    for (const buffer& one : state_) made.memory.push_back(lane_.where().allocate_pinned(one.size_bytes()));
  }
  std::vector<std::future<completion>> replies;
  for (std::size_t i = 0; i < state_.size(); ++i) replies.push_back(lane_.copy(state_[i], made.memory[i]));
  for (auto& one : replies) last_in_ = std::max(last_in_, one.get().epoch);
  return made;
}

const checkpoints::copy_of_state* checkpoints::find(std::uint64_t number) const noexcept {
  const auto found = std::ranges::find(kept_, number, &copy_of_state::commit);
  return found == kept_.end() ? nullptr : &*found;
}

void checkpoints::commit(std::uint64_t number) {
  // A copy that failed must not be committed, so the commit is asked when the copies are there. It is kept before the
  // outcome of the commit is known: other ranks may see it succeed although this one does not.
  kept_.push_back(make_copy(number));
  lane_.commit(number).get();
  for (; kept_.size() > most_kept; kept_.erase(kept_.begin())) spare_.push_back(std::move(kept_.front().memory));
}

std::vector<bool> checkpoints::gather_holders(bool has_copy, int world_size) {
  const world& where = lane_.where();
  const buffer mine = where.allocate_pinned(sizeof(std::uint64_t));
  const buffer all = where.allocate_pinned(static_cast<std::size_t>(world_size) * sizeof(std::uint64_t));
  mine.host_span<std::uint64_t>()[0] = has_copy ? 1 : 0;
  lane_.all_gather(mine, all, 1, dtype::u64).get();
  const auto words = all.host_span<std::uint64_t>();
  std::vector<bool> holders;
  for (int r = 0; r < world_size; ++r) holders.push_back(words[static_cast<std::size_t>(r)] != 0);
  return holders;
}

checkpoints::resumed checkpoints::resume(const world_event& now) {
  return resume(now, state_);
}

checkpoints::resumed checkpoints::resume(const world_event& now, std::vector<buffer> state) {
  if (!std::ranges::equal(state, state_, {}, &buffer::size_bytes, &buffer::size_bytes))
    throw exception{errc::invalid_argument, "the buffers differ in number or size from those of these checkpoints"};
  // The resume points of an epoch do not count the commits in it, and its copies must not be given up for older ones.
  if (now.epoch <= last_in_)
    throw exception{{.code = errc::stale_epoch,
                     .text = "this rank has continued or committed in epoch " + to_string(last_in_) +
                             " already: resume with the event of a later one (world::wait_ready(after, at_most))",
                     .epoch = now.epoch}};
  state_ = std::move(state);
  lane_.acknowledge(now.epoch);
  const resume_point* const reached = now.resume ? find_point(*now.resume, lane_.which()) : nullptr;
  if (reached == nullptr || !reached->commit) {
    kept_.clear();
    last_in_ = now.epoch;
    return {};
  }
  const std::uint64_t number = *reached->commit;
  const copy_of_state* const mine = find(number);
  const std::vector<bool> holders = gather_holders(mine != nullptr, now.world_size);
  const auto first = std::ranges::find(holders, true);
  if (first == holders.end())
    throw exception{errc::missing, "no rank has the state of commit " + std::to_string(number) + " of lane " +
                                       std::string{lane_.which().name()} +
                                       ": all processes that kept it have ended. Load a checkpoint of your own, or "
                                       "begin anew"};
  const rank source{static_cast<int>(first - holders.begin())};
  std::vector<std::future<completion>> replies;
  if (mine != nullptr) {
    for (std::size_t i = 0; i < state_.size(); ++i) replies.push_back(lane_.copy(mine->memory[i], state_[i]));
    if (source == lane_.rank_in(now))
      for (int to = 0; to < now.world_size; ++to)
        if (!holders[static_cast<std::size_t>(to)])
          for (const buffer& one : state_) replies.push_back(lane_.send(one, one.size_bytes(), dtype::u8, rank{to}));
    wait_for(replies);
    kept_ = {*mine}; // the memory of other copies is not used again: work of a failed epoch may write to it
    last_in_ = now.epoch;
    return {.commit = number};
  }
  for (const buffer& one : state_) replies.push_back(lane_.recv(one, one.size_bytes(), dtype::u8, source));
  wait_for(replies);
  kept_ = {make_copy(number)};
  last_in_ = now.epoch;
  return {.commit = number, .received_from = source};
}

} // namespace troupe
