#include "status.hpp"

#include <troupe/collectives/pipeline/fault_report.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/threads/own_thread.hpp>

namespace troupe::c {
namespace {

std::string describe_recovery(const std::vector<recovery_try>& tries) {
  std::string all;
  for (const recovery_try& one : tries) {
    all += (all.empty() ? "" : ", then ") + std::string{to_string(one.rung)} + " in " +
           in_tenths_of_milliseconds(one.took);
    if (one.failure) all += " failed (" + to_string(one.failure) + ")";
  }
  return all;
}

} // namespace
} // namespace troupe::c

troupe_status::troupe_status(troupe::world_event event) : of{std::move(event)}, text{describe(of)} {
  if (of.straggling) straggling = describe(*of.straggling);
  if (of.report) report = describe(*of.report);
  if (of.recovery) recovery = troupe::c::describe_recovery(*of.recovery);
  if (of.restored) restored = describe(*of.restored);
  if (of.one_shot) one_shot = describe(*of.one_shot);
  if (of.reason) reason = std::make_unique<const troupe_error>(of.reason);
  local_ranks = troupe::c::numbers_of(of.local_ranks);
  origins = troupe::c::numbers_of(of.origins);
  for (const troupe::lost_rank& one : of.lost) {
    lost.push_back(one.origin.value());
    lost_last_in.push_back(one.last_in.value());
  }
  if (!of.resume) return;
  for (const troupe::resume_point& point : of.resume->lanes) {
    auto& listed = later.emplace_back();
    for (const troupe::incomplete_operation& one : point.later)
      listed.push_back({troupe::c::numbers_of(one.succeeded), troupe::c::numbers_of(one.unknown)});
  }
}

namespace troupe::c {

void tell(troupe_status_callback heard, void* user, const world_event& now) noexcept {
  const own_thread_scope in_callback;
  std::unique_ptr<const troupe_status> status;
  try {
    status = std::make_unique<const troupe_status>(now);
  } catch (...) { // no memory for the texts
  }
  heard(user, status.get());
}

std::function<void(const world_event&)> make_listener(troupe_status_callback heard, void* user,
                                                      const client_pointer& client) {
  if (heard == nullptr) throw invalid("heard is NULL: it must not be");
  return [heard, user, held = client.owner()](const world_event& now) { tell(heard, user, now); };
}

troupe_code store_awaited(world_event now, std::uint64_t after, troupe_status** made) {
  const bool is_over = is_ready_after(now, epoch{after});
  need(made, "made") = new troupe_status{std::move(now)};
  return is_over ? TROUPE_OK : TROUPE_WAITING;
}

namespace {

troupe_status_info info_of(const troupe_status& one) {
  const world_event& now = one.of;
  return {
      .size = 0,
      .epoch = now.epoch.value(),
      .phase = static_cast<troupe_phase>(now.phase),
      .world_size = now.world_size,
      .text = one.text.c_str(),
      .reason = one.reason.get(),
      .local_ranks = one.local_ranks.data(),
      .origins = one.origins.data(),
      .local_rank_count = one.local_ranks.size(),
      .lost = one.lost.data(),
      .lost_last_in = one.lost_last_in.data(),
      .lost_count = one.lost.size(),
      .straggling = one.straggling.c_str(),
      .report = one.report.c_str(),
      .recovery = one.recovery.c_str(),
      .restored = one.restored.c_str(),
      .one_shot = one.one_shot.c_str(),
      .is_suspended = now.is_suspended ? 1 : 0,
      .has_resume_points = now.resume ? 1 : 0,
      .resume_point_count = now.resume ? now.resume->lanes.size() : 0,
      .counted_from = now.resume ? now.resume->counted_from.value() : 0,
      .has_survivors = !now.resume || now.resume->has_survivors ? 1 : 0,
  };
}

const resume_point& point_of(const troupe_status& status, std::size_t index) {
  const std::size_t count = status.of.resume ? status.of.resume->lanes.size() : 0;
  if (index >= count)
    throw invalid("there is no resume point number " + std::to_string(index) + ": there are " + std::to_string(count));
  return status.of.resume->lanes[index];
}

} // namespace
} // namespace troupe::c

using namespace troupe::c;

troupe_code troupe_status_get(const troupe_status* status, troupe_status_info* info) {
  return attempt(nullptr, [&] { write_struct(info, info_of(need(status, "status")), "info"); });
}

troupe_code troupe_status_resume_point(const troupe_status* status, std::size_t index, troupe_resume_point* point) {
  return attempt(nullptr, [&] {
    const troupe::resume_point& from = point_of(need(status, "status"), index);
    write_struct(point,
                 {.size = 0,
                  .lane = from.where ? from.where->name().c_str() : nullptr,
                  .complete = from.complete,
                  .commit = from.commit.value_or(0),
                  .incomplete = from.incomplete,
                  .has_commit = from.commit ? 1 : 0,
                  .listed_count = from.later.size(),
                  .agreed_count = from.agreed.size(),
                  .agreed_unlisted = from.agreed_unlisted},
                 "point");
  });
}

troupe_code troupe_status_incomplete(const troupe_status* status, std::size_t point, std::size_t index,
                                     troupe_incomplete_operation* operation) {
  return attempt(nullptr, [&] {
    const troupe::resume_point& from = point_of(need(status, "status"), point);
    if (index >= from.later.size())
      throw invalid("there is no incomplete operation number " + std::to_string(index) + ": " +
                    std::to_string(from.later.size()) + " are listed");
    const troupe_status::incomplete& ranks = status->later[point][index];
    write_struct(operation,
                 {.size = 0,
                  .position = from.later[index].position,
                  .succeeded = ranks.succeeded.data(),
                  .succeeded_count = ranks.succeeded.size(),
                  .unknown = ranks.unknown.data(),
                  .unknown_count = ranks.unknown.size()},
                 "operation");
  });
}

troupe_code troupe_status_agreed(const troupe_status* status, std::size_t point, std::size_t index,
                                 troupe_agreed_value* value) {
  return attempt(nullptr, [&] {
    const troupe::resume_point& from = point_of(need(status, "status"), point);
    if (index >= from.agreed.size())
      throw invalid("there is no agreed value number " + std::to_string(index) + ": there are " +
                    std::to_string(from.agreed.size()));
    const troupe::agreed_value& one = *from.agreed[index];
    write_struct(value,
                 {.size = 0,
                  .epoch = one.epoch.value(),
                  .position = one.position,
                  .value = one.bytes.data(),
                  .value_bytes = one.bytes.size(),
                  .part_sizes = one.part_sizes.data(),
                  .part_count = one.part_sizes.size()},
                 "value");
  });
}

troupe_status* troupe_status_copy(const troupe_status* status) {
  troupe_status* copied = nullptr;
  if (status != nullptr) static_cast<void>(attempt(nullptr, [&] { copied = new troupe_status{status->of}; }));
  return copied;
}

void troupe_status_free(troupe_status* status) {
  delete status;
}
