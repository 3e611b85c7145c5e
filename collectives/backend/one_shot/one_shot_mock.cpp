#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_kernels.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

namespace troupe {

namespace {

/// The memory of the protocol: the mock's device memory, which is the host's.
template <unsigned Capacity>
class host_lines {
public:
  explicit host_lines(const one_shot_arguments<Capacity>& given) noexcept : given_{given} {}

  void store_line(std::uint32_t peer, std::uint32_t line, const line_halves& made) const {
    auto* const words = words_of(peer, line);
    std::atomic_ref{words[0]}.store(made.first, std::memory_order_relaxed);
    std::atomic_ref{words[1]}.store(made.second, std::memory_order_relaxed);
  }
  [[nodiscard]] line_halves load_line(std::uint32_t line) const {
    auto* const words = words_of(given_.self, line);
    return {.first = std::atomic_ref{words[0]}.load(std::memory_order_relaxed),
            .second = std::atomic_ref{words[1]}.load(std::memory_order_relaxed)};
  }
  void clear_line(std::uint32_t line) const { store_line(given_.self, line, {}); }
  [[nodiscard]] std::uint32_t load_sequence(std::uint32_t block) const {
    return given_.control[one_shot_control::sequences + block];
  }
  void store_sequence(std::uint32_t block, std::uint32_t sequence) const {
    given_.control[one_shot_control::sequences + block] = sequence;
  }
  [[nodiscard]] bool is_aborted() const {
    return std::atomic_ref{*const_cast<std::uint32_t*>(given_.stop)}.load(std::memory_order_acquire) != 0;
  }

private:
  [[nodiscard]] std::uint64_t* words_of(std::uint32_t rank, std::uint32_t line) const {
    return reinterpret_cast<std::uint64_t*>(given_.scratch[rank] + std::size_t{line} * line_bytes);
  }

  const one_shot_arguments<Capacity>& given_;
};

/// A one-shot kernel of the mock. All blocks send in the first step. Then lines are received in any number of steps,
/// and an entry's result is written when all of its lines are there.
template <unsigned Capacity>
class mock_one_shot final : public mock_kernel {
public:
  explicit mock_one_shot(const void* arguments) { std::memcpy(&given_, arguments, sizeof given_); }

  kernel_step step() override {
    if (!has_sent_) {
      has_sent_ = true;
      begin();
      return kernel_step::advanced;
    }
    std::erase_if(waiting_, [this](const expected_line& one) { return receive(one); });
    return waiting_.empty() || memory_.is_aborted() ? end() : kernel_step::waiting;
  }
  [[nodiscard]] bool polls() const noexcept override { return given_.has_other_processes; }

private:
  /// A line that has not been received yet.
  struct expected_line {
    std::size_t entry;
    std::uint32_t block;
    std::uint32_t source;
    std::uint32_t index;   ///< In the block.
    std::uint32_t of_part; ///< In the part. Of an empty line it is behind the part's end.
  };

  [[nodiscard]] std::uint32_t warps_of(const one_shot_entry& one) const {
    return (line_count_of(one.part_bytes) + given_.shape.lines_per_warp - 1) / given_.shape.lines_per_warp;
  }
  [[nodiscard]] static bool sends(const one_shot_entry& one, std::uint32_t source, std::uint32_t to) {
    return (one.from < 0 || one.from == static_cast<int>(source)) && (one.to < 0 || one.to == static_cast<int>(to));
  }

  void begin() {
    for (std::uint32_t block = 0; block < given_.shape.blocks; ++block) {
      blocks_.push_back(begin_operation(memory_, given_.layout, block));
      is_ended_ = is_ended_ || blocks_.back().is_ended(); // an earlier operation of the block was aborted
    }
    const std::size_t count = Capacity == 1 ? 1 : std::size_t{given_.entry_count};
    parts_.resize(count);
    for (std::size_t i = 0; i < count; ++i) {
      const one_shot_entry& one = given_.entries[i];
      parts_[i].assign(given_.ranks, {});
      const std::vector<std::byte> mine = own_parts(one);
      const std::size_t stride = one.send_stride;
      if (sends(one, given_.self, given_.self))
        parts_[i][given_.self].assign(mine.begin() + static_cast<std::ptrdiff_t>(given_.self * stride),
                                      mine.begin() +
                                          static_cast<std::ptrdiff_t>(given_.self * stride + one.part_bytes));
      for (std::uint32_t warp = 0; warp < warps_of(one); ++warp) begin(i, warp, mine);
    }
  }

  /// Returns this rank's parts, as they go into the result.
  [[nodiscard]] std::vector<std::byte> own_parts(const one_shot_entry& one) const {
    if (one.part_bytes == 0 || (one.from >= 0 && one.from != given_.self)) return {};
    const std::size_t all = one.send_stride == 0 ? one.part_bytes : std::size_t{one.send_stride} * given_.ranks;
    std::vector<std::byte> made(one.send, one.send + all);
    const auto type = static_cast<dtype>(one.type);
    const auto op = static_cast<reduction>(one.op);
    if (!one.combines || !changes_elements(type, op)) return made;
    reduce_part from{.send = one.send};
    if (one.factor_on_device)
      std::memcpy(from.factor.data(), reinterpret_cast<const void*>(one.factor), size_bytes(type));
    else
      std::memcpy(from.factor.data(), &one.factor, sizeof one.factor);
    change_elements(made.data(), from, all / size_bytes(type), type, op, given_.ranks);
    return made;
  }

