#include <troupe/collectives/backend/one_shot/one_shot_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_kernels.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_meeting.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_plan.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Divides the blocks that a device can run at once among the process's communicators with ranks on it. Kernels that
/// wait for peers must all run at the same time: if those of one communicator kept out another's, which at another
/// device keeps out theirs, none would ever end (docs/design/0015). Half of the device is left to NCCL's kernels.
/// Threads: safe from any.
class block_budget {
public:
  static constexpr unsigned least = 8;

  [[nodiscard]] static block_budget& of_process() {
    static block_budget one;
    return one;
  }

  /// Returns how many blocks a communicator on \p where may use, of at most \p resident at once. 0: there are none
  /// left.
  [[nodiscard]] unsigned take(const std::shared_ptr<device>& where, unsigned resident) {
    const std::lock_guard lock{mutex_};
    unsigned& used = used_[key_of(*where)];
    const unsigned left = resident / 2 > used ? resident / 2 - used : 0;
    unsigned taken = one_shot_blocks;
    while (taken > least && taken > left / 2) taken /= 2; // later communicators get some, too
    if (taken > left) return 0;
    used += taken;
    return taken;
  }
  void give_back(const std::shared_ptr<device>& where, unsigned taken) {
    const std::lock_guard lock{mutex_};
    const auto found = used_.find(key_of(*where));
    if ((found->second -= taken) == 0) used_.erase(found);
  }

private:
  using key = std::pair<const driver*, device_id>; ///< CUDA's devices are the process's, those of a mock its own.
  [[nodiscard]] static key key_of(device& where) {
    return {where.api().name() == "cuda" ? nullptr : &where.api(), where.id()};
  }

  std::mutex mutex_;
  std::map<key, unsigned> used_;
};

/// Blocks of the budget. Threads: give_back() from any.
class held_blocks {
public:
  held_blocks(std::shared_ptr<device> where, unsigned resident)
    : where_{std::move(where)}, count_{block_budget::of_process().take(where_, resident)} {}
  held_blocks(const held_blocks&) = delete;
  held_blocks& operator=(const held_blocks&) = delete;
  ~held_blocks() { give_back(); }

  [[nodiscard]] unsigned count() const noexcept { return count_; }
  void give_back() noexcept {
    if (const unsigned taken = count_.exchange(0); taken != 0) block_budget::of_process().give_back(where_, taken);
  }

private:
  std::shared_ptr<device> where_;
  std::atomic<unsigned> count_;
};

/// What all communicators of a backend share.
struct one_shot_shared {
  explicit one_shot_shared(one_shot_settings given) : settings{std::move(given)} {}

  /// Passes on why a communicator has no kernels, each reason once.
  void report(const std::string& why) const {
    {
      const std::lock_guard lock{reported_guard_};
      if (!reported_.insert(why).second) return;
    }
    if (settings.on_absent) settings.on_absent(why);
  }

  [[nodiscard]] one_shot_limits limits(int world_size) const {
    if (!settings.enabled || world_size < 2 || world_size > most_one_shot_ranks) return {};
    return settings.part_bytes ? one_shot_limits{*settings.part_bytes} : one_shot_limits::usual(world_size);
  }

  const one_shot_settings settings;

private:
  mutable std::mutex reported_guard_;
  mutable std::set<std::string> reported_;
};

[[nodiscard]] constexpr line_layout layout_for(int world_size) noexcept {
  return {.ranks = static_cast<std::uint32_t>(world_size),
          .blocks = one_shot_blocks,
          .lines_per_block = one_shot_threads * one_shot_lines};
}

class one_shot_communicator final : public communicator {
public:
  one_shot_communicator(std::shared_ptr<communicator> library, std::shared_ptr<const one_shot_shared> shared,
                        std::shared_ptr<one_shot_meeting> meeting)
    : communicator{library->self(), library->world_size(), library->where()},
      library_{std::move(library)},
      shared_{std::move(shared)},
      meeting_{std::move(meeting)} {}

