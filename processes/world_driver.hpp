/// Defines the handle with which a process without a rank or a GPU sends requests to the ranks of a world over
/// processes.
#pragma once

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/collective_methods.hpp>
#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/collectives/operation/request.hpp>
#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/runtime/configuration/configuration.hpp>

#include <chrono>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// Joins a world over processes as a process without a rank, which needs neither a GPU nor CAF. Requests are to all
/// ranks; their operands are remote buffers, which the ranks' processes have exported (world::export_memory()). The
/// ranks validate, order and launch them as they do for their own clients, and each request is answered once.
///
/// A request belongs to the epoch in which it is sent. If that ends before the reply, the outcome is unknown: continue
/// from the resume point of the next event, or from a commit (docs/recovery.md).
///
/// Handles are reference-counted. Lifetime: the driver leaves with its last handle; pending requests are then answered
/// (abandoned, unknown outcome). The ranks finish what they have been asked for. In a fork of its process, requests and
/// questions for its state are refused (unsupported), and the driver does not leave. Threads: safe from any.
class world_driver : public collective_methods<world_driver, arguments_of_all, std::future<completion>> {
public:
  /// Connects to the controller at settings.control.address with settings.control.assignment.token, as the processes of
  /// the world do. Does not wait: see wait_ready(). Errors: invalid_argument (the address; certificates or token
  /// missing), missing (certificate files).
  explicit world_driver(const configuration& settings);

  /// Returns the present state of the world, as far as the driver knows it: `phase`, `epoch` (0 before the first),
  /// `world_size`, `reason` and `resume`. The phase is forming, ready, rebuilding or stopped; stopped: the world has
  /// ended, or the controller has refused the driver or was not reached in time. In phase ready, `reason` is why the
  /// previous epoch ended.
  [[nodiscard]] world_event status() const;
  /// Returns whether requests go through shared memory in the present epoch.
  [[nodiscard]] bool has_rings() const;
  /// Waits until the world is ready, has stopped, or \p at_most has passed. Returns the state.
  world_event wait_ready(nanoseconds at_most) const; // NOLINT(modernize-use-nodiscard)
  /// Waits in the same way for an epoch later than \p after. After an error, pass the epoch of the request that failed.
  world_event wait_ready(troupe::epoch after, nanoseconds at_most) const; // NOLINT(modernize-use-nodiscard)
  /// Calls \p heard for every later change, in their order; the last one is world_phase::stopped, but not for the
  /// end of this object. It runs on a thread of the driver, and must neither block nor throw. It may ask, but must not
  /// destroy this object.
  void on_event(std::function<void(const world_event&)> heard);
  /// Calls \p heard for every later value that the ranks agree on (troupe::agree), in any lane of the whole world, in
  /// the order of release. \p where: the name of the lane; values of requests to the whole world are in lanes of their
  /// askers. Values between two epochs may be missed: resume_point::agreed of the next event has those beyond the
  /// resume points. So may the first values of an epoch, until the ranks know that this driver hears them; those are in
  /// no event. It runs on a thread of the driver, must neither block nor throw, and must not call this object.
  void on_agreed(std::function<void(const std::string& where, const agreed_value& value)> heard);
  /// Returns the number of ranks in the present epoch, 0 before the first.
  [[nodiscard]] int size() const { return status().world_size; }
  [[nodiscard]] troupe::epoch epoch() const { return status().epoch; }

  /// Asks the process of rank \p target for the handle of the memory that it has exported under \p name
  /// (world::export_memory()). Errors: missing (it has not), rebuilding, deadline_exceeded, invalid_argument (not a
  /// rank).
  [[nodiscard]] std::future<remote_buffer> find_memory(rank target, const std::string& name,
                                                       nanoseconds deadline = std::chrono::seconds{10}) const;
  /// Allocates \p size_bytes of device memory at rank \p target. Contents: undefined. The rank's process holds it until
  /// release(), or until some seconds after the end of this driver. Errors: out_of_memory, rebuilding,
  /// deadline_exceeded, invalid_argument (not a rank).
  [[nodiscard]] std::future<remote_buffer> allocate(rank target, std::size_t size_bytes,
                                                    nanoseconds deadline = std::chrono::seconds{10});
  /// These do the same, and deliver the answer to \p reply, whose sink must neither block nor throw.
  void find_memory(rank target, const std::string& name, nanoseconds deadline,
                   std::shared_ptr<value_promise<remote_buffer>> reply) const;
  void allocate(rank target, std::size_t size_bytes, nanoseconds deadline,
                std::shared_ptr<value_promise<remote_buffer>> reply);
  /// Releases memory of allocate(). Requests in flight still hold it.
  void release(const remote_buffer& allocated);

