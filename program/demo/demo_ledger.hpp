/// The demo's books: every request asked, how often it was answered, and whether its result was right.
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
  /// Enters a request; the result names it.
  [[nodiscard]] std::size_t ask(const std::string& kind);
  void answered(std::size_t request, const completion& reply);
  void answered(std::size_t request, const error& failure);
  /// Enters how many results were looked at, and how many were wrong.
  void verified(std::size_t right, std::size_t wrong);

  /// How many requests have been answered so far, for a line of progress.
  [[nodiscard]] std::string progress() const;
  /// A table by kind, then the line `answered N/N, wrong 0, lost 0, doubled 0`.
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
    std::vector<double> microseconds{}; ///< From acceptance to done.
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
