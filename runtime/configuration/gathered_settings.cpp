#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/settings_file.hpp>

#include <utility>

namespace troupe {

namespace {

std::size_t index_of(const setting& which) {
  return static_cast<std::size_t>(&which - all_settings().data());
}

/// Runs \p action. Puts \p where in front of the text of an error.
template <class Action>
void blaming(const std::string& where, Action&& action) {
  try {
    action();
  } catch (const exception& failure) {
    error why = failure.why();
    why.text = where + ": " + why.text;
    throw exception{std::move(why)};
  }
}

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
  const std::string blame = from.where;
  change(which, text, blame, std::move(from));
}

void gathered_settings::take_file(const std::filesystem::path& path) {
  for (const settings_file_entry& entry : read_settings_file(path)) {
    const std::string where = path.string() + ":" + std::to_string(entry.line);
    const setting* which = nullptr;
    blaming(where, [&] { which = &find_setting(entry.name); });
    change(*which, entry.value, where + ": " + entry.name, {setting_source::file, where});
  }
}

void gathered_settings::change(const setting& which, std::string_view text, const std::string& blame,
                               setting_origin from) {
  configuration changed = settings_;
  blaming(blame, [&] { which.set(changed, text); });
  setting_origin& present = origins_[index_of(which)];
  if (from.source < present.source) return;
  settings_ = std::move(changed);
  present = std::move(from);
}

void gathered_settings::take_environment(const variable_lookup& variables) {
  for (const setting& one : all_settings())
    if (const auto text = variables(one.variable)) take(one, *text, {setting_source::environment, one.variable});
  settings_.position = find_position(variables);
  settings_.seat = find_control_seat(variables);
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

} // namespace troupe
