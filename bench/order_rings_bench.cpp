// Measures the cost of the agreed order for the processes of one host, through rings in shared memory.
//
// "rate": one process is the order service; 1, 2, 4 or 8 processes are clients with one rank each. A client sends
// batches as distributed_order does: at most two that the service has not acknowledged as read, except full batches of
// 64 records; up to `lead` requests ahead. The rate counts the releases that all clients read. If there are enough
// cores, each process spins on its own core; otherwise they share the cores, and park.
//
// "lone": every client requests one operation and waits for its release before it requests the next. The time is that
// of a round trip: client, ring, service, order, ring, client. With several ranks it includes the wait for the last
// one.
//
// "echo": the same round trip without an order: a process sends back each message, through rings and through a Unix
// socket with blocking calls.
//
// Each figure is the median over blocks, with their range. Blocks of all rows alternate, so that a disturbance does not
// affect one row only. p99 is that of the slowest client. The program is not a test: it fails only if a message is
// lost, refused or late. Options: --blocks N, --block-ms MS.
#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>
#include <troupe/processes/order/order_service.hpp>

#include <CLI/CLI.hpp>

#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <new>
#include <string>
#include <thread>
#include <vector>

using namespace troupe;
using namespace std::chrono_literals;

namespace {

constexpr epoch of{1};
constexpr std::size_t most_clients = 8;
constexpr auto time_limit = 20s; ///< The limit of every wait.

struct bench_settings {
  int blocks = 5;
  int block_ms = 250;
};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "order_rings_bench: %s\n", why.c_str());
  std::_Exit(1);
}

void check(const error& failure) {
  if (failure) give_up(to_string(failure));
}

/// Returns the CPUs that this process may use: first one of each core, then the others of each core.
std::vector<int> cpus_by_core() {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) give_up("the usable CPUs are unknown");
  std::vector<int> first;
  std::vector<int> others;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &usable)) continue;
    std::ifstream file{"/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list"};
    int lowest = cpu;
    file >> lowest;
    (!file || lowest == cpu ? first : others).push_back(cpu);
  }
  first.insert(first.end(), others.begin(), others.end());
  return first;
}

std::string processor_name() {
  std::ifstream file{"/proc/cpuinfo"};
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

enum class subject : std::uint8_t { rate, lone, ring_echo, socket_echo };

/// One row of the table.
struct row {
  subject what;
  int clients;
  bool spins;
  std::vector<double> rates{}; ///< Releases per second, by block.
  std::vector<double> p50_us{};
  std::vector<double> p99_us{};
};

/// The memory that the processes of a block share, besides the rings.
struct block_state {
  std::atomic<int> ready{0};
  std::atomic<bool> start{false};
  std::atomic<bool> stop{false};         ///< Ends the clients.
  std::atomic<bool> stop_service{false}; ///< Ends the service, after the clients.
  struct alignas(64) client_result {
    std::uint64_t released = 0;
    double p50_us = 0;
    double p99_us = 0;
  };
  std::array<client_result, most_clients> clients{};
};

/// The CPUs and wait profiles of a row's processes.
class placement {
public:
  placement(const row& one, const std::vector<int>& cpus)
    : cpus_{cpus},
      is_pinned_{static_cast<std::size_t>(one.clients) + 1 <= cpus.size()},
      spins_{one.spins && is_pinned_} {}

  /// Binds the calling process to its CPU. \p process is 0 for the service.
  void bind(std::size_t process) const {
    if (!is_pinned_) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus_[process], &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) give_up("a process cannot be pinned");
  }
  [[nodiscard]] bool is_pinned() const noexcept { return is_pinned_; }
  [[nodiscard]] wait_profile profile() const noexcept { return {.spin = spins_ ? nanoseconds{1h} : nanoseconds{0}}; }
  [[nodiscard]] const char* name() const noexcept { return spins_ ? "spin" : "park"; }

private:
  const std::vector<int>& cpus_;
  bool is_pinned_;
  bool spins_;
};

struct socket_pair {
  file_descriptor service;
  file_descriptor client;
};

socket_pair make_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) give_up("no sockets can be made");
  return {file_descriptor{ends[0]}, file_descriptor{ends[1]}};
}

void await_start(block_state& shared) {
  ++shared.ready;
  while (!shared.start) ::usleep(100);
}

