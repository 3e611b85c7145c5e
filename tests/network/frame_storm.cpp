// A controller under frames that are not what they should be: nothing may crash or grow, and a process that knows how
// to join must be let in all the same.
//
// Usage: troupe_frame_storm FRAMES SEED MOST_GROWTH_MIB [HOST:PORT PID]. A third of the frames are messages of CAF
// whose content is mutated, a third are BASP frames of a recorded client with mutated bytes, both behind the guard; a
// third are such bytes of strangers, who do not know the join token. Without HOST:PORT the controller is one of this
// process's own. With it, it is that of the job that process PID controls (`troupe launch`), and TROUPE_JOIN_TOKEN is
// its secret: no process of the storm joins then, so that the job's own world must go on as if nothing had happened.
#include <troupe/actors/caf/actor_error.hpp>
#include <troupe/actors/caf/message_types.hpp>
#include <troupe/actors/control/caf_remote.hpp>
#include <troupe/actors/control/control_codec.hpp>
#include <troupe/actors/transport/control_proxy.hpp>
#include <troupe/actors/transport/proxy_socket.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/controller.hpp>
#include <troupe/runtime/logging.hpp>

#include <caf/actor_system.hpp>
#include <caf/exit_reason.hpp>
#include <caf/scoped_actor.hpp>

#include <arpa/inet.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace troupe;
using namespace std::chrono_literals;

const std::string token(64, 'a');
constexpr std::size_t header_bytes = 32; ///< Of a BASP frame; bytes 4 to 7 are its payload's length.
using random_bits = std::mt19937_64;

std::size_t below(random_bits& draw, std::size_t bound) {
  return static_cast<std::size_t>(draw() % bound);
}

