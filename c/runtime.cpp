/// Settings, runtimes and controllers.
#include "boundary.hpp"

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/settings.hpp>

#include <chrono>
#include <span>

using namespace troupe::c;

troupe_code troupe_settings_create(const char* file, troupe_settings** made, troupe_error** error) {
  return make_handle(made, "made", error, [&] {
    return file == nullptr ? troupe::configuration::from_environment() : troupe::configuration::load(file);
  });
}

troupe_code troupe_settings_set(troupe_settings* settings, const char* name, const char* value, troupe_error** error) {
  return attempt(error, [&] {
    troupe_settings& to = need(settings, "settings");
    const troupe::setting& which = troupe::find_setting(need_text(name, "name"));
    troupe::with_origin("the setting " + std::string{which.name}, [&] { which.set(to.of, need_text(value, "value")); });
  });
}

troupe_code troupe_settings_get(const troupe_settings* settings, const char* name, char* text, std::size_t text_bytes,
                                std::size_t* length, troupe_error** error) {
  return attempt(error, [&] {
    const troupe::setting& which = troupe::find_setting(need_text(name, "name"));
    write_text(which.text(need(settings, "settings").of), text, text_bytes, length);
  });
}

troupe_code troupe_settings_set_token(troupe_settings* settings, const char* token, troupe_error** error) {
  return attempt(error, [&] { need(settings, "settings").of.control.assignment.token = need_text(token, "token"); });
}

const char* troupe_setting_name(std::size_t index) {
  const char* name = nullptr;
  static_cast<void>(attempt(nullptr, [&] {
    const std::span<const troupe::setting> all = troupe::all_settings();
    if (index < all.size()) name = all[index].name.data(); // a literal
  }));
  return name;
}

void troupe_settings_free(troupe_settings* settings) {
  delete settings;
}

troupe_code troupe_runtime_create(const troupe_settings* settings, troupe_runtime** made, troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    troupe_runtime*& stored = need(made, "made");
    refuse_in_callback("troupe_runtime_create()");
    stored = new troupe_runtime{
        troupe::runtime{settings != nullptr ? settings->of : troupe::configuration::from_environment()}};
  });
}

void troupe_runtime_free(troupe_runtime* runtime) {
  delete runtime;
}

troupe_code troupe_runtime_describe(const troupe_runtime* runtime, char* text, std::size_t text_bytes,
                                    std::size_t* length, troupe_error** error) {
  return attempt(error, [&] { write_text(need(runtime, "runtime").of.describe(), text, text_bytes, length); });
}

troupe_code troupe_runtime_make_id(troupe_runtime* runtime, unsigned char id[TROUPE_ID_BYTES], troupe_error** error) {
  return attempt(error, [&] {
    const troupe::unique_id made = need(runtime, "runtime").of.make_unique_id();
    std::memcpy(&need(id, "id"), made.bytes.data(), made.bytes.size());
  });
}

troupe_code troupe_runtime_release_unused(troupe_runtime* runtime, std::size_t* released, troupe_error** error) {
  return attempt(error, [&] {
    troupe_runtime& from = need(runtime, "runtime");
    refuse_in_callback("troupe_runtime_release_unused()");
    const std::size_t bytes = from.of.release_unused();
    if (released != nullptr) *released = bytes;
  });
}

troupe_code troupe_runtime_write_flight_record(const troupe_runtime* runtime, const char* file, troupe_error** error) {
  return attempt(error, [&] {
    need(runtime, "runtime").of.write_flight_record(file != nullptr ? std::optional<std::string>{file} : std::nullopt);
  });
}

troupe_code troupe_runtime_form_world(troupe_runtime* runtime, const troupe_world_options* options, troupe_world** made,
                                      troupe_error** error) {
  return make_handle(made, "made", error, [&] {
    troupe_runtime& of = need(runtime, "runtime");
    refuse_in_callback("troupe_runtime_form_world()");
    const troupe_world_options given = read_optional(options, "options");
    troupe::world_options chosen;
    if (given.id != nullptr) std::memcpy(chosen.id.emplace().bytes.data(), given.id, TROUPE_ID_BYTES);
    return of.of.form_world(chosen);
  });
}

namespace {

troupe::controller_options options_of(const troupe_controller_options& given) {
  troupe::controller_options made;
  made.sequencing = troupe::find_order_limits(troupe::process_variables());
  if (given.host != nullptr) made.host = given.host;
  if (given.port < 0 || given.port > UINT16_MAX)
    throw invalid("the port is " + std::to_string(given.port) + ": it must be from 0 to 65535");
  made.port = static_cast<std::uint16_t>(given.port);
  made.terms.world_size = given.processes;
  made.terms.token = need_text(given.token, "token");
  if (given.policy != nullptr) made.terms.recovery.policy = troupe::parse_recovery_policy(given.policy);
  if (given.smallest != 0) made.terms.recovery.smallest = given.smallest;
  if (given.gather_ns != 0) made.terms.gather = span_of(given.gather_ns, "gather_ns");
  if (given.suspicion_ns != 0) {
    made.terms.suspicion = span_of(given.suspicion_ns, "suspicion_ns");
    made.terms.heartbeat = std::min<troupe::nanoseconds>(made.terms.heartbeat, made.terms.suspicion / 4);
  }
  return made;
}

} // namespace

troupe_code troupe_controller_create(const troupe_controller_options* options, troupe_controller** made,
                                     troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    troupe_controller*& stored = need(made, "made");
    stored = new troupe_controller{troupe::controller{options_of(read_struct(options, "options"))}};
  });
}

void troupe_controller_free(troupe_controller* controller) {
  delete controller;
}

troupe_code troupe_controller_address(const troupe_controller* controller, char* text, std::size_t text_bytes,
                                      std::size_t* length, troupe_error** error) {
  return attempt(error, [&] { write_text(need(controller, "controller").of.address(), text, text_bytes, length); });
}

troupe_code troupe_controller_stop(troupe_controller* controller, troupe_error** error) {
  return attempt(error, [&] { need(controller, "controller").of.stop(); });
}

troupe_code troupe_controller_wait(troupe_controller* controller, std::int64_t at_most_ns, troupe_error** error) {
  return guarded(error, [&]() -> troupe_code {
    troupe::controller& of = need(controller, "controller").of;
    refuse_in_callback("troupe_controller_wait()");
    if (!of.wait(span_of(at_most_ns, "at_most_ns"))) return TROUPE_WAITING;
    if (const troupe::error reason = of.reason()) throw troupe::exception{reason};
    return TROUPE_OK;
  });
}
