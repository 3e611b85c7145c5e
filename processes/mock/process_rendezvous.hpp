/// Connects mock ranks in separate processes on one host.
#pragma once

#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>
#include <troupe/processes/mock/formation_memory.hpp>
#include <troupe/processes/mock/process_pump.hpp>

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// One rank's end of a formation over processes. The ranks share only rings. When a launch reaches the head of its
/// stream, its rank sends each other rank the signatures and the elements on which that rank's result depends. A rank
/// that has received the k-th launch of all other ranks compares them and computes its own result. A launch ends when
/// its result is computed and its messages are written. Senders therefore copy nothing, and a slow reader delays its
/// writers. A result is computed only if all ranks compute (mock_results).
///
/// check() also reports a peer that has ended, aborted or left, as soon as an operation needs it. A stopped process
/// (SIGSTOP) is not reported: operations that need it hang.
/// Threads: safe from any. The pump and the engine read and write the rings. Only join() waits.
class process_rendezvous final : public mock_rendezvous, private process_pump::client {
public:
  /// \p launches: false if the ranks only join; the same at all ranks.
  process_rendezvous(const unique_id& id, rank self, int world_size, bool launches = true);
  ~process_rendezvous() override;

  /// Errors also: those of formation_memory; communicator_failed (a peer has ended or given up while the ranks joined);
  /// out_of_memory (also: no descriptor is left).
  void join(rank self, std::shared_ptr<mock_waker> engine) override;
  [[nodiscard]] progress meet(mock_launch& mine) override;
  void leave(mock_launch& mine) noexcept override;
  void check(rank self) const override;
  void abort(rank self) noexcept override;

private:
  /// A message that is not completely written yet. It refers to the memory of its launch.
  struct outgoing {
    std::string head;
    std::vector<std::string_view> payload{};
    mock_launch* launch = nullptr; ///< Null for a failure message.
    std::size_t part = 0;          ///< The part that is written next: 0 is the head, k the k-th payload.
    std::size_t from = 0;          ///< Number of bytes of that part that are already written.
  };
  /// A peer's launch, and the received message that its calls refer to.
  struct incoming {
    std::string bytes;
    mock_launch launch;
    std::vector<std::size_t> payload_bytes{}; ///< Payload size of each call.
  };
  struct link {
    std::shared_ptr<peer_endpoint> peer{}; ///< Null for this rank.
    std::optional<ring_writer<shared_words>> writer{};
    std::optional<ring_reader<shared_words>> reader{};
    std::string partial{};
    std::deque<outgoing> waiting{};
    bool is_cut = false; ///< The rest of a message will never be written.
  };
  /// One end of a transfer.
  struct end_key {
    bool sends = false;
    std::size_t from = 0;
    std::size_t to = 0;
    std::uint64_t ordinal = 0;
    [[nodiscard]] end_key other() const noexcept { return {!sends, from, to, ordinal}; }
    [[nodiscard]] std::size_t peer() const noexcept { return sends ? to : from; }
    // NOLINTNEXTLINE(readability-implicit-bool-conversion): the generated code converts a bool
    friend auto operator<=>(const end_key&, const end_key&) = default;
  };
  struct own_end {
    mock_launch* launch = nullptr;
    mock_launch::transfer* transfer = nullptr;
  };

  [[nodiscard]] bool has_news() override;
  state advance() override;

  void connect(std::unique_lock<std::mutex>& lock);
  [[nodiscard]] error absence_of(std::size_t peer) const;
  [[nodiscard]] std::string name_of(std::size_t peer) const;

  void arrive(mock_launch& mine);
  void send_collectives(mock_launch& mine);
  void send_transfer(mock_launch& mine, mock_launch::transfer& one);
  void post(std::size_t to, outgoing message);
  state move_all();
  /// Writes as much as fits into the ring. Returns whether something is left.
  bool flush(link& to);
  /// Reads the available messages, up to a limit. Returns whether something is left.
  bool drain(std::size_t from);
  void accept(std::size_t from, std::string message);
  void conclude(std::uint64_t ordinal);
  void conclude(const end_key& mine);
  void end(own_end& mine);
  [[nodiscard]] bool needs(std::size_t peer) const;
  void find_lost_peers();
  void fail(error why);
  void withdraw(const mock_launch& mine) noexcept;
  void ring_all() noexcept;

  const unique_id id_;
  const rank self_;
  const std::size_t me_;
  const std::size_t world_size_;
  const bool launches_;
  mutable std::mutex mutex_;
  std::shared_ptr<mock_waker> engine_;
  std::shared_ptr<process_pump> pump_;
  std::optional<formation_memory> memory_;
  std::vector<link> links_;
  bool is_formed_ = false;
  bool is_aborted_ = false;
  bool must_wake_ = false;          ///< A launch has ended since the engine was last woken.
  time_point last_process_check_{}; ///< Time of the last check for ended processes.
  std::optional<error> failure_;    ///< If set, nothing more is read or computed.
  std::optional<error>
      reported_mismatch_; ///< A mismatch that another rank reported. check() throws it; work continues.
  std::map<std::uint64_t, mock_launch*> own_collectives_;
  std::map<std::uint64_t, std::vector<std::unique_ptr<incoming>>> peer_collectives_;
  std::map<end_key, own_end> own_ends_;
  std::map<end_key, std::unique_ptr<incoming>> peer_ends_;
};

/// Makes a process_rendezvous: see mock_rendezvous_maker.
[[nodiscard]] std::shared_ptr<mock_rendezvous> connect_over_processes(const unique_id& id, rank self, int world_size,
                                                                      bool launches);

} // namespace troupe
