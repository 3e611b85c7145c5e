/// Worlds and drivers.
#include "operation.hpp"
#include "request.hpp"
#include "status.hpp"

#include <troupe/collectives/operation/capabilities.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/rank_group.hpp>
#include <troupe/device/threads/own_thread.hpp>

#include <variant>

using namespace troupe::c;

void troupe_world_free(troupe_world* world) {
  delete world;
}

troupe_code troupe_world_stop(troupe_world* world, troupe_error** error) {
  return attempt(error, [&] { need(world, "world").of.stop(); });
}

std::int32_t troupe_world_size(const troupe_world* world) {
  std::int32_t size = 0;
  if (world != nullptr) static_cast<void>(attempt(nullptr, [&] { size = world->of.size(); }));
  return size;
}

std::uint64_t troupe_world_epoch(const troupe_world* world) {
  std::uint64_t epoch = 0;
  if (world != nullptr) static_cast<void>(attempt(nullptr, [&] { epoch = world->of.epoch().value(); }));
  return epoch;
}

troupe_code troupe_world_status(const troupe_world* world, troupe_status** made, troupe_error** error) {
  return make_handle(made, "made", error, [&] { return troupe_status{need(world, "world").of.status()}; });
}

namespace {

/// Waits for the world of \p of, a world or a driver.
template <class Handle>
troupe_code wait_ready(const Handle* of, std::string_view what, std::uint64_t after, std::int64_t at_most_ns,
                       troupe_status** made, troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return guarded(error, [&] {
    static_cast<void>(need(made, "made"));
    const auto& from = need(of, what).of;
    if (at_most_ns != 0) refuse_in_callback("waiting for a world");
    return store_awaited(from.wait_ready(troupe::epoch{after}, span_of(at_most_ns, "at_most_ns")), after, made);
  });
}

template <class Handle>
troupe_code on_event(Handle* of, std::string_view what, troupe_status_callback heard, void* user,
                     void (*forget)(void* user), troupe_error** error) {
  return attempt(error, [&] {
    auto& from = need(of, what).of;
    client_pointer client{user, forget};
    from.on_event(make_listener(heard, user, client));
    client.accept();
  });
}

template <class Handle>
troupe_code find(const Handle* of, std::string_view what, std::int32_t rank, const char* name, std::int64_t deadline_ns,
                 troupe_remote_buffer* handle, troupe_error** error) {
  return attempt(error, [&] {
    const auto& from = need(of, what).of;
    refuse_in_callback("finding memory");
    check_size(need(handle, "handle").size, first_size_bytes<troupe_remote_buffer>, "handle");
    const auto deadline = span_of(deadline_ns, "deadline_ns");
    write_remote(from.find_memory(troupe::rank{rank}, need_text(name, "name"), deadline).get(), handle);
  });
}

} // namespace

troupe_code troupe_world_wait_ready(const troupe_world* world, std::uint64_t after, std::int64_t at_most_ns,
                                    troupe_status** made, troupe_error** error) {
  return wait_ready(world, "world", after, at_most_ns, made, error);
}

troupe_code troupe_world_when_ready(const troupe_world* world, std::uint64_t after, troupe_status_callback ready,
                                    void* user, troupe_error** error) {
  return attempt(error, [&] {
    const troupe::world& of = need(world, "world").of;
    if (ready == nullptr) throw invalid("ready is NULL: it must not be");
    of.wait_ready(troupe::epoch{after}, std::make_shared<troupe::value_promise<troupe::world_event>>(
                                            [ready, user](std::variant<troupe::world_event, troupe::error>&& result) {
                                              if (const auto* now = std::get_if<troupe::world_event>(&result))
                                                return tell(ready, user, *now);
                                              const troupe::own_thread_scope in_callback;
                                              ready(user, nullptr);
                                            }));
  });
}

troupe_code troupe_world_on_event(troupe_world* world, troupe_status_callback heard, void* user,
                                  void (*forget)(void* user), troupe_error** error) {
  return on_event(world, "world", heard, user, forget, error);
}