/// The times from request to release, in microseconds. The first tenth is dropped.
class sampled_times {
public:
  sampled_times() { all_.reserve(1U << 20U); }
  void add(nanoseconds one) {
    if (all_.size() < all_.capacity()) all_.push_back(std::chrono::duration<double, std::micro>(one).count());
  }
  void report(block_state::client_result& into) {
    all_.erase(all_.begin(), all_.begin() + static_cast<std::ptrdiff_t>(all_.size() / 10));
    if (all_.empty()) give_up("a client has not received any answer");
    std::ranges::sort(all_);
    into.p50_us = all_[all_.size() / 2];
    into.p99_us = all_[all_.size() * 99 / 100];
  }

private:
  std::vector<double> all_;
};

/// The client in a rank's process.
class bench_client {
public:
  bench_client(const file_descriptor& socket, const ring_session& session, int self, int world_size, pid_t service,
               const wait_profile& profile)
    : link_{ring_connection::accept(socket, session, rank{self}, peer_process{service},
                                    std::chrono::steady_clock::now() + time_limit)},
      profile_{profile},
      in_{world_size} {}

  void stream(block_state& shared, std::size_t self) {
    const all_reduce what{.send = {}, .recv = {}, .count = 1024};
    const sequencer_limits limits;
    await_start(shared);
    while (!shared.stop.load(std::memory_order_relaxed)) {
      const std::uint64_t before = asked_ + sent_ + released_;
      while (asked_ - released_ < limits.lead && out_.records() < 64) ask(what);
      if (!out_.empty() && (sent_ - seen_ < 2 || out_.records() >= 64)) send();
      read();
      if (asked_ + sent_ + released_ == before) link_.wait(profile_, steady_now() + 10ms);
      check(link_.failure());
    }
    shared.clients[self].released = released_;
  }

  void ask_alone(block_state& shared, std::size_t self) {
    const all_reduce what{.send = {}, .recv = {}, .count = 1024};
    sampled_times times;
    await_start(shared);
    while (!shared.stop.load(std::memory_order_relaxed)) {
      const time_point began = steady_now();
      ask(what);
      send();
      // Clients stop at different operations, so the last request of each may stay unanswered.
      while (released_ < asked_ && !shared.stop.load(std::memory_order_relaxed)) {
        link_.wait(profile_, steady_now() + 10ms);
        check(link_.failure());
        read();
      }
      if (released_ == asked_) times.add(steady_now() - began);
    }
    shared.clients[self].released = released_;
    times.report(shared.clients[self]);
  }

private:
  void ask(const all_reduce& what) {
    check(out_.ask(what, lane{}, 1, {}, 60s));
    ++asked_;
  }
  void send() { check(link_.send(out_.take({.epoch = of, .number = ++sent_}), steady_now())); }
  void read() {
    check(link_.flush(steady_now()));
    while (link_.receive(message_)) {
      wire_reader in{message_};
      seen_ = batch_header::read(in).seen;
      for (decision_record one; in_.next(in, one);) {
        if (one.kind != decision_record::form::release || one.number != released_ + 1)
          give_up("a request was refused or is out of order");
        ++released_;
      }
      check(in.failure("what was decided"));
    }
  }

  ring_connection link_;
  wait_profile profile_;
  request_writer out_{};
  decision_reader in_;
  std::string message_{};
  std::uint64_t asked_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t seen_ = 0;
  std::uint64_t released_ = 0;
};

void serve(const std::vector<socket_pair>& sockets, const ring_session& session, block_state& shared,
           const wait_profile& profile) {
  order_service service{{.wait = profile}};
  std::vector<order_route> ranks;
  for (std::size_t i = 0; i < sockets.size(); ++i)
    ranks.push_back(
        {.rings = ring_connection::offer(sockets[i].service, session, rank{static_cast<int>(i)}, {}, service.bell())});
  service.open(of, std::move(ranks));
  std::thread serving{[&service] { service.run(); }};
  ++shared.ready;
  while (!shared.stop_service.load(std::memory_order_relaxed)) std::this_thread::sleep_for(10ms);
  service.stop();
  serving.join();
  if (const auto losses = service.take_losses(); !losses.empty()) give_up(to_string(losses.front().why));
}

constexpr std::size_t echo_bytes = 12; ///< About a batch of one request.

