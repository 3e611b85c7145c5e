/// Quotes command lines so that people can copy them into a shell.
#pragma once

#include <string>
#include <vector>

namespace troupe::program {

/// Joins \p words so that a shell splits them into the same words: those that it would change are in single quotes.
[[nodiscard]] std::string shell_words(const std::vector<std::string>& words);

} // namespace troupe::program
