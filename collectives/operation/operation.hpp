/// Defines the operations that clients request: one plain struct per operation, for one rank. n is the number of ranks.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/rank_function.hpp>
#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/device/enum_names.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// A buffer argument: memory and, optionally, an event in the client's own stream after which the memory may be used.
///
/// The memory is on the rank's device or on the host. Host memory is staged: it is copied in, processed and copied out
/// in chunks, and these three steps overlap (docs/host-memory.md). All ranks then launch one collective for each chunk,
/// so every rank must know about it. Give every rank the same kind of memory, or set `staged` at the ranks that have
/// device memory. The kind of memory counts even for an operand that its rank does not use. Sends, receives,
/// all_to_all_v and groups are not split into chunks: each rank may use either kind of memory.
struct operand {
  buffer memory;
  shared_event ready{};

  operand() = default;
  /// Refers to all of \p range. It may be used after \p ready_at, or immediately if there is no event.
  operand(buffer range, shared_event ready_at = {}) // NOLINT(google-explicit-constructor): a buffer is an operand
    : memory{std::move(range)}, ready{std::move(ready_at)} {}
};

/// recv[i] on every rank = reduction over all ranks of send[i].
/// Shapes: send and recv \p count elements each.
/// In place: if send and recv are the same range.
struct all_reduce {
  operand send;
  operand recv;
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  troupe::factor factor{}; ///< The factor of pre_mul_sum.
  bool staged = false;     ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// recv[i] on \p root = reduction over all ranks of send[i]. Other ranks do not use recv, which may be empty there.
/// Shapes: send \p count elements; recv on \p root the same.
/// In place: on \p root, if send and recv are the same range.
struct reduce {
  operand send;
  operand recv;          ///< Used on root only.
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  rank root{}; ///< The rank that receives the result.
  troupe::factor factor{};
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// recv[i] on every rank = send[i] of \p root. Other ranks do not use send, which may be empty there.
/// Shapes: recv \p count elements; send on \p root the same.
/// In place: on \p root, if send and recv are the same range.
struct broadcast {
  operand send; ///< Used on root only.
  operand recv;
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  /// The rank whose elements all ranks receive.
  rank root{};
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// recv[r · count + i] on every rank = send[i] of rank r.
/// Shapes: send \p count elements, recv n · count.
/// In place: if send is the rank's own part of recv, that is, count elements from r · count.
struct all_gather {
  operand send;
  operand recv;
  std::size_t count = 0; ///< Elements in each rank's part.
  dtype type = dtype::f32;
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// recv[i] on rank r = reduction over all ranks of send[r · count + i].
/// Shapes: send n · count elements, recv \p count.
/// In place: if recv is the rank's own part of send, that is, count elements from r · count. The other parts of send
/// keep their values.
struct reduce_scatter {
  operand send;
  operand recv;
  std::size_t count = 0; ///< Elements in each rank's part.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  troupe::factor factor{};
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// recv[r · count + i] on rank q = send[q · count + i] of rank r.
/// Shapes: send and recv n · count elements each.
/// In place: never; send and recv must not overlap.
struct all_to_all {
  operand send;
  operand recv;
  std::size_t count = 0; ///< Elements from each rank to each rank.
  dtype type = dtype::f32;
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// recv[r · count + i] on \p root = send[i] of rank r. Other ranks do not use recv, which may be empty there.
/// Shapes: send \p count elements; recv on \p root n · count.
/// In place: on \p root, if send is its own part of recv.
struct gather {
  operand send;
  operand recv;          ///< Used on root only.
  std::size_t count = 0; ///< Elements in each rank's part.
  dtype type = dtype::f32;
  /// The rank that receives all parts.
  rank root{};
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// recv[i] on rank r = send[r · count + i] of \p root. Other ranks do not use send, which may be empty there.
/// Shapes: recv \p count elements; send on \p root n · count.
/// In place: on \p root, if recv is its own part of send.
struct scatter {
  operand send; ///< Used on root only.
  operand recv;
  std::size_t count = 0; ///< Elements in each rank's part.
  dtype type = dtype::f32;
  /// The rank whose elements are distributed.
  rank root{};
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// The parts of a buffer, one for each rank, in elements: part r is \p counts[r] elements from \p displacements[r].
/// Parts that are written must not overlap.
struct partition {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements;

