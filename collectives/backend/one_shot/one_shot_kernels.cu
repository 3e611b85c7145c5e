// The one-shot kernels. A rank stores its parts of all operations into its peers' scratch, polls its own, and combines
// or copies what it gets (line_protocol.hpp). Each warp moves consecutive lines of one operation.
#include <troupe/collectives/backend/one_shot/line_protocol.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_numbers.cuh>
#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>

#include <cstdint>

namespace troupe {

namespace {

using namespace one_shot_numbers;

/// The memory of the protocol. Lines are stored and loaded at system scope: a line's two words are each one access.
template <unsigned Capacity>
class device_lines {
public:
  static constexpr std::uint32_t polls_per_look = 64; // some 30 us

  explicit __device__ device_lines(const one_shot_arguments<Capacity>& given)
    : given_{given}, own_{given.scratch[given.self]} {}

  __device__ void store_line(std::uint32_t peer, std::uint32_t line, line_halves made) {
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %2};" ::"l"(given_.scratch[peer] + line * line_bytes),
                 "l"(made.first), "l"(made.second)
                 : "memory");
  }
  __device__ line_halves load_line(std::uint32_t line) {
    line_halves got;
    asm volatile("ld.relaxed.sys.global.v2.b64 {%0, %1}, [%2];"
                 : "=l"(got.first), "=l"(got.second)
                 : "l"(own_ + line * line_bytes)
                 : "memory");
    return got;
  }
  __device__ void clear_line(std::uint32_t line) {
    asm volatile("st.relaxed.sys.global.v2.b64 [%0], {%1, %1};" ::"l"(own_ + line * line_bytes), "l"(0ULL) : "memory");
  }
  __device__ std::uint32_t load_sequence(std::uint32_t block) {
    return given_.control[one_shot_control::sequences + block];
  }
  __device__ void store_sequence(std::uint32_t block, std::uint32_t sequence) {
    given_.control[one_shot_control::sequences + block] = sequence;
  }
  /// Loads of the same word in host memory wait for each other, 0.7 us each. If all warps loaded it, ranks would wait
  /// so long for each other that they look again in the next operation, for ever. So one thread of the communicator
  /// does, now and then, and tells the others in device memory.
  __device__ bool is_aborted() {
    volatile std::uint32_t* const control = given_.control;
    if (control[one_shot_control::aborted] != 0) return true;
    if (threadIdx.x % one_shot_lanes != static_cast<std::uint32_t>(__ffs(static_cast<int>(__activemask()))) - 1)
      return false;
    std::uint64_t nanoseconds = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(nanoseconds));
    const auto now = static_cast<std::uint32_t>(nanoseconds);
    const std::uint32_t last = control[one_shot_control::looked];
    if (now - last < nanoseconds_per_look || atomicCAS(given_.control + one_shot_control::looked, last, now) != last)
      return false;
    if (*static_cast<const volatile std::uint32_t*>(given_.stop) == 0) return false;
    control[one_shot_control::aborted] = 1;
    return true;
  }

private:
  static constexpr std::uint32_t nanoseconds_per_look = 20'000;

  const one_shot_arguments<Capacity>& given_;
  std::byte* own_;
};

template <class Word>
__device__ std::uint64_t load_words(const std::byte* from, std::uint32_t bytes) {
  std::uint64_t made = 0;
  for (std::uint32_t i = 0; i < bytes; i += sizeof(Word))
    made |= std::uint64_t{*reinterpret_cast<const Word*>(from + i)} << (8 * i);
  return made;
}

/// Loads up to eight bytes of any alignment.
__device__ std::uint64_t load_bytes(const std::byte* from, std::uint32_t bytes) {
  const auto shape = reinterpret_cast<std::uintptr_t>(from) | bytes;
  if ((shape & 7U) == 0 && bytes != 0) return *reinterpret_cast<const std::uint64_t*>(from);
  if ((shape & 3U) == 0) return load_words<std::uint32_t>(from, bytes);
  if ((shape & 1U) == 0) return load_words<std::uint16_t>(from, bytes);
  return load_words<std::uint8_t>(from, bytes);
}