  void init() override {
    library_->init();
    const one_shot_limits wanted = shared_->limits(world_size());
    if (wanted.part_bytes == 0) {
      if (world_size() > most_one_shot_ranks)
        status_ = std::make_shared<const one_shot_status>(
            one_shot_status{.why = "they are for at most " + std::to_string(most_one_shot_ranks) + " ranks"});
      return;
    }
    peers_ = meeting_->meet(self(), offer());
    if (peers_.scratch.empty()) {
      if (self() == rank{0}) shared_->report(peers_.why);
      status_ = std::make_shared<const one_shot_status>(one_shot_status{.why = peers_.why});
      return give_blocks_back();
    }
    const std::size_t most = std::size_t{peers_.blocks} * one_shot_lines * one_shot_threads * line_payload_bytes;
    limits_ = {std::min(wanted.part_bytes, most)};
    for (std::size_t r = 0; r < peers_.scratch.size(); ++r) scratch_.at(r) = peers_.scratch[r]->data();
    status_ =
        std::make_shared<const one_shot_status>(one_shot_status{.part_bytes = limits_.part_bytes,
                                                                .blocks = peers_.blocks,
                                                                .scratch_bytes = peers_.scratch.front()->size_bytes()});
  }

  void warm_up(stream_ref stream) override { library_->warm_up(stream); }
  void check() override { library_->check(); }
  [[nodiscard]] std::string_view capture_objection() const noexcept override { return library_->capture_objection(); }

  void interrupt() noexcept override {
    stopped_ = true;
    if (auto* const word = stop_address_.load()) {
      std::atomic_ref{*word}.store(1, std::memory_order_release);
      where()->api().note_host_store();
    }
    give_blocks_back(); // from now on its kernels end without their peers, so they keep out nobody
    library_->interrupt();
  }
  void abort() override {
    one_shot_communicator::interrupt();
    meeting_->abort();
    library_->abort();
  }
  void destroy() override {
    stopped_ = true;
    give_blocks_back();
    library_->destroy();
  }

  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override {
    return derived(library_->split(as), {one_shot_meeting::derivation_kind::split, splits_++, as.color});
  }
  void split_none() override {
    ++splits_;
    library_->split_none();
  }
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_spec& as) override {
    return derived(library_->shrink(as), {one_shot_meeting::derivation_kind::shrink, 0, 0});
  }
  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override {
    return derived(library_->revoke_and_split(), {one_shot_meeting::derivation_kind::revoke, 0, 0});
  }

  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    return library_->allocate_region(size_bytes);
  }
  void register_region(registered_region& region) override { library_->register_region(region); }
  std::size_t suspend() override { return library_->suspend(); }
  void resume() override { library_->resume(); }
  [[nodiscard]] library_diagnostics last_diagnostics() const override { return library_->last_diagnostics(); }
  [[nodiscard]] std::shared_ptr<const one_shot_status> one_shot() const override { return status_; }
  [[nodiscard]] launch_counts launched() const override { return launched_; }

