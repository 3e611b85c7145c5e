#include <troupe/runtime/launch/agent_messages.hpp>
#include <troupe/runtime/launch/launch_agent.hpp>
#include <troupe/runtime/launch/process_keeper.hpp>

#include <troupe/device/error.hpp>

#include <map>
#include <string>

namespace troupe::launch {

namespace {

/// Carries out commands on the keeper's thread alone, so that reports have the order of the events.
class agent_hands {
public:
  agent_hands(int output, int errors)
    : keeper_{{.output_mark = std::string{output_line_mark}, .output = output, .errors = errors}} {}

  void carry_out(agent_command command) {
    keeper_.post([this, command = std::move(command)] { std::visit([this](const auto& one) { act(one); }, command); });
  }
  void complain(const std::string& what) { keeper_.say(output_stream::errors, "troupe launch-agent: " + what); }

private:
  void act(const start_command& one) {
    try {
      const auto on_exit = [this, place = one.place](process_number, pid_t pid, exit_status status) {
        running_.erase(place);
        report(exited_report{place, pid, status});
      };
      const started_process started = keeper_.start(one.what, {.on_exit = on_exit});
      running_.insert_or_assign(one.place, started.number);
      report(started_report{one.place, started.pid});
    } catch (const exception& failure) {
      report(refused_report{one.place, failure.what()});
    }
  }
  void act(const kill_command& one) {
    if (const auto found = running_.find(one.place); found != running_.end()) keeper_.kill(found->second, one.signal);
  }
  void act(const rename_command& one) {
    if (const auto found = running_.find(one.place); found != running_.end()) keeper_.rename(found->second, one.prefix);
  }
  void report(const agent_report& what) { keeper_.say(output_stream::output, encode(what)); }

  std::map<place_index, process_number> running_;
  process_keeper keeper_; ///< Destroyed first: its handlers use the other members.
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