  /// Returns the metrics of the process of rank \p target, in the text format of Prometheus
  /// (docs/operations/metrics.md), or its flight record, which `troupe trace` reads: the latest requests of the rank,
  /// those of this driver among them. Errors: missing (its troupe was built without prometheus-cpp), rebuilding,
  /// deadline_exceeded, invalid_argument (not a rank).
  [[nodiscard]] std::future<std::string> metrics(rank target, nanoseconds deadline = std::chrono::seconds{10}) const;
  [[nodiscard]] std::future<std::string> flight_record(rank target,
                                                       nanoseconds deadline = std::chrono::seconds{10}) const;
  /// These do the same, and deliver the answer to \p reply, whose sink must neither block nor throw.
  void metrics(rank target, nanoseconds deadline, std::shared_ptr<value_promise<std::string>> reply) const;
  void flight_record(rank target, nanoseconds deadline, std::shared_ptr<value_promise<std::string>> reply) const;

  /// Returns the processes of the world, ranks first, or makes a planned change of its ranks and returns the processes
  /// afterwards (docs/processes.md). Processes that stand by take the places of those that leave, or the world goes on
  /// with fewer ranks; the others lose no request. \p host: as world_process names it. \p renumbers: whether ranks that
  /// stay may get other numbers. join() asks the launcher of the world, if it has one, for a process at \p place, or at
  /// the first free one, and is answered when a process serves there. Errors: rank_change; with an unknown outcome:
  /// communicator_failed (the controller is lost).
  [[nodiscard]] std::future<world_processes> processes();
  [[nodiscard]] std::future<world_processes> leave(int place, bool renumbers = false);
  [[nodiscard]] std::future<world_processes> drain(std::string host, bool renumbers = false);
  [[nodiscard]] std::future<world_processes> join(std::optional<int> place = std::nullopt);
  /// Does so, and delivers the answer to \p reply, whose sink must neither block nor throw.
  void change(const rank_change& asked, std::shared_ptr<value_promise<world_processes>> reply);

  /// Returns the present contents of \p from, host memory that a rank has exported, at most a mebibyte. They are read
  /// at once, without regard to requests in flight: wait for the reply of the request that writes them. Errors:
  /// stale_buffer, invalid_argument (device memory: let the rank copy it first; too much), rebuilding,
  /// deadline_exceeded.
  [[nodiscard]] std::future<std::string> read(const remote_buffer& from,
                                              nanoseconds deadline = std::chrono::seconds{10}) const;
  /// Does the same, and delivers the answer to \p reply, whose sink must neither block nor throw.
  void read(const remote_buffer& from, nanoseconds deadline, std::shared_ptr<value_promise<std::string>> reply) const;

  /// Asks all ranks; asked[i] is the operation of rank i. If the options name no epoch, the request is for the present
  /// one. Errors: those of the operation; rebuilding (the world is not ready), busy (too many requests of this driver
  /// are pending), stale_buffer, invalid_argument (a buffer that is not remote).
  [[nodiscard]] std::future<completion> ask(std::vector<operation> asked, request_options options = {},
                                            call_site from = call_site::current());
  /// Asks all ranks, and delivers the outcome to \p reply.
  void ask(world_request asked, reply_promise reply);

  /// Captures \p steps at all ranks as the plan \p name, at their place in the order of requests: steps[k][r] is the
  /// part of rank r in step k. Operands are remote buffers; calls are by name (rank_function). If it
  /// succeeds, it replaces an earlier plan of the same name. The ranks hold it, and the memory that it names, until
  /// drop_plan(), the end of the epoch, or some seconds after the end of this driver: capture it again when the next
  /// epoch is ready. Errors: those of world::capture().
  [[nodiscard]] std::future<completion> capture(const std::string& name, plan_steps steps,
                                                nanoseconds deadline = std::chrono::minutes{1});
  void capture(const std::string& name, plan_steps steps, nanoseconds deadline, reply_promise reply);
  /// Makes the ranks release a plan that this driver has captured. Replays in flight still hold it; later ones are
  /// refused.
  void drop_plan(const std::string& name);

  /// Asks all ranks to launch the plan \p name, which this driver or the ranks' processes have captured
  /// (plan_options::name). Errors: invalid_argument (a process has no such plan).
  [[nodiscard]] std::future<completion> replay(const std::string& name, request_options options = {},
                                               call_site from = call_site::current());

  /// Asks all ranks to call the function that their processes have registered under \p name
  /// (world::register_function()): arguments[i] and \p values are passed at rank i. \p arguments: one list for each
  /// rank, or none. Errors: invalid_argument (a process has registered none; the number of lists).
  [[nodiscard]] std::future<completion> call(const std::string& name, std::vector<std::vector<operand>> arguments = {},
                                             const std::vector<std::byte>& values = {}, request_options options = {},
                                             call_site from = call_site::current());

private:
  struct parts;
  class report_reader;
  std::shared_ptr<parts> parts_;
};
extern template class collective_methods<world_driver, arguments_of_all, std::future<completion>>;

} // namespace troupe
