/// The messages with which ranks in several processes of a node exchange the scratch of their one-shot kernels, over
/// the meeting service of that node:
///
///   rank                              service
///   meeting_offer, descriptor    ──▶  waits for all ranks
///                                ◀──  meeting_answer::shared, the descriptors of the other ranks, in their order
///   meeting_confirmation         ──▶  waits for all ranks
///                                ◀──  meeting_answer::concluded
///
/// The service may answer `concluded`, with a reason, or `broken` at any time; nothing follows these. A connection is
/// for one rank of one communicator.
#pragma once

#include <troupe/collectives/backend/one_shot/line_protocol.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/processes/transport/join_secret.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The version of these messages and of what the kernels of ranks exchange: line_protocol.hpp, and which operations are
/// kernels with which blocks. Ranks of different versions have no kernels.
inline constexpr std::uint32_t one_shot_version = 1;

/// Limits of a message.
inline constexpr std::size_t most_meeting_bytes = 1024;
inline constexpr std::size_t most_meeting_text = 512;
inline constexpr std::size_t most_gpu_name = 48;

/// Names the meeting of a communicator. A process that does not know the unique id cannot know the name, and the name
/// tells nothing about the id (SEC-1).
using meeting_name = join_digest;
[[nodiscard]] meeting_name name_of_formation(const unique_id& id);
/// \p kind, \p ordinal, \p color: see one_shot_meeting::derivation.
[[nodiscard]] meeting_name name_of_derived(const meeting_name& from, std::uint8_t kind, std::uint64_t ordinal,
                                           int color);

/// Rank → service. One descriptor comes with it, unless \p why says that the rank brings nothing.
struct meeting_offer {
  std::uint32_t version = one_shot_version;
  meeting_name name{};
  int self = 0;
  int world_size = 2;
  line_layout layout{};
  std::uint64_t part_bytes = 0; ///< The limit of the settings.
  std::uint32_t blocks = 0;     ///< The most blocks of a launch at this rank.
  std::uint64_t scratch_bytes = 0;
  std::string gpu{}; ///< The PCI address of the rank's device. Empty on the mock.
  std::string why{};
};

/// Rank → service: the rank has mapped the scratch of the others; or why it cannot.
struct meeting_confirmation {
  std::string why{};
};

/// Service → rank.
struct meeting_answer {
  enum class form : std::uint8_t {
    shared,    ///< All ranks have come and brought something.
    concluded, ///< The end: all ranks have kernels, or with `why` none.
    broken,    ///< A rank has given up or ended: the communicator does not form.
  };
  /// What a rank has brought.
  struct seat {
    std::string gpu{};
    std::uint64_t scratch_bytes = 0;
  };

  form kind = form::concluded;
  std::uint32_t blocks = 0;  ///< shared: the most blocks of a launch.
  std::vector<seat> seats{}; ///< shared: by rank.
  std::string why{};
};

[[nodiscard]] std::string encode(const meeting_offer& what);
[[nodiscard]] std::string encode(const meeting_confirmation& what);
[[nodiscard]] std::string encode(const meeting_answer& what);

/// Return nullopt and set \p why (errc::internal) if \p bytes are no such message.
[[nodiscard]] std::optional<meeting_offer> decode_meeting_offer(std::string_view bytes, error& why);
[[nodiscard]] std::optional<meeting_confirmation> decode_meeting_confirmation(std::string_view bytes, error& why);
[[nodiscard]] std::optional<meeting_answer> decode_meeting_answer(std::string_view bytes, error& why);

} // namespace troupe
