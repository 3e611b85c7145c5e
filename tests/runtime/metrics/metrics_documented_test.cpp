/// What is written of metrics, compared with what is shown.

#include <troupe/runtime/metrics/metric_families.hpp>

#include <nlohmann/json.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace troupe::tests::metrics_documented_test {

namespace {

std::string read_document(const std::string& path) {
  std::ifstream file{TROUPE_SOURCE_DIR "/" + path};
  INFO(path);
  REQUIRE(file);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Every name of a metric in \p text, those of a histogram's parts included.
std::set<std::string> names_in(const std::string& text) {
  static const std::regex name{"troupe_[a-z_]+"};
  return {std::sregex_token_iterator{text.begin(), text.end(), name}, {}};
}

bool is_shown(const std::string& name) {
  return std::ranges::any_of(all_metrics(), [&](const metric_description& one) {
    const std::string base{one.name};
    return name == base || (one.kind == metric_kind::histogram &&
                            (name == base + "_bucket" || name == base + "_sum" || name == base + "_count"));
  });
}

/// All strings under a key called \p wanted.
void collect(const nlohmann::json& from, std::string_view wanted, std::set<std::string>& to) {
  if (!from.is_structured()) return;
  for (const auto& [key, value] : from.items()) {
    if (key == wanted && value.is_string()) to.insert(value.get<std::string>());
    collect(value, wanted, to);
  }
}

} // namespace

TEST_CASE("each metric has its row in docs/operations/metrics.md, and no other has one", "[runtime][metrics]") {
  const std::string document = read_document("docs/operations/metrics.md");
  for (const metric_description& one : all_metrics()) {
    std::string labels{one.labels};
    for (std::size_t comma = labels.find(','); comma != std::string::npos; comma = labels.find(',', comma + 2))
      labels.insert(comma + 1, 1, ' ');
    const std::string row = "| `" + std::string{one.name} + "` | " + std::string{to_string(one.kind)} + " | " + labels +
                            " | " + std::string{one.unit} + " | " + std::string{one.help} + " |\n";
    INFO("expected: " << row);
    CHECK(document.find(row) != std::string::npos);
  }
  static const std::regex row{"\n\\| `(troupe_[a-z_]+)` \\|"};
  for (std::sregex_iterator at{document.begin(), document.end(), row}, end; at != end; ++at) {
    INFO(at->str(1));
    CHECK(is_shown(at->str(1)));
  }
}

TEST_CASE("every query of the dashboard is of metrics that are shown, and every metric is in one",
          "[runtime][metrics]") {
  const auto dashboard = nlohmann::json::parse(read_document("docs/operations/grafana/troupe.json"));
  std::set<std::string> queries;
  collect(dashboard, "expr", queries);
  collect(dashboard.at("templating"), "query", queries);
  REQUIRE(queries.size() > 20);
  std::set<std::string> used;
  for (const std::string& query : queries)
    for (const std::string& name : names_in(query)) {
      INFO(query);
      CHECK(is_shown(name));
      used.insert(name);
    }
  for (const metric_description& one : all_metrics()) {
    INFO(one.name);
    CHECK(std::ranges::any_of(used, [&](const std::string& name) { return name.starts_with(one.name); }));
  }
}

TEST_CASE("metrics are named as Prometheus advises", "[runtime][metrics]") {
  std::set<std::string_view> names;
  for (const metric_description& one : all_metrics()) {
    INFO(one.name);
    CHECK(names.insert(one.name).second);
    CHECK(std::regex_match(std::string{one.name}, std::regex{"troupe_[a-z][a-z_]*[a-z]"}));
    CHECK(one.name.ends_with("_total") == (one.kind == metric_kind::counter));
    if (one.unit == "seconds" || one.unit == "bytes") CHECK(one.name.find(one.unit) != std::string_view::npos);
    CHECK(one.help.ends_with('.'));
  }
}

} // namespace troupe::tests::metrics_documented_test
