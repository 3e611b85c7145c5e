/// Parses the command line of an example: its own options, e.g. `--steps 200`, and troupe's settings, e.g. `--ranks 2`.
#pragma once

#include <troupe/runtime/configuration/gathered_settings.hpp>

#include <charconv>
#include <cstddef>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>

class command_line {
public:
  /// \p defaults are settings whose default in this example differs from troupe's. A settings file, the environment and
  /// the command line override them. Errors: invalid_argument for an option that is neither in \p own nor a setting.
  command_line(int count, char** words, std::initializer_list<std::string_view> own,
               std::initializer_list<std::pair<std::string_view, std::string_view>> defaults = {}) {
    for (const auto& [name, value] : defaults)
      settings_.take(troupe::find_setting(name), value, {troupe::setting_source::standard, "the example"});
    const auto variables = troupe::process_variables();
    if (const auto file = variables("TROUPE_CONFIG")) settings_.take_file(*file);
    settings_.take_environment(variables);
    for (int i = 1; i < count; i += 2) {
      const std::string_view option = words[i];
      if (option == "--help" || i + 1 == count) throw troupe::exception{troupe::errc::invalid_argument, usage(own)};
      take(option, words[i + 1], own);
    }
    troupe::check(settings_.settings());
  }

  [[nodiscard]] const troupe::configuration& settings() const { return settings_.settings(); }
  [[nodiscard]] bool has(std::string_view name) const { return values_.contains(name); }
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise) const {
    const auto found = values_.find(name);
    return found == values_.end() ? std::string{otherwise} : found->second;
  }
  /// Errors: invalid_argument if the value is not a number of at least 0.
  template <class Number>
  [[nodiscard]] Number number(std::string_view name, Number otherwise) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    const std::string& text = found->second;
    Number value{};
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc{} || end != text.data() + text.size() || value < Number{})
      throw troupe::exception{troupe::errc::invalid_argument,
                              std::string{name} + " is '" + text + "': give a number of at least 0"};
    return value;
  }

private:
  void take(std::string_view option, const char* value, std::initializer_list<std::string_view> own) {
    for (const std::string_view name : own)
      if (option == name) {
        values_.insert_or_assign(std::string{name}, value);
        return;
      }
    for (const troupe::setting& one : troupe::all_settings())
      if (option == one.option) return settings_.take(one, value, {troupe::setting_source::option, one.option});
    throw troupe::exception{troupe::errc::invalid_argument,
                            "unknown option '" + std::string{option} + "'. " + usage(own)};
  }
  static std::string usage(std::initializer_list<std::string_view> own) {
    std::string text = "Options, each with a value: ";
    for (const std::string_view name : own) text += std::string{name} + ", ";
    return text + "and troupe's settings, e.g. --ranks 2 (docs/configuration.md)";
  }

  troupe::gathered_settings settings_;
  std::map<std::string, std::string, std::less<>> values_;
};
