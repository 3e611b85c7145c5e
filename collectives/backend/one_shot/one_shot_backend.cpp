#include <troupe/collectives/backend/one_shot/block_budget.hpp>
#include <troupe/collectives/backend/one_shot/kernel_order.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_backend.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_kernels.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_local_meeting.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_plan.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// What all communicators of a backend share.
struct one_shot_shared {
  one_shot_shared(one_shot_settings given, kernel_needs of_library)
    : settings{std::move(given)}, library{std::move(of_library)} {}

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
    return settings.part_bytes ? one_shot_limits{*settings.part_bytes, world_size} : one_shot_limits::usual(world_size);
  }

  const one_shot_settings settings;
  const kernel_needs library;

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

  ~one_shot_communicator() override {
    if (!has_warmed_up_ || is_drained_) return;
    // Its kernels may still run, and store into the scratch of all ranks.
    return_or_report("the scratch memory of one-shot kernels", [this] {
      keep_for_good();
      throw exception{
          error{.code = errc::internal,
                .text = "it is kept for good, because it is not known whether the rank's kernels have ended",
                .rank = self()}};
    });
  }

  void init() override {
    if (shared_->settings.enabled) load_kernels();
    library_->init();
    const one_shot_limits wanted = shared_->limits(world_size());
    if (wanted.part_bytes == 0) {
      if (world_size() > most_one_shot_ranks)
        status_ = std::make_shared<const one_shot_status>(
            one_shot_status{.why = "they are for at most " + std::to_string(most_one_shot_ranks) + " ranks"});
      return;
    }
    one_shot_peers peers;
    if (std::string why = meeting_->absence(); why.empty())
      peers = meeting_->meet(self(), offer());
    else
      peers.why = std::move(why);
    if (peers.scratch.empty()) {
      if (self() == rank{0}) shared_->report(peers.why);
      status_ = std::make_shared<const one_shot_status>(one_shot_status{.why = peers.why});
      return give_blocks_back();
    }
    const std::size_t most = std::size_t{peers.blocks} * one_shot_lines * one_shot_threads * line_payload_bytes;
    wanted_ = {std::min(wanted.part_bytes, most), world_size()};
    for (std::size_t r = 0; r < peers.scratch.size(); ++r) scratch_.at(r) = peers.scratch[r]->data();
    status_ =
        std::make_shared<const one_shot_status>(one_shot_status{.part_bytes = wanted_.part_bytes,
                                                                .blocks = peers.blocks,
                                                                .scratch_bytes = peers.scratch.front()->size_bytes()});
    const std::lock_guard lock{scratch_guard_};
    peers_ = std::move(peers);
  }

  void warm_up(stream_ref stream) override {
    if (wanted_.part_bytes != 0) return prepare_kernels(stream);
    order_->attach(line_, stream);
    library_->warm_up(stream);
  }
  /// Kernels are used from here on. A communicator that has not been prepared passes everything to the library.
  void prepare_kernels(stream_ref stream) override {
    order_->attach(line_, stream);
    if (wanted_.part_bytes == 0) return;
    clear_scratch(stream);
    // In the order of the streams, no rank's kernel is before the clearing of another one's scratch. A wait of the host
    // would be one for the GPU (docs/design/0075-first-operation.md).
    library_->launch(barrier{}, stream);
    limits_ = wanted_;
  }
  void check() override { library_->check(); }
  [[nodiscard]] std::string_view capture_objection() const noexcept override { return library_->capture_objection(); }

  void interrupt() noexcept override {
    stopped_ = true;
    if (auto* const word = stop_address_.load()) {
      std::atomic_ref{*word}.store(1, std::memory_order_release);
      where()->api().note_host_store();
    }
    give_blocks_back(); // from now on its kernels end without their peers, so they keep out nobody
    line_->end();
    library_->interrupt();
  }
  void abort() override {
    one_shot_communicator::interrupt();
    meeting_->abort();
    { const std::lock_guard lock{scratch_guard_}; } // a warm-up that has begun enqueues nothing after abort()
    library_->abort();
  }
  void drained() noexcept override {
    stopped_ = true;
    is_drained_ = true;
    line_->end();
    std::vector<std::shared_ptr<const peer_memory>> released;
    const std::lock_guard lock{scratch_guard_};
    released.swap(peers_.scratch); // the last rank's unmaps it
    library_->drained();
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

  /// Loads the kernels for all numbers of ranks. CUDA may wait for all work of a device when it loads one, so it must
  /// not be left to a communicator that forms beside one that hangs.
  void load_kernels() {
    try {
      for (int ranks = 2; ranks <= static_cast<int>(one_shot_ranks); ++ranks)
        for (const one_shot_form form : all_one_shot_forms)
          resident_ =
              std::min(resident_, where()->api().load(where()->id(), one_shot_kernel(ranks, form), one_shot_threads));
    } catch (const exception& failed) {
      if (failed.why().code != errc::unsupported) throw;
      unloaded_ = failed.why().text;
    }
  }

  /// Prepares what this rank brings. Errors: those of the device, which are not reasons to do without kernels.
  [[nodiscard]] one_shot_offer offer() {
    one_shot_offer mine{.where = where(),
                        .needs_nvlink = !shared_->settings.part_bytes,
                        .layout = layout_for(world_size()),
                        .part_bytes = shared_->limits(world_size()).part_bytes};
    try {
      prepare(mine);
    } catch (const exception& failed) { // then no rank has one-shot kernels
      const errc code = failed.why().code;
      if (code != errc::unsupported && code != errc::out_of_memory) throw;
      mine.scratch.reset();
      mine.why = failed.why().text;
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

  /// Returns how many blocks all communicators may have on the device. Errors: unsupported (none).
  [[nodiscard]] unsigned room() const {
    if (!unloaded_.empty()) throw exception{errc::unsupported, unloaded_};
    if (!shared_->library.disorder.empty()) throw exception{errc::unsupported, shared_->library.disorder};
    const unsigned multiprocessors = where()->api().describe(where()->id()).multiprocessors;
    const unsigned found = room_for_blocks(multiprocessors, resident_, shared_->library);
    if (found == 0)
      throw exception{errc::unsupported, "device " + to_string(where()->id()) + " has " +
                                             std::to_string(multiprocessors) +
                                             " multiprocessors, which the library's kernels may need"};
    return found;
  }

  void prepare(one_shot_offer& mine) {
    const unsigned all = room();
    {
      const std::lock_guard lock{blocks_guard_};
      blocks_.emplace(where(), all, one_shot_blocks);
    }
    mine.reaches = reached_devices();
    mine.blocks = blocks_->count();
    if (mine.blocks == 0)
      throw exception{errc::out_of_memory, "the kernels of this process's other communicators on device " +
                                               to_string(where()->id()) + " leave no room for more"};
    const std::size_t lines = layout_for(world_size()).scratch_bytes();
    const auto scratch = std::make_shared<const peer_memory>(where(), lines + control_bytes);
    words_ = allocate_pinned(where(), (stop_word + 1) * sizeof(std::uint32_t));
    const auto words = words_.host_span<std::uint32_t>();
    std::ranges::fill(words, shared_->settings.first_sequence);
    words[one_shot_control::arrived] = words[one_shot_control::aborted] = words[stop_word] = 0;
    control_ = reinterpret_cast<std::uint32_t*>(scratch->data() + lines);
    stop_address_ = &words[stop_word];
    if (stopped_) one_shot_communicator::interrupt(); // abort() ran meanwhile
    mine.scratch = scratch;
  }

  void clear_scratch(stream_ref stream) {
    const std::lock_guard lock{scratch_guard_};
    require_running();
    has_warmed_up_ = true;
    std::byte* const own = scratch_.at(static_cast<std::size_t>(self().value()));
    stream.fill(own, 0, layout_for(world_size()).scratch_bytes());
    stream.copy(reinterpret_cast<std::byte*>(control_), words_.data(), control_bytes);
  }

  void keep_for_good() {
    static auto* const kept = new std::vector<std::pair<one_shot_peers, buffer>>;
    static std::mutex guard;
    const std::lock_guard lock{guard};
    kept->emplace_back(std::move(peers_), std::move(words_));
  }

  bool do_launch(const operation& what, stream_ref stream, completion_word at_end) override {
    if (std::holds_alternative<group>(what) || is_two_shot(what, limits_))
      return do_launch_together(std::array{&what}, stream, at_end);
    if (!is_one_shot(what, limits_)) return pass_on(std::array{&what}, 1, stream, at_end);
    require_running();
    ++launched_.one_shot_operations;
    launch_alone(entry_of(what, self()), stream, at_end);
    return static_cast<bool>(at_end);
  }

  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end) override {
    const one_shot_split found = split_one_shot(all, limits_);
    if (found.kernels.empty() && found.two_shots.empty()) return pass_on(all, found.library.size(), stream, at_end);
    require_running();
    // The kernels are last, so that their word stands for the library's operations, too.
    if (!found.library.empty()) pass_on(found.library, found.library.size(), stream, {});
    entries_.clear();
    behind_.clear();
    for (const operation* one : found.kernels) entries_.push_back(entry_of(*one, self()));
    for (const operation* one : found.two_shots) {
      const auto [first, second] = two_shot_entries(*one, self(), world_size());
      entries_.push_back(first);
      behind_.push_back(second);
    }
    launch_kernels(entries_, stream, behind_.empty() ? at_end : completion_word{});
    if (!behind_.empty()) launch_kernels(behind_, stream, at_end);
    launched_.one_shot_operations += entries_.size();
    return static_cast<bool>(at_end);
  }

  /// Leaves \p all, which are \p operations with the parts of groups counted one by one, to the library.
  bool pass_on(std::span<const operation* const> all, std::size_t operations, stream_ref stream,
               completion_word at_end) {
    order_->before_library(stream);
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

  void launch_kernels(std::span<one_shot_entry> entries, stream_ref stream, completion_word at_end) {
    const auto launches = plan_launches(entries, peers_.blocks);
    for (const one_shot_launch& one : launches) {
      const completion_word word = &one == &launches.back() ? at_end : completion_word{};
      if (one.entries.size() == 1)
        launch_alone(one.entries.front(), stream, word);
      else
        launch_table<one_shot_entries>(one_shot_form::several, one.entries, one.shape, stream, word);
    }
  }

  void launch_alone(const one_shot_entry& one, stream_ref stream, completion_word word) {
    launch_table<1>(form_of(one), {&one, 1}, plan_alone(one, peers_.blocks), stream, word);
  }

  template <unsigned Capacity>
  void launch_table(one_shot_form form, std::span<const one_shot_entry> entries, const one_shot_shape& shape,
                    stream_ref stream, completion_word word) {
    one_shot_arguments<Capacity> made{.layout = layout_for(world_size()),
                                      .control = control_,
                                      .stop = stop_address_.load(std::memory_order_relaxed),
                                      .word = word.word,
                                      .value = word.value,
                                      .self = static_cast<std::uint8_t>(self().value()),
                                      .ranks = static_cast<std::uint8_t>(world_size()),
                                      .entry_count = static_cast<std::uint8_t>(entries.size()),
                                      .has_other_processes = peers_.are_in_processes,
                                      .shape = shape};
    std::ranges::copy(scratch_, made.scratch);
    std::ranges::copy(entries, made.entries);
    std::ranges::transform(entries, made.first_warps, &one_shot_entry::first_warp);
    stream.launch({.what = &one_shot_kernel(world_size(), form),
                   .blocks = shape.blocks,
                   .threads = shape.warps_per_block * one_shot_lanes,
                   .arguments = &made,
                   .argument_bytes = sizeof made});
    kernel_order::note_one_shot(*line_, stream);
    ++launched_.one_shot_launches;
  }

  static constexpr std::size_t control_bytes = one_shot_control::words * sizeof(std::uint32_t);
  static constexpr std::size_t stop_word = 192; ///< On a cache line of its own, behind what is copied to the device.
  static_assert(stop_word > one_shot_control::words);

  std::shared_ptr<communicator> library_;
  std::shared_ptr<const one_shot_shared> shared_;
  std::shared_ptr<one_shot_meeting> meeting_;
  std::shared_ptr<kernel_order> order_ = kernel_order::of(*where());
  std::shared_ptr<kernel_order::line> line_ = std::make_shared<kernel_order::line>(where());
  std::mutex blocks_guard_;
  std::optional<held_blocks> blocks_;
  buffer words_; ///< Pinned: the words that the control begins with, and the stop word.
  unsigned resident_ = std::numeric_limits<unsigned>::max(); ///< Blocks of any kernel that the device runs at once.
  std::string unloaded_;                                     ///< Why the kernels cannot be loaded. Empty: they are.
  std::mutex scratch_guard_; ///< Of what prepare_kernels() enqueues, and of peers_.scratch.
  one_shot_peers peers_;
  one_shot_limits wanted_{};                      ///< From init() on.
  one_shot_limits limits_{};                      ///< From prepare_kernels() on.
  std::shared_ptr<const one_shot_status> status_; ///< Set by init().
  launch_counts launched_{};
  std::vector<one_shot_entry> entries_; ///< Of the present launch. A member so that its memory is reused, as behind_.
  std::vector<one_shot_entry> behind_;
  std::array<std::byte*, one_shot_ranks> scratch_{}; ///< By rank.
  std::uint32_t* control_ = nullptr;                 ///< Behind this rank's scratch.
  std::atomic<std::uint32_t*> stop_address_ = nullptr;
  std::atomic<bool> stopped_ = false;
  std::atomic<bool> has_warmed_up_ = false; ///< Work of its own is in its stream.
  std::atomic<bool> is_drained_ = false;    ///< That work has ended.
  std::uint64_t splits_ = 0;
};

class one_shot_backend final : public backend {
public:
  one_shot_backend(std::shared_ptr<backend> library, one_shot_settings settings)
    : library_{std::move(library)},
      meetings_{settings.meetings ? settings.meetings : std::make_shared<one_shot_local_place>()},
      shared_{std::make_shared<const one_shot_shared>(std::move(settings), library_->needs_of_kernels())} {}

  [[nodiscard]] std::string_view name() const noexcept override { return library_->name(); }
  [[nodiscard]] std::string version() const override { return library_->version(); }
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    return library_->examine(devices);
  }
  [[nodiscard]] unique_id make_unique_id() override { return library_->make_unique_id(); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    return std::make_shared<one_shot_communicator>(library_->create(id, self, world_size, std::move(where)), shared_,
                                                   meetings_->meeting_of(id, world_size));
  }

private:
  std::shared_ptr<backend> library_;
  std::shared_ptr<one_shot_meeting_place> meetings_;
  std::shared_ptr<const one_shot_shared> shared_;
};

} // namespace

std::shared_ptr<backend> with_one_shot_kernels(std::shared_ptr<backend> library, one_shot_settings settings) {
  return std::make_shared<one_shot_backend>(std::move(library), std::move(settings));
}

} // namespace troupe
