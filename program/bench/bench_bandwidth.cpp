#include <troupe/program/bench/bench_bandwidth.hpp>
#include <troupe/program/support/text_table.hpp>

#include <array>
#include <string>

namespace troupe::program {

namespace {

constexpr std::size_t most_placements = 2;

constexpr std::size_t index_of(bool in_place) noexcept {
  return in_place ? 1 : 0;
}

/// The times per operation in microseconds, indexed by block.
struct placement_times {
  std::vector<double> ours;
  std::vector<double> theirs;
  std::size_t wrong = 0;
};

struct bandwidth {
  double microseconds = 0;
  double algorithm = 0; ///< In GB/s, where GB = 1e9 bytes as in nccl-tests.
  double bus = 0;
};

/// Estimates the work of a check, in which the CPU writes and reads every rank's buffers through pinned memory: sixty
/// operations per rank.
double check_work(std::size_t size_bytes, int ranks) noexcept {
  return operation_work(size_bytes) * 60 * ranks;
}

class bandwidth_bench {
public:
  bandwidth_bench(const bandwidth_plan& plan, int ranks, bench_memory& memory, asker& who, raw_ranks* raw,
                  std::FILE* table, progress_line& progress)
    : plan_{plan},
      placements_{plan.placements()},
      ranks_{ranks},
      memory_{memory},
      who_{who},
      raw_{raw},
      file_{table},
      table_{table, columns(plan, raw != nullptr)},
      progress_{progress} {}

  [[nodiscard]] bandwidth_result run() {
    table_.print_heading();
    for (const dtype type : plan_.types)
      for (const reduction op : plan_.ops)
        for (std::size_t i = 0; i < plan_.sizes.size(); ++i) {
          position_ = std::string{plan_.what->name} + " " + std::string{to_string(type)} + " " + redop(op) + ", size " +
                      std::to_string(i + 1) + "/" + std::to_string(plan_.sizes.size());
          if (!supported(plan_.sizes[i], type, op)) break;
        }
    if (measured_ == 0 && !refused_)
      throw exception{errc::invalid_argument,
                      "no size holds 16 bytes for each of " + std::to_string(ranks_) + " ranks: raise --maxbytes"};
    if (measured_ > 0) result_.average_bus_bandwidth /= static_cast<double>(measured_);
    return std::move(result_);
  }

private:
  [[nodiscard]] static std::vector<table_column> columns(const bandwidth_plan& plan, bool with_raw) {
    std::vector<table_column> all{
        {"size", "(B)", 12}, {"count", "(elements)", 12}, {"type", "", 5}, {"redop", "", 5}, {"root", "", 4}};
    for (const bool in_place : plan.placements()) {
      all.push_back({in_place ? "in-pl. time" : "time", "(us)", in_place ? 11 : 10});
      all.push_back({"algbw", "(GB/s)", 8});
      all.push_back({"busbw", "(GB/s)", 8});
      all.push_back({"#wrong", "", 6});
      if (!with_raw) continue;
      all.push_back({"raw time", "(us)", 10});
      all.push_back({"busbw", "(GB/s)", 8});
      all.push_back({"of raw", "(busbw)", 7});
    }
    if (plan.timestamps) all.push_back({"date and time", "", 19});
    return all;
  }

  [[nodiscard]] std::string redop(reduction op) const {
    return plan_.what->reduces ? std::string{to_string(op)} : "none";
  }

  /// Returns false, and prints a line with the reason, if the world does not support the operation with \p type and \p
  /// op.
  [[nodiscard]] bool supported(std::size_t size_bytes, dtype type, reduction op) {
    try {
      measure(size_bytes, type, op);
      return true;
    } catch (const exception& failure) {
      if (failure.why().code != errc::unsupported) throw;
      progress_.clear();
      std::fprintf(file_, "# %s %s: skipped, %s\n", std::string{to_string(type)}.c_str(), redop(op).c_str(),
                   failure.why().text.c_str());
      refused_ = true;
      return false;
    }
  }

  void measure(std::size_t size_bytes, dtype type, reduction op) {
    std::array<bench_case, most_placements> cases;
    std::array<std::vector<operation>, most_placements> parts;
    const std::size_t width = troupe::size_bytes(type);
    const std::size_t count = plan_.what->count_within(size_bytes / width, ranks_, width);
    if (count == 0) return; // The size is less than one element per rank.
    for (const bool in_place : placements_) {
      cases[index_of(in_place)] = {
          .what = plan_.what, .count = count, .type = type, .op = op, .root = plan_.root, .in_place = in_place};
      parts[index_of(in_place)] = memory_.parts(cases[index_of(in_place)]);
      static_cast<void>(who_.ask(parts[index_of(in_place)], plan_.warmups,
                                 plan_.warmups)); // Validates the request before raw runs it.
      if (raw_ != nullptr) static_cast<void>(raw_->run(parts[index_of(in_place)], plan_.warmups, plan_.warmups));
    }
    const std::size_t bytes = plan_.what->buffer_bytes(count, ranks_, width);
    std::array<placement_times, most_placements> times;
    for (std::size_t block = 0; block < plan_.blocks; ++block) {
      progress_.show(position_ + ", block " + std::to_string(block + 1) + "/" + std::to_string(plan_.blocks));
      // Both the order of the contenders and that of the placements alternate, so that drift favours none of them.
      const bool turned = block / 2 % 2 != 0;
      for (std::size_t i = 0; i < placements_.size(); ++i) {
        const bool in_place = placements_[turned ? placements_.size() - 1 - i : i];
        measure_pair(parts[index_of(in_place)], block % 2 == 0, times[index_of(in_place)]);
        progress_.done(operation_work(bytes) * static_cast<double>(plan_.iterations) * (raw_ != nullptr ? 2 : 1));
      }
    }
    for (const bool in_place : placements_)
      for (std::size_t i = 0; i < plan_.checks; ++i) {
        progress_.show(position_ + ", check " + std::to_string(i + 1) + "/" + std::to_string(plan_.checks));
        times[index_of(in_place)].wrong += memory_.count_wrong(who_, cases[index_of(in_place)], ++seed_);
        progress_.done(check_work(bytes, ranks_));
      }
    report(bytes, count, type, op, times);
  }