template <class Word>
__device__ void store_words(std::byte* to, std::uint64_t line, std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < bytes; i += sizeof(Word))
    *reinterpret_cast<Word*>(to + i) = static_cast<Word>(line >> (8 * i));
}

__device__ void store_bytes(std::byte* to, std::uint64_t line, std::uint32_t bytes) {
  const auto shape = reinterpret_cast<std::uintptr_t>(to) | bytes;
  if ((shape & 7U) == 0 && bytes != 0)
    *reinterpret_cast<std::uint64_t*>(to) = line;
  else if ((shape & 3U) == 0)
    store_words<std::uint32_t>(to, line, bytes);
  else if ((shape & 1U) == 0)
    store_words<std::uint16_t>(to, line, bytes);
  else
    store_words<std::uint8_t>(to, line, bytes);
}

/// Receives these lines of all other ranks, of which there are at most \p N − 1, and puts them beside the own ones:
/// \p all is by line and rank. Returns false if the operation is aborted.
template <int N, std::uint32_t Count, unsigned Capacity>
__device__ bool receive_of_all(device_lines<Capacity>& memory, const line_operation& now, std::uint32_t self,
                               std::uint32_t ranks, const std::uint32_t (&index)[Count],
                               const std::uint64_t (&own)[Count], std::uint64_t (&all)[Count][N]) {
  std::uint32_t lines[Count * (N - 1)];
  std::uint64_t got[Count * (N - 1)];
  const std::uint32_t last = self + 1 == ranks ? ranks - 2 : ranks - 1;
#pragma unroll
  for (std::uint32_t c = 0; c < Count; ++c)
#pragma unroll
    for (std::uint32_t k = 0; k < N - 1; ++k) // of fewer ranks, the last one again
      lines[c * (N - 1) + k] = now.line(k >= ranks - 1 ? last : k < self ? k : k + 1, index[c]);
  if (!receive_lines(memory, now, lines, got)) return false;
#pragma unroll
  for (std::uint32_t c = 0; c < Count; ++c)
#pragma unroll
    for (std::uint32_t r = 0; r < N; ++r) {
      const std::uint64_t of_later = got[c * (N - 1) + (r == 0 ? 0 : r - 1)]; // than this rank
      const std::uint64_t of_earlier = got[c * (N - 1) + (r == N - 1 ? N - 2 : r)];
      all[c][r] = r == self ? own[c] : r < self ? of_earlier : of_later;
    }
  return true;
}

/// One warp's lines of one operation.
struct warp_lines {
  __device__ warp_lines(const one_shot_shape& shape, const one_shot_entry& entry)
    : lane{threadIdx.x % one_shot_lanes},
      place{threadIdx.x / one_shot_lanes * shape.lines_per_warp},
      first{(blockIdx.x * shape.warps_per_block + threadIdx.x / one_shot_lanes - entry.first_warp) *
            shape.lines_per_warp} {
    const std::uint32_t all = line_count_of(entry.part_bytes);
    count = first < all ? min(std::uint32_t{shape.lines_per_warp}, all - first) : 0;
  }

  std::uint32_t lane;
  std::uint32_t place; ///< The first one in the block.
  std::uint32_t first; ///< The first one in the part.
  std::uint32_t count; ///< 0: the warp has nothing to do.
};

/// Changes a rank's own line as the operation asks: see changed(). A function of its own, because its code is long.
__noinline__ __device__ std::uint64_t changed_line(const one_shot_entry& entry, std::uint64_t line,
                                                   std::uint32_t ranks) {
  return with_element(static_cast<dtype>(entry.type), [&]<class Element>(Element) {
    std::uint64_t factor = entry.factor;
    if (entry.factor_on_device)
      factor = load_bytes(reinterpret_cast<const std::byte*>(factor), sizeof(typename Element::stored));
    return changed<Element>(static_cast<reduce_kind>(entry.op), line, factor, static_cast<int>(ranks));
  });
}