void serve_echo(const socket_pair& sockets, const ring_session& session, block_state& shared,
                const wait_profile& profile, bool over_rings) {
  if (!over_rings) {
    ++shared.ready;
    std::array<char, echo_bytes> bytes{};
    while (::recv(sockets.service.native(), bytes.data(), bytes.size(), 0) > 0)
      if (::send(sockets.service.native(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return;
    return;
  }
  auto bell = std::make_shared<shared_doorbell>(shared_doorbell::create({.purpose = ring_purpose::service_bell}));
  auto link = ring_connection::offer(sockets.service, session, rank{0}, {}, bell);
  ++shared.ready;
  std::string message;
  while (!shared.stop_service.load(std::memory_order_relaxed)) {
    link.wait(profile, steady_now() + 10ms);
    while (link.receive(message)) check(link.send(message, steady_now()));
    check(link.failure());
  }
}

void ask_echo(const socket_pair& sockets, const ring_session& session, pid_t service, block_state& shared,
              const wait_profile& profile, bool over_rings) {
  sampled_times times;
  const std::string sent(echo_bytes, 'x');
  std::string got(echo_bytes, ' ');
  if (!over_rings) {
    await_start(shared);
    while (!shared.stop.load(std::memory_order_relaxed)) {
      const time_point began = steady_now();
      if (::send(sockets.client.native(), sent.data(), sent.size(), MSG_NOSIGNAL) < 0 ||
          ::recv(sockets.client.native(), got.data(), got.size(), 0) <= 0)
        give_up("a socket has failed");
      times.add(steady_now() - began);
    }
    return times.report(shared.clients[0]);
  }
  auto link = ring_connection::accept(sockets.client, session, rank{0}, peer_process{service},
                                      std::chrono::steady_clock::now() + time_limit);
  await_start(shared);
  while (!shared.stop.load(std::memory_order_relaxed)) {
    const time_point began = steady_now();
    check(link.send(sent, began));
    if (!link.wait(profile, began + time_limit) || !link.receive(got) || got != sent) give_up("an echo is lost");
    times.add(steady_now() - began);
  }
  times.report(shared.clients[0]);
}

template <class Body>
pid_t start_process(const placement& where, std::size_t process, Body body) {
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t made = ::fork();
  if (made < 0) give_up("no process can be started");
  if (made > 0) return made;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);
  try {
    where.bind(process);
    body();
  } catch (const std::exception& failure) {
    give_up(failure.what());
  }
  std::_Exit(0);
}

void await_end(pid_t one) {
  const file_descriptor handle{static_cast<int>(::syscall(SYS_pidfd_open, one, 0))};
  pollfd waiting{.fd = handle.native(), .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, static_cast<int>(std::chrono::milliseconds{time_limit}.count())) != 1)
    give_up("a process does not end"); // PR_SET_PDEATHSIG ends them all
  int status = 0;
  if (::waitpid(one, &status, 0) != one || status != 0) give_up("a process has failed");
}

void run_block(row& of_row, const bench_settings& settings, const std::vector<int>& cpus) {
  void* const memory = ::mmap(nullptr, sizeof(block_state), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) give_up("no memory can be shared");
  auto& shared = *new (memory) block_state;
  const placement where{of_row, cpus};
  const wait_profile profile = where.profile();
  const ring_session session = ring_session::make();
  std::vector<socket_pair> sockets;
  sockets.reserve(static_cast<std::size_t>(of_row.clients));
  for (int i = 0; i < of_row.clients; ++i) sockets.push_back(make_sockets());
  const bool is_echo = of_row.what == subject::ring_echo || of_row.what == subject::socket_echo;
  const bool over_rings = of_row.what != subject::socket_echo;
  const pid_t service = start_process(where, 0, [&] {
    for (socket_pair& one : sockets) one.client.close();
    if (is_echo) return serve_echo(sockets[0], session, shared, profile, over_rings);
    serve(sockets, session, shared, profile);
  });
  std::vector<pid_t> processes;
  for (std::size_t i = 0; i < sockets.size(); ++i)
    processes.push_back(start_process(where, i + 1, [&] {
      for (socket_pair& one : sockets) one.service.close();
      if (is_echo) return ask_echo(sockets[0], session, service, shared, profile, over_rings);
      bench_client client{sockets[i].client, session, static_cast<int>(i), of_row.clients, service, profile};
      if (of_row.what == subject::rate)
        client.stream(shared, i);
      else
        client.ask_alone(shared, i);
    }));
  sockets.clear(); // so that the end of one process is the end of its socket
  const auto until = std::chrono::steady_clock::now() + time_limit;
  while (shared.ready < of_row.clients + 1) {
    if (std::chrono::steady_clock::now() > until) give_up("a process does not start");
    if (::waitpid(-1, nullptr, WNOHANG) > 0) give_up("a process has ended early");
    ::usleep(200);
  }
  const auto began = std::chrono::steady_clock::now();
  shared.start = true;
  std::this_thread::sleep_for(std::chrono::milliseconds{settings.block_ms});
  shared.stop = true;
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  for (const pid_t one : processes) await_end(one);
  shared.stop_service = true;
  await_end(service);
  std::vector<double> p50s;
  double p99 = 0;
  std::uint64_t released = 0;
  for (std::size_t i = 0; i < processes.size(); ++i) {
    released += shared.clients[i].released;
    p50s.push_back(shared.clients[i].p50_us);
    p99 = std::max(p99, shared.clients[i].p99_us);
  }
  std::ranges::sort(p50s);
  of_row.rates.push_back(static_cast<double>(released) / seconds);
  of_row.p50_us.push_back(p50s[p50s.size() / 2]);
  of_row.p99_us.push_back(p99);
  ::munmap(memory, sizeof(block_state));
}

std::string spread(std::vector<double> all, double unit) {
  std::ranges::sort(all);
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%9.2f (%.2f to %.2f)", all[all.size() / 2] / unit, all.front() / unit,
                all.back() / unit);
  return text.data();
}

