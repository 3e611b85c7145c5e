/// The collectives as methods, written once for every handle that sends requests: a world, a lane at one rank, a group.
/// Also request_builder, the handle that only makes requests.
#pragma once

#include <troupe/collectives/operation/operation.hpp>
#include <troupe/collectives/operation/request.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <type_traits>
#include <vector>

namespace troupe {

/// The operands of all ranks, in rank order: a view of a contiguous range of buffers or of operands. It copies nothing.
///
/// Lifetime: the range must live as long as the view. A collective needs the view only until the call returns.
class operands_view {
public:
  /// Makes a view of \p all, a contiguous range of buffers, for example a per_rank, std::vector or std::span.
  template <std::convertible_to<std::span<const buffer>> Range>
  operands_view(const Range& all) noexcept // NOLINT(google-explicit-constructor): an argument, as std::span
    : buffers_(all) {}
  /// Makes a view of \p all, a contiguous range of operands.
  template <std::convertible_to<std::span<const operand>> Range>
  operands_view(const Range& all) noexcept // NOLINT(google-explicit-constructor): an argument, as std::span
    : operands_(all) {}
  operands_view(std::initializer_list<buffer> all) noexcept : buffers_(all.begin(), all.size()) {}
  operands_view(std::initializer_list<operand> all) noexcept : operands_(all.begin(), all.size()) {}

  /// Returns the number of operands, one for each rank.
  [[nodiscard]] std::size_t size() const noexcept { return buffers_.size() + operands_.size(); }
  /// Returns the operand at place \p i. Precondition: i < size().
  [[nodiscard]] operand operator[](std::size_t i) const {
    return operands_.empty() ? operand{buffers_[i]} : operands_[i];
  }

private:
  // One of the two is empty.
  std::span<const buffer> buffers_;
  std::span<const operand> operands_;
};

/// The arguments of a handle for one rank: its own operands and partitions.
struct arguments_of_one {
  using operands = operand;
  using partitions = partition;
};

/// The arguments of a handle for all ranks: one operand, and one partition, for each rank in rank order.
struct arguments_of_all {
  using operands = operands_view;
  using partitions = std::span<const partition>;
};

/// The collectives as methods of \p Handle. \p Arguments is arguments_of_one or arguments_of_all; \p Result is what a
/// method returns, and \p Options is its options struct. Shapes, units, in-place rules and errors are those of the
/// operation of the same name (operation.hpp). Fields of the operation that a method does not take have their default
/// values. To set them, pass the operation itself to the handle's ask().
///
/// With arguments_of_all, `send` and `recv` have one operand for each rank, but only one operand if only the root uses
/// it. Errors, thrown: invalid_argument (a different number of send and recv operands).
///
/// The handle has `Result ask(operation, Options, call_site)` for one rank, and for all ranks
/// `Result ask(std::vector<operation>, Options, call_site)` and `int size() const`. A handle that collects operations
/// (\p Result is void) has `void add(std::vector<operation>, Options)` instead of ask(). Its source file instantiates
/// this class with collective_methods_definitions.hpp, so that callers need not compile the methods.
template <class Handle, class Arguments, class Result, class Options = request_options>
class collective_methods {
public:
  using operands = typename Arguments::operands;
  using partitions = typename Arguments::partitions;

  /// Reduces `send` of all ranks into `recv` of every rank.
  [[nodiscard]] Result all_reduce(operands send, operands recv, std::size_t count, dtype type, reduce_op op,
                                  Options options = {}, call_site from = call_site::current());

  /// Reduces `send` of all ranks into \p recv of \p root.
  [[nodiscard]] Result reduce(operands send, operand recv, std::size_t count, dtype type, reduce_op op, rank root,
                              Options options = {}, call_site from = call_site::current());

  /// Copies \p send of \p root into `recv` of every rank.
  [[nodiscard]] Result broadcast(operand send, operands recv, std::size_t count, dtype type, rank root,
                                 Options options = {}, call_site from = call_site::current());

  /// Collects \p count elements of every rank into `recv` of every rank, in rank order.
  [[nodiscard]] Result all_gather(operands send, operands recv, std::size_t count, dtype type, Options options = {},
                                  call_site from = call_site::current());

  /// Like all_gather(), with parts of any size.
  [[nodiscard]] Result all_gather_v(operands send, operands recv, partition recv_parts, dtype type,
                                    Options options = {}, call_site from = call_site::current());

  /// Reduces `send` of all ranks, and leaves part r of \p count elements in `recv` of rank r.
  [[nodiscard]] Result reduce_scatter(operands send, operands recv, std::size_t count, dtype type, reduce_op op,
                                      Options options = {}, call_site from = call_site::current());

  /// Like reduce_scatter(), with parts of any size.
  [[nodiscard]] Result reduce_scatter_v(operands send, operands recv, partition send_parts, dtype type, reduce_op op,
                                        Options options = {}, call_site from = call_site::current());

  /// Sends part q of `send`, \p count elements, to every rank q.
  [[nodiscard]] Result all_to_all(operands send, operands recv, std::size_t count, dtype type, Options options = {},
                                  call_site from = call_site::current());