  /// Begins the part of the operation's warp \p warp.
  void begin(std::size_t entry, std::uint32_t warp, const std::vector<std::byte>& mine) {
    const one_shot_entry& one = given_.entries[entry];
    const std::uint32_t number = one.first_warp + warp;
    const std::uint32_t block = number / given_.shape.warps_per_block;
    if (blocks_[block].is_ended()) return;
    const std::uint32_t lines = given_.shape.lines_per_warp;
    const std::uint32_t place = number % given_.shape.warps_per_block * lines;
    const std::uint32_t first = warp * lines;
    const std::uint32_t count = std::min(lines, line_count_of(one.part_bytes) - first);
    for (std::uint32_t peer = 0; peer < given_.ranks; ++peer) {
      if (peer == given_.self) continue;
      const bool has_payload = sends(one, given_.self, peer);
      for (std::uint32_t i = 0; i < (has_payload ? count : 1); ++i) {
        std::uint64_t payload = 0;
        const std::size_t at = std::size_t{first + i} * line_payload_bytes;
        if (has_payload && at < one.part_bytes)
          std::memcpy(&payload, mine.data() + peer * std::size_t{one.send_stride} + at,
                      std::min<std::size_t>(line_payload_bytes, one.part_bytes - at));
        send_line(memory_, blocks_[block], given_.self, peer, place + i, payload);
      }
      const bool gets_payload = sends(one, peer, given_.self);
      if (gets_payload) parts_[entry][peer].resize(one.part_bytes);
      for (std::uint32_t i = 0; i < (gets_payload ? count : 1); ++i)
        waiting_.push_back({entry, block, peer, place + i, gets_payload ? first + i : line_count_of(one.part_bytes)});
    }
  }

  /// Returns whether the line has arrived.
  bool receive(const expected_line& one) {
    const line_operation& now = blocks_[one.block];
    const line_halves got = memory_.load_line(now.line(one.source, one.index));
    if (!has_arrived(got, now.sequence)) return false;
    std::vector<std::byte>& part = parts_[one.entry][one.source];
    const std::size_t at = std::size_t{one.of_part} * line_payload_bytes;
    const std::uint64_t payload = payload_of(got);
    if (at < part.size())
      std::memcpy(part.data() + at, &payload, std::min<std::size_t>(line_payload_bytes, part.size() - at));
    return true;
  }

  kernel_step end() {
    const bool has_received = waiting_.empty() && !is_ended_;
    if (has_received)
      for (std::size_t i = 0; i < parts_.size(); ++i) write_result(given_.entries[i], parts_[i]);
    for (std::uint32_t block = 0; block < blocks_.size(); ++block) {
      if (blocks_[block].is_ended()) continue;
      const auto is_of_block = [=](const expected_line& one) { return one.block == block; };
      end_operation(memory_, given_.layout, blocks_[block], block, std::ranges::none_of(waiting_, is_of_block), 0, 1);
    }
    std::uint32_t& arrived = given_.control[one_shot_control::arrived];
    if (!has_received) arrived |= one_shot_control::spoilt;
    if (arrived == 0 && given_.word != nullptr)
      std::atomic_ref{*given_.word}.store(given_.value, std::memory_order_release);
    return kernel_step::ended;
  }

  void write_result(const one_shot_entry& one, const std::vector<std::vector<std::byte>>& parts) const {
    if (one.recv == nullptr || one.part_bytes == 0) return;
    if (!one.combines) {
      for (std::size_t r = 0; r < parts.size(); ++r)
        if (!parts[r].empty()) std::memcpy(one.recv + r * one.recv_stride, parts[r].data(), parts[r].size());
      return;
    }
    const auto type = static_cast<dtype>(one.type);
    const auto op = static_cast<reduction>(one.op);
    std::array<reduce_part, one_shot_ranks> all;
    for (std::size_t r = 0; r < parts.size(); ++r) all[r] = {.send = parts[r].data()};
    all.front().recv = one.recv;
    reduce_parts(std::span{all}.first(parts.size()), one.part_bytes / size_bytes(type), type,
                 changes_elements(type, op) ? reduction::sum : op);
  }

  one_shot_arguments<Capacity> given_{};
  host_lines<Capacity> memory_{given_};
  bool has_sent_ = false;
  bool is_ended_ = false; ///< Some of its blocks do nothing.
  std::vector<line_operation> blocks_;
  std::vector<expected_line> waiting_;
  std::vector<std::vector<std::vector<std::byte>>> parts_; ///< By entry and source: what this rank gets.
};

template <unsigned Capacity>
std::unique_ptr<mock_kernel> start_mock(const void* arguments) {
  return std::make_unique<mock_one_shot<Capacity>>(arguments);
}

/// Returns the kernels of a form for each number of ranks from 2 on.
std::array<kernel, one_shot_ranks - 1> make_kernels(one_shot_form form) noexcept {
  std::array<kernel, one_shot_ranks - 1> made;
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = {.name = "one_shot",
               .compiled = compiled_one_shot_kernel(static_cast<int>(i) + 2, form),
               .start_mock = form == one_shot_form::several ? start_mock<one_shot_entries> : start_mock<1>};
  return made;
}

} // namespace

const kernel& one_shot_kernel(int ranks, one_shot_form form) noexcept {
  static const auto all = [] {
    std::array<std::array<kernel, one_shot_ranks - 1>, all_one_shot_forms.size()> made;
    std::ranges::transform(all_one_shot_forms, made.begin(), make_kernels);
    return made;
  }();
  return all[static_cast<std::size_t>(form)][static_cast<std::size_t>(ranks - 2)];
}

} // namespace troupe
