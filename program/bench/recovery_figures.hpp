/// What many faults of one kind came to.
#pragma once

#include <troupe/program/bench/bench_report.hpp>
#include <troupe/program/support/fault_play.hpp>
#include <troupe/program/support/text_table.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace troupe::program {

/// The times of one kind of fault under one rung, in milliseconds.
class recovery_figures {
public:
  recovery_figures(std::string fault, std::string rung) : fault_{std::move(fault)}, rung_{std::move(rung)} {}

  void add(const played_fault& one);
  [[nodiscard]] std::string name() const { return fault_ + ", " + rung_; }
  [[nodiscard]] std::size_t not_restored() const noexcept { return not_restored_; }
  /// A row for each of its measures, without those that it does not have.
  void print(const text_table& table) const;
  [[nodiscard]] json report() const;

  [[nodiscard]] static std::vector<table_column> columns();

private:
  struct measure {
    const char* name;
    const char* what;
    std::vector<double> recovery_figures::*times;
  };
  static const std::vector<measure>& measures();

  std::string fault_;
  std::string rung_;
  std::vector<double> detected_, ready_, good_, serving_, aborted_, registered_, captured_, slowest_, typical_;
  std::size_t not_restored_ = 0; ///< Registrations and plans.
};

} // namespace troupe::program
