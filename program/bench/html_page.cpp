#include <troupe/program/bench/bench_plots.hpp>
#include <troupe/program/bench/html_page.hpp>
#include <troupe/program/bench/report_tables.hpp>
#include <troupe/program/support/text_table.hpp>

#include <algorithm>
#include <regex>

namespace troupe::program {

namespace {

constexpr const char* style = R"(
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 1180px; margin: 2em auto; padding: 0 1.5em; }
h1 { font-size: 1.9em; margin-bottom: 0; }
h2 { margin-top: 2.4em; border-bottom: 1px solid #ddd; padding-bottom: .2em; }
p.quiet, .quiet { color: #666; font-size: .92em; margin: .2em 0; }
.note { background: #fff4d6; border-left: 4px solid #e0a800; padding: .6em 1em; }
.failed { background: #fde8e6; border-left: 4px solid #c0392b; padding: .6em 1em; }
table { border-collapse: collapse; margin: .8em 0; font-variant-numeric: tabular-nums; font-size: .92em; }
caption { text-align: left; color: #666; padding: .2em 0; }
td { white-space: nowrap; }
th, td { padding: .2em .7em; text-align: right; border-bottom: 1px solid #eee; }
th { border-bottom: 1px solid #bbb; vertical-align: bottom; font-weight: 600; }
th.name, td.name { text-align: left; }
tbody tr:nth-child(even) { background: #f7f8fa; }
pre { background: #f5f6f8; padding: .7em 1em; overflow-x: auto; font-size: .88em; }
.wide { overflow-x: auto; }
figure { margin: 1em 0; } figure svg { width: 100%; height: auto; max-height: 42em; }
details { margin: .6em 0; } summary { cursor: pointer; color: #0a58a8; }
a { color: #0a58a8; }
@media print { details { display: none; } section { break-inside: avoid-page; } }
)";

bool is_number(const std::string& cell) {
  return !cell.empty() && (cell.front() == '-' || (cell.front() >= '0' && cell.front() <= '9'));
}

std::string cell_tag(const char* tag, const std::string& text, bool is_name) {
  return std::string{"<"} + tag + (is_name ? " class=\"name\">" : ">") + html_text(text) + "</" + tag + ">";
}

std::string table_html(const report_table& one) {
  const auto is_name = [&](std::size_t column) {
    return std::ranges::any_of(one.rows,
                               [&](const auto& row) { return !row[column].empty() && !is_number(row[column]); });
  };
  std::string text = "<div class=\"wide\"><table><caption>" + html_text(one.caption) + "</caption>\n<thead><tr>";
  for (std::size_t i = 0; i < one.titles.size(); ++i) text += cell_tag("th", one.titles[i], is_name(i));
  text += "</tr></thead>\n<tbody>\n";
  for (const auto& row : one.rows) {
    text += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) text += cell_tag("td", row[i], is_name(i));
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

std::string status_of(const suite_result& one) {
  if (one.failure.empty()) return "ran";
  return one.report ? "failed" : "did not run";
}

std::string summary_html(const std::vector<suite_result>& results) {
  std::string text = "<section id=\"summary\"><h2>Summary</h2>\n<table><thead><tr><th class=\"name\">bench</th><th "
                     "class=\"name\">what</th><th class=\"name\">status</th><th>took (s)</th></tr></thead>\n<tbody>\n";
  for (const suite_result& one : results)
    text += "<tr><td class=\"name\"><a href=\"#" + html_text(one.name) + "\">" + html_text(one.name) + "</a></td>" +
            cell_tag("td", one.what, true) + cell_tag("td", status_of(one), true) +
            cell_tag("td", fixed(one.seconds, 1), false) + "</tr>\n";
  return text + "</tbody></table></section>\n";
}

/// Returns the first report with the most information: one of a world, otherwise one of a device.
const json* telling(const std::vector<suite_result>& results) {
  const json* found = nullptr;
  for (const suite_result& one : results) {
    if (!one.report) continue;
    if (one.report->contains("settings")) return &*one.report;
    if (found == nullptr) found = &*one.report;
  }
  return found;
}

std::string circumstances_html(const json& report) {
  std::string text = "<section id=\"circumstances\"><h2>Measured on</h2>\n<table><tbody>\n";
  const auto row = [&](const std::string& name, const std::string& value) {
    text += "<tr>" + cell_tag("td", name, true) + cell_tag("td", value, true) + "</tr>\n";
  };
  const json& machine = report.at("machine");
  row("machine", machine.at("host").get<std::string>() + ", " + machine.at("system").get<std::string>() + ", " +
                     machine.at("cores").dump() + " cores");
  row("date", report.at("date").get<std::string>());
  row("troupe", report.at("troupe").get<std::string>());
  row("CAF", report.at("caf").get<std::string>());
  for (const auto& [part, version] : report.at("versions").items()) row(part, version.get<std::string>());
  if (report.contains("devices"))
    for (const json& one : report.at("devices"))
      row((one.contains("rank") ? "rank " + one.at("rank").dump() + ", " : "") + "device " + one.at("device").dump(),
          one.at("name").get<std::string>() + ", " + one.at("pci").get<std::string>());
  if (report.contains("links"))
    for (const json& one : report.at("links"))
      row("link " + one.at("from").dump() + " to " + one.at("to").dump(), one.at("link").get<std::string>());
  text += "</tbody></table>\n";
  if (!report.contains("settings")) return text + "</section>\n";
  text += "<details id=\"settings\"><summary>Every setting</summary>\n<table><tbody>\n";
  for (const auto& [name, value] : report.at("settings").items()) row(name, value.get<std::string>());
  return text + "</tbody></table></details></section>\n";
}

std::string section_html(const suite_result& one) {
  std::string text = "<section id=\"" + html_text(one.name) + "\"><h2>" + html_text(one.name) + "</h2>\n<p>" +
                     html_text(one.what) + "</p>\n";
  if (!one.failure.empty())
    text += "<p class=\"failed\">" + std::string{one.report ? "Failed: " : "Did not run: "} + html_text(one.failure) +
            "</p>\n";
  if (!one.drawing.empty()) text += "<figure>" + inlined_svg(one.drawing, one.name) + "</figure>\n";
  if (one.report) {
    for (const report_table& table : tables_of(*one.report)) text += table_html(table);
    text += "<p class=\"quiet\">All figures, with those of each block: <a href=\"" + html_text(one.name) + ".json\">" +
            html_text(one.name) + ".json</a></p>\n";
  }
  text += "<p class=\"quiet\">To repeat it:</p>\n<pre>" + html_text(one.command) + "</pre>\n";
  if (!one.printed.empty())
    text += "<details><summary>As it was printed, with the method</summary><pre>" + html_text(one.printed) +
            "</pre></details>\n";
  return text + "</section>\n";
}

} // namespace

std::string html_text(const std::string& text) {
  std::string all;
  for (const char one : text) switch (one) {
      case '&': all += "&amp;"; break;
      case '<': all += "&lt;"; break;
      case '>': all += "&gt;"; break;
      case '"': all += "&quot;"; break;
      default: all += one;
    }
  return all;
}

std::string inlined_svg(const std::string& svg, const std::string& suffix) {
  const std::size_t begin = svg.find("<svg");
  std::string text = begin == std::string::npos ? "" : svg.substr(begin);
  static const std::regex names{R"re((\bid=["']|href=["']#|url\(['"]?#)([^"')]+))re"};
  return std::regex_replace(text, names, "$1$2-" + suffix);
}

std::string html_page(const std::vector<suite_result>& results, const std::string& command, const std::string& note) {
  const json* const first = telling(results);
  std::string text = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
                     "content=\"width=device-width, initial-scale=1\">\n<title>troupe bench suite</title>\n<style>" +
                     std::string{style} + "</style>\n</head>\n<body>\n<h1>troupe bench suite</h1>\n";
  if (first != nullptr)
    text += "<p class=\"quiet\">troupe " + html_text(first->at("troupe").get<std::string>()) + " on " +
            html_text(first->at("machine").at("host").get<std::string>()) + ", " +
            html_text(first->at("date").get<std::string>()) + "</p>\n";
  if (first != nullptr && is_of_mock(*first))
    text +=
        "<p class=\"note\">These figures are of the mock: simulated devices whose work is done by this machine's CPU. "
        "They show that everything works and say nothing about GPUs.</p>\n";
  if (!note.empty()) text += "<p class=\"note\">" + html_text(note) + "</p>\n";
  text += "<pre>" + html_text(command) + "</pre>\n" + summary_html(results);
  if (first != nullptr) text += circumstances_html(*first);
  for (const suite_result& one : results) text += section_html(one);
  return text + "</body>\n</html>\n";
}

} // namespace troupe::program