/// Without what the allocator keeps for later: every controller and node that was here had threads of its own.
std::size_t resident_bytes(pid_t of) {
  ::malloc_trim(0);
  std::size_t whole = 0, resident = 0;
  std::ifstream{"/proc/" + std::to_string(of) + "/statm"} >> whole >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// The job of another process, whose world nobody here joins.
struct running_job {
  control_address at;
  std::string secret;
  pid_t pid = 0;
};

/// A controller, of a world of its own where there is no job, and a way through its guard.
struct target {
  explicit target(const std::optional<running_job>& job) : of_job{job.has_value()} {
    if (!job) {
      controller_options options{.terms = {.world_size = 2}};
      options.terms.token = token;
      options.terms.gather = 1h;
      own = std::make_unique<controller>(std::move(options));
    }
    at = job ? job->at : parse_control_address(own->address());
    dialer = std::make_unique<proxy_dialer>(
        proxy_dialer_options{.host = at.host, .port = at.port, .credentials = {.token = job ? job->secret : token}});
  }
  [[nodiscard]] bool has_ended() const { return own && own->wait(0ns); }

  bool of_job;
  std::unique_ptr<controller> own;
  control_address at;
  std::unique_ptr<proxy_dialer> dialer;
};

/// A node of CAF's, as a process is one.
struct node {
  node() {
    compat::load_remote(settings);
    system = std::make_unique<caf::actor_system>(settings);
  }
  caf::actor_system_config settings;
  std::unique_ptr<caf::actor_system> system;
};

join_request request_to_join(const std::string& by) {
  return {.token = by,
          .who = {.name = "storm", .host = "here", .pid = ::getpid()},
          .facts = {{"troupe", "1"}},
          .place = 0,
          .device_count = 1,
          .wall_clock_ns = std::chrono::system_clock::now().time_since_epoch() / 1ns};
}

/// What the controller answers to one who would join; nothing if it does not.
std::optional<controller_frame> answer_to(caf::scoped_actor& self, const caf::actor& controller,
                                          const std::string& by) {
  compat::send_to_remote(&*self, controller, encode(process_frame{0, request_to_join(by)}));
  std::optional<controller_frame> got;
  for (const auto until = std::chrono::steady_clock::now() + 30s; !got && std::chrono::steady_clock::now() < until;)
    self->receive(
        [&](const std::string& bytes) {
          error why;
          got = decode_controller_frame(bytes, why);
          const bool is_answer = got && (std::holds_alternative<join_welcome>(got->what) ||
                                         std::holds_alternative<join_refusal>(got->what));
          if (!is_answer) got.reset();
        },
        caf::after(1s) >> [] {});
  return got;
}

void require(bool holds, const char* text) {
  if (!holds) throw std::runtime_error{text};
}

/// Whoever knows the token is let in, or, where the world is a job's, told that the token is not its own.
void require_answer(caf::scoped_actor& self, const caf::actor& to, bool of_job) {
  const auto answer = answer_to(self, to, token);
  if (of_job)
    require(answer && std::holds_alternative<join_refusal>(answer->what), "the controller does not answer any more");
  else
    require(answer && std::holds_alternative<join_welcome>(answer->what), "who may join is not let in");
}

std::string mutated(std::string bytes, random_bits& draw) {
  const std::size_t changes = 1 + below(draw, 8);
  for (std::size_t i = 0; i < changes && !bytes.empty(); ++i) {
    const std::size_t at = below(draw, bytes.size());
    switch (below(draw, 8)) {
      case 0: bytes.resize(at); break;
      case 1: bytes.insert(at, below(draw, 64), static_cast<char>(draw())); break;
      case 2: bytes[at] = '\xff'; break;
      case 3: bytes[at] = 0; break;
      default: bytes[at] = static_cast<char>(draw()); break;
    }
  }
  return bytes;
}

/// Messages that CAF takes and the controller has to refuse, or bear.
class message_storm {
public:
  message_storm(random_bits& draw, const std::optional<running_job>& job) : draw_{draw}, job_{job} {}

  void play(std::size_t count) {
    renew();
    for (const auto reason : {caf::exit_reason::normal, caf::exit_reason::user_shutdown, caf::exit_reason::kill})
      caf::anon_send_exit(to_, reason); // SEC-2: it is not the sender's to end
    require(answer_to(*self_, to_, token).has_value(), "an exit message has ended the controller");
    for (std::size_t sent = 0; sent < count;) {
      if (target_->has_ended()) renew(); // a mutated farewell may have ended the world
      const auto welcome = answer_to(*self_, to_, token);
      const session_id session = welcome && !job_ ? welcome->session : 0;
      const std::size_t batch = std::min<std::size_t>(count - sent, 2'000);
      for (std::size_t i = 0; i < batch; ++i) compat::send_to_remote(&**self_, to_, next(session));
      sent += batch;
      require(answer_to(*self_, to_, "no token of this world's").has_value(),
              "the controller does not answer any more");
    }
    renew();
    require_answer(*self_, to_, job_.has_value());
  }

private:
  void renew() {
    to_ = {};
    self_.reset();
    node_.reset();
    target_ = std::make_unique<target>(job_);
    node_ = std::make_unique<node>();
    self_.emplace(*node_->system);
    to_ = compat::find_through(*node_->system, target_->dialer->connect());
  }

  std::string next(session_id session) {
    const epoch of{below(draw_, 4)};
    std::vector<process_message> all{request_to_join(token),
                                     heartbeat{},
                                     id_offer{of, {}},
                                     formed_report{of},
                                     failed_report{of, {.code = errc::internal, .text = "storm"}, {rank{0}, rank{1}}},
                                     drained_report{of},
                                     order_batch{of, std::string(below(draw_, 200), static_cast<char>(draw_()))},
                                     leave_notice{}};
    const session_id whose = draw_() % 2 == 0 ? session : draw_();
    std::string bytes = encode(process_frame{whose, all[below(draw_, all.size())]});
    return mutated(std::move(bytes), draw_);
  }

  random_bits& draw_;
  const std::optional<running_job>& job_;
  std::unique_ptr<target> target_;
  std::unique_ptr<node> node_;
  std::optional<caf::scoped_actor> self_;
  caf::actor to_;
};

/// The guards' sockets do not wait; these do.
file_descriptor waiting(file_descriptor socket) {
  ::fcntl(socket.native(), F_SETFL, 0);
  return file_descriptor{socket.release()};
}

file_descriptor connected_to(std::uint16_t port) {
  file_descriptor made{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const proxy_address where = proxy_address::loopback(port);
  if (::connect(made.native(), where.raw(), where.length()) != 0) made.close();
  return made;
}

/// Passes one connection on, and keeps what its client says.
class recorder {
public:
  explicit recorder(file_descriptor to) {
    auto [clients, ours] = connected_sockets();
    client_ = std::move(clients);
    passing_ = std::thread{
        [this, client = waiting(std::move(ours)), server = waiting(std::move(to))] { pass(client, server); }};
  }
  ~recorder() {
    if (passing_.joinable()) passing_.join();
  }
  [[nodiscard]] file_descriptor take_client() { return std::move(client_); }
  /// Once the client has gone.
  [[nodiscard]] std::string said() {
    passing_.join();
    return std::move(said_);
  }

private:
  void pass(const file_descriptor& client, const file_descriptor& server) {
    std::array<char, 4096> bytes{};
    for (;;) {
      std::array<pollfd, 2> both{{{client.native(), POLLIN, 0}, {server.native(), POLLIN, 0}}};
      if (::poll(both.data(), both.size(), 10'000) <= 0) return;
      for (std::size_t i = 0; i < both.size(); ++i) {
        if (both[i].revents == 0) continue;
        const ssize_t got = ::recv(both[i].fd, bytes.data(), bytes.size(), 0);
        if (got <= 0) return;
        if (i == 0) said_.append(bytes.data(), static_cast<std::size_t>(got));
        if (::send(both[1 - i].fd, bytes.data(), static_cast<std::size_t>(got), MSG_NOSIGNAL) < 0) return;
      }
    }
  }

  file_descriptor client_;
  std::string said_;
  std::thread passing_;
};

std::vector<std::string> frames_of(const std::string& stream) {
  std::vector<std::string> frames;
  for (std::size_t at = 0; at + header_bytes <= stream.size();) {
    std::uint32_t length = 0;
    std::memcpy(&length, stream.data() + at + 4, sizeof length);
    const std::size_t whole = header_bytes + ntohl(length);
    frames.push_back(stream.substr(at, whole));
    at += whole;
  }
  return frames;
}

/// What a client of CAF's says: its handshake, who it is, its messages.
std::vector<std::string> recorded_frames(const target& world) {
  recorder between{world.dialer->connect()};
  {
    node one;
    caf::scoped_actor self{*one.system};
    const caf::actor to = compat::find_through(*one.system, between.take_client());
    for (int i = 0; i < 3; ++i) require(answer_to(self, to, "another token").has_value(), "nothing could be recorded");
  }
  return frames_of(between.said());
}

/// Bytes of recorded frames, mutated, on connections of their own: to CAF through its guard, or of strangers to the
/// guard.
void play_bytes(std::size_t count, random_bits& draw, const std::optional<running_job>& job, bool as_stranger) {
  const target world{job};
  const auto recorded = recorded_frames(world);
  require(recorded.size() >= 3, "too little was recorded");
  std::array<char, 4096> heard{};
  for (std::size_t sent = 0; sent < count;) {
    const file_descriptor line = as_stranger ? connected_to(world.at.port) : waiting(world.dialer->connect());
    require(static_cast<bool>(line), "the guard is not reached any more");
    std::string stream = below(draw, 4) == 0 ? mutated(recorded.front(), draw) : recorded.front();
    for (std::size_t left = 1 + below(draw, 40); left > 0 && sent < count; --left, ++sent) {
      const std::string& frame = recorded[below(draw, recorded.size())];
      stream += below(draw, 4) == 0 ? frame : mutated(frame, draw);
    }
    for (std::size_t at = 0; at < stream.size();) {
      const ssize_t taken = ::send(line.native(), stream.data() + at, stream.size() - at, MSG_NOSIGNAL);
      if (taken <= 0) break; // it has been closed: that is an answer
      at += static_cast<std::size_t>(taken);
    }
    ::shutdown(line.native(), SHUT_WR);
    pollfd one{line.native(), POLLIN, 0};
    while (::poll(&one, 1, 20'000) == 1 && ::recv(line.native(), heard.data(), heard.size(), 0) > 0) continue;
  }
  node last;
  caf::scoped_actor self{*last.system};
  require_answer(self, compat::find_through(*last.system, world.dialer->connect()), job.has_value());
}

/// Of the program's words. Errors: invalid_argument, runtime_error.
std::optional<running_job> job_of(int count, char** words) {
  if (count <= 5) return std::nullopt;
  const char* const secret = std::getenv("TROUPE_JOIN_TOKEN");
  require(secret != nullptr, "TROUPE_JOIN_TOKEN is not set");
  return running_job{parse_control_address(words[4]), secret, static_cast<pid_t>(std::strtol(words[5], nullptr, 10))};
}

} // namespace

int main(int count, char** words) {
  const auto number = [&](int at, unsigned long long otherwise) {
    return count > at ? std::strtoull(words[at], nullptr, 10) : otherwise;
  };
  const std::size_t frames = number(1, 20'000), growth = number(3, 64) << 20U;
  random_bits draw{number(2, 1)};
  open_log("off");
  register_message_types();
  compat::register_remote_types();
  try {
    const std::optional<running_job> job = job_of(count, words);
    const pid_t watched = job ? job->pid : ::getpid();
    const auto play = [&](std::size_t all) {
      message_storm{draw, job}.play(all / 3);
      play_bytes(all / 3, draw, job, false);
      play_bytes(all - all / 3 * 2, draw, job, true);
    };
    play(std::min<std::size_t>(frames, 6'000)); // what is kept for ever is kept now
    const std::size_t before = resident_bytes(watched);
    play(frames);
    const std::size_t after = resident_bytes(watched);
    require(::kill(watched, 0) == 0 && after > 0, "the controller's process has ended");
    const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1U << 20U); };
    std::printf("%zu frames: resident memory of the controller's process %.1f MiB, then %.1f\n", frames, mib(before),
                mib(after));
    require(after < before + growth, "memory has grown too much");
  } catch (const std::exception& failure) {
    std::printf("FAILED: %s\n", failure.what());
    return 1;
  }
  return 0;
}
