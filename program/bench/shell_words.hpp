/// Command lines for people to copy.
#pragma once

#include <string>
#include <vector>

namespace troupe::program {

/// \p words as a shell takes them apart again: those that it would change are in single quotes.
[[nodiscard]] std::string shell_words(const std::vector<std::string>& words);

} // namespace troupe::program
