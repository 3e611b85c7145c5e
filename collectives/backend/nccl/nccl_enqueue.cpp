#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/backend/nccl/nccl_enqueue.hpp>

#include <optional>
#include <vector>

namespace troupe {

namespace {

ncclRedOp_t as_nccl(reduction op) {
  switch (op) {
    case reduction::sum: return ncclSum;
    case reduction::prod: return ncclProd;
    case reduction::min: return ncclMin;
    case reduction::max: return ncclMax;
    case reduction::avg: return ncclAvg;
    case reduction::pre_mul_sum: break; // an operator is created for each use
  }
  throw exception{errc::invalid_argument, "the reduction has no equivalent in NCCL"};
}

/// The NCCL calls of one launch. After the first failure only calls that close the group or free operators are made.
class nccl_launch {
public:
  explicit nccl_launch(const nccl_target& target) : to_{target} {}
  nccl_launch(const nccl_launch&) = delete;
  nccl_launch& operator=(const nccl_launch&) = delete;
  ~nccl_launch() {
    static_cast<void>(finish());
    // NCCL copies what it needs of an operator when it enqueues, and a group enqueues at its end.
    for (const ncclRedOp_t one : made_) static_cast<void>(to_.nccl.red_op_destroy(one, to_.communicator));
  }

  [[nodiscard]] nccl_enqueued finish() {
    if (grouped_) {
      grouped_ = false;
      note(to_.nccl.group_end(), "ncclGroupEnd");
    }
    return outcome_;
  }

  void operator()(const all_reduce& what) {
    if (what.count == 0) return; // validation ensures that the count is 0 on all ranks (ORD-2)
    if (const auto op = operator_of(what))
      call_on(what, to_.nccl.all_reduce, "ncclAllReduce", what.count, as_nccl(what.type), *op);
  }

  void operator()(const reduce& what) {
    if (what.count == 0) return;
    if (const auto op = operator_of(what))
      reduce_to(what.root, what.send.memory.data(), what.recv.memory.data(), what.count, what.type, *op);
  }

  void operator()(const broadcast& what) {
    if (what.count == 0) return;
    call_on(what, to_.nccl.broadcast, "ncclBroadcast", what.count, as_nccl(what.type), what.root.value());
  }

  void operator()(const all_gather& what) {
    if (what.count == 0) return;
    call_on(what, to_.nccl.all_gather, "ncclAllGather", what.count, as_nccl(what.type));
  }

  void operator()(const reduce_scatter& what) {
    if (what.count == 0) return;
    if (const auto op = operator_of(what))
      call_on(what, to_.nccl.reduce_scatter, "ncclReduceScatter", what.count, as_nccl(what.type), *op);
  }

  // Without NCCL's own calls (before 2.28.3) these three are groups of sends and receives. NCCL does the same with its
  // calls, but can move registered memory by copy engines.
  void operator()(const all_to_all& what) {
    if (what.count == 0) return;
    if (to_.nccl.all_to_all == nullptr) return exchange(what, what.count, what.count);
    call_on(what, to_.nccl.all_to_all, "ncclAlltoAll", what.count, as_nccl(what.type));
  }
  void operator()(const gather& what) {
    if (what.count == 0) return;
    if (to_.nccl.gather == nullptr) return send_to_root(what, what.count);
    call_on(what, to_.nccl.gather, "ncclGather", what.count, as_nccl(what.type), what.root.value());
  }
  void operator()(const scatter& what) {
    if (what.count == 0) return;
    if (to_.nccl.scatter == nullptr) return send_from_root(what, what.count);
    call_on(what, to_.nccl.scatter, "ncclScatter", what.count, as_nccl(what.type), what.root.value());
  }

  void operator()(const all_to_all_v& what) { exchange(what, what.send_parts, what.recv_parts); }
  void operator()(const gather_v& what) { send_to_root(what, what.recv_parts); }
  void operator()(const scatter_v& what) { send_from_root(what, what.send_parts); }

