#include <troupe/program/top/styled_line.hpp>

#include <algorithm>

namespace troupe::program {

namespace {

bool begins_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
}

/// Returns the first \p columns characters of \p text.
std::string_view front_of(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  for (std::size_t seen = 0; at < text.size(); ++at)
    if (begins_character(text[at]) && seen++ == columns) break;
  return text.substr(0, at);
}

const char* escape_of(text_style style) {
  switch (style) {
    case text_style::plain: return "";
    case text_style::bold: return "\x1b[1m";
    case text_style::dim: return "\x1b[2m";
    case text_style::inverse: return "\x1b[7m";
    case text_style::good: return "\x1b[1;32m";
    case text_style::warning: return "\x1b[1;33m";
    case text_style::bad: return "\x1b[1;31m";
    case text_style::accent: return "\x1b[36m";
  }
  return "";
}

} // namespace

std::size_t columns_of(std::string_view text) noexcept {
  return static_cast<std::size_t>(std::ranges::count_if(text, begins_character));
}

namespace {

/// Returns the style of a gap. A heading is one bar without gaps.
text_style between(text_style style) {
  return style == text_style::inverse ? style : text_style::plain;
}

} // namespace

styled_line& styled_line::add(std::string_view text, text_style style) {
  pieces_.push_back({std::string{text}, style});
  return *this;
}

styled_line& styled_line::right(std::string_view text, std::size_t width, text_style style) {
  const std::size_t columns = columns_of(text);
  return add(std::string(columns < width ? width - columns : 1, ' '), between(style)).add(text, style);
}

styled_line& styled_line::left(std::string_view text, std::size_t width, text_style style) {
  const std::size_t columns = columns_of(text);
  return add(text, style).add(std::string(columns < width ? width - columns : 1, ' '), between(style));
}

std::string styled_line::text(std::size_t columns, bool is_coloured) const {
  std::string all;
  for (const piece& one : pieces_) {
    const std::string_view shown = front_of(one.text, columns);
    if (shown.empty()) continue;
    columns -= columns_of(shown);
    const bool has_style = is_coloured && one.style != text_style::plain;
    if (has_style) all += escape_of(one.style);
    all += shown;
    if (has_style) all += "\x1b[0m";
  }
  if (!is_coloured) all.erase(all.find_last_not_of(' ') + 1);
  return all;
}

} // namespace troupe::program
