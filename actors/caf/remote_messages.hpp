/// The messages by which actors of another CAF node use a world, and how they are encoded.
///
/// A program that links CAF's I/O module may publish a world's actor (caf::io::middleman::publish(actor_of(world),
/// port)); another one obtains it by remote_actor<world_handle>(). Between nodes only these messages can be sent:
/// remote_request, find_memory_request, status_query, ready_query, subscribe, and in reply completion, error,
/// remote_buffer and world_event. All others stay in their process. CAF's I/O knows neither tokens nor certificates:
/// see docs/drivers.md.
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

#include <concepts>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

/// Prepares \p settings for an actor system that exchanges these messages with other nodes. Call it before the system
/// is created.
void add_message_types(caf::actor_system_config& settings);

/// A world_request in a form that can be sent to another node. The times in its reply, a completion, count from
/// `queued`, which is 0, because nodes have different clocks.
class remote_request {
public:
  /// Creates a request without parts, which a world refuses.
  remote_request() = default;
  /// Encodes \p what. Its operands must be remote buffers. Plans and functions are sent by name, so placeholders
  /// suffice (captured_plan, rank_function). Errors, thrown: invalid_argument (a buffer of this process, a ready event,
  /// a plan without a name, a credit).
  explicit remote_request(const world_request& what);
  /// Encodes a request to all ranks: parts[i] is for rank i. Errors, thrown: those of the other constructor and of
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

/// Asks a world for its state as soon as it is ready in an epoch later than \p after, has failed, or stops. Does the
/// same as world::wait_ready() without blocking.
struct ready_query {
  troupe::epoch after{};
};

/// The types that are encoded as bytes. An error is encoded without `undefined`, whose addresses mean nothing
/// elsewhere, and of a world_event only the phase, epoch, size, reason, resume points and suspension.
template <class T>
concept encoded_message = std::same_as<T, completion> || std::same_as<T, error> || std::same_as<T, remote_buffer> ||
    std::same_as<T, ready_query> || std::same_as<T, remote_request> || std::same_as<T, find_memory_request> ||
    std::same_as<T, world_event>;

/// Encodes \p one. The encoding is the same in both release lines of CAF, but may differ between versions of troupe.
template <encoded_message T>
[[nodiscard]] std::string encode_message(const T& one);
/// Decodes \p bytes into \p one. Returns false if they are not valid.
template <encoded_message T>
[[nodiscard]] bool decode_message(std::string_view bytes, T& one);

/// Lets CAF serialize these types.
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
