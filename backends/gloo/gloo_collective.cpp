#include <troupe/backends/gloo/gloo_collective.hpp>

#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/operation/signature.hpp>

#include <gloo/allgather.h>
#include <gloo/allgatherv.h>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/reduce.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Returns \p hash extended with integers (FNV-1a).
template <class... Numbers>
std::uint64_t hash_on(std::uint64_t hash, Numbers... numbers) noexcept {
  const auto add = [&hash](std::uint64_t number) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (number >> (8 * i) & 0xFFU)) * 0x100000001B3U;
  };
  (add(static_cast<std::uint64_t>(numbers)), ...);
  return hash;
}
constexpr std::uint64_t empty_hash = 0xCBF29CE484222325U;

/// Returns the tag of a collective: the \p part-th of the \p ordinal-th launch of its communicator. The tag is a hash
/// of all that ranks must agree on, so that messages of ranks that do not agree never match. Gloo would end the process
/// if their sizes did not match.
std::uint32_t collective_tag(const signature& what, std::uint64_t ordinal, std::uint64_t part) noexcept {
  std::uint64_t hash = hash_on(empty_hash, ordinal, part, what.kind, what.type, what.op, what.count, what.root.value());
  static const std::size_t counts_differ = operation{all_to_all_v{}}.index(); // counts differ between ranks
  if (!what.is(counts_differ))
    for (const auto* counts : {&what.send_counts, &what.recv_counts})
      for (const std::size_t count : *counts) hash = hash_on(hash, count);
  return static_cast<std::uint32_t>(hash ^ (hash >> 32U));
}

/// Returns the slot made of \p prefix and a hash. The prefixes of Gloo's own algorithms are the numbers 1 to 8.
std::uint64_t slot_of(std::uint64_t prefix, std::uint64_t hash) noexcept {
  return (prefix << 56U) | (hash >> 8U);
}

/// Returns the slot of the \p ordinal-th transfer from one rank to another.
std::uint64_t transfer_slot(const signature& what, std::uint64_t ordinal) noexcept {
  return slot_of(0x40, hash_on(empty_hash, ordinal, what.type, what.count, what.tag));
}

/// Returns the slot of the part of an all_to_all_v that goes from one rank to another and has \p count elements.
std::uint64_t part_slot(const signature& what, std::size_t count, std::uint32_t tag) noexcept {
  return slot_of(0x41, hash_on(empty_hash, tag, what.type, count));
}

/// Sends and receives that have been started and not waited for.
class begun_transfers {
public:
  explicit begun_transfers(gloo::Context& among) : among_{among} {}

  void send(const std::byte* from, std::size_t size_bytes, std::size_t to, std::uint64_t slot) {
    // Gloo has one type of buffer. It only reads a buffer that is sent.
    begun_.push_back({among_.createUnboundBuffer(const_cast<std::byte*>(from), size_bytes), true});
    begun_.back().memory->send(static_cast<int>(to), slot);
  }
  void recv(std::byte* to, std::size_t size_bytes, std::size_t from, std::uint64_t slot) {
    begun_.push_back({among_.createUnboundBuffer(to, size_bytes), false});
    begun_.back().memory->recv(static_cast<int>(from), slot);
  }
  void wait() {
    for (const auto& [memory, sends] : begun_) static_cast<void>(sends ? memory->waitSend() : memory->waitRecv());
  }

private:
  struct transfer {
    std::unique_ptr<gloo::transport::UnboundBuffer> memory;
    bool sends;
  };
  gloo::Context& among_;
  std::vector<transfer> begun_;
};

/// Uninitialised memory. Every byte is written before it is read.
class scratch_bytes {
public:
  explicit scratch_bytes(std::size_t size_bytes) : front_{new std::byte[size_bytes]} {}
  [[nodiscard]] std::byte* front() const noexcept { return front_.get(); }

private:
  std::unique_ptr<std::byte[]> front_;
};

/// Calls \p work with an integer type of \p width bytes. Gloo needs only the size of an element.
template <class Work>
void with_width(std::size_t width, const Work& work) {
  switch (width) {
    case 1: return work(std::uint8_t{});
    case 2: return work(std::uint16_t{});
    case 4: return work(std::uint32_t{});
    default: return work(std::uint64_t{});
  }
}

