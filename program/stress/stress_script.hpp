/// What each client of a stress run asks for, as a function of the seed alone: every rank's client knows it without
/// speaking to the others.
#pragma once

#include <troupe/program/conform/conform_pieces.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe::program {

/// Names one operation of all its participants.
struct stress_step {
  std::size_t client = 0;
  std::size_t lane = 0; ///< Of the client's, from 0.
  std::size_t index = 0;

  friend auto operator<=>(const stress_step&, const stress_step&) = default;
};

class stress_script {
public:
  /// \p largest elements in a rank's part.
  stress_script(int ranks, std::uint64_t seed, std::size_t largest);

  /// The operation with all its ranks' memory. Ranks that have no step in it take no part. A rank with several asks for
  /// them as one group.
  [[nodiscard]] conform_piece piece_of(const stress_step& step) const;
  /// Which inputs its ranges may name.
  [[nodiscard]] static std::span<const value_source> sources();
  [[nodiscard]] std::size_t room_bytes() const;

private:
  int ranks_;
  std::uint64_t seed_;
  std::size_t largest_;
};

} // namespace troupe::program
