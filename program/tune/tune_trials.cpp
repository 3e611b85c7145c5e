#include <troupe/program/support/statistics.hpp>
#include <troupe/program/tune/tune_trials.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/settings.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe::program {

namespace {

using word_list = std::vector<std::string>;

class trial_list {
public:
  explicit trial_list(tune_scope scope) : scope_{scope} {}

  /// Adds a trial of \p setting with \p values, judged by \p figures of \p bench.
  void add(const char* setting, word_list values, word_list bench, std::vector<tune_figure> figures,
           std::string remark = {}) {
    trials.push_back({.option = find_setting(setting).option,
                      .setting = setting,
                      .values = std::move(values),
                      .bench = std::move(bench),
                      .figures = std::move(figures),
                      .remark = std::move(remark)});
  }

  /// Returns the number for the scope.
  [[nodiscard]] std::string count(const char* full, const char* quick, const char* mock) const {
    if (scope_.is_mock) return mock;
    return scope_.is_quick ? quick : full;
  }

  [[nodiscard]] word_list latency() const {
    return {"latency", "-n", count("2000", "500", "50"), "--blocks", "1", "--ways", "world-actor,world-facade"};
  }
  [[nodiscard]] static std::vector<tune_figure> latency_figures() {
    return {{"8 B, an actor asks, p50 (us)", "/rows/0/time/p50"}, {"8 B, a thread asks, p50 (us)", "/rows/1/time/p50"}};
  }

  [[nodiscard]] word_list clients(const char* number, const char* bytes) const {
    return {"clients",
            "--clients",
            scope_.is_mock ? "16" : number,
            "-b",
            bytes,
            "--fusions",
            "free",
            "--no-raw",
            "-n",
            count("50", "20", "4"),
            "--blocks",
            "1",
            "--requests",
            count("20000", "5000", "300")};
  }
  [[nodiscard]] static std::vector<tune_figure> clients_figures(const std::string& who) {
    return {{"burst of " + who + " (us)", "/rows/0/burst_us/p50"},
            {"operations of " + who + " (/s)", "/rows/0/operations_per_s/p50", true}};
  }

  [[nodiscard]] word_list rate(const char* bytes, const char* depth) const {
    return {"rate",     "-b", bytes, "--depths", depth, "--fusions", "free", "-n", count("2000", "500", "32"),
            "--blocks", "1"};
  }
  [[nodiscard]] static std::vector<tune_figure> rate_figures(const std::string& what) {
    return {{what + " (/s)", "/rows/0/operations_per_s/p50", true}};
  }

  void add_runtime() {
    add("profile", {"latency", "frugal"}, latency(), latency_figures(),
        "latency keeps one core per GPU and one more busy, also when the world is idle");
    add("strategy", {"flag", "event", "host_fn"}, latency(), latency_figures());
    if (!scope_.is_quick) {
      add("placement", {"none"}, latency(), latency_figures());
      add("scheduler_threads", {"2", "3", "4", "8"}, clients("64", "4K"), clients_figures("64 clients, 4 KiB"));
    }
  }

  void add_fusion() {
    add("fusion_max_operations", scope_.is_quick ? word_list{"16", "256"} : word_list{"16", "32", "128", "256"},
        clients("256", "8"), clients_figures(scope_.is_mock ? "16 clients, 8 B" : "256 clients, 8 B"));
    // Each value is tried at a size that it treats differently from the default of 256K.
    add("fusion_max_operation_bytes", {"64K"}, rate("256K", "16"), rate_figures("256 KiB, 16 in flight"));
    add("fusion_max_operation_bytes", {"1M"}, rate("1M", "16"), rate_figures("1 MiB, 16 in flight"));
    add("fusion_max_bytes", {"1M", "16M"}, rate("256K", "64"), rate_figures("256 KiB, 64 in flight"));
  }

  void add_memory() {
    const word_list host{
        "host", "-b", count("128M", "32M", "1M"), "--memory", "pinned", "-n", count("10", "5", "2"), "--blocks", "1",
        "-c",   "0"};
    const std::vector<tune_figure> figures{{"all_reduce of host memory (us)", "/rows/0/staged/p50"}};
    add("host_staging.chunk_bytes", scope_.is_quick ? word_list{"1M", "16M"} : word_list{"1M", "2M", "8M", "16M"}, host,
        figures);
    if (!scope_.is_quick)
      add("host_staging.slots", {"2", "4"}, host, figures, "each slot holds a chunk of inputs and one of results");
    trials.push_back({.option = "--memory",
                      .standard = "pool",
                      .values = scope_.is_mock ? word_list{"registered"} : word_list{"ordinary", "registered"},
                      .bench = latency(),
                      .figures = latency_figures(),
                      .remark = "not a setting: a program chooses it with world::allocate (pool), adopt (ordinary) or "
                                "register_memory (registered)"});
  }

