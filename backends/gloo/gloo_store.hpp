/// A small key-value store over TCP, through which the ranks of a formation exchange their addresses: protocol, server
/// and client.
#pragma once

#include <troupe/backends/gloo/gloo_endpoint.hpp>

#include <gloo/rendezvous/store.h>

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

/// Throws the error of a process that is out of descriptors: out_of_memory. \p code: what \p call returned.
[[noreturn]] void throw_no_descriptors(const char* call, int code);

/// Holds the stores of all formations that one backend has opened. One thread, started with the first formation, serves
/// all of them. The server listens while there is a formation.
///
/// A client must present the secret of a formation within \p time_for_hello. It can then reach only the keys of that
/// formation. Sizes are bounded (gloo_wire); a client that exceeds a bound or breaks the protocol is disconnected.
/// A formation ends when all expected ranks have reported that they have formed, or after ten minutes. Threads: safe
/// from any.
class gloo_store_server {
public:
  explicit gloo_store_server(socket_address interface,
                             std::chrono::milliseconds time_for_hello = gloo_wire::time_for_hello) noexcept;
  /// Closes all connections.
  ~gloo_store_server();

  /// Opens a formation. Errors: invalid_argument (the address is not one of this machine), internal.
  [[nodiscard]] gloo_endpoint open();

private:
  struct formation;
  class session;
  struct service;

  const socket_address interface_;
  const std::chrono::milliseconds time_for_hello_;
  std::once_flag started_;
  std::unique_ptr<service> service_; ///< Null before the first formation.
};

/// Connects to the server at its first use. Keys live as long as the formation, and their values never change.
/// Errors of all blocking calls: communicator_failed (the server has ended or refused the secret or a size, or
/// interrupt() was called), deadline_exceeded. Threads: one at a time; interrupt() from any.
class gloo_store final : public gloo::rendezvous::Store {
public:
  /// \p participants: number of ranks that will call formed(). \p prefix is put before all keys.
  /// Errors: internal (no file descriptor is left).
  gloo_store(const gloo_endpoint& endpoint, std::uint32_t participants, std::string prefix);
  ~gloo_store() override;
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
  class connection;

  void ask(gloo_wire::request what, const std::string& key, const std::vector<char>& value, time_point until);

  const std::string prefix_;
  const std::unique_ptr<connection> connection_;
  std::map<std::string, std::vector<char>> known_;
  std::function<void()> on_use_;
};

} // namespace troupe