  void operator()(const all_gather_v& what) {
    const partition& parts = what.recv_parts;
    open_group();
    for (std::size_t peer = 0; peer < size(); ++peer) {
      give(what.send, 0, parts.counts[index(to_.self)], what.type, peer);
      take(what.recv, parts.displacements[peer], parts.counts[peer], what.type, peer);
    }
  }

  void operator()(const reduce_scatter_v& what) {
    const auto op = operator_of(what);
    if (!op) return;
    const partition& parts = what.send_parts;
    open_group();
    for (std::size_t root = 0; root < size(); ++root)
      if (parts.counts[root] > 0)
        reduce_to(rank{static_cast<int>(root)}, at(what.send, parts.displacements[root], what.type),
                  what.recv.memory.data(), parts.counts[root], what.type, *op);
  }

  void operator()(const send& what) { give(what.memory, 0, what.count, what.type, index(what.peer)); }
  void operator()(const recv& what) { take(what.memory, 0, what.count, what.type, index(what.peer)); }

  void operator()(const barrier&) {
    note(to_.nccl.all_reduce(to_.barrier_word, to_.barrier_word, 1, ncclInt32, ncclSum, to_.communicator, to_.stream),
         "ncclAllReduce");
  }

  void operator()(const copy&) {
    throw exception{errc::internal, "a copy is local to its rank and never reaches a communicator"};
  }

  void operator()(const replay&) {
    throw exception{errc::internal, "a replay launches its plan's graph and never reaches a communicator"};
  }

  void operator()(const call&) {
    throw exception{errc::internal, "a call is local to its rank and never reaches a communicator"};
  }

  void operator()(const agree&) {
    throw exception{errc::internal, "an agree is decided by the order and never reaches a communicator"};
  }

  void operator()(const group& what) { together(pointers_to(what.parts)); }

  /// Enqueues all operations in one group.
  void together(std::span<const operation* const> all) {
    open_group();
    // NCCL has no tags: it pairs the sends and receives between two ranks in the order of the calls.
    const launch_parts parts = parts_of_launch(all);
    for (const operation* one : parts.collectives)
      if (!failed()) std::visit(*this, *one);
    for (const operation* one : parts.transfers)
      if (!failed()) std::visit(*this, *one);
  }

private:
  static std::size_t index(rank one) { return static_cast<std::size_t>(one.value()); }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(to_.world_size); }
  static std::byte* at(const operand& where, std::size_t first, dtype type) {
    return where.memory.data() + first * size_bytes(type);
  }

  [[nodiscard]] bool failed() const { return outcome_.result != ncclSuccess && outcome_.result != ncclInProgress; }
  void note(ncclResult_t result, const char* call) {
    if (!failed()) outcome_ = {result, call};
  }

  /// Makes a call with the memory of \p what, and with the communicator and the stream.
  template <class Operation, class Function, class... Arguments>
  void call_on(const Operation& what, Function function, const char* name, Arguments... arguments) {
    note(function(what.send.memory.data(), what.recv.memory.data(), arguments..., to_.communicator, to_.stream), name);
  }

  // The parts of a buffer: those of a partition, or one for each rank with this many elements.
  static std::size_t first_of(const partition& parts, std::size_t peer) { return parts.displacements[peer]; }
  static std::size_t count_of(const partition& parts, std::size_t peer) { return parts.counts[peer]; }
  static std::size_t first_of(std::size_t count, std::size_t peer) { return peer * count; }
  static std::size_t count_of(std::size_t count, std::size_t) { return count; }

