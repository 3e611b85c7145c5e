/// The thread that serves all mock communicators of this process whose peers are other processes.
#pragma once

#include <troupe/device/threads/worker.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/transport/shared_memory/peer_process.hpp>
#include <troupe/processes/transport/shared_memory/shared_ring.hpp>

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe {

/// Another process, and the doorbell that wakes its pump.
struct peer_endpoint {
  peer_process process;
  shared_doorbell bell;
};

/// One thread that sleeps on one doorbell for all communicators of the process, so that a communicator needs no thread
/// of its own. Lifetime: exists while a communicator uses it. Threads: safe from any.
class process_pump {
public:
  /// A communicator that the pump serves.
  class client {
  public:
    /// The client's state, which limits how long the pump sleeps.
    enum class state : std::uint8_t {
      idle,
      pending, ///< An operation waits for peers, which may end.
      blocked, ///< A peer must read before the client can write more.
      busy     ///< More can be done immediately.
    };
    client() = default;
    client(const client&) = delete;
    client& operator=(const client&) = delete;
    virtual ~client() = default;

    /// Returns whether advance() would find something to read. Reads with sequential consistency, as parking requires.
    [[nodiscard]] virtual bool has_news() = 0;
    /// Reads and writes as much as is possible without waiting. Called on the pump's thread.
    virtual state advance() = 0;
  };

  /// Returns this process's pump, and creates it if there is none. Errors: out_of_memory, unsupported.
  [[nodiscard]] static std::shared_ptr<process_pump> of_this_process();

  process_pump();
  process_pump(const process_pump&) = delete;
  process_pump& operator=(const process_pump&) = delete;
  ~process_pump();

  /// Returns the descriptor of the doorbell. session() returns its identity.
  [[nodiscard]] int descriptor() const noexcept { return bell_.memory().descriptor().native(); }
  [[nodiscard]] const ring_session& session() const noexcept { return session_; }

  /// Returns the process \p id. Its doorbell is its descriptor \p bell and has the identity \p session. Errors:
  /// rank_lost (the process has ended, or has closed the doorbell), out_of_memory, internal (the descriptor is not that
  /// doorbell), unsupported.
  [[nodiscard]] std::shared_ptr<peer_endpoint> peer(pid_t id, int bell, const ring_session& session);

  void add(client& one);
  /// Returns when the pump does not use \p one any more. Must not be called on the pump's thread.
  void remove(client& one) noexcept;
  /// Makes the pump call advance() soon.
  void kick() noexcept;

private:
  void run();

  const pid_t owner_;
  const ring_session session_;
  shared_doorbell bell_;
  std::atomic<bool> is_kicked_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::mutex clients_guard_; ///< Held while clients advance.
  std::vector<client*> clients_;
  std::mutex peers_guard_;
  std::map<std::pair<pid_t, std::uint64_t>, std::weak_ptr<peer_endpoint>> peers_;
  worker thread_; ///< Last: it uses the other members.
};

} // namespace troupe