troupe_code troupe_world_feature(const troupe_world* world, const char* feature, std::int32_t* available, char* text,
                                 std::size_t text_bytes, std::size_t* length, troupe_error** error) {
  return attempt(error, [&] {
    const troupe::feature_finding found =
        need(world, "world").of.capabilities().find(troupe::parse_feature(need_text(feature, "feature")));
    std::int32_t& to = need(available, "available");
    write_text(found.why, text, text_bytes, length);
    to = found.available == troupe::availability::unknown ? -1 : found.available == troupe::availability::yes ? 1 : 0;
  });
}

troupe_code troupe_world_split(troupe_world* world, const troupe_rank_group* groups, std::size_t count,
                               troupe_world** made, troupe_error** error) {
  if (made != nullptr) std::fill_n(made, count, nullptr);
  return attempt(error, [&] {
    static_cast<void>(need(made, "made"));
    troupe::world& of = need(world, "world").of;
    refuse_in_callback("troupe_world_split()");
    std::vector<troupe::rank_group> wanted;
    for (const troupe_rank_group& one : read_structs(groups, count, "group")) {
      troupe::rank_group& last = wanted.emplace_back();
      last.name = need_text(one.name, "name");
      check_count(one.member_count, "members");
      for (std::size_t i = 0; i < one.member_count; ++i) last.members.emplace_back((&need(one.members, "members"))[i]);
    }
    std::vector<std::unique_ptr<troupe_world>> worlds;
    for (troupe::split_world& one : of.split(std::move(wanted)))
      worlds.push_back(one.handle ? std::make_unique<troupe_world>(troupe_world{std::move(*one.handle)}) : nullptr);
    for (std::size_t i = 0; i < worlds.size(); ++i) made[i] = worlds[i].release();
  });
}

troupe_code troupe_world_suspend(troupe_world* world, troupe_error** error) {
  return attempt(error, [&] {
    troupe::world& of = need(world, "world").of;
    refuse_in_callback("troupe_world_suspend()");
    of.suspend();
  });
}

troupe_code troupe_world_resume(troupe_world* world, troupe_error** error) {
  return attempt(error, [&] {
    troupe::world& of = need(world, "world").of;
    refuse_in_callback("troupe_world_resume()");
    of.resume();
  });
}

troupe_code troupe_world_leave(troupe_world* world, std::int32_t renumbers, troupe_error** error) {
  return attempt(error, [&] {
    troupe::world& of = need(world, "world").of;
    refuse_in_callback("troupe_world_leave()");
    of.leave(renumbers != 0).get();
  });
}

troupe_code troupe_world_find(const troupe_world* world, std::int32_t rank, const char* name, std::int64_t deadline_ns,
                              troupe_remote_buffer* handle, troupe_error** error) {
  return find(world, "world", rank, name, deadline_ns, handle, error);
}

// Plans and functions -------------------------------------------------------------------------------------------------

namespace {

std::string name_of(const troupe_plan_options& given) {
  return given.name != nullptr ? given.name : "";
}

} // namespace

troupe_code troupe_world_capture(troupe_world* world, const troupe_operation* steps, std::size_t count,
                                 std::size_t ranks, const troupe_plan_options* options, troupe_plan** made,
                                 troupe_error** error) {
  return make_handle(made, "made", error, [&] {
    troupe::world& of = need(world, "world").of;
    refuse_in_callback("troupe_world_capture()");
    const troupe_plan_options given = read_optional(options, "options");
    troupe::plan_options chosen;
    chosen.deadline = span_of(given.deadline_ns, "deadline_ns");
    chosen.name = name_of(given);
    return of.capture(make_steps(steps, count, ranks), std::move(chosen));
  });
}

void troupe_plan_free(troupe_plan* plan) {
  delete plan;
}

