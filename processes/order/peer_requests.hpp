/// Requests of one process to the ranks of a world in other processes, and the replies.
#pragma once

#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/exported_memory.hpp>
#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/collectives/order/codec/part_codec.hpp>
#include <troupe/collectives/order/remote_ranks.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/processes/order/codec/request_codec.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// The number of different lanes in which ranks submit requests of processes without a rank.
inline constexpr int most_attached_lanes = 1024;
/// Returns an address of a process without a rank. Processes with the same \p slot, from 0 to most_attached_lanes - 1,
/// have the same lane, one after the other; \p generation distinguishes them.
[[nodiscard]] process_address attached_address(int slot, int generation) noexcept;
/// Returns the slot of an address from attached_address().
[[nodiscard]] int slot_of(process_address attached) noexcept;
/// Returns the lane in which each rank submits requests of process \p one. Errors: as lane::named().
[[nodiscard]] lane lane_of(process_address one);

/// Ranks release the memory and plans of another process if it has not renewed their lease for this long, or for the
/// shorter time that it asked for.
inline constexpr nanoseconds longest_lease = std::chrono::seconds{10};

/// Client numbers from this one on are those of processes that ask all ranks: see rank_services::ask.
inline constexpr std::uint64_t first_peer_client = std::uint64_t{1} << 62U;

/// A plan of requests to all ranks, which each rank's process captures with its own parts.
struct whole_capture {
  ticket name{};
  std::string plan{};      ///< Its name: see plan_options.
  plan_steps steps{};      ///< steps[k][r] is the part of rank r. Parts have remote buffers as operands.
  nanoseconds deadline{0}; ///< Time from now to the reply.
  /// The ranks release the plan when \p holder has not renewed it for \p lease, and when the epoch ends.
  std::uint64_t holder = 0;
  nanoseconds lease{0};
  reply_promise reply{};
};

/// Asks the ranks of a world for their parts of a request, by a message to each of their processes, and does the same
/// for other processes at its own rank. There is one object for each world and epoch in each process.
///
/// A rank's process looks up the remote buffers, validates its part and asks its rank in a lane that belongs to the
/// requesting process. So the order service matches, compares and orders the parts like those of any client (ORD-1,
/// ORD-2). A part that its rank cannot execute is submitted with an objection, so it is refused at all ranks. Each
/// rank's process sends the outcome of its part back. The request is answered when all outcomes have arrived (ONE-1).
///
/// Lifetime: until close(), which answers what is pending. Threads: all functions may be called from any thread;
/// receive() and close() from one at a time.
class peer_requests final : public remote_ranks, public std::enable_shared_from_this<peer_requests> {
public:
  using messages = std::vector<std::pair<process_address, std::string>>;
  /// Sends messages of at most longest_message_bytes each, in this order and without others between them. Does nothing
  /// after the end of the epoch.
  using sender = std::function<void(messages all)>;

  /// \p self: the address of this process in the world; negative if it has no rank. \p exported: null without a rank.
  peer_requests(process_address self, int world_size, epoch formed_in, std::shared_ptr<exported_memory> exported,
                sender send);
  ~peer_requests() override;

  void serve(rank_services what) override;
  void ask(whole_request asked) override;
  /// See world_order.
  void hold(std::function<void()> quiet);
  void resume();
  void hand_over(std::shared_ptr<remote_ranks> next);
  /// Captures a plan at all ranks. It replaces a plan of the same name that this process captured earlier, and can be
  /// replayed by its name until the epoch ends. The reply contains no times. Errors: those of world::capture();
  /// invalid_argument for steps of this process's own rank, for more steps than fit in a message, and as for ask().
  void capture(whole_capture asked);
  /// Makes all ranks release a plan that this process has captured. Replays in flight keep it.
  void drop_plan(std::string_view name);
  using bytes_promise = std::shared_ptr<value_promise<std::string>>;
  static constexpr std::size_t most_read_bytes = std::size_t{1} << 20U;
  /// Limit of the bytes that this process awaits at one time in answers to read(); one read is sent in any case.
  /// Further reads wait until earlier ones have been answered.
  static constexpr std::size_t most_awaited_bytes = most_read_bytes;
  /// Limit of the bytes that a process has sent to another one in answers to reads, and of which that one has not
  /// reported the arrival. Beyond it reads are refused (busy), so a process that ignores most_awaited_bytes, or that
  /// does not read its answers, costs nobody else.
  static constexpr std::size_t most_unreceived_bytes = 4 * most_awaited_bytes;
  void find(rank target, std::string_view name, nanoseconds deadline, handle_promise reply) override;
  /// Asks the process of \p target to allocate memory, or to write a report to memory, and to keep it while \p holder,
  /// a random number of this process, renews it at intervals shorter than \p lease, at most longest_lease. Contents of
  /// memory: undefined. That process does most_lends of these at one time. Errors: out_of_memory, missing (its troupe
  /// was built without this report), busy (most_waiting_lends of this process wait there), deadline_exceeded.
  void lend(rank target, lent_kind what, std::size_t size_bytes, std::uint64_t holder, nanoseconds lease,
            nanoseconds deadline, handle_promise reply);
  /// Asks the exporter's process for the present contents of \p from, host memory. That process reads them immediately,
  /// without waiting for requests in flight. The question goes to all ranks, because the exporter may have another
  /// number than at the export. At most most_awaited_bytes are asked for at one time; the deadline includes the time in
  /// which the read waits for others. Errors: stale_buffer (released, or its exporter has left the world),
  /// invalid_argument (device memory, or more than most_read_bytes), deadline_exceeded.
  void read(const remote_buffer& from, nanoseconds deadline, bytes_promise reply);
  /// Renews the leases of \p holder on memory and plans, at all ranks.
  void renew(std::uint64_t holder);
  /// Makes the exporter's process release memory that lend() has returned.
  void give_back(const remote_buffer& lent);

