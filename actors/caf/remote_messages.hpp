/// The messages by which actors of another CAF node use a world, and how they are encoded.
///
/// A program that links CAF's I/O module may publish a world's actor (caf::io::middleman::publish(actor_of(world),
/// port)); another one obtains it by remote_actor<world_handle>(). Between nodes only these messages can be sent:
/// remote_request, find_memory_request, status_query, subscribe, and in reply completion, error, remote_buffer and
/// world_event. All others stay in their process. CAF's I/O knows neither tokens nor certificates: see
/// docs/drivers.md.
#pragma once

#include <troupe/actors/caf/caf_compat.hpp>
#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/outcome.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>

#if TROUPE_CAF_0_17
#include <caf/meta/load_callback.hpp>
#include <caf/meta/type_name.hpp>
#endif

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Prepares \p settings for an actor system that exchanges these messages with other nodes. Call it before the system
/// is created.
void add_message_types(caf::actor_system_config& settings);

/// A world_request in a form that can be sent to another node. The reply is a completion, whose times count from
/// `queued`, which is 0, because nodes have different clocks.
class remote_request {
public:
  /// Has no parts; a world refuses it.
  remote_request() = default;
  /// \p what: its operands are remote buffers; plans and functions are found by name (placeholders will do:
  /// captured_plan, rank_function). Errors, thrown: invalid_argument (a buffer of this process, a ready event, a plan
  /// without a name, a credit).
  explicit remote_request(const world_request& what);
  /// A request to all ranks: parts[i] is for rank i. Errors, thrown: those of the other constructor; those of
  /// request_options.
  explicit remote_request(std::vector<operation> parts, request_options options = {},
                          call_site from = call_site::current())
    : remote_request{make_request(std::move(parts), std::move(options), from)} {}

  /// Returns the request. Errors, thrown: invalid_argument (the bytes were not written by this version of troupe).
  [[nodiscard]] world_request what() const;

  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }
  [[nodiscard]] static remote_request of_bytes(std::string bytes);

private:
  std::string bytes_;
};

/// Asks for the handle of the memory that rank \p target has exported under \p name (world::export_memory()). Errors:
/// missing, rebuilding, deadline_exceeded.
struct find_memory_request {
  rank target{};
  std::string name{};
};

// Each pair encodes one type; decode() returns whether it has read the bytes. The encoding is the same in both release
// lines of CAF, but not in other versions of troupe.
[[nodiscard]] std::string encode_message(const completion& one);
[[nodiscard]] bool decode_message(std::string_view bytes, completion& one);
/// Without `undefined`, whose addresses mean nothing elsewhere.
[[nodiscard]] std::string encode_message(const error& one);
[[nodiscard]] bool decode_message(std::string_view bytes, error& one);
[[nodiscard]] std::string encode_message(const remote_buffer& one);
[[nodiscard]] bool decode_message(std::string_view bytes, remote_buffer& one);
[[nodiscard]] std::string encode_message(const remote_request& one);
[[nodiscard]] bool decode_message(std::string_view bytes, remote_request& one);
[[nodiscard]] std::string encode_message(const find_memory_request& one);
[[nodiscard]] bool decode_message(std::string_view bytes, find_memory_request& one);
/// Encodes only the phase, epoch, size, reason, resume points and suspension. The other members are empty after
/// decoding.
[[nodiscard]] std::string encode_message(const world_event& one);
[[nodiscard]] bool decode_message(std::string_view bytes, world_event& one);

/// The types that have such a pair.
template <class T>
concept encoded_message = requires(const T& one, T& read) {
  { encode_message(one) } -> std::same_as<std::string>;
  { decode_message(std::string_view{}, read) } -> std::same_as<bool>;
};

/// How CAF reads and writes these types.
template <class Inspector, encoded_message T>
auto inspect(Inspector& with, T& one) {
#if TROUPE_CAF_0_17
  std::string bytes;
  if constexpr (Inspector::reads_state) bytes = encode_message(one);
  return with(caf::meta::type_name("troupe message"), bytes, caf::meta::load_callback([&]() -> caf::error {
                return decode_message(bytes, one) ? caf::error{} : caf::make_error(caf::sec::invalid_argument);
              }));
#else
  return with.object(one).fields(with.field(
      "bytes", [&] { return encode_message(one); },
      [&](const std::string& bytes) { return decode_message(bytes, one); }));
#endif
}

} // namespace troupe
