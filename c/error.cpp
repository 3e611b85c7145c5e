#include "boundary.hpp"

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/collectives/progress/absence_report.hpp>
#include <troupe/device/enum_names.hpp>

#include <optional>
#include <variant>

namespace {

std::string text_of(const std::optional<troupe::operation_mark>& one) {
  return one ? describe(*one) : std::string{};
}

} // namespace

troupe_error::troupe_error(troupe::error failure) : why{std::move(failure)}, line{to_string(why)} {
  if (!why.absence) return;
  missing = troupe::c::numbers_of(why.absence->missing());
  for (const auto& one : why.absence->ranks)
    standings.push_back({text_of(one.last_asked), text_of(one.last_launched), text_of(one.last_finished)});
}

namespace troupe::c {
namespace {

static_assert(TROUPE_INTERNAL == static_cast<int>(errc::internal));
static_assert(TROUPE_STALE_EPOCH == static_cast<int>(errc::stale_epoch));
static_assert(TROUPE_WORLD_FAILED == static_cast<int>(errc::world_failed));
static_assert(TROUPE_ABANDONED == static_cast<int>(errc::abandoned));
static_assert(TROUPE_UNKNOWN_OUTCOME == static_cast<int>(effect::unknown_outcome));
static_assert(TROUPE_F8E5M2 == static_cast<int>(dtype::f8e5m2) && TROUPE_F32 == static_cast<int>(dtype::f32));
static_assert(TROUPE_PRE_MUL_SUM == static_cast<int>(reduction::pre_mul_sum));
static_assert(TROUPE_PHASE_STOPPED == static_cast<int>(world_phase::stopped));
static_assert(TROUPE_ID_BYTES == sizeof(unique_id));

troupe_error_info info_of(const troupe_error& one) {
  const error& why = one.why;
  const absence_report* const absence = why.absence.get();
  return {
      .size = 0,
      .code = static_cast<troupe_code>(why.code),
      .effect = static_cast<troupe_effect>(why.effect),
      .text = why.text.c_str(),
      .line = one.line.c_str(),
      .call = why.call.c_str(),
      .native_text = why.native_text.c_str(),
      .native_code = why.native_code,
      .rank = why.rank ? why.rank->value() : -1,
      .ticket = why.ticket ? why.ticket->value() : 0,
      .epoch = why.epoch ? why.epoch->value() : 0,
      .part = why.part ? static_cast<std::int64_t>(*why.part) : -1,
      .knows_undefined = why.undefined ? 1 : 0,
      .has_absence = absence != nullptr ? 1 : 0,
      .undefined_count = why.undefined ? why.undefined->size() : 0,
      .waiting = absence != nullptr ? absence->what.c_str() : "",
      .lane = absence != nullptr ? absence->lane.name().c_str() : "",
      .waited_ns = absence != nullptr ? absence->waited.count() : 0,
      .missing = one.missing.data(),
      .missing_count = one.missing.size(),
      .standing_count = one.standings.size(),
  };
}

/// Refuses an index that is none of \p count.
void check_index(std::size_t index, std::size_t count, std::string_view what) {
  if (index >= count)
    throw invalid("there is no " + std::string{what} + " number " + std::to_string(index) + ": there are " +
                  std::to_string(count));
}

} // namespace
} // namespace troupe::c

using namespace troupe::c;

const char* troupe_code_name(troupe_code code) {
  if (code == TROUPE_WAITING) return "waiting";
  const bool is_known = code >= 0 && code <= TROUPE_INTERNAL;
  return is_known ? to_string(static_cast<troupe::errc>(code)).data() : "unknown";
}

const char* troupe_version(void) {
  return TROUPE_VERSION;
}

std::int32_t troupe_c_version(void) {
  return TROUPE_C_VERSION;
}

troupe_code troupe_error_get(const troupe_error* error, troupe_error_info* info) {
  return attempt(nullptr, [&] { write_struct(info, info_of(need(error, "error")), "info"); });
}

troupe_code troupe_error_undefined(const troupe_error* error, std::size_t index, troupe_undefined_buffer* buffer) {
  return attempt(nullptr, [&] {
    const auto& all = need(error, "error").why.undefined;
    check_index(index, all ? all->size() : 0, "undefined buffer");
    const troupe::undefined_buffer& one = (*all)[index];
    write_struct(buffer,
                 {.size = 0,
                  .address = one.address,
                  .size_bytes = one.size_bytes,
                  .rank = one.rank.value(),
                  .device = one.device ? one.device->value() : -1},
                 "buffer");
  });
}

troupe_code troupe_error_standing(const troupe_error* error, std::size_t index, troupe_standing* standing) {
  return attempt(nullptr, [&] {
    const troupe_error& from = need(error, "error");
    check_index(index, from.standings.size(), "standing");
    const troupe::absence_report::standing& one = from.why.absence->ranks[index];
    const troupe_error::standing& texts = from.standings[index];
    write_struct(standing,
                 {.size = 0,
                  .rank = one.rank.value(),
                  .participates = one.participates ? 1 : 0,
                  .asked = one.asked ? 1 : 0,
                  .last_asked = texts.last_asked.c_str(),
                  .last_launched = texts.last_launched.c_str(),
                  .last_finished = texts.last_finished.c_str()},
                 "standing");
  });
}

troupe_error* troupe_error_copy(const troupe_error* error) {
  troupe_error* copied = nullptr;
  if (error != nullptr) static_cast<void>(report(error->why, &copied));
  return copied;
}

void troupe_error_free(troupe_error* error) {
  delete error;
}

std::size_t troupe_dtype_size(troupe_dtype type) {
  return type < 0 || type > TROUPE_F8E5M2 ? 0 : troupe::size_bytes(static_cast<troupe::dtype>(type));
}
