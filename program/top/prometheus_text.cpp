#include <troupe/program/top/prometheus_text.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <limits>

namespace troupe::program {

namespace {

/// Reads one line from front to back.
class sample_line {
public:
  sample_line(std::string_view text, std::size_t number) : rest_{text}, number_{number} {}

  [[nodiscard]] text_sample parse() {
    text_sample one;
    one.name = name("a metric's name");
    skip_blanks();
    if (take('{')) read_labels(one);
    skip_blanks();
    const std::string_view value = word();
    one.value = number(value);
    skip_blanks();
    if (!rest_.empty()) static_cast<void>(number(word())); // a timestamp
    skip_blanks();
    if (!rest_.empty()) fail("there is unexpected text behind the value: '" + std::string{rest_} + "'");
    return one;
  }

private:
  [[noreturn]] void fail(const std::string& why) const {
    throw exception{errc::invalid_argument, "line " + std::to_string(number_) + " of the metrics: " + why};
  }

  void skip_blanks() { rest_.remove_prefix(std::min(rest_.size(), rest_.find_first_not_of(" \t"))); }

  [[nodiscard]] bool take(char what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  [[nodiscard]] std::string_view take_front(std::size_t length) {
    const std::string_view front = rest_.substr(0, length);
    rest_.remove_prefix(front.size());
    return front;
  }

  [[nodiscard]] std::string name(const char* what) {
    constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:";
    const std::string_view found = take_front(rest_.find_first_not_of(allowed));
    if (found.empty()) fail(std::string{what} + " is missing before '" + std::string{rest_} + "'");
    return std::string{found};
  }

  [[nodiscard]] std::string_view word() { return take_front(rest_.find_first_of(" \t")); }

  void read_labels(text_sample& one) {
    for (skip_blanks(); !take('}'); skip_blanks()) {
      std::string label = name("a label's name");
      skip_blanks();
      if (!take('=')) fail("the label " + label + " has no '='");
      skip_blanks();
      if (!take('"')) fail("the label " + label + " has no value in quotes");
      one.labels.emplace_back(std::move(label), quoted());
      skip_blanks();
      if (!take(',') && !rest_.starts_with('}')) fail("the labels have no end");
    }
  }

  /// Reads up to the closing quote.
  [[nodiscard]] std::string quoted() {
    std::string value;
    while (!rest_.empty()) {
      const char one = take_front(1).front();
      if (one == '"') return value;
      if (one != '\\') {
        value += one;
        continue;
      }
      if (rest_.empty()) break;
      const char escaped = take_front(1).front();
      value += escaped == 'n' ? '\n' : escaped; // Otherwise a quote or a backslash.
    }
    fail("a label's value has no end");
  }

  [[nodiscard]] double number(std::string_view text) const {
    if (text == "+Inf" || text == "Inf") return std::numeric_limits<double>::infinity();
    if (text == "-Inf") return -std::numeric_limits<double>::infinity();
    if (text == "NaN" || text == "Nan")
      return std::numeric_limits<double>::quiet_NaN(); // prometheus-cpp writes the latter
    double value = 0;
    if (text.starts_with('+')) text.remove_prefix(1);
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || problem != std::errc{} || end != text.data() + text.size())
      fail("'" + std::string{text} + "' is not a number");
    return value;
  }

  std::string_view rest_;
  std::size_t number_;
};

} // namespace

std::string_view text_sample::label(std::string_view label_name) const noexcept {
  const auto found =
      std::ranges::find(labels, label_name, [](const auto& one) -> std::string_view { return one.first; });
  return found == labels.end() ? std::string_view{} : std::string_view{found->second};
}

std::vector<text_sample> parse_prometheus_text(std::string_view text) {
  std::vector<text_sample> all;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos || line[begin] == '#') continue;
    all.push_back(sample_line{line.substr(begin), number}.parse());
  }
  return all;
}

} // namespace troupe::program
