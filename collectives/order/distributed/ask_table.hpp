/// The requests of a rank that another process has been asked about and that have not been decided.
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

/// One such request.
struct undecided_ask {
  std::shared_ptr<pipeline_call> call{};
  lane where{};
  std::uint64_t client = 0;
  std::optional<std::uint64_t> position{}; ///< As its client has it.
  time_point give_up = time_point::max();  ///< When it is answered, whoever else is silent.
};

/// By number, from 1 in the order of asking. They are decided in nearly that order, so they lie in a ring; what is
/// overtaken by more than its length moves aside, so that one request that waits for long does not make it grow.
/// Threads: one at a time.
class ask_table {
public:
  ask_table() : ring_(ring_length) {}

  /// Returns its number.
  std::uint64_t put(undecided_ask one);
  /// Nothing where there is none of this number, or no more.
  [[nodiscard]] std::optional<undecided_ask> take(std::uint64_t number);
  /// What has been taken, under the number that it had.
  void put_back(std::uint64_t number, undecided_ask one);
  [[nodiscard]] std::vector<undecided_ask> take_all();

  /// All, with their numbers, in no order. It changes nothing.
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
