#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/launch/host_list.hpp>

#include <troupe/device/error.hpp>

#include <algorithm>
#include <sstream>
#include <system_error>

namespace troupe::launch {

namespace {

constexpr std::uint64_t most_processes = 4096;

[[noreturn]] void refuse_host(std::string_view text, const std::string& why) {
  throw exception{errc::invalid_argument, "'" + std::string{text} + "' is not a host: " + why};
}

std::size_t process_count(std::string_view text, std::string_view host) {
  const auto count = parse_whole_number(text);
  if (!count || *count < 1 || *count > most_processes)
    refuse_host(host, "write the number of its processes, from 1 to " + std::to_string(most_processes) + ", as in a:4");
  return static_cast<std::size_t>(*count);
}

/// Restricts the characters of a name, because it becomes a word of a command that a remote shell may interpret.
bool is_name(std::string_view text) {
  constexpr std::string_view also = "._-@:%";
  return !text.empty() && text.front() != '-' && std::ranges::all_of(text, [&](char one) {
    return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') ||
           also.find(one) != std::string_view::npos;
  });
}

launch_host parse_host(std::string_view text) {
  std::string_view name = text;
  std::string_view count;
  if (text.starts_with('[')) {
    const std::size_t end = text.find(']');
    if (end == std::string_view::npos) refuse_host(text, "the bracket is not closed");
    name = text.substr(1, end - 1);
    count = text.substr(end + 1);
  } else if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    name = text.substr(0, colon);
    count = text.substr(colon);
    if (count.find(':', 1) != std::string_view::npos)
      refuse_host(text, "write an IPv6 address in brackets, [fe80::1]:4");
  }
  if (!is_name(name)) refuse_host(text, "write a name or an address, and how many processes it takes, as in a:4");
  if (!count.empty() && count.front() != ':') refuse_host(text, "a colon follows the name, as in a:4");
  return {std::string{name}, count.empty() ? 1 : process_count(count.substr(1), text)};
}

void add_host(std::vector<launch_host>& all, launch_host one) {
  if (std::ranges::any_of(all, [&](const launch_host& other) { return other.name == one.name; }))
    throw exception{errc::invalid_argument,
                    "the host " + one.name + " is named twice: name it once, with all its processes"};
  all.push_back(std::move(one));
}

/// Parses "a slots=4", "a:4", or an empty line.
void add_line(std::vector<launch_host>& all, std::string line) {
  line.resize(std::min(line.find('#'), line.size()));
  std::istringstream words{line};
  std::string host;
  std::string slots;
  if (!(words >> host)) return;
  if (!(words >> slots)) return add_host(all, parse_host(host));
  constexpr std::string_view sign = "slots=";
  std::string more;
  if (!slots.starts_with(sign) || words >> more || host.find(':') != std::string::npos)
    refuse_host(line, "write a:4 or a slots=4");
  launch_host one = parse_host(host);
  one.processes = process_count(std::string_view{slots}.substr(sign.size()), line);
  add_host(all, std::move(one));
}

} // namespace

std::vector<launch_host> parse_hosts(std::string_view text) {
  std::vector<launch_host> all;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    add_host(all, parse_host(rest.substr(0, comma)));
    if (comma == std::string_view::npos) return all;
    rest.remove_prefix(comma + 1);
  }
}

std::vector<launch_host> read_hosts_file(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::exists(path, unknown))
    throw exception{errc::missing, "the host file " + path.string() + " cannot be read"};
  constexpr std::size_t most_bytes = std::size_t{1} << 20U;
  std::istringstream file{read_bounded_file("the host file", path, most_bytes, "name a file with a host in each line")};
  std::vector<launch_host> all;
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    try {
      add_line(all, line);
    } catch (const exception& failure) {
      throw exception{failure.why().code, path.string() + ":" + std::to_string(number) + ": " + failure.why().text};
    }
  }
  if (all.empty()) throw exception{errc::invalid_argument, "the host file " + path.string() + " names none"};
  return all;
}

} // namespace troupe::launch
