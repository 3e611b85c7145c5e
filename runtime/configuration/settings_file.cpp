#include <troupe/runtime/configuration/bounded_file.hpp>
#include <troupe/runtime/configuration/settings.hpp>
#include <troupe/runtime/configuration/settings_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

namespace troupe {

namespace {

using nlohmann::json;

constexpr std::size_t most_bytes = std::size_t{1} << 20U; ///< The size limit of a settings file.

/// Handles the parser's events, because they carry the position in the text. The parsed document does not.
class entry_reader final : public nlohmann::json_sax<json> {
public:
  entry_reader(const std::filesystem::path& path, std::string text) : path_{path}, text_{std::move(text)} {}

  std::vector<settings_file_entry> read() {
    if (text_.find_first_not_of(" \t\r\n") == std::string::npos)
      refuse(1, "the file is empty: write {} for no settings");
    in_.str(text_);
    constexpr bool to_the_end = true, with_comments = true;
    json::sax_parse(in_, this, json::input_format_t::json, to_the_end, with_comments);
    return std::move(entries_);
  }

  bool key(string_t& name) override {
    const std::size_t line = line_at(static_cast<std::size_t>(in_.tellg()));
    const auto earlier = std::ranges::find(entries_, name, &settings_file_entry::name);
    if (earlier != entries_.end())
      refuse(line, name + " is set twice, first in line " + std::to_string(earlier->line) + ": keep one");
    entries_.push_back({name, {}, line});
    return true;
  }

  bool string(string_t& value) override { return take(value); }
  bool number_integer(number_integer_t value) override { return take(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return take(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& written) override { return take(written); }
  bool boolean(bool value) override { return take(value ? "true" : "false"); }
  bool null() override { return refuse_value("null"); }
  bool start_array(std::size_t) override { return refuse_value("a list"); }
  bool end_array() override { return true; }
  bool binary(binary_t&) override { return refuse_value("binary"); }
  bool start_object(std::size_t) override {
    if (inside_) return refuse_value("an object (write full names, as in \"deadlines.form\": \"30s\")");
    return inside_ = true;
  }
  bool end_object() override { return true; }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& why) override {
    return refuse(line_at(position), why.what());
  }

private:
  bool take(std::string value) {
    if (!inside_) return refuse_value("'" + value + "'");
    entries_.back().value = std::move(value);
    return true;
  }

  /// Throws for a value that a setting cannot have, and for a file that is not an object.
  [[noreturn]] bool refuse_value(const std::string& what) const {
    if (inside_) refuse(entries_.back().line, entries_.back().name + " is " + what + ": write a number or a string");
    refuse(1, "a settings file is one JSON object, and this is " + what);
  }

  [[noreturn]] bool refuse(std::size_t line, const std::string& why) const {
    throw exception{errc::invalid_argument, path_.string() + ":" + std::to_string(line) + ": " + why};
  }

  [[nodiscard]] std::size_t line_at(std::size_t position) const {
    const auto end = text_.begin() + static_cast<std::ptrdiff_t>(std::min(position, text_.size()));
    return 1 + static_cast<std::size_t>(std::count(text_.begin(), end, '\n'));
  }

  const std::filesystem::path& path_;
  std::string text_;
  std::istringstream in_;
  std::vector<settings_file_entry> entries_;
  bool inside_ = false;
};

/// Returns \p text if JSON can hold it. Text from the environment may be in any encoding.
std::string in_utf8(const setting& which, std::string text) {
  try {
    static_cast<void>(json(text).dump());
  } catch (const json::type_error&) {
    throw exception{errc::invalid_argument, std::string{which.name} + " is '" + text +
                                                "', which is not UTF-8 and cannot be in a settings file: rename it, or "
                                                "set it with " +
                                                which.variable};
  }
  return text;
}

} // namespace

std::vector<settings_file_entry> read_settings_file(const std::filesystem::path& path) {
  return parse_settings_file(path, read_bounded_file("the settings file", path, most_bytes,
                                                     "name a file with --config or TROUPE_CONFIG, or none"));
}

std::vector<settings_file_entry> parse_settings_file(const std::filesystem::path& path, std::string text) {
  return entry_reader{path, std::move(text)}.read();
}

std::string format_settings_file(const configuration& settings) {
  nlohmann::ordered_json file = nlohmann::ordered_json::object();
  for (const setting& one : all_settings()) {
    const std::string text = one.text(settings);
    if (one.form == "NUMBER")
      file[std::string{one.name}] = json::parse(text);
    else
      file[std::string{one.name}] = in_utf8(one, text);
  }
  return file.dump(2) + "\n";
}

} // namespace troupe
