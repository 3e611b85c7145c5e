/// What has come of a stress run's requests, and whether any two ranks launched what they share in one order.
#pragma once

#include <troupe/program/stress/stress_script.hpp>

#include <troupe/completion/reply/outcome.hpp>

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

/// Threads: safe from any, but disorder() when nobody enters anything any more.
class stress_ledger {
public:
  explicit stress_ledger(std::size_t ranks) : logs_(ranks) {}

  void asked(std::size_t requests) noexcept { asked_ += requests; }
  void answered() noexcept { ++answered_; }
  /// Where in the order of its launches \p self had its part of the operation.
  void launched(rank self, const stress_step& step, std::uint64_t launch);
  void answered(const error& failure);
  /// Busy, or behind one that was: to be asked again.
  void refused() noexcept {
    ++answered_;
    ++refused_;
  }
  /// \p fault is empty where all elements were right.
  void verified(const stress_step& step, const std::string& fault);

  struct totals {
    std::size_t asked = 0;
    std::size_t answered = 0;
    std::size_t failed = 0;
    std::size_t refused = 0;  ///< And asked again.
    std::size_t verified = 0; ///< Parts of ranks, of operations.
    std::size_t wrong = 0;
    std::string first{}; ///< Of what went wrong.
  };
  [[nodiscard]] totals sum() const;
  /// What two ranks launched in different orders, in one line; empty where all agree. \p compared is how many
  /// operations were compared, over all pairs of ranks.
  [[nodiscard]] std::string disorder(std::size_t& compared);

private:
  struct entry {
    stress_step step;
    std::uint64_t launch = 0;
  };
  /// Of one rank.
  struct log {
    std::mutex guard;
    std::vector<entry> entries;
  };
  void note(const std::string& what);

  std::atomic<std::size_t> asked_{0}, answered_{0}, failed_{0}, refused_{0}, verified_{0}, wrong_{0};
  mutable std::mutex guard_;
  std::string first_;
  std::vector<log> logs_;
};

} // namespace troupe::program
