#include <troupe/runtime/configuration/control_settings.hpp>
#include <troupe/runtime/configuration/whole_number.hpp>

#include <troupe/device/error.hpp>

#include <limits>

namespace troupe {

namespace {

constexpr std::uint64_t last_port = std::numeric_limits<std::uint16_t>::max();

std::optional<int> whole_variable(const variable_lookup& variables, const std::string& name) {
  const auto text = variables(name);
  if (!text) return std::nullopt;
  const auto value = parse_whole_number(*text);
  if (!value || *value > static_cast<std::uint64_t>(std::numeric_limits<int>::max()))
    throw exception{errc::invalid_argument, name + " is '" + *text + "' and must be a whole number from 0"};
  return static_cast<int>(*value);
}

} // namespace

control_seat find_control_seat(const variable_lookup& variables) {
  control_seat seat{.token = variables("TROUPE_JOIN_TOKEN").value_or(""),
                    .name = variables("TROUPE_PROCESS").value_or(""),
                    .host = variables("TROUPE_HOST").value_or(""),
                    .place = whole_variable(variables, "TROUPE_PLACE"),
                    .device = whole_variable(variables, "TROUPE_DEVICE")};
  seat.spare = whole_variable(variables, "TROUPE_SPARE").value_or(0) != 0;
  seat.attempt = whole_variable(variables, "TROUPE_ATTEMPT").value_or(0);
  seat.meeting = find_meeting_place(variables);
  seat.is_watched = !seat.name.empty();
  return seat;
}

std::string find_meeting_place(const variable_lookup& variables) {
  const auto host = variables("MASTER_ADDR");
  const auto port = variables("MASTER_PORT");
  if (!host || !port || host->empty()) return {};
  const auto number = parse_whole_number(*port);
  if (!number || *number == 0 || *number >= last_port)
    throw exception{errc::invalid_argument, "MASTER_PORT is '" + *port +
                                                "' and must be from 1 to 65534, because the next port is used as well"};
  return *host + ":" + std::to_string(*number + 1);
}

bool control_address::is_loopback() const {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

control_address parse_control_address(std::string_view text) {
  const auto colon = text.rfind(':');
  const auto port = colon == std::string_view::npos ? std::nullopt : parse_whole_number(text.substr(colon + 1));
  if (!port || *port > last_port || colon == 0)
    throw exception{errc::invalid_argument,
                    "'" + std::string{text} +
                        "' is not an address of a controller: write HOST:PORT, for example 127.0.0.1:27700"};
  return {std::string{text.substr(0, colon)}, static_cast<std::uint16_t>(*port)};
}

std::string to_string(const control_address& where) {
  return where.host + ":" + std::to_string(where.port);
}

} // namespace troupe
