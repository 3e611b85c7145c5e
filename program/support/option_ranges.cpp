#include <troupe/program/support/option_ranges.hpp>

#include <troupe/device/error.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <charconv>
#include <sstream>

namespace troupe::program {

namespace {

/// Requires that the parsed text lies between the parsed limits.
template <class Parse>
CLI::Validator parsed_in(const std::string& form, const std::string& least, const std::string& most, Parse parse) {
  return CLI::Validator{[=](std::string& text) -> std::string {
                          try {
                            const auto value = parse(text);
                            if (value >= parse(least) && value <= parse(most)) return {};
                          } catch (const exception& problem) {
                            return problem.why().text;
                          }
                          return "'" + text + "' must be from " + least + " to " + most;
                        },
                        form + " in [" + least + " - " + most + "]"};
}

double parse_real(const std::string& text) {
  double value = 0;
  const char* const last = text.data() + text.size();
  const auto [end, problem] = std::from_chars(text.data(), last, value);
  if (problem != std::errc{} || end != last)
    throw exception{errc::invalid_argument, "'" + text + "' is not a number: write e.g. 2 or 0.5"};
  return value; // A NaN is outside every range.
}

std::string print_real(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}

} // namespace

CLI::Validator whole_in(std::uint64_t least, std::uint64_t most) {
  return parsed_in("NUMBER", std::to_string(least), std::to_string(most), [](const std::string& text) {
    if (const auto value = parse_whole_number(text)) return *value;
    throw exception{errc::invalid_argument, "'" + text + "' is not an unsigned whole number of 64 bits"};
  });
}

CLI::Validator real_in(double least, double most) {
  return parsed_in("NUMBER", print_real(least), print_real(most), parse_real);
}

CLI::Option* add_real(CLI::App& command, const std::string& names, double& value, const std::string& what, double least,
                      double most) {
  return command.add_option(names, value, what)->capture_default_str()->check(real_in(least, most));
}

CLI::Option* add_size(CLI::App& command, const std::string& names, std::size_t& bytes, const std::string& what,
                      const std::string& least) {
  return command
      .add_option_function<std::string>(
          names, [&bytes](const std::string& text) { bytes = parse_byte_size(text); }, what)
      ->default_str(bytes == 0 ? "" : format_byte_size(bytes))
      ->check(parsed_in("SIZE", least, largest_size, &parse_byte_size));
}

CLI::Option* add_time(CLI::App& command, const std::string& names, std::chrono::nanoseconds& span,
                      const std::string& what, const std::string& least, const std::string& most) {
  return command
      .add_option_function<std::string>(
          names, [&span](const std::string& text) { span = parse_duration(text); }, what)
      ->default_str(format_duration(span))
      ->check(parsed_in("DURATION", least, most, &parse_duration));
}

} // namespace troupe::program
