#include <troupe/runtime/launch/kept_process.hpp>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace troupe::launch {

kept_process::kept_process(const process_spec& what, process_handlers handlers, const sigset_t& signals)
  : child_{what, signals},
    handlers_{std::move(handlers)},
    prefix_{what.prefix},
    lines_{line_splitter{what.line_limit_bytes}, line_splitter{what.line_limit_bytes}} {}

file_descriptor& kept_process::pipe_of(output_stream where) noexcept {
  return where == output_stream::output ? child_.output() : child_.errors();
}

void kept_process::pass_on(output_stream where, std::string_view line, output_writer& writer,
                           const std::string& mark) const {
  if (where == output_stream::errors)
    writer.write(where, prefix_, line);
  else if (handlers_.on_line)
    handlers_.on_line(line);
  else
    writer.write(where, mark + prefix_, line);
}

void kept_process::read(output_stream where, std::size_t at_most, output_writer& writer, const std::string& mark) {
  std::array<char, std::size_t{64} << 10U> buffer; // NOLINT(cppcoreguidelines-pro-type-member-init): read() fills it
  file_descriptor& from = pipe_of(where);
  while (from && at_most > 0) {
    const ssize_t count = ::read(from.native(), buffer.data(), std::min(at_most, buffer.size()));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      from.close();
      return;
    }
    at_most -= static_cast<std::size_t>(count);
    lines_[static_cast<std::size_t>(where)].feed({buffer.data(), static_cast<std::size_t>(count)},
                                                 [&](std::string_view line) { pass_on(where, line, writer, mark); });
  }
}

void kept_process::finish(output_writer& writer, const std::string& mark) {
  for (const output_stream where : {output_stream::output, output_stream::errors}) {
    // Other processes may hold the pipe and continue to write, so only what is there now is read.
    int left = 0;
    if (pipe_of(where) && ::ioctl(pipe_of(where).native(), FIONREAD, &left) == 0)
      read(where, static_cast<std::size_t>(left), writer, mark);
    lines_[static_cast<std::size_t>(where)].finish([&](std::string_view line) { pass_on(where, line, writer, mark); });
  }
}

void kept_process::write_input() {
  file_descriptor& to = child_.input();
  while (to && !unwritten_.empty()) {
    const ssize_t count = ::write(to.native(), unwritten_.data(), unwritten_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0)
      to.close(); // the process no longer reads
    else
      unwritten_.erase(0, static_cast<std::size_t>(count));
  }
  if (!to) unwritten_.clear();
  if (input_ends_) to.close();
}

} // namespace troupe::launch