  /// Returns parts of these sizes without gaps, in rank order.
  [[nodiscard]] static partition packed(std::vector<std::size_t> counts);
  friend bool operator==(const partition&, const partition&) = default;
};

/// The same as all_gather, with parts of any size: part r of recv on every rank = the elements that rank r sends.
/// Shapes: rank r sends recv_parts.counts[r] elements; recv holds all parts. All ranks name the same counts; each rank
/// chooses its own displacements.
/// In place: if send is the rank's own part of recv.
struct all_gather_v {
  operand send;
  operand recv;
  partition recv_parts; ///< n parts of recv.
  dtype type = dtype::f32;
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// The same as reduce_scatter, with parts of any size: recv on rank r = reduction over all ranks of part r of send.
/// Shapes: rank r receives send_parts.counts[r] elements; send holds all parts. All ranks name the same counts; each
/// rank chooses its own displacements.
/// In place: if recv is the rank's own part of send.
struct reduce_scatter_v {
  operand send;
  operand recv;
  partition send_parts; ///< n parts of send.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  troupe::factor factor{};
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// The same as all_to_all, with parts of any size: part r of recv on rank q = part q of send on rank r.
/// Shapes: send and recv hold their parts; send_parts.counts[r] on rank q equals recv_parts.counts[q] on rank r.
/// In place: never; send and recv must not overlap.
struct all_to_all_v {
  operand send;
  operand recv;
  partition send_parts; ///< Part r goes to rank r.
  partition recv_parts; ///< Part r comes from rank r.
  dtype type = dtype::f32;
};

/// The same as gather, with parts of any size: part r of recv on \p root = the elements that rank r sends. Other ranks
/// do not use recv, which may be empty there. A rank with an empty part may name no memory; it sets \p staged if other
/// ranks have host memory.
/// Shapes: rank r sends recv_parts.counts[r] elements; recv on \p root holds all parts. All ranks name the same counts;
/// only the displacements of \p root are used.
/// In place: on \p root, if send is its own part of recv.
struct gather_v {
  operand send;
  operand recv;         ///< Used on root only.
  partition recv_parts; ///< n parts of recv.
  dtype type = dtype::f32;
  /// The rank that receives all parts.
  rank root{};
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// The same as scatter, with parts of any size: recv on rank r = part r of send of \p root. Other ranks do not use
/// send, which may be empty there. A rank with an empty part may name no memory; it sets \p staged if other ranks have
/// host memory.
/// Shapes: rank r receives send_parts.counts[r] elements; send on \p root holds all parts. All ranks name the same
/// counts; only the displacements of \p root are used.
/// In place: on \p root, if recv is its own part of send.
struct scatter_v {
  operand send; ///< Used on root only.
  operand recv;
  partition send_parts; ///< n parts of send.
  dtype type = dtype::f32;
  /// The rank whose parts are distributed.
  rank root{};
  bool staged = false; ///< Set this if another rank uses host memory and this rank does not: see operand.
};

/// Sends \p count elements to \p peer, whose recv names the same count, dtype and tag. Between two ranks, the k-th send
/// matches the k-th recv with the same tag. Two ranks that send to each other put send and recv into one group. A rank
/// that sends to itself must, and a copy serves it better.
/// Shapes: memory \p count elements.
struct send {
  operand memory;        ///< The memory that is read.
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  rank peer{}; ///< The receiving rank.
  int tag = 0; ///< 0 or greater.
};

/// Receives \p count elements from \p peer, whose send names the same count, dtype and tag: the counterpart of send.
/// Shapes: memory \p count elements.
struct recv {
  operand memory;        ///< The memory that is written.
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  rank peer{}; ///< The sending rank.
  int tag = 0; ///< The tag of the matching send.
};

/// Completes when every rank's stream has reached it: all requests made earlier at any rank are then done.
struct barrier {
  static constexpr std::uint64_t most_commit = std::uint64_t{1} << 62U;

