/// `troupe bench suite`: runs several benches one after another, each in its own process; troupe-report makes the page.

#include <troupe/program/bench/bench.hpp>
#include <troupe/program/command_line.hpp>
#include <troupe/program/support/finished_program.hpp>
#include <troupe/program/support/progress_line.hpp>
#include <troupe/program/support/runtime_options.hpp>
#include <troupe/program/support/whole_file.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/launch/child_process.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace troupe::program {

namespace {

namespace fs = std::filesystem;

/// The outcome of one bench.
struct suite_result {
  bench_entry bench;
  std::string command; ///< The shell command that repeats the bench.
  double seconds = 0;
  std::string failure{}; ///< Why it did not run or what failed; empty if it succeeded.
  std::string printed{}; ///< Its tables as printed.
  std::optional<json> report{};
};

struct suite_options {
  runtime_options runtime{};
  std::string folder{};
  std::vector<std::string> only{};
  bool quick = false;
};

void make_folder(const fs::path& folder) {
  std::error_code problem;
  fs::create_directories(folder, problem);
  if (problem || !fs::is_directory(folder, problem))
    throw exception{errc::invalid_argument, "cannot create the folder " + folder.string() +
                                                (problem ? ": " + problem.message() : ": a file has this name") +
                                                ": name a writable folder with --out"};
}

class suite {
public:
  explicit suite(const suite_options& options)
    : options_{options},
      folder_{options.folder},
      backend_{to_string(options.runtime.settings().backend)},
      settings_{options.runtime.arguments({})} {
    static_cast<void>(wanted()); // Reports an unknown name before anything is run.
    make_folder(folder_);
    static_cast<void>(whole_file{(folder_ / "report.html").string()}); // Reports an unwritable file beforehand.
    if (const std::string why = why_no_plots(); !why.empty())
      std::fprintf(stderr, "%s; the page will have no plots\n", why.c_str());
  }

  [[nodiscard]] int run() {
    suite_scale scale = options_.quick ? suite_scale::quick : suite_scale::full;
    const bool is_mock = backend_ == to_string(backend_choice::mock);
    if (is_mock) scale = smaller(scale);
    const std::vector<bench_entry> benches = wanted();
    progress_line progress{stderr, static_cast<double>(benches.size())};
    bool all_well = true;
    for (std::size_t i = 0; i < benches.size(); ++i) {
      progress.show(std::to_string(i + 1) + "/" + std::to_string(benches.size()) + " " + benches[i].name);
      results_.push_back(measure(benches[i], scale));
      // If troupe selected the backend, the first report says whether it is the mock.
      if (i == 0 && !is_mock && results_.front().report && is_of_mock(*results_.front().report)) scale = smaller(scale);
      progress.done(1);
      progress.clear();
      const suite_result& one = results_.back();
      std::printf("%-18s %6.1f s  %s\n", one.bench.name.c_str(), one.seconds,
                  one.failure.empty() ? (one.bench.name + ".json").c_str() : ("FAILED: " + one.failure).c_str());
      std::fflush(stdout);
      all_well = all_well && one.failure.empty();
    }
    return write_page() && all_well ? 0 : 1;
  }

private:
  static suite_scale smaller(suite_scale scale) {
    return scale == suite_scale::full ? suite_scale::quick : suite_scale::tiny;
  }

  /// Returns the benches of the suite, or those of them that --only names.
  [[nodiscard]] std::vector<bench_entry> wanted() const {
    std::vector<bench_entry> all = all_benches();
    std::erase_if(all, [](const bench_entry& one) { return !one.suite; });
    if (options_.only.empty()) return all;
    for (const std::string& name : options_.only)
      if (std::ranges::find(all, name, &bench_entry::name) == all.end()) {
        std::string names;
        for (const bench_entry& one : all) names += (names.empty() ? "" : ", ") + one.name;
        throw exception{errc::invalid_argument, "the suite has no bench '" + name + "': choose some of " + names};
      }
    std::erase_if(
        all, [&](const bench_entry& one) { return std::ranges::find(options_.only, one.name) == options_.only.end(); });
    return all;
  }

  [[nodiscard]] std::vector<std::string> arguments_of(const bench_entry& one, suite_scale scale) const {
    std::vector<std::string> words{"bench", one.name};
    const auto& own = one.suite->at(static_cast<std::size_t>(scale));
    words.insert(words.end(), own.begin(), own.end());
    if (one.takes_settings)
      words.insert(words.end(), settings_.begin(), settings_.end());
    else
      words.insert(words.end(), {"--backend", backend_});
    return words;
  }

  [[nodiscard]] suite_result measure(const bench_entry& one, suite_scale scale) const {
    const fs::path report = folder_ / (one.name + ".json");
    std::error_code ignored;
    fs::remove(report, ignored); // Otherwise the report of an earlier run could be taken for this one's.
    std::vector<std::string> words = arguments_of(one, scale);
    words.insert(words.end(), {"--json", report.string()});
    std::vector<std::string> shown = words;
    shown.insert(shown.begin(), "troupe");
    suite_result result{.bench = one, .command = shell_words(shown)};
    words.insert(words.begin(), launch::own_program());
    const auto began = std::chrono::steady_clock::now();
    const finished_program done = run_to_end(words);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    result.printed = done.output;
    if (std::ifstream file{report}) result.report = json::parse(file);
    if (!done.status.succeeded())
      result.failure =
          result.report && result.report->value("wrong", 0) != 0 ? "results were wrong" : done.last_words();
    else if (!result.report)
      result.failure = "the bench wrote no report";
    return result;
  }

  /// Writes suite.json, which has the data that the benches' own reports lack, and runs troupe-report to make the page.
  [[nodiscard]] bool write_page() const {
    json all{{"schema", bench_schema}, {"command", own_command()}, {"benches", json::array()}};
    for (const suite_result& one : results_)
      all["benches"].push_back({{"name", one.bench.name},
                                {"what", one.bench.what},
                                {"command", one.command},
                                {"seconds", one.seconds},
                                {"failure", one.failure},
                                {"printed", one.printed}});
    whole_file{(folder_ / "suite.json").string()}.write(report_text(all));
    const finished_program done = run_to_end({find_tool("report"), folder_.string()});
    std::fputs(done.output.c_str(), stdout);
    std::fputs(done.errors.c_str(), stderr);
    return done.status.succeeded();
  }

  [[nodiscard]] std::string own_command() const {
    std::vector<std::string> words{"troupe", "bench", "suite", "--out", options_.folder};
    if (options_.quick) words.emplace_back("--quick");
    for (const std::string& name : options_.only) words.insert(words.end(), {"--only", name});
    words.insert(words.end(), settings_.begin(), settings_.end());
    return shell_words(words);
  }

  const suite_options& options_;
  fs::path folder_;
  std::string backend_;
  std::vector<std::string> settings_; ///< The given options, for the benches.
  std::vector<suite_result> results_;
};

int run(const suite_options& options) {
  return suite{options}.run();
}

void add_options(CLI::App& command, suite_options& options) {
  options.runtime.add_to(command);
  command
      .add_option("--out", options.folder,
                  "folder for report.html and each bench's JSON report; created if it is missing")
      ->required()
      ->type_name("FOLDER");
  command.add_option("--only", options.only, "run only these benches, comma-separated")->delimiter(',');
  command.add_flag("--quick", options.quick, "fewer sizes and blocks");
}

} // namespace

bench_entry suite_bench() {
  return {.name = "suite",
          .what = "run a set of benches, and write a page with their results",
          .add = measured_by<suite_options>(&add_options, &run)};
}

} // namespace troupe::program