/// Casts const away: Gloo's options take a pointer to non-const memory, also for memory that Gloo only reads.
std::uint8_t* bytes_at(const std::byte* from) noexcept {
  return reinterpret_cast<std::uint8_t*>(const_cast<std::byte*>(from));
}

template <class T>
T* elements_at(const std::byte* from) noexcept {
  return reinterpret_cast<T*>(bytes_at(from));
}

std::size_t sum_of(const std::vector<std::size_t>& counts) noexcept {
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

bool are_packed(const std::vector<std::size_t>& counts, const std::vector<std::size_t>& places) noexcept {
  std::size_t next = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0 && places[i] != next) return false;
    next += counts[i];
  }
  return true;
}

/// One rank's part in one collective.
class gloo_collective {
public:
  gloo_collective(const mock_call& mine, const std::shared_ptr<gloo::Context>& among, std::size_t largest_through_one,
                  std::uint32_t tag)
    : mine_{mine},
      among_{among},
      largest_through_one_{largest_through_one},
      tag_{tag},
      self_{static_cast<std::size_t>(among->rank)},
      size_{static_cast<std::size_t>(among->size)},
      width_{size_bytes(mine.what.type)},
      count_{mine.what.count} {}

  void operator()(const all_reduce&) const {
    if (count_ == 0) return;
    with_combining(
        [&](std::byte* into, const std::byte* from, dtype type) {
          if (const std::size_t length = count_ * size_bytes(type); is_small(length)) {
            const scratch_bytes parts{self_ == 0 ? size_ * length : 0};
            return go_through_one(from, length, parts.front(), into, length,
                                  [&] { combine_as_ring(into, parts.front(), count_, type, count_, 0); });
          }
          with_width(size_bytes(type), [&]<class T>(T) {
            auto asked = options<gloo::AllreduceOptions>();
            if (from != into) asked.setInput(elements_at<T>(from), count_);
            asked.setOutput(elements_at<T>(into), count_);
            asked.setReduceFunction(combining(type));
            gloo::allreduce(asked);
          });
        },
        mine_.recv);
  }

  void operator()(const reduce&) const {
    if (count_ == 0) return;
    // Gloo accumulates in the output memory on every rank, but only the root has an output.
    const scratch_bytes room{is_root() ? 0 : count_ * width_};
    with_combining(
        [&](std::byte* into, const std::byte* from, dtype type) {
          with_width(size_bytes(type), [&]<class T>(T) {
            auto asked = options<gloo::ReduceOptions>();
            if (from != into) asked.setInput(elements_at<T>(from), count_);
            asked.setOutput(elements_at<T>(into), count_);
            asked.setRoot(root());
            asked.setReduceFunction(combining(type));
            gloo::reduce(asked);
          });
        },
        is_root() ? mine_.recv : room.front());
  }

  void operator()(const broadcast&) const {
    if (count_ == 0) return;
    auto asked = options<gloo::BroadcastOptions>();
    if (is_root() && mine_.send != mine_.recv) asked.setInput(bytes_at(mine_.send), part_bytes());
    asked.setOutput(bytes_at(mine_.recv), part_bytes());
    asked.setRoot(root());
    gloo::broadcast(asked);
  }

  void operator()(const all_gather&) const {
    if (count_ == 0) return;
    if (is_small(size_ * part_bytes()))
      return go_through_one(mine_.send, part_bytes(), mine_.recv, mine_.recv, size_ * part_bytes(), [] {});
    auto asked = options<gloo::AllgatherOptions>();
    if (mine_.send != mine_.recv + self_ * part_bytes()) asked.setInput(bytes_at(mine_.send), part_bytes());
    asked.setOutput(bytes_at(mine_.recv), size_ * part_bytes());
    gloo::allgather(asked);
  }

  void operator()(const all_gather_v&) const {
    const std::vector<std::size_t>& counts = mine_.what.recv_counts;
    const std::size_t total = sum_of(counts);
    if (total == 0) return;
    if (are_packed(counts, mine_.recv_at)) return gather_packed(counts, mine_.recv);
    const scratch_bytes packed{total * width_};
    gather_packed(counts, packed.front());
    const std::byte* from = packed.front();
    for (std::size_t i = 0; i < size_; ++i) {
      move(mine_.recv + mine_.recv_at[i] * width_, from, counts[i] * width_);
      from += counts[i] * width_;
    }
  }

