#include <troupe/program/support/runtime_options.hpp>

#include <CLI/CLI.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace troupe::program {

void runtime_options::add_to(CLI::App& command) {
  command.add_option("--config", file_, "the settings file (TROUPE_CONFIG; default none)")->type_name("PATH");
  const configuration defaults;
  for (const setting& one : all_settings()) {
    const std::string standard = one.text(defaults);
    command
        .add_option_function<std::string>(
            one.option, [this, &one](const std::string& text) { given_.emplace_back(&one, text); },
            std::string{one.description} + " (" + (one.range.empty() ? "" : one.range + "; ") + one.variable +
                "; default " + (standard.empty() ? "empty" : standard) + ")")
        ->type_name(std::string{one.form})
        ->group(std::string{one.group});
  }
}

gathered_settings runtime_options::gathered() const {
  check_process_variables();
  return gathered(process_variables());
}

gathered_settings runtime_options::gathered(const variable_lookup& variables) const {
  gathered_settings all =
      gather_settings(variables, file_.empty() ? std::nullopt : std::optional<std::filesystem::path>{file_});
  for (const auto& [which, text] : given_) all.take(*which, text, {setting_source::option, which->option});

  const setting& devices = find_setting("mock.devices");
  const configuration& chosen = all.settings();
  const bool pretends = chosen.backend == backend_choice::mock || chosen.backend == backend_choice::gloo;
  if (pretends && chosen.ranks > chosen.mock.devices && all.origin(devices).source == setting_source::standard)
    all.take(devices, std::to_string(chosen.ranks), all.origin(find_setting("ranks")));
  check(all.settings());
  return all;
}

std::vector<std::string> runtime_options::arguments(const std::vector<std::string_view>& without) const {
  std::vector<std::string> all;
  if (!file_.empty()) all.push_back("--config=" + file_);
  for (const auto& [which, text] : given_)
    if (std::ranges::find(without, which->name) == without.end()) all.push_back(which->option + "=" + text);
  return all;
}

} // namespace troupe::program
