// A controller under frames that are not what they should be: nothing may crash or grow, and a process that knows how
// to join must be let in all the same.
//
// Usage: troupe_frame_storm FRAMES SEED MOST_GROWTH_MIB [HOST:PORT PID]. A third of the frames are messages whose
// content is mutated, a third are frames with mutated bytes, both from a process that knows the join token; a third are
// such bytes of strangers, who do not. Without HOST:PORT the controller is one of this process's own. With it, it is
// that of the job that process PID controls (`troupe launch`), and TROUPE_JOIN_TOKEN is its secret: no process of the
// storm joins then, so that the job's own world must go on as if nothing had happened.
#include <troupe/device/file_descriptor.hpp>
#include <troupe/processes/control/control_codec.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/processes/transport/frame_cipher.hpp>
#include <troupe/processes/transport/join_handshake.hpp>
#include <troupe/processes/transport/transport.hpp>
#include <troupe/runtime/configuration/user_input.hpp>
#include <troupe/runtime/logging.hpp>

#include <arpa/inet.h>
#include <malloc.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace troupe;
using namespace std::chrono_literals;

const std::string token(64, 'a');
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

void require(bool holds, const char* text) {
  if (!holds) throw std::runtime_error{text};
}

/// A blocking socket, which gives up after twenty seconds.
file_descriptor connected_to(std::uint16_t port) {
  file_descriptor made{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const timeval patience{.tv_sec = 20, .tv_usec = 0};
  setsockopt(made.native(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  setsockopt(made.native(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int failed = ::connect(made.native(), reinterpret_cast<const sockaddr*>(&where), sizeof where);
  require(failed == 0, "the controller's port is not reached any more");
  return made;
}

/// Returns the next frame of the preamble; nothing if the connection ends before.
std::optional<frame> next_frame(const file_descriptor& from) {
  frame_parser parser;
  std::optional<frame> found;
  for (char one = 0; !found && !parser.has_fault();) {
    if (::recv(from.native(), &one, 1, 0) != 1) return std::nullopt;
    static_cast<void>(parser.receive({&one, 1}, found));
  }
  return found;
}

/// Sends what the other side takes: that it closes the connection is an answer.
void send_all(const file_descriptor& to, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t taken = ::send(to.native(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (taken <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(taken));
  }
}

/// A controller, of a world of its own where there is no job.
struct target {
  explicit target(const std::optional<running_job>& job) : of_job{job.has_value()} {
    if (!job) {
      controller_options options{.terms = {.world_size = 2}};
      options.terms.token = token;
      options.terms.gather = 1h;
      own = std::make_unique<controller>(std::move(options));
    }
    at = job ? job->at : parse_control_address(own->address());
    secret = job ? job->secret : token;
    const auto greeting = next_frame(connected_to(at.port));
    require(greeting && decode_greeting(*greeting), "the controller does not greet");
    version = decode_greeting(*greeting)->version;
  }
  [[nodiscard]] bool has_ended() const { return own && own->wait(0ns); }

  /// The claim of a process that knows the token.
  [[nodiscard]] std::string claim_after(const join_greeting& greeting, std::optional<frame_cipher>& sealing) const {
    const handshake_transcript transcript{.of_listener = greeting.nonce,
                                          .of_dialer = fresh_nonce(),
                                          .channel = {},
                                          .version_of_listener = greeting.version,
                                          .version_of_dialer = version};
    const join_secret known{secret};
    sealing.emplace(known.message_key(connection_side::dialer, transcript));
    return encode(join_claim{transcript.of_dialer, version, known.proof(connection_side::dialer, transcript)});
  }

  bool of_job;
  std::unique_ptr<controller> own;
  control_address at;
  std::string secret;
  join_version version{};
};

/// A connection that the controller's transport has admitted.
class member {
public:
  explicit member(const target& of)
    : dialer_{{.host = of.at.host,
               .port = of.at.port,
               .version = {of.version.begin(), std::find(of.version.begin(), of.version.end(), '\0')},
               .credentials = {.token = of.secret}}} {
    bool is_admitted = false;
    dialer_.connect({.on_admitted = [&] { set([&] { is_admitted = true; }); },
                     .on_message = [this](std::string bytes) { set([&] { heard_.push_back(std::move(bytes)); }); },
                     .on_lost = [this](const transport_fault&) { set([this] { is_lost_ = true; }); }});
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, 30s, [&] { return is_admitted || is_lost_; });
    if (!is_admitted) {
      lock.unlock();
      dialer_.stop();
      throw std::runtime_error{"a process that knows the token is not admitted"};
    }
  }
  member(const member&) = delete;
  member& operator=(const member&) = delete;
  ~member() { dialer_.stop(); }

  void send(std::string bytes) {
    if (!bytes.empty()) dialer_.send(std::move(bytes));
  }

  /// What the controller answers to one who would join; nothing if it does not.
  std::optional<controller_frame> answer_to(const join_request& asked) {
    send(encode(process_frame{0, asked}));
    const auto until = std::chrono::steady_clock::now() + 30s;
    std::unique_lock lock{mutex_};
    while (changed_.wait_until(lock, until, [this] { return !heard_.empty() || is_lost_; }) && !heard_.empty()) {
      error why;
      auto got = decode_controller_frame(heard_.front(), why);
      heard_.pop_front();
      if (got && (std::holds_alternative<join_welcome>(got->what) || std::holds_alternative<join_refusal>(got->what)))
        return got;
    }
    return std::nullopt;
  }

private:
  template <class Change>
  void set(Change change) {
    const std::lock_guard lock{mutex_};
    change();
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> heard_;
  bool is_lost_ = false;
  transport_dialer dialer_;
};

join_request request_to_join(const std::string& by) {
  return {.token = by,
          .who = {.name = "storm", .host = "here", .pid = ::getpid()},
          .facts = {{"troupe", "1"}},
          .place = 0,
          .device_count = 1,
          .wall_clock_ns = std::chrono::system_clock::now().time_since_epoch() / 1ns};
}

/// Whoever knows the token is let in, or, where the world is a job's, told that the token is not its own.
void require_answer(const target& of) {
  const auto answer = member{of}.answer_to(request_to_join(token));
  if (of.of_job)
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

/// A message of a process, good but for its session.
std::string message_of(random_bits& draw, session_id session) {
  const epoch of{below(draw, 4)};
  std::vector<process_message> all{
      request_to_join(token), heartbeat{},
      id_offer{of, {}},       commits_report{.of = of},
      formed_report{of},      failed_report{of, {.code = errc::internal, .text = "storm"}, {rank{0}, rank{1}}},
      drained_report{of},     order_batch{of, std::string(below(draw, 200), static_cast<char>(draw()))},
      leave_notice{}};
  return encode(process_frame{draw() % 2 == 0 ? session : draw(), all[below(draw, all.size())]});
}

/// Messages that the transport delivers and the controller has to refuse, or bear.
void play_messages(std::size_t count, random_bits& draw, const std::optional<running_job>& job) {
  auto world = std::make_unique<target>(job);
  auto from = std::make_unique<member>(*world);
  const auto renew = [&] {
    from.reset();
    world.reset();
    world = std::make_unique<target>(job);
    from = std::make_unique<member>(*world);
  };
  for (std::size_t sent = 0; sent < count;) {
    if (world->has_ended()) renew(); // a mutated farewell may have ended the world
    const auto welcome = from->answer_to(request_to_join(token));
    const session_id session = welcome && !job ? welcome->session : 0;
    const std::size_t batch = std::min<std::size_t>(count - sent, 2'000);
    for (std::size_t i = 0; i < batch; ++i) from->send(mutated(message_of(draw, session), draw));
    sent += batch;
    require(from->answer_to(request_to_join("no token of this world's")).has_value(),
            "the controller does not answer any more");
  }
  renew();
  require_answer(*world);
}

/// Mutated bytes of frames on connections of their own: of a process that has been admitted, or of strangers.
void play_bytes(std::size_t count, random_bits& draw, const std::optional<running_job>& job, bool as_stranger) {
  auto world = std::make_unique<target>(job);
  std::array<char, 4096> heard{};
  for (std::size_t sent = 0; sent < count;) {
    if (world->has_ended()) world = std::make_unique<target>(job);
    const file_descriptor line = connected_to(world->at.port);
    std::string stream;
    std::optional<frame_cipher> sealing;
    if (as_stranger) {
      const std::string claim = encode(join_claim{fresh_nonce(), world->version, fresh_nonce()});
      stream = below(draw, 4) == 0 ? claim : mutated(claim, draw);
    } else {
      const auto greeting = next_frame(line);
      require(greeting && decode_greeting(*greeting), "the controller does not greet any more");
      send_all(line, world->claim_after(*decode_greeting(*greeting), sealing));
      const auto answer = next_frame(line);
      require(answer && decode_answer(*answer) && decode_answer(*answer)->verdict == join_verdict::admitted,
              "a process that knows the token is not admitted any more");
    }
    for (std::size_t left = 1 + below(draw, 40); left > 0 && sent < count; --left, ++sent) {
      const std::string message = message_of(draw, 0);
      const std::string whole = encode_frame(frame_kind::message, sealing ? sealing->seal(message) : message);
      stream += below(draw, 4) == 0 ? whole : mutated(whole, draw);
    }
    send_all(line, stream);
    ::shutdown(line.native(), SHUT_WR);
    while (::recv(line.native(), heard.data(), heard.size(), 0) > 0) continue;
  }
  require_answer(*std::make_unique<target>(job));
}

/// Of the program's words. Errors: invalid_argument, runtime_error.
std::optional<running_job> job_of(int count, char** words) {
  if (count <= 5) return std::nullopt;
  const char* const secret = std::getenv("TROUPE_JOIN_TOKEN"); // NOLINT(concurrency-mt-unsafe): nobody sets it
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
  try {
    const std::optional<running_job> job = job_of(count, words);
    const pid_t watched = job ? job->pid : ::getpid();
    const auto play = [&](std::size_t all) {
      play_messages(all / 3, draw, job);
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
