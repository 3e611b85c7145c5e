// Fuzzes the parser of settings files.
#include "fuzz_target.hpp"

#include <troupe/runtime/configuration/gathered_settings.hpp>

using namespace troupe;

namespace {

gathered_settings read(std::string_view text) {
  gathered_settings all;
  for (const auto& entry : parse_settings_file("file", std::string{text})) {
    fuzz::require(entry.line >= 1, "lines count from 1");
    all.take(find_setting(entry.name), entry.value, {setting_source::file, "file:" + std::to_string(entry.line)});
  }
  return all;
}

} // namespace

TROUPE_FUZZ_TARGET() {
  gathered_settings first;
  if (!fuzz::taken([&] { first = read(text); })) return;
  // Settings that were read from a file can be written to a file with the same meaning.
  const gathered_settings again = read(format_settings_file(first.settings()));
  for (const setting& one : all_settings())
    fuzz::require(one.text(first.settings()) == one.text(again.settings()), "a written setting keeps its value");
  fuzz::taken([&] { check(first.settings()); });
}
