#include <troupe/processes/meeting/process_meetings.hpp>

#include <troupe/device/cuda/cuda_driver.hpp>
#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>
#include <troupe/runtime/placement/device_claim.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>

namespace troupe {

namespace {

constexpr std::size_t most_noted = 8;

/// Throws unless kernels on the device of \p mine may use the memory of the GPU \p other. Without names, as on the
/// mock, and for a GPU that this process does not see, the mapping decides, and NVML knows of NVLink.
void require_reach(const one_shot_offer& mine, const std::string& other) {
  if (other.empty()) return;
  driver& api = mine.where->api();
  const auto refuse = [&](const std::string& why) {
    throw exception{errc::unsupported, "GPU " + name_to_claim(api, mine.where->id()) + " " + why + " GPU " + other};
  };
  for (int i = 0; i < api.device_count(); ++i) {
    if (name_to_claim(api, device_id{i}) != other) continue;
    if (std::ranges::find(mine.reaches, device_id{i}) == mine.reaches.end())
      refuse(mine.needs_nvlink ? "does not reach over NVLink" : "has no peer access to");
    return;
  }
  if (!mine.needs_nvlink) return;
  const std::optional<bool> joined = find_nvlink_between(name_to_claim(api, mine.where->id()), other);
  if (!joined) refuse("may or may not be connected by NVLink (one_shot_bytes: give a size in place of auto) to");
  if (!*joined) refuse("does not reach over NVLink");
}

} // namespace

void process_meeting::require_running(rank self) const {
  if (aborted_)
    throw exception{error{.code = errc::communicator_failed,
                          .text = "the communicator was aborted while its ranks shared their scratch memory",
                          .rank = self}};
}

bool process_meeting::enter(rank self) {
  const std::lock_guard lock{mutex_};
  require_running(self);
  socket_ = door_();
  return static_cast<bool>(socket_);
}

void process_meeting::leave() noexcept {
  const std::lock_guard lock{mutex_};
  socket_.close();
}

one_shot_peers process_meeting::meet(rank self, one_shot_offer mine) {
  // A rank that cannot bring anything to the service must not wait: its peers learn of it by the service's patience.
  if (!enter(self)) return {.why = "there is no meeting service on this node, or it is busy"};
  try {
    one_shot_peers got = exchange(self, mine);
    leave();
    return got;
  } catch (...) {
    leave();
    throw;
  }
}

one_shot_peers process_meeting::exchange(rank self, const one_shot_offer& mine) {
  driver& api = mine.where->api();
  meeting_offer offer{.name = name_,
                      .self = self.value(),
                      .world_size = world_size_,
                      .layout = mine.layout,
                      .part_bytes = mine.part_bytes,
                      .blocks = mine.blocks,
                      .gpu = name_to_claim(api, mine.where->id()),
                      .why = mine.why};
  file_descriptor exported;
  if (mine.scratch) {
    offer.scratch_bytes = mine.scratch->size_bytes();
    try {
      exported = mine.scratch->export_handle();
    } catch (...) {
      offer.why = current_error().text;
    }
  }
  if (!exported && offer.why.empty()) offer.why = "it has no scratch memory";
  const std::array natives{exported.native()};
  try {
    send_descriptors(socket_, encode(offer), std::span{natives}.first(exported ? 1 : 0));
  } catch (const exception& failure) { // the service has not got it, so no rank has kernels
    require_running(self);
    return {.why = "the meeting service of this node cannot be reached: " + failure.why().text};
  }
  exported.close();

  std::vector<file_descriptor> descriptors;
  meeting_answer answer = await(self, descriptors);
  if (answer.kind == meeting_answer::form::concluded && !answer.why.empty()) return {.why = std::move(answer.why)};
  const auto count = static_cast<std::size_t>(world_size_);
  if (answer.kind != meeting_answer::form::shared || answer.seats.size() != count || descriptors.size() != count - 1)
    throw exception{error{.code = errc::communicator_failed,
                          .text = "the meeting service of this node has sent an answer that was not expected",
                          .rank = self}};

  one_shot_peers all{.blocks = std::min(answer.blocks, mine.blocks), .are_in_processes = true};
  meeting_confirmation done;
  try {
    auto next = descriptors.begin();
    for (std::size_t r = 0; r < count; ++r) {
      if (r == static_cast<std::size_t>(self.value())) {
        all.scratch.push_back(mine.scratch);
        continue;
      }
      const meeting_answer::seat& peer = answer.seats[r];
      require_reach(mine, peer.gpu);
      all.scratch.push_back(
          std::make_shared<const peer_memory>(peer_memory::import(mine.where, *next++, peer.scratch_bytes)));
    }
  } catch (...) {
    done.why = current_error().text;
  }
  descriptors.clear(); // the mappings hold the memory
  try {
    send_descriptors(socket_, encode(done), {});
  } catch (const exception&) { // what the service has answered meanwhile tells why
  }
  answer = await(self, descriptors);
  if (!answer.why.empty()) return {.why = std::move(answer.why)};
  return all;
}

meeting_answer process_meeting::await(rank self, std::vector<file_descriptor>& descriptors) {
  error why;
  try {
    passed_descriptors got = receive_passed(socket_, most_meeting_bytes, most_passed_descriptors, time_point::max());
    descriptors = std::move(got.descriptors);
    if (auto answer = decode_meeting_answer(got.bytes, why); answer) {
      if (answer->kind != meeting_answer::form::broken) return *std::move(answer);
      why.text = answer->why;
    }
  } catch (const exception& failure) {
    why = failure.why();
    if (why.code == errc::rank_lost) why.text = "the meeting service of this node has ended";
  }
  require_running(self);
  throw exception{error{.code = errc::communicator_failed,
                        .text = "the ranks could not share their scratch memory: " + why.text,
                        .rank = self}};
}

void process_meeting::abort() noexcept {
  std::vector<std::shared_ptr<one_shot_meeting>> forming;
  {
    const std::lock_guard lock{mutex_};
    aborted_ = true;
    if (socket_) ::shutdown(socket_.native(), SHUT_RDWR); // wakes the thread in meet(), and the service
    for (const auto& one : splits_)
      if (auto alive = one.lock()) forming.push_back(std::move(alive));
  }
  for (const auto& one : forming) one->abort();
}

std::shared_ptr<one_shot_meeting> process_meeting::derived(const derivation& name, int world_size) {
  const auto& [kind, ordinal, color] = name;
  const auto made = std::make_shared<process_meeting>(
      door_, name_of_derived(name_, static_cast<std::uint8_t>(kind), ordinal, color), world_size, absence_);
  if (kind != derivation_kind::split) return made;
  const std::lock_guard lock{mutex_};
  std::erase_if(splits_, [](const auto& one) { return one.expired(); });
  splits_.push_back(made);
  made->aborted_ = aborted_.load();
  return made;
}

std::shared_ptr<one_shot_meeting> process_meetings::meeting_of(const unique_id& id, int world_size) {
  const meeting_name name = name_of_formation(id);
  std::string absence = "its communicator spans processes and was not formed by a controller";
  {
    const std::lock_guard lock{mutex_};
    const auto found = std::ranges::find(noted_, name, [](const auto& one) { return one.first; });
    if (found != noted_.end())
      absence = found->second ? std::string{}
                              : "the processes of the world are not all on one node whose controller or order service "
                                "orders their requests through shared memory";
  }
  return std::make_shared<process_meeting>(door_, name, world_size, std::move(absence));
}

void process_meetings::note_node(const unique_id& formation, bool is_one) {
  const meeting_name name = name_of_formation(formation);
  const std::lock_guard lock{mutex_};
  noted_.emplace_front(name, is_one);
  if (noted_.size() > most_noted) noted_.pop_back();
}

} // namespace troupe