  void add_nccl() {
    const word_list sizes{"all_reduce",
                          "-b",
                          "1K",
                          "-e",
                          "256M",
                          "-f",
                          "64",
                          "-c",
                          "0",
                          "--blocks",
                          "1",
                          "-n",
                          count("50", "20", "2"),
                          "--latency-iters",
                          "1"};
    std::vector<tune_figure> figures;
    for (const auto& [row, size] : {std::pair{"0", "1 KiB"}, {"1", "64 KiB"}, {"2", "4 MiB"}, {"3", "256 MiB"}})
      figures.push_back({std::string{"all_reduce of "} + size + " (us)",
                         "/rows/" + std::string{row} + "/out_of_place/troupe/time_us"});
    add("nccl.CTAPolicy", {"efficiency", "zero"}, sizes, figures);
    add("nccl.NCCL_ALGO", {"ring", "tree"}, sizes, figures, "other collectives are restricted to it, too");
    add("nccl.NCCL_PROTO", {"Simple", "^LL128"}, sizes, figures, "other collectives are restricted to it, too");
    add("nccl.NCCL_NVLS_ENABLE", {"0"}, sizes, figures);
    if (scope_.is_quick) return;
    add("nccl.minCTAs", {"16", "32"}, sizes, figures, "thread blocks are taken from kernels that run beside");
    add("nccl.maxCTAs", {"8", "16"}, sizes, figures);
    add("nccl.cgaClusterSize", {"0", "2"}, sizes, figures);
  }

  std::vector<tune_trial> trials{};

private:
  tune_scope scope_;
};

} // namespace

double tune_figure::cost(const json& report) const {
  const json::json_pointer at{pointer};
  const double value = report.contains(at) && report.at(at).is_number() ? report.at(at).get<double>() : 0;
  if (value <= 0) throw exception{errc::unsupported, "its report has no figure for '" + name + "'"};
  return is_rate ? 1 / value : value;
}

std::vector<tune_trial> tune_trials(tune_scope scope) {
  trial_list list{scope};
  list.add_runtime();
  list.add_fusion();
  list.add_memory();
  if (!scope.is_mock) list.add_nccl();
  return std::move(list.trials);
}

namespace {

/// Two or three rounds may agree by chance; a smaller difference is not worth a setting.
constexpr double least_noise = 0.02;

} // namespace

tune_verdict judge(const tune_samples& samples) {
  const auto ratios = paired_ratios(samples.candidate, samples.standard);
  const auto same = paired_ratios(samples.again, samples.standard);
  if (ratios.empty() || same.size() != ratios.size())
    throw exception{errc::internal, "a candidate is judged without rounds of its own and of the default"};
  tune_verdict verdict{.standard = median(samples.standard),
                       .candidate = median(samples.candidate),
                       .ratio = median(ratios),
                       .noise = least_noise};
  for (const double one : same) verdict.noise = std::max(verdict.noise, std::abs(one - 1));
  verdict.is_better =
      verdict.ratio < 1 - verdict.noise && std::ranges::all_of(ratios, [](double one) { return one < 1; });
  verdict.is_worse = verdict.ratio > 1 + verdict.noise;
  return verdict;
}

bool is_taken(const std::vector<tune_verdict>& figures) {
  return std::ranges::any_of(figures, &tune_verdict::is_better) &&
         std::ranges::none_of(figures, &tune_verdict::is_worse);
}

double gain_of(const std::vector<tune_verdict>& figures) {
  double product = 1;
  for (const tune_verdict& one : figures) product *= one.ratio;
  return product;
}

namespace {

std::string comment(const std::string& indent, const std::string& text) {
  std::string line = indent + "// ";
  for (const char one : text) line += one == '\n' || one == '\r' ? ' ' : one;
  return line + "\n";
}

} // namespace

std::string tuned_file(const std::vector<std::string>& heading, const std::vector<tuned_setting>& chosen) {
  std::string text;
  for (const std::string& line : heading) text += comment("", line);
  text += "{\n";
  if (chosen.empty()) text += comment("  ", "No setting was better than its default by more than the noise.");
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const setting& which = find_setting(chosen[i].name);
    for (const std::string& line : chosen[i].comments) text += comment("  ", line);
    const std::string value = which.form == "NUMBER" ? chosen[i].value : nlohmann::json(chosen[i].value).dump();
    text += "  " + nlohmann::json(chosen[i].name).dump() + ": " + value + (i + 1 < chosen.size() ? ",\n" : "\n");
  }
  return text + "}\n";
}

} // namespace troupe::program