private:
  [[nodiscard]] std::shared_ptr<communicator> derived(std::shared_ptr<communicator> library,
                                                      const one_shot_meeting::derivation& name) {
    auto meeting = meeting_->derived(name, library->world_size());
    return std::make_shared<one_shot_communicator>(std::move(library), shared_, std::move(meeting));
  }

  /// Prepares what this rank brings.
  [[nodiscard]] one_shot_offer offer() {
    one_shot_offer mine{.where = where()};
    try {
      prepare(mine);
    } catch (...) { // then no rank has one-shot kernels
      mine.scratch.reset();
      mine.why = current_error().text;
    }
    return mine;
  }

  void give_blocks_back() noexcept {
    const std::lock_guard lock{blocks_guard_};
    if (blocks_) blocks_->give_back();
  }

  /// Returns the devices whose memory this rank's kernels may use. Without a given size, only those behind NVLink, for
  /// which the usual sizes are.
  [[nodiscard]] std::vector<device_id> reached_devices() const {
    std::vector<device_id> found;
    driver& api = where()->api();
    for (int i = 0; i < api.device_count(); ++i) {
      const peer_description peer = api.describe_peer(where()->id(), device_id{i});
      const bool is_self = device_id{i} == where()->id();
      if (peer.access && (is_self || shared_->settings.part_bytes || peer.nvlink.value_or(false)))
        found.push_back(device_id{i});
    }
    return found;
  }

  void prepare(one_shot_offer& mine) {
    driver& api = where()->api();
    // Also loads the kernels: CUDA may wait for all work of a device when it loads one.
    const unsigned resident =
        std::min(api.load(where()->id(), one_shot_kernel(world_size(), 1), one_shot_threads),
                 api.load(where()->id(), one_shot_kernel(world_size(), one_shot_entries), one_shot_threads));
    {
      const std::lock_guard lock{blocks_guard_};
      blocks_.emplace(where(), resident);
    }
    mine.reaches = reached_devices();
    mine.blocks = blocks_->count();
    if (mine.blocks == 0)
      throw exception{errc::out_of_memory, "the kernels of this process's other communicators on device " +
                                               to_string(where()->id()) + " leave no room for more"};
    const line_layout layout = layout_for(world_size());
    const std::size_t control_at = layout.scratch_bytes();
    constexpr std::size_t control_bytes = one_shot_control::words * sizeof(std::uint32_t);
    const auto scratch = std::make_shared<const peer_memory>(where(), control_at + control_bytes);
    words_ = allocate_pinned(where(), (stop_word + 1) * sizeof(std::uint32_t));
    const auto words = words_.host_span<std::uint32_t>();
    std::ranges::fill(words, shared_->settings.first_sequence);
    words[one_shot_control::arrived] = words[stop_word] = 0;
    const stream filler{where()};
    filler.ref().fill(scratch->data(), 0, control_at);
    filler.ref().copy(scratch->data() + control_at, words.data(), control_bytes);
    filler.ref().synchronize();
    control_ = reinterpret_cast<std::uint32_t*>(scratch->data() + control_at);
    stop_address_ = &words[stop_word];
    if (stopped_) one_shot_communicator::interrupt(); // abort() ran meanwhile
    mine.scratch = scratch;
  }

  bool do_launch(const operation& what, stream_ref stream, completion_word at_end) override {
    if (std::holds_alternative<group>(what)) return do_launch_together(std::array{&what}, stream, at_end);
    if (!is_one_shot(what, limits_)) return pass_on(std::array{&what}, 1, stream, at_end);
    require_running();
    ++launched_.one_shot_operations;
    launch_table<1>(plan_alone(entry_of(what, self()), peers_.blocks), stream, at_end);
    return static_cast<bool>(at_end);
  }

  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end) override {
    const one_shot_split found = split_one_shot(all, limits_);
    if (found.kernels.empty()) return pass_on(all, found.library.size(), stream, at_end);
    require_running();
    // The kernels are last, so that their word stands for the library's operations, too.
    if (!found.library.empty()) pass_on(found.library, found.library.size(), stream, {});
    std::vector<one_shot_entry> entries;
    entries.reserve(found.kernels.size());
    for (const operation* one : found.kernels) entries.push_back(entry_of(*one, self()));
    launch_kernels(entries, stream, at_end);
    launched_.one_shot_operations += entries.size();
    return static_cast<bool>(at_end);
  }

  /// Leaves \p all, which are \p operations with the parts of groups counted one by one, to the library.
  bool pass_on(std::span<const operation* const> all, std::size_t operations, stream_ref stream,
               completion_word at_end) {
    ++launched_.library_launches;
    launched_.library_operations += operations;
    return all.size() == 1 ? library_->launch(*all.front(), stream, at_end)
                           : library_->launch_together(all, stream, at_end);
  }

  void require_running() const {
    if (stopped_)
      throw exception{error{
          .code = errc::communicator_failed, .text = "the communicator has been aborted or destroyed", .rank = self()}};
  }

  void launch_kernels(std::span<const one_shot_entry> entries, stream_ref stream, completion_word at_end) {
    const auto launches = plan_launches(entries, peers_.blocks);
    for (const one_shot_launch& one : launches) {
      const completion_word word = &one == &launches.back() ? at_end : completion_word{};
      if (one.entries.size() == 1)
        launch_table<1>(one_shot_single{one.entries.front(), one.blocks, one.threads}, stream, word);
      else
        launch_table<one_shot_entries>(one, stream, word);
    }
  }

  template <unsigned Capacity, class Launch>
  void launch_table(const Launch& one, stream_ref stream, completion_word word) {
    one_shot_arguments<Capacity> made{.layout = layout_for(world_size()),
                                      .control = control_,
                                      .stop = stop_address_.load(std::memory_order_relaxed),
                                      .word = word.word,
                                      .value = word.value,
                                      .self = static_cast<std::uint8_t>(self().value()),
                                      .ranks = static_cast<std::uint8_t>(world_size())};
    std::ranges::copy(scratch_, made.scratch);
    if constexpr (Capacity == 1) {
      made.entry_count = 1;
      made.entries[0] = one.entry;
    } else {
      made.entry_count = static_cast<std::uint8_t>(one.entries.size());
      std::ranges::copy(one.entries, made.entries);
      for (std::size_t i = 0; i < one.entries.size(); ++i) {
        const unsigned end = i + 1 < one.entries.size() ? one.entries[i + 1].first_block : one.blocks;
        std::fill(made.entry_of + one.entries[i].first_block, made.entry_of + end, static_cast<std::uint8_t>(i));
      }
    }
    stream.launch({.what = &one_shot_kernel(world_size(), Capacity),
                   .blocks = one.blocks,
                   .threads = one.threads,
                   .arguments = &made,
                   .argument_bytes = sizeof made});
    ++launched_.one_shot_launches;
  }

  static constexpr std::size_t stop_word = 192; ///< On a cache line of its own, behind what is copied to the device.
  static_assert(stop_word > one_shot_control::words);

  std::shared_ptr<communicator> library_;
  std::shared_ptr<const one_shot_shared> shared_;
  std::shared_ptr<one_shot_meeting> meeting_;
  std::mutex blocks_guard_;
  std::optional<held_blocks> blocks_;
  buffer words_; ///< Pinned: the words that the control begins with, and the stop word.
  one_shot_peers peers_;
  one_shot_limits limits_{};
  std::shared_ptr<const one_shot_status> status_; ///< Set by init().
  launch_counts launched_{};
  std::array<std::byte*, one_shot_ranks> scratch_{}; ///< By rank.
  std::uint32_t* control_ = nullptr;                 ///< Behind this rank's scratch.
  std::atomic<std::uint32_t*> stop_address_ = nullptr;
  std::atomic<bool> stopped_ = false;
  std::uint64_t splits_ = 0;
};