  /// Makes it a commit with this number, at most most_commit: after a fault the world's events name the last commit
  /// that is complete (resume_point). All ranks give the same number. As part of a group or a captured plan, it is only
  /// a barrier.
  std::optional<std::uint64_t> commit{};
};

/// Copies all of \p from to the front of \p to on the rank's stream. Each end is memory of the rank's device, memory of
/// another device of this process that the rank's device can access, or host memory. Local to one rank: no peer takes
/// part.
/// Order: after the rank's earlier requests and before its later ones. A copy between the devices of two ranks may be
/// requested from either rank. It is not ordered with the other rank's requests: wait for the reply before you use the
/// memory there.
/// Errors: wrong_device (memory of another device, but none of the rank's own device), unsupported (no peer access).
struct copy {
  operand from;
  operand to;
};

/// Calls a function that the rank's process has registered, which enqueues work of the user's own in the rank's stream:
/// see rank_function. Local to one rank: no peer takes part. A plan of requests (world::capture()) may contain it.
/// Shapes: as the function expects. All of \p arguments counts as read and written. Host memory is passed as it is;
/// work in the stream can use pinned memory.
/// Order: after the rank's earlier requests and before its later ones.
/// Errors: invalid_argument (no such function; more arguments or values than the limits), wrong_device, stale_buffer.
struct call {
  std::shared_ptr<const rank_function> function; ///< The result of world::register_function().
  std::vector<operand> arguments{};              ///< At most most_call_arguments.
  std::vector<std::byte> values{};               ///< At most most_call_bytes, which the function reads.
};

/// Limits of an agree, in bytes: of a rank's contribution, and of the value.
inline constexpr std::size_t most_contributed_bytes = 4096;
inline constexpr std::size_t most_agreed_bytes = std::size_t{64} << 10U;

/// How an agree makes one value of the ranks' contributions. Integers are 64-bit, signed, in the byte order of the
/// machine, one after the other.
enum class agreement_rule : std::uint8_t {
  of_rank, ///< The contribution of the rank `root`. Those of the others are not used, and may be empty.
  any_of,  ///< The bitwise OR. All contributions have the same size.
  all_of,  ///< The bitwise AND. All contributions have the same size.
  min,     ///< The smallest integer of all ranks, at each place. All contributions have the same size.
  max,     ///< The largest integer of all ranks, at each place. All contributions have the same size.
  sum,     ///< The sum of the integers of all ranks, at each place; it wraps. All contributions have the same size.
  /// The integers that any rank contributes, each once, in ascending order.
  union_of,
  gather_all, ///< All contributions, one after the other in rank order (agreed_value::parts()).
};
/// Returns the rule called \p name. Errors: invalid_argument, which lists the known names.
[[nodiscard]] inline agreement_rule parse_agreement_rule(std::string_view name) {
  return parse_enum<agreement_rule>("agreement rule", name);
}

/// A rule with its root, as the methods take it: agreement_rule::min, or agreement::of_rank(r).
struct agreement {
  agreement_rule rule = agreement_rule::of_rank;
  rank root{};

  /// Converts \p one, which does not use the root. For agreement_rule::of_rank see below.
  agreement(agreement_rule one) noexcept : rule{one} {} // NOLINT(google-explicit-constructor): most need no more
  /// Returns the rule that makes the contribution of \p root the value.
  [[nodiscard]] static agreement of_rank(rank root) noexcept {
    agreement made{agreement_rule::of_rank};
    made.root = root;
    return made;
  }
};

/// The bytes that a rank contributes to an agree, made from integers, text or bytes. It owns them.
struct contribution {
  std::vector<std::byte> bytes{};

