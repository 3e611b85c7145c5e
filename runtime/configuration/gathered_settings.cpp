#include <troupe/device/file_descriptor.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

using nlohmann::json;

std::size_t index_of(const setting& which) {
  return static_cast<std::size_t>(&which - all_settings().data());
}

/// Collects the entries from the parser's events, because they carry the position in the text. The parsed document does
/// not.
class entry_reader {
public:
  entry_reader(const std::filesystem::path& path, const std::string& text) : path_{path}, text_{text}, in_{text} {}

  std::vector<settings_file_entry> read() {
    if (text_.find_first_not_of(" \t\r\n") == std::string::npos)
      refuse(1, "the file is empty: write {} for no settings");
    constexpr bool with_exceptions = true, with_comments = true;
    try {
      [[maybe_unused]] const json document = json::parse(
          in_, [this](int depth, json::parse_event_t event, json& parsed) { return take(depth > 0, event, parsed); },
          with_exceptions, with_comments);
    } catch (const json::exception& why) {
      refuse(line(), reason_of(why));
    }
    return std::move(entries_);
  }

private:
  /// Returns the text of \p why without the prefixes "[json.exception.parse_error.101] " and "parse error at line 3,
  /// column 1: ".
  static std::string reason_of(const json::exception& why) {
    std::string_view text{why.what()};
    text.remove_prefix(text.find(' ') + 1);
    if (text.starts_with("parse error at ")) text.remove_prefix(text.find(": ") + 2);
    return std::string{text};
  }

  bool take(bool is_inside, json::parse_event_t event, const json& parsed) {
    using event_t = json::parse_event_t;
    if (event == event_t::key) {
      const auto name = parsed.get<std::string>();
      const auto earlier = std::ranges::find(entries_, name, &settings_file_entry::name);
      if (earlier != entries_.end())
        refuse(line(), name + " is set twice, first in line " + std::to_string(earlier->line) + ": keep one");
      entries_.push_back({name, {}, line()});
    } else if (event == event_t::array_start) {
      refuse_value(is_inside, "a list");
    } else if (event == event_t::object_start && is_inside) {
      refuse_value(is_inside, "an object (write full names, as in \"deadlines.form\": \"30s\")");
    } else if (event == event_t::value) {
      const std::string value = parsed.is_string() ? parsed.get<std::string>() : parsed.dump();
      if (!is_inside) refuse_value(is_inside, "'" + value + "'");
      if (parsed.is_null()) refuse_value(is_inside, value);
      entries_.back().value = value;
    }
    return true;
  }

  /// Throws for a value that a setting cannot have, and for a file that is not an object.
  [[noreturn]] void refuse_value(bool is_inside, const std::string& what) const {
    if (!is_inside) refuse(1, "a settings file is one JSON object, and this is " + what);
    refuse(entries_.back().line, entries_.back().name + " is " + what + ": write a number or a string");
  }

  [[noreturn]] void refuse(std::size_t line, const std::string& why) const {
    throw exception{errc::invalid_argument, path_.string() + ":" + std::to_string(line) + ": " + why};
  }

  /// Returns the line up to which the parser has read. The position is -1 at the end.
  [[nodiscard]] std::size_t line() {
    const auto position = std::min(static_cast<std::size_t>(in_.tellg()), text_.size());
    return 1 + static_cast<std::size_t>(
                   std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
  }

  const std::filesystem::path& path_;
  const std::string& text_;
  std::istringstream in_;
  std::vector<settings_file_entry> entries_;
};

} // namespace

std::string to_string(const setting_origin& origin) {
  switch (origin.source) {
    case setting_source::standard: return "default";
    case setting_source::file: return "file " + origin.where;
    case setting_source::environment: return "environment " + origin.where;
    case setting_source::option: return "option " + origin.where;
  }
  return {};
}

gathered_settings::gathered_settings() : origins_(all_settings().size()) {}

void gathered_settings::take(const setting& which, std::string_view text, setting_origin from) {
  const std::string where = from.where;
  with_origin(where, [&] { change(which, text, std::move(from)); });
}