  /// Receives an agreed value with the name of its lane.
  using agreed_listener = std::function<void(const std::string& lane, const agreed_value& value)>;
  /// For a process without a rank: asks rank 0 to send every later agreed value of the world, with which \p heard is
  /// called by the thread that calls receive(). \p heard must neither block nor throw. Call it once.
  void hear_agreed(agreed_listener heard);
  /// For the process of rank 0: sends \p value to the processes that have asked for such values.
  void tell_agreed(lane where, const agreed_value& value);

  /// Handles a message from another process of the world, or from this one. An empty one says that \p from has left the
  /// world and does not reply any more.
  void receive(process_address from, std::string_view bytes);
  /// Answers requests whose ranks have not answered some time after the deadline (deadline_exceeded), and releases
  /// plans whose lease has ended. An `agree` waits until the epoch ends instead. Call it as often as
  /// exported_memory::expire().
  void expire(time_point now);
  /// Answers what is pending, and all later requests, with \p why. What has been sent has an unknown outcome.
  void close(const error& why);

  /// Returns the number of requests and questions that have not been answered by all ranks.
  [[nodiscard]] std::size_t pending() const;

  /// Maximum number of requests of one process that a rank's process has not answered. Further ones are refused (busy).
  static constexpr std::size_t most_pending_of_peer = 4096;
  static constexpr std::size_t most_lends = 4;          ///< See lend().
  static constexpr std::size_t most_waiting_lends = 64; ///< See lend().

private:
  /// A request to all ranks, or a question: find() or lend() to one rank, read() to all of which one can answer.
  struct asked_request {
    divided_reply replies{};        ///< By rank. Those of a question do not receive the answer.
    std::optional<operation> own{}; ///< The part of this process's rank.
    std::variant<std::monostate, handle_promise, bytes_promise> answer{}; ///< Of a question.
    std::size_t read_bytes = 0;                                           ///< Of a read: the bytes that it asks for.
    bool until_epoch_ends = false; ///< It has an `agree`, which no process ends by its own clock.
    time_point queued{};
    time_point give_up = time_point::max();

    [[nodiscard]] bool is_question() const noexcept { return answer.index() != 0; }
  };
  /// A rank's part of a request that has been answered.
  struct answered_part {
    reply_promise reply{}; ///< Not pending if the answer is not expected.
    time_point queued{};
    std::shared_ptr<asked_request> finished{}; ///< The request, if this was its last part.
  };
  enum class message_kind : std::uint8_t; ///< The first byte of a message.
  /// A read that waits for the answers of earlier ones.
  struct waiting_read {
    remote_buffer from{};
    time_point give_up{};
    bytes_promise reply{};
  };
  /// A request that hold() keeps back.
  struct held_request {
    whole_request what;
    time_point since{};
  };
  /// A lend() that another process has asked for.
  struct asked_lend {
    process_address from{};
    std::uint64_t number = 0;
    lent_kind what{};
    std::uint64_t size_bytes = 0;
    std::uint64_t holder = 0;
    nanoseconds lease{0};
  };
  /// The answers to the reads of another process.
  struct read_answers {
    std::uint64_t sent_bytes = 0;
    std::uint64_t received_bytes = 0; ///< According to that process.
  };
  /// A plan that another process has captured at this process's rank.
  struct kept_plan {
    std::shared_ptr<captured_plan> plan{};
    std::uint64_t holder = 0;
    nanoseconds lease{0};
    running_time ends{};
  };