  contribution() = default;
  // NOLINTBEGIN(google-explicit-constructor): arguments of agree()
  contribution(std::vector<std::byte> all) noexcept : bytes{std::move(all)} {}    ///< These bytes.
  contribution(std::span<const std::byte> all) : bytes(all.begin(), all.end()) {} ///< A copy of these bytes.
  template <std::integral Integer> // also for a literal 0, which is a null pointer, too
  contribution(Integer one) : contribution{std::vector{checked(one)}} {}                ///< One integer, below 2^63.
  contribution(std::span<const std::int64_t> all) : contribution{std::as_bytes(all)} {} ///< Integers.
  contribution(const std::vector<std::int64_t>& all) : contribution{std::span<const std::int64_t>{all}} {} ///< Same.
  contribution(std::string_view text) : contribution{std::as_bytes(std::span{text})} {} ///< The text, not terminated.
  contribution(const char* text) : contribution{std::string_view{text}} {}              ///< The same.
  // NOLINTEND(google-explicit-constructor)

private:
  template <std::integral Integer>
  [[nodiscard]] static std::int64_t checked(Integer one) {
    const auto made = static_cast<std::int64_t>(one);
    if (one > Integer{0} && made <= 0)
      throw exception{errc::invalid_argument,
                      std::to_string(one) + " cannot be contributed: integers of an agree are signed, below 2^63"};
    return made;
  }
};

/// Makes one value of host bytes that all ranks contribute, and gives it to every rank: completion::agreed. It is
/// decided where the order of requests is decided, without the GPU, and answered as soon as all ranks have asked and it
/// is at the head of its lane; work that was requested earlier may still be running. What ranks would otherwise decide
/// each by itself (a deadline, a cancellation, a free block) is decided once.
/// Shapes: at most most_contributed_bytes per rank, and most_agreed_bytes for the value. All ranks name the same rule
/// and root.
/// Order: one position of its lane. Later requests in the lane are released after it.
/// Errors: invalid_argument (too many bytes, or bytes that are not whole integers), mismatch (ranks name different
/// rules, roots or sizes), unsupported (under ordering::caller, and in two steps: ask_overlapped()). What one rank asks
/// wrongly is refused at all ranks, when all have asked. No agree ends by the clock of the process that asks: at the
/// deadline, or if a rank withdraws, the order refuses it at all ranks with one error. The same holds for a request to
/// the whole world of several processes (world::agree(), world_driver::agree()). If the order does not answer, the
/// request waits for the end of the epoch, which gives it an unknown outcome.
struct agree {
  agreement_rule rule = agreement_rule::of_rank; ///< The same at all ranks.
  std::vector<std::byte> value{};                ///< This rank's contribution.
  /// The rank whose contribution becomes the value of an of_rank. Not used by other rules.
  rank root{};
};

class captured_plan;

/// Launches a captured plan again on every rank, with all its requests and the client's own kernels, on the memory that
/// they were captured with (docs/plans.md). Every rank names the same plan.
/// Order: as one request among the other requests of each rank. Within the plan, the captured order.
/// Errors: invalid_argument (no plan, or a plan of another world), stale_buffer (the captured memory is lost), mismatch
/// (ranks name different plans), stale_epoch.
struct replay {
  std::shared_ptr<captured_plan> of; ///< The result of world::capture().
};

struct group;
class operation;

/// Several operations of any kind except replays, calls, agrees and other groups, launched by one call (GRP-1). Either
/// all parts run or none runs: if a part is refused, the group is refused. All ranks name the same collectives and
/// barriers in the same order. Sends and receives only have to match. Copies are local, so each rank may have different
/// ones. An empty group is valid. Copies: from and to device memory or pinned host memory. Pageable memory, and copies
/// from host to host, are staged by other threads and are therefore refused in a group. Order: the parts are unordered.
/// Parts with overlapping memory are refused if one of them writes it.
struct group {
  std::vector<operation> parts;
};

/// One operation of one rank: a std::variant of these types, for std::visit, std::get and std::holds_alternative. Its
/// copies, moves and destruction are compiled once, not in each file that handles an operation.
/// Shapes: a buffer may be longer than the range that is used, which starts at its front. Count 0 is valid and needs no
/// buffer.
/// Units: counts, displacements and ranges are in elements of the dtype. Buffers are aligned to the element size.
/// In place: ranges that are read may overlap ranges that are written only as the operation says. Any other overlap is
/// refused.
/// Errors: invalid_argument (an unknown dtype or reduction, or a rank or tag that does not exist; a buffer that is too
/// short or not aligned; overlapping ranges), wrong_device, stale_buffer, mismatch (the ranks' requests do not match),
/// unsupported (by this device or library). After these errors nothing has run on any rank. The errors that every
/// request can have are listed in errc.
class operation : public std::variant<all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather,
                                      scatter, all_gather_v, reduce_scatter_v, all_to_all_v, gather_v, scatter_v, send,
                                      recv, barrier, copy, group, replay, call, agree> {
public:
  using variant::variant;
  operation() noexcept;
  operation(const operation& other);
  operation(operation&& other) noexcept;
  operation& operator=(const operation& other);
  operation& operator=(operation&& other) noexcept;
  ~operation();
};

/// The ranks that an operation needs.
enum class operation_reach : std::uint8_t {
  all_ranks, ///< All ranks of the world: for a collective, or a group that contains one.
  peers,     ///< The peers that it names: for a send, a recv, or a group of only these.
  itself,    ///< Only the requesting rank: for a copy.
};

/// Returns pointers to \p all. Communicators take operations that are launched together in this form.
[[nodiscard]] std::vector<const operation*> pointers_to(std::span<const operation> all);

/// Returns the name of the operation: "all_reduce".
[[nodiscard]] std::string_view name_of(const operation& what) noexcept;
/// Returns the name of the alternative \p index of the variant.
[[nodiscard]] std::string_view name_of_kind(std::size_t index) noexcept;

/// Returns the plan's number (captured_plan.hpp), or 0 if the replay names no plan.
[[nodiscard]] std::uint64_t number_of(const replay& what) noexcept;

/// Returns one line for people: "all_reduce of 1024 f32, sum".
[[nodiscard]] std::string describe(const operation& what);

} // namespace troupe
