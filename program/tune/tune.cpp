/// `troupe tune`: tries values of settings on this machine and writes those that are better than the defaults.

#include <troupe/program/bench/frame/report.hpp>
#include <troupe/program/commands.hpp>
#include <troupe/program/support/finished_program.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>
#include <troupe/program/support/text_table.hpp>
#include <troupe/program/support/whole_file.hpp>
#include <troupe/program/tune/tune_trials.hpp>

#include <troupe/device/error.hpp>
#include <troupe/program/command_line.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe::program {

namespace {

struct tune_options {
  runtime_options runtime{};
  std::string out{};
  std::vector<std::string> only{};
  std::size_t rounds = 0;
  bool quick = false;
};

/// A value that is tried, with its costs by figure and round. The default has no value and is listed twice.
struct tune_contender {
  std::optional<std::string> value{};
  std::vector<std::vector<double>> costs{};
  std::string failure{}; ///< The reason why it could not be measured.
};

std::string shown(const tune_figure& figure, double cost) {
  return figure.is_rate ? fixed(1 / cost, 0) : fixed(cost);
}

class tuner {
public:
  explicit tuner(const tune_options& options)
    : options_{options},
      base_{options.runtime.settings()},
      program_{find_tool("bench")},
      rounds_{options.rounds > 0 ? options.rounds : std::size_t{options.quick ? 3U : 5U}},
      table_{stdout,
             {{"setting", "", 26},
              {"value", "", 11},
              {"figure", "", 35},
              {"default", "", 10},
              {"with it", "", 10},
              {"ratio", "", 7},
              {"noise", "", 7},
              {"", "", 8}}} {
    if (!options.out.empty()) file_.emplace(options.out);
    tuned_ = base_;
  }

  int run() {
    const json first = probe();
    const tune_scope scope{.is_quick = options_.quick, .is_mock = is_of_mock(first)};
    const auto trials = wanted(tune_trials(scope));
    heading_ = heading_of(first, scope);
    for (const std::string& line : heading_) std::printf("# %s\n", line.c_str());
    std::printf("#\n");
    table_.print_heading();
    double work = 0;
    for (const tune_trial& one : trials) work += static_cast<double>((one.values.size() + 2) * rounds_);
    progress_line progress{stderr, work};
    for (const tune_trial& one : trials) decide(one, progress);
    progress.clear();
    const std::string text = tuned_file(heading_, chosen_);
    if (file_) file_->write(text);
    std::printf("#\n");
    for (const std::string& line : advice_) std::printf("# %s\n", line.c_str());
    std::printf("# %zu of %zu trials gave a setting%s%s\n", chosen_.size(), trials.size(),
                file_ ? ": " : "; the file:", file_ ? file_->path().c_str() : "");
    if (!file_) std::fputs(text.c_str(), stdout);
    return 0;
  }

private:
  [[nodiscard]] std::vector<tune_trial> wanted(std::vector<tune_trial> all) const {
    for (const std::string& name : options_.only)
      if (std::ranges::none_of(all, [&](const tune_trial& one) { return one.name() == name; })) {
        std::string names;
        std::string_view last; // A setting may be tried at several sizes, in consecutive trials.
        for (const tune_trial& one : all)
          if (one.name() != std::exchange(last, one.name()))
            names += (names.empty() ? "" : ", ") + std::string{one.name()};
        throw exception{errc::invalid_argument,
                        "'" + name + "' is not a setting that is tried here: choose some of " + names};
      }
    if (!options_.only.empty())
      std::erase_if(all, [&](const tune_trial& one) {
        return std::ranges::find(options_.only, one.name()) == options_.only.end();
      });
    return all;
  }

  /// Returns the report of the shortest bench, which describes this machine.
  [[nodiscard]] json probe() const {
    return measured({"latency", "-n", "1", "--blocks", "1", "--ways", "world-facade"}, {}, {});
  }

  /// Runs \p bench with this program's own options except \p without, and with \p more. Returns its report.
  /// Errors: unsupported, with the bench's message.
  [[nodiscard]] json measured(const std::vector<std::string>& bench, const std::vector<std::string_view>& without,
                              const std::vector<std::string>& more) const {
    std::vector<std::string> call{program_, "bench"};
    call.insert(call.end(), bench.begin(), bench.end());
    for (const std::string& word : options_.runtime.arguments(without)) call.push_back(word);
    call.insert(call.end(), more.begin(), more.end());
    call.insert(call.end(), {"--json", "-"});
    const finished_program done = run_to_end(call);
    if (!done.status.succeeded()) throw exception{errc::unsupported, done.last_words()};
    return json::parse(done.output);
  }

