/// What one rank is asked to do: plain descriptors, one struct per operation. n is the number of ranks.
#pragma once

#include <troupe/collectives/operation/dtype.hpp>
#include <troupe/collectives/operation/reduction.hpp>
#include <troupe/device/event.hpp>
#include <troupe/device/memory/buffer.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace troupe {

/// A buffer argument: memory and, optionally, the point in the client's own stream from which it may be used.
///
/// Memory of the rank's device, or host memory, which is staged: copied in, worked on and copied out in chunks, all at
/// once (docs/host-memory.md). All ranks then launch one collective for each chunk, so they must know: give every rank
/// the same kind of memory, or set `staged` at those that have device memory. An operand counts even where its rank
/// does not use it. Sends, receives, all_to_all_v and groups go in one piece, and each rank may have what it likes.
struct operand {
  buffer memory;
  shared_event ready{};

  operand() = default;
  /// All of \p range, from \p ready_at on; without an event at once.
  operand(buffer range, shared_event ready_at = {}) // NOLINT(google-explicit-constructor): a buffer is an operand
    : memory{std::move(range)}, ready{std::move(ready_at)} {}
};

/// recv[i] on every rank = reduction over all ranks of send[i].
/// Shapes: send and recv \p count elements each.
/// In place: where send and recv are the same range.
struct all_reduce {
  operand send;
  operand recv;
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  troupe::factor factor{}; ///< Of pre_mul_sum.
  bool staged = false;     ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// recv[i] on \p root = reduction over all ranks of send[i]. Elsewhere recv is not used and may be empty.
/// Shapes: send \p count elements; recv, on \p root, as many.
/// In place: on \p root, where send and recv are the same range.
struct reduce {
  operand send;
  operand recv;          ///< Of root alone.
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  rank root{}; ///< Who gets the result.
  troupe::factor factor{};
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// recv[i] on every rank = send[i] of \p root. Elsewhere send is not used and may be empty.
/// Shapes: recv \p count elements; send, on \p root, as many.
/// In place: on \p root, where send and recv are the same range.
struct broadcast {
  operand send; ///< Of root alone.
  operand recv;
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  /// Whose elements all get.
  rank root{};
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// recv[r · count + i] on every rank = send[i] of rank r.
/// Shapes: send \p count elements, recv n · count.
/// In place: where send is the rank's own part of recv, count elements from r · count.
struct all_gather {
  operand send;
  operand recv;
  std::size_t count = 0; ///< Of each rank's part.
  dtype type = dtype::f32;
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// recv[i] on rank r = reduction over all ranks of send[r · count + i].
/// Shapes: send n · count elements, recv \p count.
/// In place: where recv is the rank's own part of send, count elements from r · count. The other parts of send keep
/// their values.
struct reduce_scatter {
  operand send;
  operand recv;
  std::size_t count = 0; ///< Of each rank's part.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  troupe::factor factor{};
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// recv[r · count + i] on rank q = send[q · count + i] of rank r.
/// Shapes: send and recv n · count elements each.
/// In place: never; send and recv must not touch.
struct all_to_all {
  operand send;
  operand recv;
  std::size_t count = 0; ///< From each rank to each.
  dtype type = dtype::f32;
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// recv[r · count + i] on \p root = send[i] of rank r. Elsewhere recv is not used and may be empty.
/// Shapes: send \p count elements; recv, on \p root, n · count.
/// In place: on \p root, where send is its own part of recv.
struct gather {
  operand send;
  operand recv;          ///< Of root alone.
  std::size_t count = 0; ///< Of each rank's part.
  dtype type = dtype::f32;
  /// Who gets all parts.
  rank root{};
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// recv[i] on rank r = send[r · count + i] of \p root. Elsewhere send is not used and may be empty.
/// Shapes: recv \p count elements; send, on \p root, n · count.
/// In place: on \p root, where recv is its own part of send.
struct scatter {
  operand send; ///< Of root alone.
  operand recv;
  std::size_t count = 0; ///< Of each rank's part.
  dtype type = dtype::f32;
  /// Whose elements are dealt out.
  rank root{};
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// The parts of a buffer, one for each rank, in elements: part r is \p counts[r] elements from \p displacements[r].
/// Parts that are written must not overlap.
struct partition {
  std::vector<std::size_t> counts;
  std::vector<std::size_t> displacements;

