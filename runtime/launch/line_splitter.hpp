/// Splits the output of a pipe, which arrives in pieces, into whole lines.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace troupe::launch {

class line_splitter {
public:
  /// Lines longer than \p limit_bytes are passed on in several pieces, so that no more than that is held.
  explicit line_splitter(std::size_t limit_bytes) noexcept : limit_bytes_{limit_bytes} {}

  /// Calls \p line for each line that \p bytes complete, without its end.
  template <class Line>
  void feed(std::string_view bytes, Line&& line) {
    while (!bytes.empty()) {
      const std::size_t end = bytes.find('\n');
      const std::size_t count = std::min({end, bytes.size(), limit_bytes_ - held_.size()});
      held_.append(bytes.substr(0, count));
      bytes.remove_prefix(count);
      const bool ends = count == end;
      if (ends) bytes.remove_prefix(1);
      // A line that fills the buffer waits for its end or for one more byte.
      if (ends || !bytes.empty()) give(line);
    }
  }

  /// Calls \p line for a last line without an end.
  template <class Line>
  void finish(Line&& line) {
    if (!held_.empty()) give(line);
  }

private:
  template <class Line>
  void give(Line&& line) {
    line(std::string_view{held_});
    held_.clear();
  }

  std::size_t limit_bytes_;
  std::string held_;
};

} // namespace troupe::launch
