// The one-shot kernels. A rank stores its parts of all operations into its peers' scratch, polls its own, and combines
// or copies what it gets (line_protocol.hpp). One thread moves up to one_shot_lines lines of eight bytes to each peer.
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
  static constexpr std::uint32_t polls_per_look = 64; // one look in some 30 us, where nothing else is to be done

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
  __device__ bool is_aborted() { return *static_cast<const volatile std::uint32_t*>(given_.stop) != 0; }

private:
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

/// One block's part of one operation of at most \p N ranks.
template <int N, unsigned Capacity>
class block_exchange {
public:
  __device__ block_exchange(const one_shot_arguments<Capacity>& given, const one_shot_entry& entry,
                            device_lines<Capacity>& memory, const line_operation& now)
    : given_{given},
      entry_{entry},
      memory_{memory},
      now_{now},
      ranks_{N < 5 ? std::uint32_t{N} : given.ranks},
      how_{static_cast<reduce_kind>(entry.op)},
      type_{static_cast<dtype>(entry.type)},
      first_{(blockIdx.x - entry.first_block) * entry.lines_per_block},
      count_{min(static_cast<std::uint32_t>(entry.lines_per_block), line_count_of(entry.part_bytes) - first_)} {}

  /// Returns false if the operation is aborted.
  __device__ bool run() {
    std::uint64_t own[one_shot_lines]; // what this rank adds to its own result
    const std::uint32_t self = given_.self;
    const bool sends = entry_.from < 0 || entry_.from == given_.self;
#pragma unroll 1
    for (std::uint32_t j = 0, i = threadIdx.x; i < count_; ++j, i += blockDim.x) {
      std::uint64_t mine = 0;
      if (sends && entry_.send_stride == 0) mine = own_line(0, i);
#pragma unroll
      for (std::uint32_t k = 1; k < N; ++k) { // each rank begins with another peer
        if (k >= ranks_) break;
        const std::uint32_t peer = self + k < ranks_ ? self + k : self + k - ranks_;
        if (sends && (entry_.to < 0 || entry_.to == static_cast<int>(peer)))
          send_line(memory_, now_, self, peer, i, entry_.send_stride == 0 ? mine : own_line(peer, i));
        else if (i == 0)
          send_line(memory_, now_, self, peer, 0, 0);
      }
      own[j] = sends && entry_.send_stride != 0 ? own_line(self, i) : mine;
    }
    if (entry_.from < 0 && (entry_.to < 0 || entry_.to == given_.self)) return receive_all(own);
    return receive_from_one(own, sends);
  }

private:
  [[nodiscard]] __device__ std::uint32_t last_peer() const {
    return given_.self + 1U == ranks_ ? ranks_ - 2 : ranks_ - 1;
  }
  [[nodiscard]] __device__ std::uint32_t offset(std::uint32_t line) const {
    return (first_ + line) * static_cast<std::uint32_t>(line_payload_bytes);
  }
  [[nodiscard]] __device__ std::uint32_t bytes(std::uint32_t line) const {
    return min(static_cast<std::uint32_t>(line_payload_bytes), entry_.part_bytes - offset(line));
  }

  /// Returns a line of this rank's part for \p peer, as it goes into the result.
  [[nodiscard]] __device__ std::uint64_t own_line(std::uint32_t peer, std::uint32_t line) const {
    const std::uint64_t loaded = load_bytes(entry_.send + peer * entry_.send_stride + offset(line), bytes(line));
    if (!entry_.combines || (how_ != reduce_kind::pre_mul_sum && how_ != reduce_kind::avg)) return loaded;
    return with_element(type_, [&]<class Element>(Element) {
      std::uint64_t factor = entry_.factor;
      if (entry_.factor_on_device)
        factor = load_bytes(reinterpret_cast<const std::byte*>(factor), sizeof(typename Element::stored));
      return changed<Element>(how_, loaded, factor, static_cast<int>(ranks_));
    });
  }

