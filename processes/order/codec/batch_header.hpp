/// The header of every batch of bytes between a rank's process and the controller.
#pragma once

#include <troupe/collectives/operation/wire.hpp>
#include <troupe/device/identity.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace troupe {

/// Size limit of a batch. A reader refuses a longer one. Writers end a batch much earlier.
inline constexpr std::size_t longest_batch_bytes = std::size_t{8} << 20U;
/// Size at which a writer begins a new batch. One record is shorter than the difference to longest_batch_bytes.
inline constexpr std::size_t full_batch_bytes = std::size_t{1} << 20U;
/// Maximum number of unacknowledged batches of a rank (batch_header::seen): one that is being read, and one behind it.
/// A further batch waits until one is acknowledged. The reader sends an acknowledgement by itself when this many
/// batches are unacknowledged, and for each long batch. A single short batch is acknowledged with the next decisions.
inline constexpr std::uint64_t most_unseen_batches = 2;
/// A longer batch is acknowledged at once.
inline constexpr std::size_t longest_unseen_batch_bytes = std::size_t{4} << 10U;

/// The first bytes of a batch.
struct batch_header {
  troupe::epoch epoch{};    ///< Batches of an older epoch are dropped unread (EPO-1).
  std::uint64_t number = 0; ///< Counted from 1 in each direction, so that lost and repeated batches are noticed.
  std::uint64_t seen = 0;   ///< Number of the last batch received from the other side.
  /// To the controller: the number of requests released to the rank in this epoch that have succeeded (success_count).
  std::uint64_t succeeded = 0;
  /// To a rank: number of the last batch of the controller's decisions for this rank that is contained in this or an
  /// earlier batch. Differs from `number` if the order service of a host passes the controller's decisions on with its
  /// own.
  std::uint64_t controller_batch = 0;

  void write(wire_writer& out) const { fields(out, *this); }
  /// Replaces \p into, whose memory is reused, by the batch with these records.
  void write_before(std::string_view records, std::string& into) const {
    short_writer out;
    fields(out, *this);
    into.reserve(out.size_bytes() + records.size());
    into.assign(out.all.data(), out.size_bytes());
    into.append(records);
  }
  [[nodiscard]] static batch_header read(wire_reader& in) noexcept {
    if (in.left_bytes() > longest_batch_bytes) in.refuse("it exceeds the size limit of a batch");
    batch_header made;
    fields(in, made);
    return made;
  }

private:
  /// Writes a header without an allocation for each of its fields.
  struct short_writer {
    template <class T>
    void field(const T& value) {
      if constexpr (requires { value.value(); })
        end = put_varint(value.value(), end);
      else
        end = put_varint(value, end);
    }
    [[nodiscard]] std::size_t size_bytes() const noexcept { return static_cast<std::size_t>(end - all.data()); }

    std::array<char, 5 * longest_varint_bytes> all{};
    char* end = all.data();
  };
  template <class Wire, class Header>
  static void fields(Wire& wire, Header& of) {
    wire.field(of.epoch);
    wire.field(of.number);
    wire.field(of.seen);
    wire.field(of.succeeded);
    wire.field(of.controller_batch);
  }
};

} // namespace troupe