  void measure_once(const tune_trial& trial, tune_contender& one) const {
    if (!one.failure.empty()) return;
    std::vector<std::string_view> without;
    std::vector<std::string> more;
    if (one.value) {
      if (!trial.setting.empty()) without.emplace_back(trial.setting);
      more.push_back(trial.option + "=" + *one.value);
    }
    try {
      const json report = measured(trial.bench, without, more);
      one.costs.resize(trial.figures.size());
      for (std::size_t i = 0; i < trial.figures.size(); ++i) one.costs[i].push_back(trial.figures[i].cost(report));
    } catch (const exception& failure) {
      one.failure = failure.why().text;
    }
  }

  /// Measures rounds of the default, of the default again and of \p values. Each round begins with a different one.
  [[nodiscard]] std::vector<tune_contender> measure(const tune_trial& trial, const std::vector<std::string>& values,
                                                    progress_line& progress) const {
    std::vector<tune_contender> all(2);
    for (const std::string& value : values) all.push_back({.value = value});
    for (std::size_t round = 0; round < rounds_; ++round)
      for (std::size_t i = 0; i < all.size(); ++i) {
        tune_contender& one = all[(i + round) % all.size()];
        progress.show(std::string{trial.name()} + " " + one.value.value_or("default") + ", round " +
                      std::to_string(round + 1) + "/" + std::to_string(rounds_));
        measure_once(trial, one);
        progress.done(1);
      }
    progress.clear();
    return all;
  }

  [[nodiscard]] static std::vector<tune_verdict> verdicts(const tune_trial& trial,
                                                          const std::vector<tune_contender>& all, std::size_t which) {
    std::vector<tune_verdict> figures;
    for (std::size_t i = 0; i < trial.figures.size(); ++i)
      figures.push_back(judge({all[0].costs[i], all[1].costs[i], all[which].costs[i]}));
    return figures;
  }

  void decide(const tune_trial& trial, progress_line& progress) {
    const std::string standard = trial.setting.empty() ? trial.standard : find_setting(trial.setting).text(base_);
    std::vector<std::string> values;
    for (const std::string& value : trial.values)
      if (value != standard) values.push_back(value);
    const auto all = measure(trial, values, progress);
    for (std::size_t i = 0; i < 2; ++i)
      if (!all[i].failure.empty()) {
        std::printf("# %s: not measured: %s\n", std::string{trial.name()}.c_str(), all[i].failure.c_str());
        return;
      }
    std::optional<std::string> best;
    double best_gain = 1;
    for (std::size_t i = 2; i < all.size(); ++i) {
      if (!all[i].failure.empty()) {
        std::printf("# %s = %s cannot be used here: %s\n", std::string{trial.name()}.c_str(), all[i].value->c_str(),
                    all[i].failure.c_str());
        continue;
      }
      const auto figures = verdicts(trial, all, i);
      print(trial, *all[i].value, figures);
      if (!is_taken(figures) || gain_of(figures) >= best_gain) continue;
      best = all[i].value;
      best_gain = gain_of(figures);
    }
    if (best) confirm(trial, standard, *best, progress);
  }

  /// Measures the best value once more by itself before it is taken, because the best of several looks better than it
  /// is.
  void confirm(const tune_trial& trial, const std::string& standard, const std::string& value,
               progress_line& progress) {
    const auto all = measure(trial, {value}, progress);
    if (std::ranges::any_of(all, [](const tune_contender& one) { return !one.failure.empty(); })) return;
    const auto figures = verdicts(trial, all, 2);
    const bool holds = is_taken(figures);
    print(trial, value, figures, holds ? "chosen" : "dropped");
    if (!holds) return;
    tuned_setting made{.name = std::string{trial.name()}, .value = value};
    for (std::size_t i = 0; i < figures.size(); ++i)
      made.comments.push_back(trial.figures[i].name + ": " + shown(trial.figures[i], figures[i].standard) +
                              " with the default (" + (standard.empty() ? "empty" : standard) + "), " +
                              shown(trial.figures[i], figures[i].candidate) + " with " + value + "; time ratio " +
                              fixed(figures[i].ratio, 3) + ", noise " + fixed(figures[i].noise, 3));
    if (!trial.remark.empty()) made.comments.push_back(trial.remark);
    if (trial.setting.empty()) {
      advice_.push_back(made.name + " " + value + " is faster (" + trial.remark + "): " + made.comments.front());
      heading_.push_back(advice_.back());
    } else {
      take(std::move(made));
    }
  }