class one_shot_backend final : public backend {
public:
  one_shot_backend(std::shared_ptr<backend> library, one_shot_settings settings)
    : library_{std::move(library)}, shared_{std::make_shared<const one_shot_shared>(std::move(settings))} {}

  [[nodiscard]] std::string_view name() const noexcept override { return library_->name(); }
  [[nodiscard]] std::string version() const override { return library_->version(); }
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    return library_->examine(devices);
  }
  [[nodiscard]] unique_id make_unique_id() override { return library_->make_unique_id(); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    return std::make_shared<one_shot_communicator>(library_->create(id, self, world_size, std::move(where)), shared_,
                                                   meeting_of(id, world_size));
  }

private:
  [[nodiscard]] std::shared_ptr<one_shot_meeting> meeting_of(const unique_id& id, int world_size) {
    const std::lock_guard lock{mutex_};
    std::erase_if(meetings_, [](const auto& one) { return one.second.expired(); });
    auto& slot = meetings_[id.bytes];
    auto found = slot.lock();
    if (found == nullptr) slot = found = std::make_shared<one_shot_meeting>(world_size);
    return found;
  }

  std::shared_ptr<backend> library_;
  std::shared_ptr<const one_shot_shared> shared_;
  std::mutex mutex_;
  std::map<decltype(unique_id::bytes), std::weak_ptr<one_shot_meeting>> meetings_;
};

} // namespace

std::shared_ptr<backend> with_one_shot_kernels(std::shared_ptr<backend> library, one_shot_settings settings) {
  return std::make_shared<one_shot_backend>(std::move(library), std::move(settings));
}

} // namespace troupe
