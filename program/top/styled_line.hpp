/// A line of a terminal: pieces of text with a style each, cut at the terminal's width.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::program {

enum class text_style { plain, bold, dim, inverse, good, warning, bad, accent };

class styled_line {
public:
  styled_line& add(std::string_view text, text_style style = text_style::plain);
  /// Adds \p text, right-aligned in \p width columns. Longer text is not cut; one blank precedes it.
  styled_line& right(std::string_view text, std::size_t width, text_style style = text_style::plain);
  /// Adds \p text, left-aligned in \p width columns.
  styled_line& left(std::string_view text, std::size_t width, text_style style = text_style::plain);

  /// Returns at most \p columns of the line, as plain text or with ANSI escapes.
  [[nodiscard]] std::string text(std::size_t columns, bool is_coloured) const;

private:
  struct piece {
    std::string text;
    text_style style;
  };
  std::vector<piece> pieces_;
};

/// Returns the number of columns of UTF-8 text. Each code point counts as one column.
[[nodiscard]] std::size_t columns_of(std::string_view text) noexcept;

} // namespace troupe::program
