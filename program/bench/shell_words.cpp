#include <troupe/program/bench/shell_words.hpp>

#include <cctype>

namespace troupe::program {

std::string shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    bool plain = !word.empty();
    for (const char one : word)
      plain = plain && (std::isalnum(static_cast<unsigned char>(one)) != 0 ||
                        std::string_view{"-_=.,:/+@%^"}.find(one) != std::string_view::npos);
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char one : word)
      if (one == '\'')
        line += "'\\''";
      else
        line += one;
    line += '\'';
  }
  return line;
}

} // namespace troupe::program