  /// Asks the process of \p target; nullopt: those of all ranks. \p write: writes the body of the message for a rank.
  /// \p nowhere: delivered if no process has what was asked for. \p read_bytes: see asked_request.
  template <class Value, class Write>
  void ask_question(message_kind kind, std::optional<rank> target, nanoseconds deadline,
                    std::shared_ptr<value_promise<Value>> reply, Write write, error nowhere = another_kind(),
                    std::size_t read_bytes = 0);
  /// Sends a read whose bytes are counted in awaited_bytes_.
  void send_read(waiting_read one);
  /// Takes \p one out of asked_, in which it is at \p place. Call it with mutex_, and send_waiting_reads() afterwards
  /// without it.
  std::shared_ptr<asked_request> take_out(std::map<std::uint64_t, std::shared_ptr<asked_request>>::iterator place);
  /// Sends the reads for which there is room now.
  void send_waiting_reads();
  [[nodiscard]] static error another_kind();
  void take_find(process_address from, wire_reader& in);
  void take_read(process_address from, wire_reader& in);
  void take_lend(process_address from, wire_reader& in);
  void begin_lend(const asked_lend& one);
  /// Answers, and begins the next lend that waits.
  void end_lend(const asked_lend& one, buffer memory, error why);
  /// Nothing (monostate): another process has what was asked for.
  void answer(process_address to, std::uint64_t number,
              const std::variant<std::monostate, remote_buffer, std::string_view, error>& what);
  void take_answer(process_address from, wire_reader& in);
  void take_request(process_address from, wire_reader& in);
  void take_capture(process_address from, wire_reader& in);
  /// Counts a request of \p of as pending until send_reply(). Returns busy beyond the limit. Called with mutex_ held.
  [[nodiscard]] error count_request(process_address of);
  void keep_plan(process_address of, const std::string& name, kept_plan one);
  /// Makes the name of \p plan stand for it no more, even if a replay in flight still holds it. Called with mutex_
  /// held.
  void take_name(const std::shared_ptr<captured_plan>& plan);
  /// Begins a message of \p kind for each rank, with a new number, which it returns.
  std::uint64_t begin_all(message_kind kind, nanoseconds deadline, std::vector<wire_writer>& to);
  /// Sends the messages of request \p number, or refuses it with \p why.
  void ask_all(std::uint64_t number, std::vector<wire_writer> bodies, asked_request one, ticket name,
               nanoseconds deadline, reply_promise reply, error why);
  /// Keeps \p asked back, or passes it on, as hold() and hand_over() say. Returns false if it is to be sent; one_sent()
  /// follows then.
  [[nodiscard]] bool divert(whole_request& asked);
  void send(whole_request asked);
  void one_sent();
  /// Calls the function of hold() if all requests before it have been answered.
  void tell_quiet();
  static void pass_on(held_request one, remote_ranks& to);
  /// Adds a request that waits for the answers of ranks. After close(), refuses it and returns false.
  [[nodiscard]] bool expect_answers(std::uint64_t number, asked_request one, nanoseconds deadline);
  /// \p is_last: the question needs no further answers.
  [[nodiscard]] answered_part take_part(std::uint64_t number, process_address from, bool is_question,
                                        bool is_last = false);
  void send_to_all(std::string_view message);
  void take_reply(process_address from, wire_reader& in);
  void lose(process_address peer);
  /// Forgets \p peer, a process without a rank that the controller has detached, after its last request. The answer
  /// tells the controller that this process will submit no more requests in its lane.
  void take_detached(process_address peer);
  /// Returns a promise that sends the outcome of a rank's part back to the process that has asked.
  [[nodiscard]] reply_promise reply_to_peer(process_address to, std::uint64_t number);
  void send_reply(process_address to, std::uint64_t number, const outcome& result);

  const process_address self_;
  const int world_size_;
  const epoch epoch_;
  const std::shared_ptr<exported_memory> exported_;
  const sender send_;

  std::atomic<std::uint64_t> last_{0}; ///< The number of the latest request.
  mutable std::mutex mutex_;
  std::shared_ptr<const rank_services> services_;                      ///< Null before serve() and after close().
  std::map<process_address, lane> lanes_;                              ///< The lanes of the requesting processes.
  std::map<std::pair<process_address, std::string>, kept_plan> plans_; ///< By requesting process and name.
  bool is_serving_ = false;
  std::vector<std::pair<process_address, std::string>> early_; ///< Requests that arrived before serve().
  error closed_;
  std::map<std::uint64_t, std::shared_ptr<asked_request>> asked_; ///< By number.
  bool is_holding_ = false;
  std::size_t sending_ = 0;              ///< Requests that divert() has let pass and one_sent() has not counted.
  std::function<void()> quiet_{};        ///< Of hold(), until it is called.
  std::deque<held_request> held_{};      ///< Not empty only while is_holding_.
  std::shared_ptr<remote_ranks> next_{}; ///< Set by hand_over().
  std::size_t awaited_bytes_ = 0;        ///< Of the reads that have been sent.
  std::deque<waiting_read> waiting_reads_;
  std::vector<std::uint64_t> received_bytes_;            ///< Of answers to reads, by rank.
  std::map<process_address, read_answers> read_answers_; ///< By the process that reads.
  std::size_t lends_ = 0;                                ///< Lends in progress.
  std::deque<asked_lend> waiting_lends_;
  time_point due_ = time_point::max();                        ///< No request or read is given up before this time.
  running_clock running_{time_point{}, lease_check_interval}; ///< The time of the leases of plans_.
  std::atomic<bool> has_listeners_{false};                    ///< Whether listeners_ has elements.
  std::set<process_address> listeners_;                       ///< The processes that have called hear_agreed().
  agreed_listener heard_;                         ///< See hear_agreed(); set before the first value can arrive.
  std::map<process_address, std::size_t> served_; ///< Requests of each process that have not been answered.
};

} // namespace troupe
