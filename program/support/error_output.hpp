/// Writes a program's last words to standard error. A reader that has stopped must not keep the program from ending.
#pragma once

#include <initializer_list>
#include <string_view>

namespace troupe::program {

/// Writes the concatenation of \p parts to the descriptor \p to. The rest is dropped when the reader has accepted
/// nothing for one second, or has closed its end. Does not use stdio, whose lock a blocked write would hold while the
/// process exits. Allocates no memory.
void write_error(int to, std::initializer_list<std::string_view> parts) noexcept;

} // namespace troupe::program
