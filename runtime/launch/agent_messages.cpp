#include <troupe/runtime/launch/agent_messages.hpp>

#include <troupe/device/error.hpp>

#include <nlohmann/json.hpp>

namespace troupe::launch {

namespace {

using nlohmann::json;

json to_json(const start_command& one) {
  json environment = json::array();
  for (const variable_change& change : one.what.environment)
    environment.push_back({change.name, change.value ? json(*change.value) : json(nullptr)});
  return {{"start",
           {{"place", one.place},
            {"program", one.what.program},
            {"arguments", one.what.arguments},
            {"environment", environment},
            {"directory", one.what.directory},
            {"prefix", one.what.prefix}}}};
}

json to_json(const kill_command& one) {
  return {{"kill", {{"place", one.place}, {"signal", one.signal}}}};
}

json to_json(const rename_command& one) {
  return {{"rename", {{"place", one.place}, {"prefix", one.prefix}}}};
}

json to_json(const started_report& one) {
  return {{"started", {{"place", one.place}, {"pid", one.pid}}}};
}

json to_json(const refused_report& one) {
  return {{"refused", {{"place", one.place}, {"why", one.why}}}};
}

json to_json(const exited_report& one) {
  return {{"exited",
           {{"place", one.place},
            {"pid", one.pid},
            {"code", one.status.code},
            {"signal", one.status.signal},
            {"lost", one.status.lost}}}};
}

template <class Message>
std::string as_line(const Message& message) {
  const json document = std::visit([](const auto& one) { return to_json(one); }, message);
  try {
    return document.dump();
  } catch (const json::exception&) {
    throw exception{
        errc::invalid_argument,
        "an argument or a variable for another host is not UTF-8: write it in UTF-8, or put it into a file"};
  }
}

agent_command to_command(const std::string& name, const json& body) {
  const auto place = body.at("place").get<place_index>();
  if (name == "kill") return kill_command{place, body.at("signal").get<int>()};
  if (name == "rename") return rename_command{place, body.at("prefix").get<std::string>()};
  if (name != "start") throw exception{errc::mismatch, "unknown command '" + name + "'"};
  start_command start{.place = place,
                      .what = {.program = body.at("program").get<std::string>(),
                               .arguments = body.at("arguments").get<std::vector<std::string>>(),
                               .directory = body.at("directory").get<std::string>(),
                               .prefix = body.at("prefix").get<std::string>()}};
  for (const json& change : body.at("environment"))
    start.what.environment.push_back(
        {change.at(0).get<std::string>(),
         change.at(1).is_null() ? std::nullopt : std::optional{change.at(1).get<std::string>()}});
  return start;
}

agent_report to_report(const std::string& name, const json& body) {
  const auto place = body.at("place").get<place_index>();
  if (name == "started") return started_report{place, body.at("pid").get<pid_t>()};
  if (name == "refused") return refused_report{place, body.at("why").get<std::string>()};
  if (name != "exited") throw exception{errc::mismatch, "unknown report '" + name + "'"};
  return exited_report{place,
                       body.at("pid").get<pid_t>(),
                       {.code = body.at("code").get<int>(),
                        .signal = body.at("signal").get<int>(),
                        .lost = body.at("lost").get<bool>()}};
}

template <class Decode>
auto decode_line(std::string_view line, Decode decode) {
  try {
    const json document = json::parse(line);
    const auto only = document.items().begin();
    if (document.size() != 1) throw exception{errc::mismatch, "a message has one member"};
    return decode(only.key(), only.value());
  } catch (const json::exception& problem) {
    throw exception{
        errc::mismatch,
        std::string{"a line is not a message between a launcher and its agent, which must have the same version: "} +
            problem.what()};
  }
}

} // namespace

std::string encode(const agent_command& command) {
  return as_line(command);
}

std::string encode(const agent_report& report) {
  return as_line(report);
}

agent_command decode_command(std::string_view line) {
  return decode_line(line, to_command);
}

agent_report decode_report(std::string_view line) {
  return decode_line(line, to_report);
}

} // namespace troupe::launch
