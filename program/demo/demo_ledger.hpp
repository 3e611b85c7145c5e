/// The demo's ledger: every request, how often it was answered, and whether its result was correct.
#pragma once

#include <troupe/completion/reply/outcome.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::program {

/// Threads: safe from any.
class demo_ledger {
public:
  /// Records a request and returns its number.
  [[nodiscard]] std::size_t ask(const std::string& kind);
  void answered(std::size_t request, const completion& reply);
  void answered(std::size_t request, const error& failure);
  /// Records how many results were checked and correct, and how many were wrong.
  void verified(std::size_t right, std::size_t wrong);

  /// Returns the number of requests answered so far as text for the progress line.
  [[nodiscard]] std::string progress() const;
  /// Prints a table by kind, then the line `answered N/N, wrong 0, lost 0, doubled 0`.
  void print() const;
  [[nodiscard]] bool clean() const;

private:
  struct entry {
    const std::string* kind = nullptr;
    int answers = 0;
  };
  struct tally {
    std::size_t asked = 0;
    std::size_t failed = 0;
    std::vector<double> microseconds{}; ///< From acceptance to completion.
  };
  struct sums {
    std::size_t answered = 0;
    std::size_t lost = 0;
    std::size_t doubled = 0;
    std::size_t failed = 0;
  };
  [[nodiscard]] sums add_up() const;

  mutable std::mutex guard_;
  std::vector<entry> entries_;
  std::map<std::string, tally> kinds_;
  std::string first_failure_;
  std::size_t verified_ = 0;
  std::size_t wrong_ = 0;
};

} // namespace troupe::program
