/// One process of a process_keeper, with its unread output and unwritten input. Used by the keeper's thread alone.
#pragma once

#include <troupe/runtime/launch/child_process.hpp>
#include <troupe/runtime/launch/process_keeper.hpp>

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

class kept_process {
public:
  kept_process(const process_spec& what, process_handlers handlers, const sigset_t& signals);

  [[nodiscard]] child_process& child() noexcept { return child_; }
  [[nodiscard]] const process_handlers& handlers() const noexcept { return handlers_; }
  void rename(std::string prefix) { prefix_ = std::move(prefix); }

  /// Reads what \p where has now, at most \p at_most bytes, and passes on its lines. On standard output, \p mark
  /// precedes the prefix.
  void read(output_stream where, std::size_t at_most, output_writer& writer, const std::string& mark);
  /// Reads all that the process wrote before it ended, including a last line without an end.
  void finish(output_writer& writer, const std::string& mark);

  void feed(std::string bytes) { unwritten_ += bytes; }
  void end_input() noexcept { input_ends_ = true; }
  [[nodiscard]] bool has_unwritten() const noexcept { return !unwritten_.empty(); }
  /// Writes as much as its input accepts now.
  void write_input();

private:
  [[nodiscard]] file_descriptor& pipe_of(output_stream where) noexcept;
  void pass_on(output_stream where, std::string_view line, output_writer& writer, const std::string& mark) const;

  child_process child_;
  process_handlers handlers_;
  std::string prefix_;
  line_splitter lines_[2];
  std::string unwritten_;
  bool input_ends_ = false;
};

} // namespace troupe::launch