  void measure_pair(const std::vector<operation>& what, bool raw_first, placement_times& times) {
    const auto each = [&](const series& measured) {
      return in_microseconds(measured.all) / static_cast<double>(plan_.iterations);
    };
    const auto theirs = [&] { times.theirs.push_back(each(raw_->run(what, plan_.iterations, plan_.depth))); };
    if (raw_ != nullptr && raw_first) theirs();
    times.ours.push_back(each(who_.ask(what, plan_.iterations, plan_.depth)));
    if (raw_ != nullptr && !raw_first) theirs();
  }

  [[nodiscard]] bandwidth bandwidth_of(std::size_t bytes, const std::vector<double>& blocks) const {
    const double microseconds = median(blocks);
    const double algorithm = static_cast<double>(bytes) / microseconds / 1e3;
    return {microseconds, algorithm, algorithm * plan_.what->bus_factor(ranks_)};
  }

  [[nodiscard]] static json bandwidth_report(const bandwidth& figures, const std::vector<double>& blocks) {
    return {{"time_us", figures.microseconds},
            {"algbw_gb_per_s", figures.algorithm},
            {"busbw_gb_per_s", figures.bus},
            {"blocks_us", blocks}};
  }

  void report(std::size_t bytes, std::size_t count, dtype type, reduction op,
              const std::array<placement_times, most_placements>& times) {
    const int root = plan_.what->has_root ? plan_.root : -1;
    std::vector<std::string> cells{std::to_string(bytes), std::to_string(count), std::string{to_string(type)},
                                   redop(op), std::to_string(root)};
    json row{{"size_bytes", bytes}, {"count", count}, {"type", to_string(type)}, {"redop", redop(op)}, {"root", root}};
    for (const bool in_place : placements_) {
      const placement_times& one = times[index_of(in_place)];
      const bandwidth ours = bandwidth_of(bytes, one.ours);
      cells.insert(cells.end(), {fixed(ours.microseconds), fixed(ours.algorithm), fixed(ours.bus),
                                 plan_.checks > 0 ? std::to_string(one.wrong) : "N/A"});
      json& place = row[in_place ? "in_place" : "out_of_place"];
      place["troupe"] = bandwidth_report(ours, one.ours);
      place["wrong"] = plan_.checks > 0 ? json(one.wrong) : json(nullptr);
      if (raw_ != nullptr) {
        const bandwidth theirs = bandwidth_of(bytes, one.theirs);
        const auto of_raw = paired_ratios(one.theirs, one.ours);
        cells.insert(cells.end(), {fixed(theirs.microseconds), fixed(theirs.bus),
                                   raw_->is_yardstick() ? fixed(100 * median(of_raw), 1) + "%" : "-"});
        place["raw"] = bandwidth_report(theirs, one.theirs);
        place["of_raw"] = by_block(of_raw);
      }
      result_.wrong += one.wrong;
      result_.average_bus_bandwidth += ours.bus;
      ++measured_;
    }
    if (plan_.timestamps) {
      cells.push_back(local_time("%Y-%m-%d %H:%M:%S"));
      row["date"] = local_time("%Y-%m-%dT%H:%M:%S%z");
    }
    progress_.clear();
    table_.print_row(cells);
    result_.rows.push_back(std::move(row));
  }

  const bandwidth_plan& plan_;
  std::vector<bool> placements_;
  int ranks_;
  bench_memory& memory_;
  asker& who_;
  raw_ranks* raw_;
  std::FILE* file_;
  text_table table_;
  progress_line& progress_;
  std::string position_;
  std::uint64_t seed_ = 0;
  std::size_t measured_ = 0;
  bool refused_ = false;
  bandwidth_result result_;
};

} // namespace

double operation_work(std::size_t size_bytes) noexcept {
  return static_cast<double>(size_bytes) + 2.0 * (1U << 20U);
}

std::vector<bool> bandwidth_plan::placements() const {
  return what->can_be_in_place ? std::vector{false, true} : std::vector{false};
}

double bandwidth_plan::expected_work(int ranks, bool with_raw) const {
  double work = 0;
  for (const dtype type : types)
    for (const std::size_t size : sizes) {
      const std::size_t width = size_bytes(type);
      const std::size_t bytes = what->buffer_bytes(what->count_within(size / width, ranks, width), ranks, width);
      work += operation_work(bytes) * static_cast<double>(blocks * iterations) * (with_raw ? 2 : 1);
      work += check_work(bytes, ranks) * static_cast<double>(checks);
    }
  return work * static_cast<double>(ops.size() * placements().size());
}

bandwidth_result measure_bandwidth(const bandwidth_plan& plan, int ranks, bench_memory& memory, asker& who,
                                   raw_ranks* raw, std::FILE* table, progress_line& progress) {
  return bandwidth_bench{plan, ranks, memory, who, raw, table, progress}.run();
}

} // namespace troupe::program