/// One warp's part of one operation of at most \p N ranks.
template <int N, unsigned Capacity>
class warp_exchange {
public:
  __device__ warp_exchange(const one_shot_arguments<Capacity>& given, const one_shot_entry& entry,
                           device_lines<Capacity>& memory, const line_operation& now)
    : given_{given},
      entry_{entry},
      memory_{memory},
      now_{now},
      ranks_{N < 5 ? std::uint32_t{N} : given.ranks},
      how_{static_cast<reduce_kind>(entry.op)},
      type_{static_cast<dtype>(entry.type)},
      mine_{given.shape, entry} {}

  /// Returns false if the operation is aborted.
  __device__ bool run() {
    if (mine_.count == 0) return true;
    const std::uint32_t self = given_.self;
    const bool sends = entry_.from < 0 || entry_.from == given_.self;
#pragma unroll 1
    for (std::uint32_t i = mine_.lane; i < mine_.count; i += one_shot_lanes) {
      const std::uint64_t same = sends && entry_.send_stride == 0 ? own_line(0, i) : 0;
#pragma unroll
      for (std::uint32_t k = 1; k < N; ++k) { // each rank begins with another peer
        if (k >= ranks_) break;
        const std::uint32_t peer = self + k < ranks_ ? self + k : self + k - ranks_;
        if (sends && (entry_.to < 0 || entry_.to == static_cast<int>(peer)))
          send_line(memory_, now_, self, peer, mine_.place + i, entry_.send_stride == 0 ? same : own_line(peer, i));
        else if (i == 0)
          send_line(memory_, now_, self, peer, mine_.place, 0);
      }
    }
    if (entry_.from < 0 && (entry_.to < 0 || entry_.to == given_.self)) return receive_all();
    return receive_from_one();
  }

private:
  [[nodiscard]] __device__ std::uint32_t offset(std::uint32_t line) const {
    return (mine_.first + line) * static_cast<std::uint32_t>(line_payload_bytes);
  }
  [[nodiscard]] __device__ std::uint32_t bytes(std::uint32_t line) const {
    return min(static_cast<std::uint32_t>(line_payload_bytes), entry_.part_bytes - offset(line));
  }

  /// Returns a line of this rank's part for \p peer.
  [[nodiscard]] __device__ std::uint64_t sent_line(std::uint32_t peer, std::uint32_t line) const {
    return load_bytes(entry_.send + peer * entry_.send_stride + offset(line), bytes(line));
  }
  /// The same as it goes into the result.
  [[nodiscard]] __device__ std::uint64_t own_line(std::uint32_t peer, std::uint32_t line) const {
    const std::uint64_t loaded = sent_line(peer, line);
    if (!entry_.combines || (how_ != reduce_kind::pre_mul_sum && how_ != reduce_kind::avg)) return loaded;
    return changed_line(entry_, loaded, ranks_);
  }

  // The own lines are loaded again: a register for each of them would cost more.
  __device__ bool receive_all() {
#pragma unroll 1
    for (std::uint32_t i = mine_.lane; i < mine_.count; i += one_shot_lanes) {
      std::uint64_t all[1][N]; // by rank
      if (!receive_of_all<N, 1>(memory_, now_, given_.self, ranks_, {mine_.place + i}, {own_line(given_.self, i)}, all))
        return false;
      write_result(i, all[0]);
    }
    return true;
  }

  __device__ void write_result(std::uint32_t line, const std::uint64_t (&all)[N]) const {
    if (entry_.combines) {
      const std::uint64_t sum = with_element(
          type_, [&]<class Element>(Element) { return folded<Element>(how_, all, static_cast<int>(ranks_)); });
      return store_bytes(entry_.recv + offset(line), sum, bytes(line));
    }
#pragma unroll
    for (std::uint32_t r = 0; r < N; ++r)
      if (r < ranks_) store_bytes(entry_.recv + r * entry_.recv_stride + offset(line), all[r], bytes(line));
  }