void print_heading(const bench_settings& settings, const std::vector<int>& cpus) {
  utsname system{};
  ::uname(&system);
  std::printf("troupe %s, C++ %s, %s; Linux %s\n", TROUPE_VERSION_TEXT, __VERSION__, TROUPE_BUILD_TYPE, system.release);
  std::printf("processor: %s; %zu usable CPUs, in the order of use:", processor_name().c_str(), cpus.size());
  for (const int one : cpus) std::printf(" %d", one);
  const ring_settings rings;
  const sequencer_limits limits;
  std::printf("\nsettings: %d blocks of %d ms a row, rings of %zu KiB, lead %zu, batches of at most 64\n\n",
              settings.blocks, settings.block_ms, rings.capacity_bytes >> 10U, limits.lead);
}

void print_rows(const std::vector<row>& rows, const std::vector<int>& cpus) {
  const auto heading = [](const char* what, const char* figures) {
    std::printf("%-22s %8s %6s %7s  %s\n", what, "clients", "wait", "cores", figures);
  };
  const auto begin = [&](const char* what, const row& one) {
    const placement where{one, cpus};
    std::printf("%-22s %8d %6s %7s  ", what, one.clients, where.name(), where.is_pinned() ? "own" : "shared");
  };
  heading("rate", "million rank-requests a second");
  for (const row& one : rows)
    if (one.what == subject::rate) begin("rings to rings", one), std::printf("%s\n", spread(one.rates, 1e6).c_str());
  std::printf("\n");
  heading("round trip", "p50 us, p99 us");
  for (const row& one : rows) {
    if (one.what == subject::rate) continue;
    begin(one.what == subject::lone        ? "lone request"
          : one.what == subject::ring_echo ? "echo over rings"
                                           : "echo over a socket",
          one);
    std::printf("%s %s\n", spread(one.p50_us, 1).c_str(), spread(one.p99_us, 1).c_str());
  }
}

} // namespace

int main(int argc, char** argv) {
  bench_settings settings;
  CLI::App program{"measures the agreed order over rings in shared memory"};
  program.add_option("--blocks", settings.blocks, "blocks of each row")->check(CLI::Range(1, 1'000));
  program.add_option("--block-ms", settings.block_ms, "milliseconds of a block")->check(CLI::Range(20, 60'000));
  CLI11_PARSE(program, argc, argv);
  const std::vector<int> cpus = cpus_by_core();
  print_heading(settings, cpus);
  std::vector<row> rows;
  for (const int clients : {1, 2, 4, 8}) rows.push_back({subject::rate, clients, true});
  for (const bool spins : {true, false})
    for (const int clients : {1, 2, 4, 8}) rows.push_back({subject::lone, clients, spins});
  rows.push_back({subject::ring_echo, 1, true});
  rows.push_back({subject::ring_echo, 1, false});
  rows.push_back({subject::socket_echo, 1, false});
  for (int i = 0; i < settings.blocks; ++i)
    for (row& one : rows) run_block(one, settings, cpus);
  print_rows(rows, cpus);
  return 0;
}