  __device__ bool receive_all(const std::uint64_t (&own)[one_shot_lines]) {
    const std::uint32_t self = given_.self;
#pragma unroll 1
    for (std::uint32_t j = 0, i = threadIdx.x; i < count_; ++j, i += blockDim.x) {
      std::uint32_t lines[N - 1];
      std::uint64_t got[N - 1];
#pragma unroll
      for (std::uint32_t k = 0; k < N - 1; ++k) // of fewer ranks, the last one again
        lines[k] = now_.line(k >= ranks_ - 1 ? last_peer() : k < self ? k : k + 1, i);
      if (!receive_lines(memory_, now_, lines, got)) return false;
      std::uint64_t all[N]; // by rank
#pragma unroll
      for (std::uint32_t r = 0; r < N; ++r) {
        const std::uint64_t of_later = got[r == 0 ? 0 : r - 1]; // than this rank
        const std::uint64_t of_earlier = got[r == N - 1 ? N - 2 : r];
        all[r] = r == self ? own[j] : r < self ? of_earlier : of_later;
      }
      write_result(i, all);
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
  __device__ bool receive_from_one(const std::uint64_t (&own)[one_shot_lines], bool sends) {
#pragma unroll 1
    for (std::uint32_t source = 0; source < ranks_; ++source) {
      const bool has_payload = entry_.from == static_cast<int>(source);
#pragma unroll 1
      for (std::uint32_t j = 0, i = threadIdx.x; i < (has_payload ? count_ : 1); ++j, i += blockDim.x) {
        std::uint64_t got[1] = {own[has_payload ? j : 0]};
        if (source != given_.self) {
          const std::uint32_t lines[1] = {now_.line(source, i)};
          if (!receive_lines(memory_, now_, lines, got)) return false;
        }
        if (has_payload && entry_.recv != nullptr) store_bytes(entry_.recv + offset(i), got[0], bytes(i));
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
  std::uint32_t first_; ///< The first line of the block, in the part.
  std::uint32_t count_;
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

template <int N, unsigned Capacity>
__global__ void __launch_bounds__(one_shot_threads)
    run_one_shot(const __grid_constant__ one_shot_arguments<Capacity> given) {
  std::uint32_t* const arrived = given.control + one_shot_control::arrived;
  device_lines<Capacity> memory{given};
  const line_operation now = begin_operation(memory, given.layout, blockIdx.x);
  if (now.is_ended()) return;
  const bool tells = given.word != nullptr && threadIdx.x == 0;
  const bool spoilt = tells && (*static_cast<volatile std::uint32_t*>(arrived) & one_shot_control::spoilt) != 0;
  const one_shot_entry& entry = given.entries[Capacity == 1 ? 0 : given.entry_of[blockIdx.x]];
  const bool received = block_exchange<N, Capacity>{given, entry, memory, now}.run();
  const bool has_received = __syncthreads_and(received) != 0;
  end_operation(memory, given.layout, now, blockIdx.x, has_received, threadIdx.x, blockDim.x);
  if (!has_received && threadIdx.x == 0) atomicOr(arrived, one_shot_control::spoilt);
  if (has_received && tells) tell(given, arrived, spoilt);
}

template <unsigned Capacity>
const void* address(int ranks) noexcept {
  switch (ranks) {
    case 2: return reinterpret_cast<const void*>(&run_one_shot<2, Capacity>);
    case 3: return reinterpret_cast<const void*>(&run_one_shot<3, Capacity>);
    case 4: return reinterpret_cast<const void*>(&run_one_shot<4, Capacity>);
    default: return reinterpret_cast<const void*>(&run_one_shot<one_shot_ranks, Capacity>);
  }
}

} // namespace

const void* compiled_one_shot_kernel(int ranks, unsigned capacity) noexcept {
  return capacity == 1 ? address<1>(ranks) : address<one_shot_entries>(ranks);
}

} // namespace troupe