  /// Receives what one root sends, if it does, and the empty lines of all others.
  __device__ bool receive_from_one() {
#pragma unroll 1
    for (std::uint32_t source = 0; source < ranks_; ++source) {
      const bool has_payload = entry_.from == static_cast<int>(source);
#pragma unroll 1
      for (std::uint32_t i = mine_.lane; i < (has_payload ? mine_.count : 1); i += one_shot_lanes) {
        std::uint64_t got[1];
        if (source != given_.self) {
          const std::uint32_t lines[1] = {now_.line(source, mine_.place + i)};
          if (!receive_lines(memory_, now_, lines, got)) return false;
        }
        if (!has_payload || entry_.recv == nullptr) continue;
        if (source == given_.self) got[0] = sent_line(source, i);
        store_bytes(entry_.recv + offset(i), got[0], bytes(i));
      }
    }
    return true;
  }

  const one_shot_arguments<Capacity>& given_;
  const one_shot_entry& entry_;
  device_lines<Capacity>& memory_;
  const line_operation& now_;
  std::uint32_t ranks_; ///< A constant where N is the number of ranks.
  reduce_kind how_;
  dtype type_;
  warp_lines mine_;
};

/// Writes the completion word once all blocks are done. \p spoilt: an earlier operation was aborted, so that this one's
/// completion would stand for that one, too.
template <unsigned Capacity>
__device__ void tell(const one_shot_arguments<Capacity>& given, std::uint32_t* arrived, bool spoilt) {
  if (spoilt) return;
  if (gridDim.x > 1) {
    __threadfence();
    if (atomicAdd(arrived, 1U) != gridDim.x - 1) return;
    *arrived = 0;
  }
  __threadfence_system();
  *static_cast<volatile std::uint32_t*>(given.word) = given.value;
}

/// What a block does before its part of the operation, and after it.
template <unsigned Capacity>
class block_operation {
public:
  explicit __device__ block_operation(const one_shot_arguments<Capacity>& given)
    : given_{given}, memory{given}, now{begin_operation(memory, given.layout, blockIdx.x)} {}

  /// The block has exchanged its lines.
  __device__ void end(bool received) {
    const bool has_received = __syncthreads_and(received) != 0;
    end_operation(memory, given_.layout, now, blockIdx.x, has_received, threadIdx.x, blockDim.x);
    if (!has_received && threadIdx.x == 0) atomicOr(arrived_, one_shot_control::spoilt);
    if (has_received && tells_) tell(given_, arrived_, spoilt_);
  }

private:
  const one_shot_arguments<Capacity>& given_;
  std::uint32_t* const arrived_ = given_.control + one_shot_control::arrived;
  const bool tells_ = given_.word != nullptr && threadIdx.x == 0;
  const bool spoilt_ = tells_ && (*static_cast<volatile std::uint32_t*>(arrived_) & one_shot_control::spoilt) != 0;

public:
  device_lines<Capacity> memory;
  const line_operation now;
};

/// Returns the entry of this thread's warp: the last one that begins with it or before it.
template <unsigned Capacity>
__device__ const one_shot_entry& own_entry(const one_shot_arguments<Capacity>& given) {
  if constexpr (Capacity == 1) return given.entries[0];
  const std::uint32_t warp = blockIdx.x * given.shape.warps_per_block + threadIdx.x / one_shot_lanes;
  std::uint32_t found = 0;
#pragma unroll
  for (std::uint32_t step = Capacity / 2; step != 0; step /= 2)
    if (found + step < given.entry_count && given.first_warps[found + step] <= warp) found += step;
  return given.entries[found];
}

template <int N, unsigned Capacity>
__global__ void __launch_bounds__(one_shot_threads, 1)
    run_one_shot(const __grid_constant__ one_shot_arguments<Capacity> given) {
  block_operation<Capacity> block{given};
  if (block.now.is_ended()) return;
  block.end(warp_exchange<N, Capacity>{given, own_entry(given), block.memory, block.now}.run());
}

