/// The requests of a rank that were sent to the controller and are not decided yet.
#pragma once

#include <troupe/collectives/order/lane.hpp>
#include <troupe/collectives/pipeline/pipeline_call.hpp>
#include <troupe/completion/poller/clock.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

/// One undecided request.
struct undecided_ask {
  std::shared_ptr<pipeline_call> call{};
  lane where{};
  std::uint64_t client = 0;
  std::optional<std::uint64_t> position{}; ///< As its client gave it, if it did.
  time_point give_up = time_point::max();  ///< Time at which it is answered even if the controller is silent.
};

/// Finds requests by number, from 1 in the order of asking. They are decided in nearly that order, so they are kept in
/// a ring. A request that is overtaken by more than the length of the ring moves to a map, so that one long wait does
/// not make the ring grow.
/// Threads: one at a time.
class ask_table {
public:
  ask_table() : ring_(ring_length) {}

  /// Adds a request. Returns its number.
  std::uint64_t put(undecided_ask one);
  /// Removes a request. Returns nullopt if there is none with this number (any more).
  [[nodiscard]] std::optional<undecided_ask> take(std::uint64_t number);
  /// Puts back a request that take() returned, under the same number.
  void put_back(std::uint64_t number, undecided_ask one);
  [[nodiscard]] std::vector<undecided_ask> take_all();

  /// Calls \p visitor for each request, with its number, in no particular order. Changes nothing.
  template <class Visitor>
  void visit(Visitor visitor) const {
    for (const auto& [number, one] : overtaken_) visitor(number, one);
    for (std::uint64_t n = last_ < ring_length ? 1 : last_ - ring_length + 1; n <= last_; ++n)
      if (const undecided_ask& one = ring_[n & (ring_length - 1)]; one.call) visitor(n, one);
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

private:
  static constexpr std::uint64_t ring_length = 1024; ///< A power of two.

  [[nodiscard]] undecided_ask& at(std::uint64_t number) noexcept { return ring_[number & (ring_length - 1)]; }

  std::vector<undecided_ask> ring_;
  std::map<std::uint64_t, undecided_ask> overtaken_;
  std::uint64_t last_ = 0;
  std::size_t size_ = 0;
};

} // namespace troupe