  /// Like all_to_all(), with parts of any size. Each rank has its own partitions.
  [[nodiscard]] Result all_to_all_v(operands send, operands recv, partitions send_parts, partitions recv_parts,
                                    dtype type, Options options = {}, call_site from = call_site::current());

  /// Collects \p count elements of every rank into \p recv of \p root, in rank order.
  [[nodiscard]] Result gather(operands send, operand recv, std::size_t count, dtype type, rank root,
                              Options options = {}, call_site from = call_site::current());

  /// Like gather(), with parts of any size.
  [[nodiscard]] Result gather_v(operands send, operand recv, partition recv_parts, dtype type, rank root,
                                Options options = {}, call_site from = call_site::current());

  /// Distributes \p send of \p root: part r of \p count elements to `recv` of rank r.
  [[nodiscard]] Result scatter(operand send, operands recv, std::size_t count, dtype type, rank root,
                               Options options = {}, call_site from = call_site::current());

  /// Like scatter(), with parts of any size.
  [[nodiscard]] Result scatter_v(operand send, operands recv, partition send_parts, dtype type, rank root,
                                 Options options = {}, call_site from = call_site::current());

  /// Completes when the stream of every rank has reached this operation.
  [[nodiscard]] Result barrier(Options options = {}, call_site from = call_site::current());

  /// Completes as a barrier does, and marks a place in the lane to which clients can return after a fault: events then
  /// name the last commit that is complete (resume_point). \p number is the same at all ranks, and at most
  /// barrier::most_commit.
  [[nodiscard]] Result commit(std::uint64_t number, Options options = {}, call_site from = call_site::current());

  /// Makes one value of what all ranks contribute, by a rule that all name: see troupe::agree. The reply has it
  /// (completion::agreed).
  [[nodiscard]] Result
  agree(agreement rule, contribution value, Options options = {},
        call_site from = call_site::current()) requires(std::is_same_v<Arguments, arguments_of_one>);
  /// Gives \p value a position in the order of requests to all ranks. The reply has it, with the position.
  [[nodiscard]] Result agree(contribution value, Options options = {}, call_site from = call_site::current()) requires(
      !std::is_void_v<Result> && std::is_same_v<Arguments, arguments_of_all>);

  /// Launches \p plan on every rank: see troupe::replay.
  [[nodiscard]] Result replay(const std::shared_ptr<captured_plan>& plan, Options options = {},
                              call_site from = call_site::current()) requires(!std::is_void_v<Result>);

  /// Sends \p count elements of \p from, memory of rank \p source, to \p to, memory of rank \p destination. It is one
  /// request to all ranks and has a position in their order; the other ranks do nothing. A ready event of another rank
  /// than these two is refused. Errors, thrown: invalid_argument (not a rank of the world).
  [[nodiscard]] Result
  transfer(rank source, operand from, rank destination, operand to, std::size_t count, dtype type, int tag = 0,
           Options options = {},
           call_site site = call_site::current()) requires(!std::is_void_v<Result> &&
                                                           std::is_same_v<Arguments, arguments_of_all>);

private:
  friend Handle;
  collective_methods() = default;

  /// Returns the number of ranks to which the handle sends its requests.
  [[nodiscard]] std::size_t part_count() const;
  /// Requests \p what at every rank of the handle.
  Result everywhere(const operation& what, Options options, call_site from);
  /// Requests one operation for each of \p count ranks: make(i), in rank order.
  template <class Make>
  Result each(std::size_t count, const Make& make, Options options, call_site from);
  /// Requests an Operation for each rank that has operands. Its members are \p send, \p recv and \p others.
  template <class Operation, class Send, class Recv, class... Others>
  Result request(Options& options, call_site from, Send send, Recv recv, const Others&... others);
};

/// Makes requests to all ranks of a world without sending them: for an actor, which sends them to the world's actor,
/// and for plan_steps, which are the `parts` of requests. Collectives are its methods (collective_methods); options go
/// into the request, an epoch in place of the builder's.
///
/// Lifetime: a request holds its buffers. Threads: as a value.
class request_builder : public collective_methods<request_builder, arguments_of_all, world_request> {
public:
  /// Makes requests for \p world_size ranks and for epoch \p in. 0: for the epoch in which the request arrives.
  explicit request_builder(int world_size, troupe::epoch in = {}) noexcept : size_{world_size}, epoch_{in} {}
  /// Makes requests for the world in the state \p now, a world_event.
  template <class Event>
  requires requires(const Event& now) {
    { now.world_size } -> std::convertible_to<int>;
    { now.epoch } -> std::convertible_to<troupe::epoch>;
  }
  explicit request_builder(const Event& now) noexcept : request_builder{now.world_size, now.epoch} {}

private:
  friend class collective_methods<request_builder, arguments_of_all, world_request>;
  [[nodiscard]] world_request ask(std::vector<operation> parts, request_options options, call_site from) const;
  [[nodiscard]] int size() const noexcept { return size_; }

  int size_;
  troupe::epoch epoch_;
};
extern template class collective_methods<request_builder, arguments_of_all, world_request>;

} // namespace troupe