  template <class Operation, class Parts>
  void exchange(const Operation& what, const Parts& sent, const Parts& received) {
    open_group();
    for (std::size_t peer = 0; peer < size(); ++peer) {
      give(what.send, first_of(sent, peer), count_of(sent, peer), what.type, peer);
      take(what.recv, first_of(received, peer), count_of(received, peer), what.type, peer);
    }
  }
  template <class Operation, class Parts>
  void send_to_root(const Operation& what, const Parts& parts) {
    open_group();
    give(what.send, 0, count_of(parts, index(to_.self)), what.type, index(what.root));
    if (to_.self != what.root) return;
    for (std::size_t peer = 0; peer < size(); ++peer)
      take(what.recv, first_of(parts, peer), count_of(parts, peer), what.type, peer);
  }
  template <class Operation, class Parts>
  void send_from_root(const Operation& what, const Parts& parts) {
    open_group();
    if (to_.self == what.root)
      for (std::size_t peer = 0; peer < size(); ++peer)
        give(what.send, first_of(parts, peer), count_of(parts, peer), what.type, peer);
    take(what.recv, 0, count_of(parts, index(to_.self)), what.type, index(what.root));
  }

  void open_group() {
    if (grouped_ || failed()) return;
    note(to_.nccl.group_start(), "ncclGroupStart");
    grouped_ = !failed();
  }

  void give(const operand& from, std::size_t first, std::size_t count, dtype type, std::size_t peer) {
    if (count == 0 || failed()) return;
    note(to_.nccl.send(at(from, first, type), count, as_nccl(type), static_cast<int>(peer), to_.communicator,
                       to_.stream),
         "ncclSend");
  }

  void take(const operand& to, std::size_t first, std::size_t count, dtype type, std::size_t peer) {
    if (count == 0 || failed()) return;
    note(to_.nccl.recv(at(to, first, type), count, as_nccl(type), static_cast<int>(peer), to_.communicator, to_.stream),
         "ncclRecv");
  }

  void reduce_to(rank root, const void* from, void* to, std::size_t count, dtype type, ncclRedOp_t op) {
    if (failed()) return;
    note(to_.nccl.reduce(from, to, count, as_nccl(type), op, root.value(), to_.communicator, to_.stream), "ncclReduce");
  }

  /// Returns NCCL's operator for the reduction of \p what; nullopt after a failure.
  template <class Operation>
  [[nodiscard]] std::optional<ncclRedOp_t> operator_of(const Operation& what) {
    if (failed()) return std::nullopt;
    if (what.op != reduction::pre_mul_sum) return as_nccl(what.op);
    const bool on_device = static_cast<bool>(what.factor.memory);
    // NCCL does not write to it; the parameter is merely not declared const.
    void* const scalar = on_device ? what.factor.memory.data() : const_cast<std::byte*>(what.factor.value.data());
    ncclRedOp_t made{};
    note(to_.nccl.red_op_create_pre_mul_sum(&made, scalar, as_nccl(what.type),
                                            on_device ? ncclScalarDevice : ncclScalarHostImmediate, to_.communicator),
         "ncclRedOpCreatePreMulSum");
    if (failed()) return std::nullopt;
    made_.push_back(made);
    return made;
  }

  const nccl_target& to_;
  nccl_enqueued outcome_;
  bool grouped_ = false;
  std::vector<ncclRedOp_t> made_;
};

} // namespace

ncclDataType_t as_nccl(dtype type) {
  switch (type) {
    case dtype::u8: return ncclUint8;
    case dtype::i8: return ncclInt8;
    case dtype::i32: return ncclInt32;
    case dtype::u32: return ncclUint32;
    case dtype::i64: return ncclInt64;
    case dtype::u64: return ncclUint64;
    case dtype::f16: return ncclFloat16;
    case dtype::f32: return ncclFloat32;
    case dtype::f64: return ncclFloat64;
    case dtype::bf16: return ncclBfloat16;
    case dtype::f8e4m3: return ncclFloat8e4m3;
    case dtype::f8e5m2: return ncclFloat8e5m2;
  }
  throw exception{errc::invalid_argument, "unknown dtype"};
}

nccl_enqueued enqueue(const operation& what, const nccl_target& target) {
  nccl_launch launch{target};
  std::visit(launch, what);
  return launch.finish();
}

nccl_enqueued enqueue_together(std::span<const operation* const> all, const nccl_target& target) {
  nccl_launch launch{target};
  launch.together(all);
  return launch.finish();
}

} // namespace troupe
