/// The requests of each client of a stress run as a function of the seed alone, so that every rank's client knows them
/// without communication.
#pragma once

#include <troupe/program/conform/conform_pieces.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::program {

/// Identifies one operation at all its participants.
struct stress_step {
  std::size_t client = 0;
  std::size_t lane = 0; ///< Among the client's lanes, from 0.
  std::size_t index = 0;

  friend auto operator<=>(const stress_step&, const stress_step&) = default;
};

class stress_script {
public:
  /// \p largest is the largest element count of a rank's part.
  stress_script(int ranks, std::uint64_t seed, std::size_t largest);

  /// Returns the operation with the memory of all its ranks. Ranks without a step in it take no part. A rank with
  /// several steps sends them as one group.
  [[nodiscard]] conform_piece piece_of(const stress_step& step) const;
  /// Returns the sources that its ranges may name.
  [[nodiscard]] static std::span<const value_source> sources();
  [[nodiscard]] std::size_t room_bytes() const;

private:
  int ranks_;
  std::uint64_t seed_;
  std::size_t largest_;
};

} // namespace troupe::program