  // As in PyTorch's process group of Gloo, whose reduce_scatter_tensor is an all_reduce of all elements, and whose
  // reduce_scatter of a list reduces each part by itself.
  void operator()(const reduce_scatter&) const { reduce_received(size_ * count_, self_ * count_); }
  void operator()(const reduce_scatter_v&) const { reduce_received(sent_to(self_).count, 0); }

  void operator()(const all_to_all&) const { (*this)(all_to_all_v{}); }
  void operator()(const all_to_all_v&) const {
    exchange(mine_.send, mine_.recv, [&](std::size_t peer) { return received_part(mine_, peer); });
  }

  void operator()(const gather&) const { (*this)(gather_v{}); }
  void operator()(const gather_v&) const {
    exchange(mine_.send, mine_.recv,
             [&](std::size_t peer) { return is_root() ? received_part(mine_, peer) : element_range{}; });
  }

  void operator()(const scatter&) const { (*this)(scatter_v{}); }
  void operator()(const scatter_v&) const {
    const element_range own{0, sent_part(mine_, self_).count};
    exchange(mine_.send, mine_.recv,
             [&](std::size_t peer) { return static_cast<int>(peer) == root() ? own : element_range{}; });
  }

  void operator()(const barrier&) const {
    auto asked = options<gloo::BarrierOptions>();
    gloo::barrier(asked);
  }

  template <class Other>
  void operator()(const Other&) const {
    throw exception{errc::internal, "Gloo has no collective " + std::string{name_of_kind(mine_.what.kind)}};
  }

private:
  template <class Options>
  [[nodiscard]] Options options() const {
    Options made{among_};
    made.setTag(tag_);
    return made;
  }

  [[nodiscard]] element_range sent_to(std::size_t peer) const { return elements_for(mine_, self_, peer); }

  /// Receives every rank's elements for this rank, and combines them as in a ring over \p total elements of which they
  /// begin at \p begin.
  void reduce_received(std::size_t total, std::size_t begin) const {
    std::size_t end = 0;
    for (std::size_t i = 0; i < size_; ++i)
      if (const auto [first, count] = sent_to(i); count > 0) end = std::max(end, first + count);
    if (end == 0) return;
    const scratch_bytes changed{changes() ? end * width_ : 0};
    for (std::size_t i = 0; changes() && i < size_; ++i)
      if (const auto [first, count] = sent_to(i); count > 0)
        change(changed.front() + first * width_, mine_.send + first * width_, count);
    const std::size_t own = sent_to(self_).count;
    const scratch_bytes parts{size_ * own * width_};
    exchange(changes() ? changed.front() : mine_.send, parts.front(), [&](std::size_t peer) {
      return element_range{peer * own, own};
    });
    if (own == 0) return;
    const dtype type = mine_.what.type, wide = combining_dtype(type);
    if (wide == type) {
      combine_as_ring(mine_.recv, parts.front(), own, type, total, begin);
      return finish(mine_.recv, own, type);
    }
    const std::size_t most = std::min(own, std::size_t{4096});
    std::vector<float> widened(size_ * most), sums(most);
    auto* const results = reinterpret_cast<std::byte*>(sums.data());
    for (std::size_t at = 0; at < own; at += most) {
      const std::size_t count = std::min(most, own - at);
      for (std::size_t i = 0; i < size_; ++i)
        widen_elements(widened.data() + i * count, parts.front() + (i * own + at) * width_, count, type);
      combine_as_ring(results, reinterpret_cast<const std::byte*>(widened.data()), count, wide, total, begin + at);
      finish(results, count, wide);
      narrow_elements(mine_.recv + at * width_, sums.data(), count, type);
    }
  }