namespace {

/// Calls a function of the client with the arguments of \p with. Errors: internal, if it does not return 0.
void call_function(troupe_rank_callback function, void* user, const std::string& name, const troupe::rank_call& with) {
  std::vector<void*> addresses;
  std::vector<std::size_t> sizes;
  for (const troupe::buffer& one : with.memory) {
    addresses.push_back(one.data());
    sizes.push_back(one.size_bytes());
  }
  const troupe_rank_call shown{.size = sizeof shown,
                               .stream = with.stream.native(),
                               .epoch = with.epoch.value(),
                               .rank = with.self.value(),
                               .world_size = with.world_size,
                               .addresses = addresses.data(),
                               .sizes = sizes.data(),
                               .argument_count = addresses.size(),
                               .values = with.values.data(),
                               .value_bytes = with.values.size()};
  std::int32_t result = 0;
  {
    const troupe::own_thread_scope in_callback;
    result = function(user, &shown);
  }
  if (result != 0)
    throw troupe::exception{troupe::errc::internal, "the function '" + name + "' of rank " + to_string(with.self) +
                                                        " returned " + std::to_string(result)};
}

} // namespace

troupe_code troupe_world_register_function(troupe_world* world, const char* name, troupe_rank_callback function,
                                           void* user, void (*forget)(void* user), troupe_function** made,
                                           troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    troupe::world& of = need(world, "world").of;
    const std::string called = need_text(name, "name");
    if (function == nullptr) throw invalid("function is NULL: it must not be");
    client_pointer client{user, forget};
    std::unique_ptr<troupe_function> handle;
    if (made != nullptr) handle = std::make_unique<troupe_function>();
    auto registered =
        of.register_function(called, [function, user, called, held = client.owner()](const troupe::rank_call& with) {
          call_function(function, user, called, with);
        });
    client.accept();
    if (made == nullptr) return;
    handle->of = std::move(registered);
    *made = handle.release();
  });
}

void troupe_function_free(troupe_function* function) {
  delete function;
}

// Drivers -------------------------------------------------------------------------------------------------------------

troupe_code troupe_driver_create(const troupe_settings* settings, troupe_driver** made, troupe_error** error) {
  return make_handle(made, "made", error, [&] {
    return troupe::world_driver{settings != nullptr ? settings->of : troupe::configuration::from_environment()};
  });
}

void troupe_driver_free(troupe_driver* driver) {
  delete driver;
}

troupe_code troupe_driver_status(const troupe_driver* driver, troupe_status** made, troupe_error** error) {
  return make_handle(made, "made", error, [&] { return troupe_status{need(driver, "driver").of.status()}; });
}

troupe_code troupe_driver_wait_ready(const troupe_driver* driver, std::uint64_t after, std::int64_t at_most_ns,
                                     troupe_status** made, troupe_error** error) {
  return wait_ready(driver, "driver", after, at_most_ns, made, error);
}

troupe_code troupe_driver_on_event(troupe_driver* driver, troupe_status_callback heard, void* user,
                                   void (*forget)(void* user), troupe_error** error) {
  return on_event(driver, "driver", heard, user, forget, error);
}

troupe_code troupe_driver_find(const troupe_driver* driver, std::int32_t rank, const char* name,
                               std::int64_t deadline_ns, troupe_remote_buffer* handle, troupe_error** error) {
  return find(driver, "driver", rank, name, deadline_ns, handle, error);
}

troupe_code troupe_driver_allocate(troupe_driver* driver, std::int32_t rank, std::size_t size_bytes,
                                   std::int64_t deadline_ns, troupe_remote_buffer* handle, troupe_error** error) {
  return attempt(error, [&] {
    troupe::world_driver& of = need(driver, "driver").of;
    refuse_in_callback("troupe_driver_allocate()");
    check_size(need(handle, "handle").size, first_size_bytes<troupe_remote_buffer>, "handle");
    write_remote(of.allocate(troupe::rank{rank}, size_bytes, span_of(deadline_ns, "deadline_ns")).get(), handle);
  });
}

troupe_code troupe_driver_release(troupe_driver* driver, const troupe_remote_buffer* handle, troupe_error** error) {
  return attempt(error, [&] { need(driver, "driver").of.release(read_remote(handle)); });
}

