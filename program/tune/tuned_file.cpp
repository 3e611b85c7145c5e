#include <troupe/program/tune/tuned_file.hpp>

#include <troupe/runtime/configuration/settings.hpp>

#include <nlohmann/json.hpp>

namespace troupe::program {

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