  /// Sends each rank the elements that are for it from \p from, which is laid out like the send buffer, and receives
  /// those of rank r into the range \p place(r) of \p into. Gloo's own functions need adjacent parts, and end the
  /// process if two counts do not match.
  template <class Place>
  void exchange(const std::byte* from, std::byte* into, Place place) const {
    begun_transfers parts{*among_};
    for (std::size_t step = 1; step < size_; ++step) {
      const std::size_t next = (self_ + step) % size_, last = (self_ + size_ - step) % size_;
      if (const auto [first, count] = sent_to(next); count > 0)
        parts.send(from + first * width_, count * width_, next, part_slot(mine_.what, count, tag_));
      if (const auto [first, count] = place(last); count > 0)
        parts.recv(into + first * width_, count * width_, last, part_slot(mine_.what, count, tag_));
    }
    const auto [first, count] = place(self_);
    if (count > 0) move(into + first * width_, from + sent_to(self_).first * width_, count * width_);
    parts.wait();
  }

  /// Returns whether an operation with \p length bytes of each rank is faster through rank 0, in two steps, than around
  /// Gloo's ring, where each step wakes the next rank. Depends only on what the ranks agree on.
  [[nodiscard]] bool is_small(std::size_t length) const noexcept { return length * size_ <= largest_through_one_; }

  /// Collects the \p length bytes at \p from of all ranks at \p parts of rank 0, in their order. Then sends the
  /// \p result_length bytes that \p make has put at \p into there to all ranks.
  template <class Make>
  void go_through_one(const std::byte* from, std::size_t length, std::byte* parts, std::byte* into,
                      std::size_t result_length, const Make& make) const {
    const std::uint64_t slot = part_slot(mine_.what, count_, tag_);
    begun_transfers up{*among_}, down{*among_};
    if (self_ != 0) {
      down.recv(into, result_length, 0, slot); // it comes after all of `from` has gone
      up.send(from, length, 0, slot);
      up.wait();
      return down.wait();
    }
    for (std::size_t i = 1; i < size_; ++i) up.recv(parts + i * length, length, i, slot);
    move(parts, from, length);
    up.wait();
    make();
    for (std::size_t i = 1; i < size_; ++i) down.send(into, result_length, i, slot);
    down.wait();
  }

  /// Returns the elements of a chunk of Gloo's ring over \p count elements. The ring has a chunk for each rank, of at
  /// least two segments. Chunk c begins as the part of rank c - 1; those of ranks c - 2, c - 3 and so on are combined
  /// with it, and last that of rank c.
  [[nodiscard]] std::size_t ring_chunk(std::size_t count, std::size_t width) const noexcept {
    const auto divided = [](std::size_t all, std::size_t by) { return (all + by - 1) / by; };
    const std::size_t most = gloo::detail::AllreduceOptionsImpl::kMaxSegmentSize / width;
    const std::size_t each = divided(std::max(divided(count, most), 2 * size_), size_);
    return each * divided(count, each * size_);
  }

  /// Combines \p parts, \p own elements of each rank, as Gloo's ring over \p total elements combines those from \p
  /// begin on, so that the result has the same bits.
  void combine_as_ring(std::byte* into, const std::byte* parts, std::size_t own, dtype type, std::size_t total,
                       std::size_t begin) const {
    const std::size_t width = size_bytes(type);
    const std::size_t chunk = ring_chunk(total, width);
    for (std::size_t c = begin / chunk; c * chunk < begin + own; ++c) {
      const std::size_t first = std::max(c * chunk, begin) - begin;
      const std::size_t count = std::min((c + 1) * chunk - begin, own) - first;
      const auto part_of = [&](std::size_t before) {
        return parts + ((c + size_ - before) % size_ * own + first) * width;
      };
      std::byte* const to = into + first * width;
      std::memcpy(to, part_of(1), count * width);
      for (std::size_t before = 2; before <= size_; ++before)
        combine_elements(to, part_of(before), to, count, type, mine_.what.op);
    }
  }

  [[nodiscard]] int root() const noexcept { return mine_.what.root.value(); }
  [[nodiscard]] bool is_root() const noexcept { return root() == among_->rank; }
  [[nodiscard]] std::size_t part_bytes() const noexcept { return count_ * width_; }
  [[nodiscard]] bool changes() const noexcept { return mine_.what.op == reduction::pre_mul_sum; }

  static void move(std::byte* to, const std::byte* from, std::size_t length) noexcept {
    if (length > 0 && to != from) std::memmove(to, from, length);
  }

