#include <troupe/runtime/launch/host_agent.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/overloaded.hpp>
#include <troupe/runtime/launch/process_supervisor.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>

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

namespace {} // namespace

remote_shell parse_remote_shell(const std::string& command, const std::string& agent) {
  remote_shell shell{.words = {}, .agent = agent};
  std::istringstream words{command};
  for (std::string word; words >> word;) shell.words.push_back(word);
  if (shell.words.empty())
    throw exception{errc::invalid_argument, "the remote shell is empty: write a command, as in --rsh ssh"};
  constexpr std::string_view also = "/._-+,:@%=";
  const bool plain = !agent.empty() && std::ranges::all_of(agent, [&](char one) {
    return (one >= 'a' && one <= 'z') || (one >= 'A' && one <= 'Z') || (one >= '0' && one <= '9') ||
           also.find(one) != std::string_view::npos;
  });
  if (!plain)
    throw exception{errc::invalid_argument, "the path '" + agent +
                                                "' of troupe on the other hosts contains characters that a shell "
                                                "interprets: use a path of letters, digits and /._-+,:@%="};
  return shell;
}

host_agent::host_agent(process_supervisor& supervisor, remote_shell shell, std::string host,
                       host_agent_handlers handlers)
  : supervisor_{supervisor}, command_{std::move(shell)}, host_{std::move(host)}, handlers_{std::move(handlers)} {}

void host_agent::start(place_index place, const process_spec& what) {
  const std::string line = encode(start_command{place, what});
  if (!shell_) {
    // Output of the agent's processes already has prefixes. The limit leaves room for them on a full line.
    process_spec shell{.program = command_.words.front(),
                       .arguments = {},
                       .has_input = true,
                       .line_limit_bytes = std::size_t{1} << 20U};
    shell.arguments.assign(command_.words.begin() + 1, command_.words.end());
    for (const std::string& word : {host_, command_.agent, std::string{"launch-agent"}})
      shell.arguments.push_back(word);
    ending_ = false;
    const auto on_exit = [this](process_number, pid_t, exit_status status) {
      shell_.reset();
      handlers_.gone(status, answered_);
    };
    shell_ = supervisor_.start(shell, {.on_exit = on_exit, .on_line = [this](std::string_view one) { take_line(one); }})
                 .number;
  }
  supervisor_.feed(*shell_, line + "\n");
}

void host_agent::kill(place_index place, int signal) {
  send(kill_command{place, signal});
}

void host_agent::rename(place_index place, const std::string& prefix) {
  send(rename_command{place, prefix});
}

void host_agent::send(const agent_command& command) {
  if (shell_ && !ending_) supervisor_.feed(*shell_, encode(command) + "\n");
}

void host_agent::end() {
  if (shell_) supervisor_.end_input(*shell_);
  ending_ = true;
}

void host_agent::kill_shell() {
  if (shell_) supervisor_.kill(*shell_, SIGKILL);
}

void host_agent::take_line(std::string_view line) {
  if (line.starts_with(output_line_mark)) return supervisor_.say(output_stream::output, line.substr(1));
  if (!line.starts_with('{')) return supervisor_.say(output_stream::errors, "[" + host_ + "] " + std::string{line});
  try {
    const agent_report report = decode_report(line);
    answered_ = true;
    std::visit(overloaded{[&](const started_report& one) { handlers_.started(one.place, one.pid); },
                          [&](const refused_report& one) { handlers_.refused(one.place, one.why); },
                          [&](const exited_report& one) { handlers_.exited(one.place, one.pid, one.status); }},
               report);
  } catch (const exception& failure) {
    supervisor_.say(output_stream::errors, "[" + host_ + "] " + failure.what());
  }
}

namespace {

/// Executes commands only on the supervisor's thread, so that reports have the order of the events.
class agent_hands {
public:
  agent_hands(int output, int errors)
    : supervisor_{{.output_mark = std::string{output_line_mark}, .output = output, .errors = errors}} {}

  void carry_out(agent_command command) {
    supervisor_.post(
        [this, command = std::move(command)] { std::visit([this](const auto& one) { act(one); }, command); });
  }
  void complain(const std::string& what) { supervisor_.say(output_stream::errors, "troupe launch-agent: " + what); }

private:
  void act(const start_command& one) {
    try {
      const auto on_exit = [this, place = one.place](process_number, pid_t pid, exit_status status) {
        running_.erase(place);
        report(exited_report{place, pid, status});
      };
      const started_process started = supervisor_.start(one.what, {.on_exit = on_exit});
      running_.insert_or_assign(one.place, started.number);
      report(started_report{one.place, started.pid});
    } catch (const exception& failure) {
      report(refused_report{one.place, failure.what()});
    }
  }
  void act(const kill_command& one) {
    if (const auto found = running_.find(one.place); found != running_.end())
      supervisor_.kill(found->second, one.signal);
  }
  void act(const rename_command& one) {
    if (const auto found = running_.find(one.place); found != running_.end())
      supervisor_.rename(found->second, one.prefix);
  }
  void report(const agent_report& what) { supervisor_.say(output_stream::output, encode(what)); }

  std::map<place_index, process_number> running_;
  process_supervisor supervisor_; ///< Destroyed first: its handlers use the other members.
};

} // namespace

int run_launch_agent(std::istream& commands, int output, int errors) {
  agent_hands hands{output, errors};
  for (std::string line; std::getline(commands, line);) {
    try {
      hands.carry_out(decode_command(line));
    } catch (const exception& failure) {
      hands.complain(failure.what());
      return 1;
    }
  }
  return 0;
}

} // namespace troupe::launch
