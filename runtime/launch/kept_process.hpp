/// One process of a process_keeper, with its unread output and unwritten input. Used by the keeper's thread alone.
#pragma once

#include <troupe/runtime/launch/child_process.hpp>
#include <troupe/runtime/launch/line_splitter.hpp>
#include <troupe/runtime/launch/process_keeper.hpp>

#include <string>

namespace troupe::launch {

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
