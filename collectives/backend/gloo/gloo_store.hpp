/// A small key-value store over TCP, through which the ranks of a formation exchange their addresses: protocol, server
/// and client.
#pragma once

#include <troupe/collectives/backend/gloo/gloo_endpoint.hpp>
#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/threads/worker.hpp>

#include <gloo/rendezvous/store.h>

#include <sys/eventfd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// A notifier: a file descriptor (eventfd) that becomes readable on notify(). Threads: safe from any.
class gloo_notifier {
public:
  /// Errors: internal (no file descriptor is left).
  gloo_notifier();

  /// Fails only if the counter is full; the descriptor is readable then.
  void notify() noexcept { static_cast<void>(::eventfd_write(file_.native(), 1)); }
  /// Makes the descriptor unreadable again.
  void reset() noexcept {
    ::eventfd_t times = 0;
    static_cast<void>(::eventfd_read(file_.native(), &times));
  }
  [[nodiscard]] int native() const noexcept { return file_.native(); }

private:
  file_descriptor file_;
};

/// The protocol between the store's clients and its server. Both ends must have the same byte order, which Gloo's own
/// sockets need too.
namespace gloo_wire {

using namespace std::chrono_literals;

/// The first message of a client. The server answers with one byte.
struct hello {
  std::uint64_t magic;
  gloo_secret secret;
  /// Total number of ranks that will send request::formed. It must be the same in all messages of one formation.
  std::uint32_t participants;
  std::uint32_t reserved;
};
constexpr std::uint64_t hello_magic = 0x31'65'70'75'6F'72'74'67; // "gtroupe1"
constexpr std::byte agreed{1};

enum class request : std::uint32_t {
  set = 1,    ///< Answered by one byte.
  get = 2,    ///< Answered by the size of the value and the value, once it is set.
  formed = 3, ///< Answered by one byte.
};

/// Precedes each request; the key and the value follow it.
struct request_header {
  request what;
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
};

constexpr std::size_t most_key_bytes = 256;
constexpr std::size_t most_value_bytes = std::size_t{1} << 20U;
constexpr std::size_t most_formation_bytes = std::size_t{64} << 20U; ///< Limit for all keys and values of a formation.
constexpr std::size_t most_connections = 4096;
constexpr std::uint32_t most_participants = 1U << 20U;
constexpr auto time_for_hello = 5s;
constexpr auto time_for_forming = 10min; ///< Starts when the unique id is made.

} // namespace gloo_wire

/// Holds the stores of all formations that one backend has opened. One thread serves them; it runs while there are any.
///
/// A client must present the secret of a formation within five seconds. It can then reach only the keys of that
/// formation. Sizes are bounded (gloo_wire); a client that exceeds a bound or breaks the protocol is disconnected.
/// A formation ends when all expected ranks have reported that they have formed, or after ten minutes. Threads: safe
/// from any.
class gloo_store_server {
public:
  explicit gloo_store_server(socket_address interface) noexcept;
  gloo_store_server(const gloo_store_server&) = delete;
  gloo_store_server& operator=(const gloo_store_server&) = delete;
  /// Closes all connections.
  ~gloo_store_server();

  /// Opens a formation. Errors: invalid_argument (the address is not one of this machine), internal.
  [[nodiscard]] gloo_endpoint open();

private:
  using clock = std::chrono::steady_clock;
  struct formation;
  struct connection;
  using visitor_list = std::vector<std::unique_ptr<connection>>;

  void listen();
  void serve();
  void forget_old(clock::time_point now);
  void let_in(visitor_list& all, clock::time_point now);
  [[nodiscard]] bool converse(connection& one, short seen);
  [[nodiscard]] bool understand(connection& one);
  [[nodiscard]] bool greet(connection& one);
  [[nodiscard]] bool handle(connection& one, const gloo_wire::request_header& header, const std::byte* content);
  void answer_waiting(visitor_list& all);
  [[nodiscard]] clock::time_point next_deadline(const visitor_list& all);

  const socket_address interface_;
  gloo_notifier notifier_;
  std::mutex mutex_; ///< Protects the members below. Never held while a socket is used.
  std::vector<std::shared_ptr<formation>> formations_;
  socket_address where_{}; ///< Includes the port.
  bool serving_ = false;
  bool stopping_ = false;
  file_descriptor listener_; ///< Used only by the thread while it serves.
  clock::time_point deaf_until_{};
  worker thread_;
};

/// Connects to the server at its first use. Keys live as long as the formation, and their values never change.
/// Errors of all blocking calls: communicator_failed (the server has ended or refused the secret or a size, or
/// interrupt() was called), deadline_exceeded. Threads: one at a time; interrupt() from any.
class gloo_store final : public gloo::rendezvous::Store {
public:
  /// \p comers: number of ranks that will call formed(). \p prefix is put before all keys.
  gloo_store(const gloo_endpoint& endpoint, std::uint32_t participants, std::string prefix);
  /// \p call is called before each use of the store. Call before the first use.
  void on_use(std::function<void()> call) { on_use_ = std::move(call); }
  /// Connects now instead of at the first use.
  void connect();

  void set(const std::string& key, const std::vector<char>& data) override;
  /// Blocks until some rank has set the key.
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  /// Reports that this rank does not need the store any more. The last rank's report ends the formation.
  void formed();

  /// Makes every blocking call throw, now and later.
  void interrupt() noexcept;

private:
  using time_point = std::chrono::steady_clock::time_point;

  void connect(time_point until);
  void ask(gloo_wire::request what, const std::string& key, const std::vector<char>& value, time_point until);
  void expect_agreement(time_point until);
  void send_all(const void* from, std::size_t size_bytes, time_point until);
  void receive_all(void* to, std::size_t size_bytes, time_point until);
  void await(short what, time_point until);
  [[nodiscard]] std::vector<char> fetch(const std::string& key, time_point until);

  const gloo_endpoint endpoint_;
  const std::uint32_t participants_;
  const std::string prefix_;
  gloo_notifier notifier_;
  std::atomic<bool> interrupted_{false};
  file_descriptor socket_;
  std::map<std::string, std::vector<char>> known_;
  std::function<void()> on_use_;
};

} // namespace troupe