  /// Parts of these sizes, one right behind the other.
  [[nodiscard]] static partition packed(std::vector<std::size_t> counts);
  friend bool operator==(const partition&, const partition&) = default;
};

/// As all_gather, in parts of any size: part r of recv on every rank = the elements that rank r sends.
/// Shapes: rank r sends recv_parts.counts[r] elements; recv holds all parts. All ranks name the same counts; where the
/// parts lie, each rank chooses.
/// In place: where send is the rank's own part of recv.
struct all_gather_v {
  operand send;
  operand recv;
  partition recv_parts; ///< n parts of recv.
  dtype type = dtype::f32;
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// As reduce_scatter, in parts of any size: recv on rank r = reduction over all ranks of part r of send.
/// Shapes: rank r receives send_parts.counts[r] elements; send holds all parts. All ranks name the same counts; where
/// the parts lie, each rank chooses.
/// In place: where recv is the rank's own part of send.
struct reduce_scatter_v {
  operand send;
  operand recv;
  partition send_parts; ///< n parts of send.
  dtype type = dtype::f32;
  reduction op = reduction::sum;
  troupe::factor factor{};
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// As all_to_all, in parts of any size: part r of recv on rank q = part q of send on rank r.
/// Shapes: send and recv hold their parts; send_parts.counts[r] on rank q is recv_parts.counts[q] on rank r.
/// In place: never; send and recv must not touch.
struct all_to_all_v {
  operand send;
  operand recv;
  partition send_parts; ///< Part r goes to rank r.
  partition recv_parts; ///< Part r comes from rank r.
  dtype type = dtype::f32;
};

/// The same as gather, with parts of any size: part r of recv on \p root = the elements that rank r sends. Other ranks
/// do not use recv, which may be empty there. A rank that names no memory, since its part is empty, sets \p staged
/// where others have host memory.
/// Shapes: rank r sends recv_parts.counts[r] elements; recv on \p root holds all parts. All ranks name the same counts;
/// only the displacements of \p root are used.
/// In place: on \p root, where send is its own part of recv.
struct gather_v {
  operand send;
  operand recv;         ///< Used on root only.
  partition recv_parts; ///< n parts of recv.
  dtype type = dtype::f32;
  /// The rank that receives all parts.
  rank root{};
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// The same as scatter, with parts of any size: recv on rank r = part r of send of \p root. Other ranks do not use
/// send, which may be empty there. A rank that names no memory, since its part is empty, sets \p staged where others
/// have host memory.
/// Shapes: rank r receives send_parts.counts[r] elements; send on \p root holds all parts. All ranks name the same
/// counts; only the displacements of \p root are used.
/// In place: on \p root, where recv is its own part of send.
struct scatter_v {
  operand send; ///< Used on root only.
  operand recv;
  partition send_parts; ///< n parts of send.
  dtype type = dtype::f32;
  /// The rank whose parts are distributed.
  rank root{};
  bool staged = false; ///< Some rank's memory is host memory though this one's is not: see operand.
};

/// Sends \p count elements to \p peer, whose recv names the same count, dtype and tag. Of several between two ranks
/// the k-th send meets the k-th recv with the same tag. Ranks that send to each other put both halves into a group.
/// Shapes: memory \p count elements.
struct send {
  operand memory;        ///< Is read.
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  rank peer{}; ///< Who receives.
  int tag = 0; ///< From 0.
};

/// Receives \p count elements from \p peer, whose send names the same count, dtype and tag: the other half of send.
/// Shapes: memory \p count elements.
struct recv {
  operand memory;        ///< Is written.
  std::size_t count = 0; ///< In elements.
  dtype type = dtype::f32;
  rank peer{}; ///< Who sends.
  int tag = 0; ///< The send's.
};

/// Answered when every rank's stream has reached it: whatever was asked of any rank before is done.
struct barrier {};

/// Copies all of \p from to the front of \p to on the rank's stream, between any two of: memory of the rank's device,
/// memory of another device of this process that it reaches, host memory. Local to one rank: no peer takes part.
/// Order: behind the rank's earlier requests and before its later ones. A copy between the devices of two ranks is
/// asked of either, and is in no order with the other's requests: wait for the reply before you use the memory there.
/// Errors: wrong_device (device memory, but none of the rank's own device), unsupported (no peer access).
struct copy {
  operand from;
  operand to;
};

class captured_plan;

/// Launches a captured plan again, in all its parts on every rank: requests and the client's own kernels, on the memory
/// that they were captured with (docs/plans.md). Every rank names the same plan.
/// Order: as one request among the others of each rank. Within it, as captured.
/// Errors: invalid_argument (none, or another world's), stale_buffer (the memory it was captured with is lost),
/// mismatch (ranks name different plans), stale_epoch.
struct replay {
  std::shared_ptr<captured_plan> of; ///< What world::capture() gave.
};

struct group;

/// What a request asks of one rank: one of these.
/// Shapes: a buffer may be longer than what is used of it, from its front; count 0 is valid, and then needs none.
/// Units: counts, displacements and ranges are in elements of the dtype; a buffer begins at a multiple of their size.
/// In place: ranges that are read and written overlap only as the operation says; all else is refused.
/// Errors: invalid_argument (a dtype, reduction, rank or tag that does not exist; a buffer that is too short or not
/// aligned; ranges that overlap), wrong_device, stale_buffer, mismatch (ranks ask for what does not fit together),
/// unsupported (not on this device or library): nothing has run on any rank. Then those of any request: see errc.
using operation =
    std::variant<all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, gather, scatter, all_gather_v,
                 reduce_scatter_v, all_to_all_v, gather_v, scatter_v, send, recv, barrier, copy, group, replay>;

/// Several operations of any kind except replays and other groups, launched by one call (GRP-1). Either all parts run
/// or none does: a part that is refused refuses the group. All ranks name the same collectives and barriers in the same
/// order; sends and receives only have to match; copies are local, so each rank may have its own. An empty group is
/// valid.
/// Copies: from and to device memory or pinned host memory. Pageable memory, and copies from host to host, are staged
/// by other threads and are therefore refused in a group.
/// Order: none among the parts, so parts that overlap in memory with a writer among them are refused.
struct group {
  std::vector<operation> parts;
};

/// The operation's own name: "all_reduce".
[[nodiscard]] std::string_view name_of(const operation& what) noexcept;
/// That of the variant's alternative \p index.
[[nodiscard]] std::string_view name_of_kind(std::size_t index) noexcept;

/// The plan's number (captured_plan.hpp); 0 where there is none.
[[nodiscard]] std::uint64_t number_of(const replay& what) noexcept;

/// One line for people: "all_reduce of 1024 f32, sum".
[[nodiscard]] std::string describe(const operation& what);

} // namespace troupe