troupe_code troupe_driver_read(const troupe_driver* driver, const troupe_remote_buffer* handle, void* to,
                               std::size_t size_bytes, std::int64_t deadline_ns, troupe_error** error) {
  return attempt(error, [&] {
    const troupe::world_driver& of = need(driver, "driver").of;
    refuse_in_callback("troupe_driver_read()");
    const troupe::remote_buffer from = read_remote(handle);
    if (from.size_bytes != size_bytes)
      throw invalid("the handle is of " + std::to_string(from.size_bytes) + " bytes, and the array has " +
                    std::to_string(size_bytes) + ": give one of the same size");
    void* const target = size_bytes == 0 ? to : &need(static_cast<std::byte*>(to), "to");
    const std::string read = of.read(from, span_of(deadline_ns, "deadline_ns")).get();
    if (!read.empty()) std::memcpy(target, read.data(), std::min(read.size(), size_bytes));
  });
}

troupe_code troupe_driver_capture(troupe_driver* driver, const troupe_operation* steps, std::size_t count,
                                  std::size_t ranks, const troupe_plan_options* options, troupe_reply** made,
                                  troupe_error** error) {
  const troupe_request_options no_callback{};
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    troupe::world_driver& of = need(driver, "driver").of;
    troupe_reply*& stored = need(made, "made");
    const troupe_plan_options given = read_struct(options, "options");
    troupe::plan_steps all = make_steps(steps, count, ranks);
    const auto deadline = given.deadline_ns != 0 ? span_of(given.deadline_ns, "deadline_ns")
                                                 : troupe::nanoseconds{std::chrono::minutes{1}};
    auto reply = std::make_unique<troupe_reply>();
    of.capture(name_of(given), std::move(all), deadline, make_promise(no_callback, reply.get(), 1));
    stored = reply.release();
  });
}

troupe_code troupe_driver_drop_plan(troupe_driver* driver, const char* name, troupe_error** error) {
  return attempt(error, [&] { need(driver, "driver").of.drop_plan(need_text(name, "name")); });
}

static_assert(TROUPE_CHANGE_JOIN == static_cast<int>(troupe::rank_change_kind::join));

troupe_code troupe_driver_change(troupe_driver* driver, const troupe_rank_change* change, troupe_processes** made,
                                 troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    troupe::world_driver& of = need(driver, "driver").of;
    refuse_in_callback("troupe_driver_change()");
    const troupe_rank_change given = read_struct(change, "change");
    troupe::rank_change asked{.kind = enum_of(given.kind, troupe::rank_change_kind::join, "kind of change"),
                              .renumbers = given.renumbers != 0};
    const bool is_join = asked.kind == troupe::rank_change_kind::join;
    if (asked.kind == troupe::rank_change_kind::leave || (is_join && given.place >= 0)) asked.place = given.place;
    if (asked.kind == troupe::rank_change_kind::drain) asked.host = need_text(given.host, "host");
    auto [reply, future] = troupe::make_value_promise<troupe::world_processes>();
    of.change(asked, std::move(reply));
    auto after = std::make_unique<troupe_processes>(troupe_processes{future.get()});
    if (made != nullptr) *made = after.release();
  });
}

std::size_t troupe_processes_count(const troupe_processes* processes) {
  return processes != nullptr ? processes->of.size() : 0;
}

troupe_code troupe_processes_get(const troupe_processes* processes, std::size_t index, troupe_process_info* info) {
  return attempt(nullptr, [&] {
    const troupe::world_processes& all = need(processes, "processes").of;
    if (index >= all.size())
      throw invalid("there is no process number " + std::to_string(index) + ": there are " +
                    std::to_string(all.size()));
    const troupe::world_process& one = all[index];
    write_struct(info,
                 {.size = 0,
                  .name = one.name.c_str(),
                  .host = one.host.c_str(),
                  .pid = one.pid,
                  .place = one.place.value_or(-1),
                  .rank = one.self ? one.self->value() : -1,
                  .is_leaving = one.is_leaving ? 1 : 0,
                  .is_away = one.is_away ? 1 : 0},
                 "info");
  });
}

void troupe_processes_free(troupe_processes* processes) {
  delete processes;
}