  void change(std::byte* to, const std::byte* from, std::size_t count) const {
    reduce_part part{.send = from, .factor = mine_.factor};
    if (mine_.factor_on_device != nullptr) std::memcpy(part.factor.data(), mine_.factor_on_device, width_);
    change_elements(to, part, count, mine_.what.type, mine_.what.op, size_);
  }

  /// As PyTorch does with Gloo; host_reduce.hpp multiplies floats by 1/n before.
  void finish(std::byte* sums, std::size_t count, dtype type) const {
    if (mine_.what.op == reduction::avg) divide_elements(sums, count, type, size_);
  }

  [[nodiscard]] gloo::AllreduceOptions::Func combining(dtype type) const {
    return [type, op = mine_.what.op](void* to, const void* left, const void* right, std::size_t count) {
      combine_elements(static_cast<std::byte*>(to), static_cast<const std::byte*>(left),
                       static_cast<const std::byte*>(right), count, type, op);
    };
  }

  /// Calls \p reduce (output, input, dtype), which must combine the elements of all ranks. The dtype is one in which
  /// elements can be combined: narrow types are widened before and narrowed afterwards. The result is then in \p into,
  /// if this rank has a result.
  template <class Reduce>
  void with_combining(const Reduce& reduce, std::byte* into) const {
    const dtype type = mine_.what.type;
    const std::byte* from = mine_.send;
    if (combining_dtype(type) == type) {
      if (changes()) change(into, std::exchange(from, into), count_);
      reduce(into, from, type);
      finish(into, count_, type);
      return;
    }
    const std::unique_ptr<float[]> wide{new float[count_]};
    if (changes()) change(into, std::exchange(from, into), count_);
    widen_elements(wide.get(), from, count_, type);
    auto* const both = reinterpret_cast<std::byte*>(wide.get());
    reduce(both, both, combining_dtype(type));
    finish(both, count_, combining_dtype(type));
    narrow_elements(into, wide.get(), count_, type);
  }

  void gather_packed(const std::vector<std::size_t>& counts, std::byte* into) const {
    std::size_t before = 0;
    for (std::size_t i = 0; i < self_; ++i) before += counts[i];
    auto asked = options<gloo::AllgathervOptions>();
    if (counts[self_] > 0 && mine_.send != into + before * width_)
      asked.setInput(bytes_at(mine_.send), counts[self_] * width_);
    std::vector<std::size_t> lengths;
    for (const std::size_t count : counts) lengths.push_back(count * width_);
    asked.setOutput(bytes_at(into), std::move(lengths));
    gloo::allgatherv(asked);
  }

  const mock_call& mine_;
  const std::shared_ptr<gloo::Context>& among_;
  std::size_t largest_through_one_; ///< Bytes that rank 0 gets, or sends.
  std::uint32_t tag_;
  std::size_t self_;
  std::size_t size_;
  std::size_t width_;
  std::size_t count_;
};

/// Performs a rank's transfers to itself. Both halves of such a transfer are in the same launch.
void move_to_self(const mock_launch& launch) {
  for (const mock_launch::transfer& from : launch.transfers) {
    if (from.from != from.to || !from.call.what.is_send()) continue;
    for (const mock_launch::transfer& to : launch.transfers)
      if (to.from == to.to && to.call.what.is_recv() && to.ordinal == from.ordinal)
        perform_transfer(from.call, to.call);
  }
}

} // namespace

void perform_launch(const mock_launch& launch, const std::shared_ptr<gloo::Context>& among,
                    std::size_t largest_through_one) {
  begun_transfers transfers{*among};
  for (const mock_launch::transfer& one : launch.transfers) {
    const std::size_t length = one.call.what.count * size_bytes(one.call.what.type);
    if (one.from == one.to || length == 0) continue;
    const std::uint64_t slot = transfer_slot(one.call.what, one.ordinal);
    if (one.call.what.is_send())
      transfers.send(one.call.send, length, one.to, slot);
    else
      transfers.recv(one.call.recv, length, one.from, slot);
  }
  move_to_self(launch);
  for (std::size_t i = 0; i < launch.collectives.size(); ++i) {
    const mock_call& one = launch.collectives[i];
    visit_kind(one.what.kind,
               gloo_collective{one, among, largest_through_one, collective_tag(one.what, *launch.ordinal, i)});
  }
  transfers.wait();
}

} // namespace troupe
