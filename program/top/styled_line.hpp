/// A line of a terminal: pieces of text with a style each, cut where the terminal ends.
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
  /// Blanks before \p text until it has \p width columns; one that is longer stays whole, behind one blank.
  styled_line& right(std::string_view text, std::size_t width, text_style style = text_style::plain);
  /// Blanks behind it.
  styled_line& left(std::string_view text, std::size_t width, text_style style = text_style::plain);

  /// At most \p columns of it; as plain text, or with the escapes of ANSI terminals.
  [[nodiscard]] std::string text(std::size_t columns, bool is_coloured) const;

private:
  struct piece {
    std::string text;
    text_style style;
  };
  std::vector<piece> pieces_;
};

/// Of UTF-8: code points, each of which is taken for one column.
[[nodiscard]] std::size_t columns_of(std::string_view text) noexcept;

} // namespace troupe::program