void gathered_settings::take_file(const std::filesystem::path& path) {
  for (const settings_file_entry& entry : read_settings_file(path)) {
    const std::string where = path.string() + ":" + std::to_string(entry.line);
    with_origin(where, [&] {
      const setting& which = find_setting(entry.name);
      with_origin(entry.name, [&] { change(which, entry.value, {setting_source::file, where}); });
    });
  }
}

void gathered_settings::change(const setting& which, std::string_view text, setting_origin from) {
  configuration changed = settings_;
  which.set(changed, text);
  setting_origin& present = origins_[index_of(which)];
  if (from.source < present.source) return;
  settings_ = std::move(changed);
  present = std::move(from);
}

void gathered_settings::take_environment(const variable_lookup& variables) {
  for (const setting& one : all_settings())
    if (const auto text = variables(one.variable)) take(one, *text, {setting_source::environment, one.variable});
  settings_.position = find_position(variables);
  settings_.control.assignment = find_process_assignment(variables);
}

const setting_origin& gathered_settings::origin(const setting& which) const {
  return origins_[index_of(which)];
}

gathered_settings gather_settings(const variable_lookup& variables, const std::optional<std::filesystem::path>& file) {
  gathered_settings gathered;
  if (file)
    gathered.take_file(*file);
  else if (const auto named = variables("TROUPE_CONFIG"))
    gathered.take_file(*named);
  gathered.take_environment(variables);
  return gathered;
}

namespace {

/// Returns the settings without the variables of a launcher.
configuration own_settings(const variable_lookup& variables) {
  const auto own = [&](const std::string& name) {
    return name.starts_with("TROUPE_") ? variables(name) : std::nullopt;
  };
  return gather_settings(own).settings();
}

} // namespace

sequencer_limits find_order_limits(const variable_lookup& variables) {
  return own_settings(variables).limits.sequencing;
}

std::string find_log_level(const variable_lookup& variables) {
  return own_settings(variables).log_level;
}

std::vector<settings_file_entry> read_settings_file(const std::filesystem::path& path) {
  constexpr std::size_t most_bytes = std::size_t{1} << 20U;
  const auto refuse = [&](const std::string& why) {
    return exception{errc::invalid_argument, "the settings file " + path.string() + " cannot be read (" + why +
                                                 "): name a file with --config or TROUPE_CONFIG, or none"};
  };
  const auto refuse_call = [&](int code) { return refuse(std::generic_category().message(code)); };
  // The open file is checked, because the path may name another one a moment later. Without O_NONBLOCK, opening a pipe
  // waits for a writer.
  const file_descriptor file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)};
  struct stat found {};
  if (!file || ::fstat(file.native(), &found) != 0) throw refuse_call(errno);
  if (S_ISDIR(found.st_mode)) throw refuse_call(EISDIR);
  if (!S_ISREG(found.st_mode)) throw refuse("it is a pipe, a socket or a device, not a regular file");
  std::string text(most_bytes + 1, '\0');
  std::size_t size = 0;
  for (ssize_t got = 1; got != 0 && size < text.size();) {
    got = ::read(file.native(), text.data() + size, text.size() - size);
    if (got < 0 && errno != EINTR) throw refuse_call(errno);
    if (got > 0) size += static_cast<std::size_t>(got);
  }
  text.resize(size);
  if (text.size() > most_bytes) throw refuse("it is larger than " + format_byte_size(most_bytes));
  return parse_settings_file(path, text);
}

std::vector<settings_file_entry> parse_settings_file(const std::filesystem::path& path, const std::string& text) {
  return entry_reader{path, text}.read();
}

std::string format_settings_file(const configuration& settings) {
  nlohmann::ordered_json file = nlohmann::ordered_json::object();
  for (const setting& one : all_settings()) {
    const std::string text = one.text(settings);
    try {
      auto& value = file[std::string{one.name}] = one.form == "NUMBER" ? json::parse(text) : json(text);
      static_cast<void>(value.dump());
    } catch (const json::type_error&) { // Text from the environment may be in any encoding.
      throw exception{errc::invalid_argument, std::string{one.name} + " is '" + text +
                                                  "', which is not UTF-8 and cannot be in a settings file: rename it, "
                                                  "or set it with " +
                                                  one.variable};
    }
  }
  return file.dump(2) + "\n";
}

} // namespace troupe