/// One all_reduce by sum of whole lines in aligned memory: \p Lines lines by each thread. All loads are on their way
/// before the first is needed, as far as registers permit.
template <int N, class Element, std::uint32_t Lines>
__device__ bool exchange_sums(const one_shot_arguments<1>& given, device_lines<1>& memory, const line_operation& now) {
  constexpr std::uint32_t at_once = N == 2 ? Lines : 1;
  const std::uint32_t self = given.self;
  const std::uint32_t ranks = N < 5 ? std::uint32_t{N} : given.ranks;
  const one_shot_entry& entry = given.entries[0];
  const warp_lines mine{given.shape, entry};
  const auto* const from = reinterpret_cast<const std::uint64_t*>(entry.send) + mine.first + mine.lane;
  auto* const to = reinterpret_cast<std::uint64_t*>(entry.recv) + mine.first + mine.lane;
  const auto has_line = [&](std::uint32_t which) { return mine.lane + which * one_shot_lanes < mine.count; };
  std::uint64_t own[Lines] = {};
#pragma unroll
  for (std::uint32_t j = 0; j < Lines; ++j)
    if (has_line(j)) own[j] = from[j * one_shot_lanes];
  if (now.is_ended()) return false; // after the loads, because the sequence takes as long as they
#pragma unroll
  for (std::uint32_t j = 0; j < Lines; ++j)
#pragma unroll
    for (std::uint32_t k = 1; k < N; ++k) {
      const std::uint32_t peer = self + k < ranks ? self + k : self + k - ranks;
      if (k < ranks && has_line(j))
        send_line(memory, now, self, peer, mine.place + mine.lane + j * one_shot_lanes, own[j]);
    }
#pragma unroll
  for (std::uint32_t j = 0; j < Lines; j += at_once) {
    if (!has_line(j)) break;
    std::uint32_t index[at_once];
    std::uint64_t own_now[at_once];
    std::uint64_t all[at_once][N];
#pragma unroll
    for (std::uint32_t c = 0; c < at_once; ++c) { // of fewer lines, the first one again
      index[c] = mine.place + mine.lane + (has_line(j + c) ? j + c : j) * one_shot_lanes;
      own_now[c] = own[j + c];
    }
    if (!receive_of_all<N>(memory, now, self, ranks, index, own_now, all)) return false;
#pragma unroll
    for (std::uint32_t c = 0; c < at_once; ++c)
      if (has_line(j + c))
        to[(j + c) * one_shot_lanes] = folded<Element>(reduce_kind::sum, all[c], static_cast<int>(ranks));
  }
  return true;
}

template <int N, class Element>
__global__ void __launch_bounds__(one_shot_threads, 1)
    run_one_shot_sum(const __grid_constant__ one_shot_arguments<1> given) {
  block_operation<1> block{given};
  bool received = false;
  switch (given.shape.lines_per_warp / one_shot_lanes) {
    case 1: received = exchange_sums<N, Element, 1>(given, block.memory, block.now); break;
    case 2: received = exchange_sums<N, Element, 2>(given, block.memory, block.now); break;
    default: received = exchange_sums<N, Element, one_shot_lines>(given, block.memory, block.now); break;
  }
  if (!block.now.is_ended()) block.end(received);
}

template <int N>
const void* address(one_shot_form form) noexcept {
  switch (form) {
    case one_shot_form::several: return reinterpret_cast<const void*>(&run_one_shot<N, one_shot_entries>);
    case one_shot_form::f32_sum: return reinterpret_cast<const void*>(&run_one_shot_sum<N, plain<float>>);
    case one_shot_form::f16_sum: return reinterpret_cast<const void*>(&run_one_shot_sum<N, half_float>);
    case one_shot_form::bf16_sum: return reinterpret_cast<const void*>(&run_one_shot_sum<N, brain_float>);
    case one_shot_form::any: break;
  }
  return reinterpret_cast<const void*>(&run_one_shot<N, 1>);
}

} // namespace

const void* compiled_one_shot_kernel(int ranks, one_shot_form form) noexcept {
  switch (ranks) {
    case 2: return address<2>(form);
    case 3: return address<3>(form);
    case 4: return address<4>(form);
    default: return address<one_shot_ranks>(form);
  }
}

} // namespace troupe