  /// Chooses the setting, unless it is incompatible with those chosen before.
  void take(tuned_setting made) {
    configuration with = tuned_;
    try {
      find_setting(made.name).set(with, made.value);
      check(with);
    } catch (const exception& failure) {
      std::printf("# %s = %s is not compatible with the others: %s\n", made.name.c_str(), made.value.c_str(),
                  failure.what());
      return;
    }
    tuned_ = with;
    const auto earlier = std::ranges::find(chosen_, made.name, &tuned_setting::name);
    if (earlier == chosen_.end())
      chosen_.push_back(std::move(made));
    else
      *earlier = std::move(made); // A setting that is tried at several sizes.
  }

  void print(const tune_trial& trial, const std::string& value, const std::vector<tune_verdict>& figures,
             const char* choice = nullptr) const {
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const tune_verdict& one = figures[i];
      const char* word = one.is_better ? "better" : one.is_worse ? "worse" : "same";
      table_.print_row({std::string{trial.name()}, value, trial.figures[i].name, shown(trial.figures[i], one.standard),
                        shown(trial.figures[i], one.candidate), fixed(one.ratio, 3), fixed(one.noise, 3),
                        choice != nullptr ? choice : word});
    }
  }

  [[nodiscard]] std::vector<std::string> heading_of(const json& first, tune_scope scope) const {
    std::vector<std::string> call{"troupe", "tune"};
    if (options_.quick) call.emplace_back("--quick");
    for (const std::string& word : options_.runtime.arguments({})) call.push_back(word);
    std::vector<std::string> lines{"Measured by: " + shell_words(call)};
    std::string versions =
        "troupe " + first.at("troupe").get<std::string>() + ", CAF " + first.at("caf").get<std::string>();
    for (const auto& [part, text] : first.at("versions").items())
      versions += "; " + part + ": " + text.get<std::string>();
    std::map<std::string, std::size_t> names;
    for (const json& one : first.at("devices")) ++names[one.at("name").get<std::string>()];
    std::string devices;
    for (const auto& [name, count] : names)
      devices += (devices.empty() ? "Devices: " : ", ") + std::to_string(count) + " × " + name;
    const json& machine = first.at("machine");
    lines.insert(lines.end(),
                 {versions, devices,
                  machine.at("host").get<std::string>() + ", " + machine.at("system").get<std::string>() + ", " +
                      machine.at("cores").dump() + " cores, " + first.at("date").get<std::string>()});
    if (scope.is_mock) lines.emplace_back("On the mock: this choice says nothing about GPUs.");
    lines.push_back("Each figure: medians of " + std::to_string(rounds_) +
                    " interleaved rounds, each value in a process of its own, the default twice in each round: its "
                    "difference from itself is the noise.");
    lines.emplace_back("A value is taken if it is better by more than the noise, in every round, measured twice, and "
                       "worse in no figure. pool_reserve_bytes depends on the program and is not tried.");
    return lines;
  }

  const tune_options& options_;
  configuration base_;
  configuration tuned_;
  std::string program_;
  std::size_t rounds_;
  std::optional<whole_file> file_;
  text_table table_;
  std::vector<std::string> heading_;
  std::vector<tuned_setting> chosen_;
  std::vector<std::string> advice_;
};

} // namespace

void add_tune(CLI::App& program, action& chosen) {
  auto options = std::make_shared<tune_options>();
  CLI::App* command =
      program.add_subcommand("tune", "try values of settings on this machine, and write those that are better");
  options->runtime.add_to(*command);
  command->add_option("--out", options->out, "the settings file to write (default: print it)")->type_name("FILE");
  command->add_option("--only", options->only, "try only these settings, comma-separated")->delimiter(',');
  command->add_option("--rounds", options->rounds, "interleaved rounds (default 5, with --quick 3)")
      ->check(CLI::Range(1, 1'000));
  command->add_flag("--quick", options->quick, "fewer values, requests and rounds");
  command->callback([options, &chosen] { chosen = [options] { return tuner{*options}.run(); }; });
}

} // namespace troupe::program
