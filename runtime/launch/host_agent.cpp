#include <troupe/runtime/launch/host_agent.hpp>

#include <troupe/device/error.hpp>
#include <troupe/device/overloaded.hpp>

#include <algorithm>
#include <sstream>
#include <utility>

namespace troupe::launch {

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

host_agent::host_agent(process_keeper& keeper, remote_shell shell, std::string host, host_agent_handlers handlers)
  : keeper_{keeper}, command_{std::move(shell)}, host_{std::move(host)}, handlers_{std::move(handlers)} {}

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
    shell_ =
        keeper_.start(shell, {.on_exit = on_exit, .on_line = [this](std::string_view one) { take_line(one); }}).number;
  }
  keeper_.feed(*shell_, line + "\n");
}

void host_agent::kill(place_index place, int signal) {
  send(kill_command{place, signal});
}

void host_agent::rename(place_index place, const std::string& prefix) {
  send(rename_command{place, prefix});
}

void host_agent::send(const agent_command& command) {
  if (shell_ && !ending_) keeper_.feed(*shell_, encode(command) + "\n");
}

void host_agent::end() {
  if (shell_) keeper_.end_input(*shell_);
  ending_ = true;
}

void host_agent::kill_shell() {
  if (shell_) keeper_.kill(*shell_, SIGKILL);
}

void host_agent::take_line(std::string_view line) {
  if (line.starts_with(output_line_mark)) return keeper_.say(output_stream::output, line.substr(1));
  if (!line.starts_with('{')) return keeper_.say(output_stream::errors, "[" + host_ + "] " + std::string{line});
  try {
    const agent_report report = decode_report(line);
    answered_ = true;
    std::visit(overloaded{[&](const started_report& one) { handlers_.started(one.place, one.pid); },
                          [&](const refused_report& one) { handlers_.refused(one.place, one.why); },
                          [&](const exited_report& one) { handlers_.exited(one.place, one.pid, one.status); }},
               report);
  } catch (const exception& failure) {
    keeper_.say(output_stream::errors, "[" + host_ + "] " + failure.what());
  }
}

} // namespace troupe::launch
