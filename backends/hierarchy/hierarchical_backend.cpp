#include <troupe/backends/hierarchy/hierarchical_backend.hpp>

#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/device/memory/memory_pool.hpp>
#include <troupe/device/stream.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::size_t known_at_most = 8; ///< Enough: a process forms one world, and again after each fault.

} // namespace

void node_directory::note(const unique_id& id, node_map nodes) {
  const std::lock_guard lock{mutex_};
  noted_.emplace_front(id, std::move(nodes));
  if (noted_.size() > known_at_most) noted_.pop_back();
}

std::optional<node_map> node_directory::find(const unique_id& id, int world_size) const {
  const auto fits = [&](const node_map& nodes) { return nodes.size() == static_cast<std::size_t>(world_size); };
  if (asked_) return fits(*asked_) ? asked_ : std::nullopt;
  const std::lock_guard lock{mutex_};
  const auto found =
      std::ranges::find_if(noted_, [&](const auto& one) { return one.first.bytes == id.bytes && fits(one.second); });
  return found == noted_.end() ? std::nullopt : std::optional{found->second};
}

namespace {

/// Calls \p end for every part, even if some calls throw, and rethrows the first exception.
template <class Parts, class End>
void end_each(const Parts& parts, End end) {
  std::exception_ptr first;
  for (const auto& one : parts) {
    try {
      end(*one);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

/// Waits for a stream at scope exit, also after an exception, so that memory created earlier is no longer in use.
class stream_end {
public:
  explicit stream_end(stream_ref of) noexcept : of_{of} {}
  stream_end(const stream_end&) = delete;
  stream_end& operator=(const stream_end&) = delete;
  ~stream_end() {
    try {
      of_.synchronize();
    } catch (const exception&) { // a device in error no longer accesses memory
    }
  }

private:
  stream_ref of_;
};

/// Returns 1/\p parts as an element. For integers only 1 is valid.
troupe::factor inverse_of(int parts, dtype type) {
  troupe::factor made;
  store_element(made.value.data(), type, 1.0 / parts);
  return made;
}

/// The memory of one composed operation in a world of \p world_size ranks. Both arguments must outlive the binding.
class hierarchy_binding {
public:
  hierarchy_binding(const operation& asked, const buffer& scratch, int world_size)
    : scratch_{scratch}, world_size_{world_size} {
    std::visit(
        [this](const auto& one) {
          if constexpr (requires { one.send; }) send_ = one.send.memory;
          if constexpr (requires { one.recv; }) recv_ = one.recv.memory;
          if constexpr (requires { one.type; }) type_ = one.type;
          if constexpr (requires { one.factor; }) given_ = &one.factor;
        },
        asked);
  }

  /// Returns the operation that a part's communicator launches for \p step.
  [[nodiscard]] operation bound(const hierarchy_step& step) const {
    operation made = step.what;
    std::visit(
        [&]<class T>(T& one) {
          if constexpr (requires { one.send; }) one.send.memory = at(step.from);
          if constexpr (requires { one.recv; }) one.recv.memory = at(step.to);
          if constexpr (requires { one.factor; }) one.factor = factor_of(step.factor);
          if constexpr (std::is_same_v<T, send>) one.memory.memory = at(step.from);
          if constexpr (std::is_same_v<T, recv>) one.memory.memory = at(step.to);
        },
        made);
    return made;
  }

  void enqueue(const hierarchy_copy& what, stream_ref stream) const {
    const buffer from = at(what.from), to = at(what.to);
    if (from.data() != to.data()) stream.copy(to.data(), from.data(), what.count * size_bytes(type_));
  }

private:
  [[nodiscard]] buffer at(const hierarchy_range& where) const {
    using memory = hierarchy_range::memory;
    if (where.in == memory::none) return {};
    const buffer& whole = where.in == memory::send ? send_ : where.in == memory::recv ? recv_ : scratch_;
    const std::size_t offset = where.first * size_bytes(type_);
    return whole.slice(offset, whole.size_bytes() - offset);
  }

  [[nodiscard]] troupe::factor factor_of(hierarchy_factor which) const {
    switch (which) {
      case hierarchy_factor::given: return *given_;
      case hierarchy_factor::one: return inverse_of(1, type_);
      case hierarchy_factor::mean: return inverse_of(world_size_, type_);
      case hierarchy_factor::none: break;
    }
    return {};
  }

  buffer send_;
  buffer recv_;
  const buffer& scratch_;
  const troupe::factor* given_ = nullptr;
  dtype type_{};
  int world_size_;
};

/// One device's scratch memory, shared by its communicators. A new world may form beside one that hangs, and growing a
/// pool may then wait for the device (BUF-1). Therefore it has room for two communicators from the start. Threads: safe
/// from any.
class hierarchy_memory {
public:
  /// May wait for the device. Errors: out_of_memory.
  hierarchy_memory(const std::shared_ptr<device>& where, std::size_t size_bytes)
    : size_bytes_{size_bytes}, pool_{memory_pool::create(where)}, side_{where} {
    pool_->reserve(2 * size_bytes_);
  }

  /// Errors: out_of_memory.
  [[nodiscard]] buffer take() { return take(size_bytes_); }
  [[nodiscard]] buffer take(std::size_t size_bytes) { return pool_->allocate(size_bytes); }
  /// Returns \p scratch for reuse after \p last_use is reached. No thread waits.
  void give_back(const buffer& scratch, const event& last_use) {
    const std::lock_guard lock{mutex_};
    side_.ref().wait(last_use);
    scratch.note_use(side_);
  }

private:
  std::size_t size_bytes_;
  std::shared_ptr<memory_pool> pool_;
  std::mutex mutex_;
  stream side_; ///< Contains only waits for the last uses of returned scratch.
};

/// The scratch memory of each device, created on first use and kept. Threads: safe from any.
class hierarchy_memories {
public:
  explicit hierarchy_memories(std::size_t size_bytes) noexcept : size_bytes_{size_bytes} {}

  /// Returns the scratch memory of \p where. The first call may wait for the device. Errors: out_of_memory.
  [[nodiscard]] std::shared_ptr<hierarchy_memory> of(const std::shared_ptr<device>& where) {
    const std::lock_guard lock{mutex_};
    auto& one = all_[where];
    if (one == nullptr) one = std::make_shared<hierarchy_memory>(where, size_bytes_);
    return one;
  }

private:
  std::size_t size_bytes_;
  std::mutex mutex_;
  std::map<std::shared_ptr<device>, std::shared_ptr<hierarchy_memory>> all_;
};

/// One communicator's scratch. It may be destroyed while operations, hung or not, still use it.
class hierarchy_scratch {
public:
  hierarchy_scratch(std::shared_ptr<hierarchy_memory> home, const std::shared_ptr<device>& where)
    : home_{std::move(home)}, memory_{home_->take()}, last_use_{where} {}
  hierarchy_scratch(const hierarchy_scratch&) = delete;
  hierarchy_scratch& operator=(const hierarchy_scratch&) = delete;
  ~hierarchy_scratch() {
    try {
      home_->give_back(memory_, last_use_);
    } catch (const exception&) { // a device in error no longer accesses memory
    }
  }

  [[nodiscard]] const buffer& memory() const noexcept { return memory_; }
  /// Notes that work which uses the scratch has just been launched in \p stream. All such work is in the same stream.
  /// Captured work is not noted, because graphs are destroyed before their communicator.
  void used_in(stream_ref stream) {
    const device& where = stream.where();
    if (where.api().status_of_capture(where.id(), stream.native()) == capture_status::none) last_use_.record(stream);
  }

private:
  std::shared_ptr<hierarchy_memory> home_;
  buffer memory_;
  event last_use_;
};

/// Settings shared by the communicators of a world and their successors.
struct hierarchy_setup {
  node_map nodes;
  hierarchy_terms terms;
  std::shared_ptr<hierarchy_memories> memories;
  std::shared_ptr<backend> across{}; ///< Backend of the communicators across nodes. Null: they are split off flat.
};

/// Forms the communicator of all ranks (flat). From it splits the communicators of each node (inside) and of ranks of
/// different nodes (across). The latter may instead be formed by another backend, with ids exchanged through flat.
/// Operations that can be composed are launched on these, all others on flat. A communicator split off this one is
/// split off flat. After a shrink the new communicator has inside and across parts again.
///
/// Invariants: ORD-1 (the choice of communicators for an operation depends only on facts that all ranks know); BUF-1
/// (scratch memory is taken in init()). All launches are in one stream.
class hierarchical_communicator final : public communicator {
public:
  /// \p flat is not yet formed, and its ranks are those of the setup's nodes.
  hierarchical_communicator(std::shared_ptr<communicator> flat, hierarchy_setup setup)
    : communicator{flat->self(), flat->world_size(), flat->where()}, flat_{std::move(flat)}, setup_{std::move(setup)} {}

  void init() override {
    where()->api().enter_thread(where()->id());
    if (has_hierarchy(setup_.nodes, setup_.terms))
      scratch_ = std::make_unique<hierarchy_scratch>(setup_.memories->of(where()), where());
    end_each(std::exchange(before_, {}), [](communicator& one) { one.abort(); });
    flat_->init();
    if (!scratch_) return;

    form_inside();
    form_across();
  }

  void warm_up(stream_ref stream) override { flat_->warm_up(stream); }
  void prepare_kernels(stream_ref stream) override { flat_->prepare_kernels(stream); }
  bool do_launch(const operation& what, stream_ref stream, completion_word at_end) override {
    if (std::holds_alternative<group>(what)) {
      const operation* const one = &what;
      return do_launch_together({&one, 1}, stream, at_end);
    }
    auto plan = plan_of(what);
    if (!plan) return flat_->launch(what, stream, at_end);
    const composed one{&what, std::move(*plan)};
    enqueue({&one, 1}, stream);
    return false;
  }

  /// Launches composed collectives first: consecutive ones that use no scratch run phase by phase together. Then
  /// launches the rest together. Sends and receives of a rank do not affect the collectives.
  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word at_end) override {
    const launch_parts parts = parts_of_launch(all);
    std::vector<composed> chosen;
    std::vector<const operation*> rest;
    for (const operation* one : parts.collectives) {
      if (auto plan = plan_of(*one))
        chosen.push_back({one, std::move(*plan)});
      else
        rest.push_back(one);
    }
    if (chosen.empty()) return flat_->launch_together(all, stream, at_end);
    const std::span<const composed> waiting{chosen};
    for (std::size_t begin = 0, end = 1; begin < waiting.size(); begin = end++) {
      while (end < waiting.size() && can_run_together(waiting[begin].plan, waiting[end].plan)) ++end;
      enqueue(waiting.subspan(begin, end - begin), stream);
    }
    rest.insert(rest.end(), parts.transfers.begin(), parts.transfers.end());
    if (!rest.empty()) flat_->launch_together(rest, stream);
    return false;
  }

  /// Objects if another backend forms the across communicators. The answer must be the same at all ranks, but a rank
  /// cannot know whether launches may be captured on across communicators to which it does not belong.
  [[nodiscard]] std::string_view capture_objection() const noexcept override {
    return setup_.across ? objection_of_host_memory : flat_->capture_objection();
  }

  void check() override {
    for (const part& one : all_parts()) one->check();
  }

  void interrupt() noexcept override {
    std::array<part, 3> parts;
    {
      const std::lock_guard lock{mutex_};
      parts = {across_, inside_, flat_};
    }
    for (const part& one : parts)
      if (one) one->interrupt();
  }

  void abort() override {
    {
      const std::lock_guard lock{mutex_};
      ended_ = true;
    }
    end_each(all_parts(), [](communicator& one) { one.abort(); });
  }

  void drained() noexcept override { flat_->drained(); } // its parts have no warm-up, so no kernels of their own
  void destroy() override {
    end_each(all_parts(), [](communicator& one) { one.destroy(); });
  }

  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override { return flat_->split(as); }
  void split_none() override { flat_->split_none(); }
  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_spec& as) override {
    return made_of_this(flat_->shrink(as), setup_.nodes.without(as.without));
  }

  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override {
    return made_of_this(flat_->revoke_and_split(), setup_.nodes);
  }

  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    return flat_->allocate_region(size_bytes);
  }

  void register_region(registered_region& region) override { flat_->register_region(region); }
  std::size_t suspend() override {
    std::size_t bytes = 0;
    for (const part& one : parts_on_devices()) bytes += one->suspend();
    return bytes;
  }

  void resume() override {
    for (const part& one : parts_on_devices()) one->resume();
  }

  [[nodiscard]] library_diagnostics last_diagnostics() const override { return flat_->last_diagnostics(); }

private:
  using part = std::shared_ptr<communicator>;

  [[nodiscard]] part made_of_this(part flat, node_map nodes) const {
    hierarchy_setup setup = setup_;
    setup.nodes = std::move(nodes);
    auto made = std::make_shared<hierarchical_communicator>(std::move(flat), std::move(setup));
    for (const part& one : all_parts())
      if (one != flat_) made->before_.push_back(one);
    return made;
  }

  void form_inside() {
    const auto me = static_cast<std::size_t>(self().value());
    const std::size_t node = setup_.nodes.node_of(me), size = setup_.nodes.members(node).size();
    form_part(inside_, size > 1,
              {.color = static_cast<int>(node),
               .self = rank{static_cast<int>(setup_.nodes.index_of(me))},
               .world_size = static_cast<int>(size)});
  }

  void form_across() {
    const auto me = static_cast<std::size_t>(self().value());
    const std::size_t node = setup_.nodes.node_of(me), index = setup_.nodes.index_of(me);
    const bool takes_part = setup_.nodes.is_even() || index == 0;
    const split_spec as{.color = static_cast<int>(index),
                        .self = rank{static_cast<int>(node)},
                        .world_size = static_cast<int>(setup_.nodes.node_count())};
    if (!setup_.across) return form_part(across_, takes_part, as);
    const auto names = exchanged_names(takes_part && node == 0);
    if (takes_part)
      form(across_, setup_.across->create(names[setup_.nodes.members(0)[index]], as.self, as.world_size, where()));
  }

  void form_part(part& which, bool takes_part, const split_spec& as) {
    if (takes_part)
      form(which, flat_->split(as));
    else
      flat_->split_none();
  }

  void form(part& which, const part& made) {
    bool ended = false;
    {
      const std::lock_guard lock{mutex_};
      ended = ended_;
      if (!ended) which = made;
    }
    if (ended) made->abort(); // abort() ran before the part existed: aborting it here makes its init() throw
    try {
      made->init();
    } catch (const exception& failed) {
      error why = failed.why();
      why.rank = self(); // the part has its own rank numbers
      throw exception{std::move(why)};
    }
  }

  /// Gathers a unique id from each rank with \p makes_one, and returns one entry per rank. The ids are capabilities:
  /// the device's copy is wiped (SEC-1).
  [[nodiscard]] std::vector<unique_id> exchanged_names(bool makes_one) {
    std::vector<unique_id> names(static_cast<std::size_t>(world_size()));
    constexpr std::size_t length = sizeof(unique_id);
    const std::size_t mine = static_cast<std::size_t>(self().value()) * length;
    if (makes_one) names[static_cast<std::size_t>(self().value())] = setup_.across->make_unique_id();
    const buffer memory = setup_.memories->of(where())->take(names.size() * length);
    const stream line{where()};
    const stream_end end{line};
    line.ref().copy(memory.data() + mine, names[static_cast<std::size_t>(self().value())].bytes.data(), length);
    flat_->launch(all_gather{.send = memory.slice(mine, length), .recv = memory, .count = length, .type = dtype::u8},
                  line);
    line.ref().copy(names.data(), memory.data(), names.size() * length);
    line.ref().fill(memory.data(), 0, memory.size_bytes());
    line.ref().synchronize();
    flat_->check();
    const std::lock_guard lock{mutex_};
    if (ended_) // abort() may have ended the exchange; the names are then invalid
      throw exception{error{
          .code = errc::communicator_failed, .text = "the communicator was aborted during init()", .rank = self()}};
    return names;
  }

  [[nodiscard]] std::optional<hierarchy_plan> plan_of(const operation& what) const {
    return compose(what, setup_.nodes, self(), setup_.terms);
  }

  /// An operation and its plan.
  struct composed {
    const operation* what;
    hierarchy_plan plan;
  };
  /// Launches operations whose plans can run together, phase by phase.
  void enqueue(std::span<const composed> all, stream_ref stream) {
    std::vector<hierarchy_binding> bindings;
    bindings.reserve(all.size());
    for (const composed& one : all) bindings.emplace_back(*one.what, scratch_->memory(), world_size());
    std::vector<operation> steps;
    for (std::size_t phase = 0; phase < all.front().plan.phases.size(); ++phase) {
      steps.clear();
      for (std::size_t i = 0; i < all.size(); ++i) {
        const hierarchy_phase& mine = all[i].plan.phases[phase];
        for (const hierarchy_copy& one : mine.copies) bindings[i].enqueue(one, stream);
        for (const hierarchy_step& one : mine.steps) steps.push_back(bindings[i].bound(one));
      }
      if (steps.empty()) continue;
      communicator& peers = all.front().plan.phases[phase].level == hierarchy_level::inside ? *inside_ : *across_;
      if (steps.size() == 1) {
        peers.launch(steps.front(), stream);
        continue;
      }
      peers.launch_together(pointers_to(steps), stream);
    }
    if (all.front().plan.uses_scratch) scratch_->used_in(stream);
  }

  /// Returns the parts that work on device memory, in the same order on all ranks, because suspend() and resume()
  /// synchronize the ranks of each part.
  [[nodiscard]] std::vector<part> parts_on_devices() const {
    std::vector<part> parts = all_parts();
    if (setup_.across) std::erase(parts, across_);
    return parts;
  }

  /// Returns the parts that exist, flat last.
  [[nodiscard]] std::vector<part> all_parts() const {
    const std::lock_guard lock{mutex_};
    std::vector<part> all;
    for (const part& one : {across_, inside_, flat_})
      if (one) all.push_back(one);
    return all;
  }

  const part flat_;
  const hierarchy_setup setup_;
  std::vector<part> before_; ///< The failed predecessor's parts except flat; init() aborts them.
  mutable std::mutex mutex_;
  bool ended_ = false;
  part inside_; ///< Null if this rank's node has only one rank.
  part across_; ///< Null if another rank of this rank's node communicates across nodes.
  std::unique_ptr<hierarchy_scratch> scratch_;
};

class hierarchical_backend final : public backend {
public:
  hierarchical_backend(std::shared_ptr<backend> flat, std::shared_ptr<const node_directory> nodes,
                       hierarchy_terms terms, std::shared_ptr<backend> across)
    : flat_{std::move(flat)},
      nodes_{std::move(nodes)},
      terms_{terms},
      across_{std::move(across)},
      memories_{std::make_shared<hierarchy_memories>(terms.scratch_bytes)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return flat_->name(); }
  [[nodiscard]] std::string version() const override {
    return across_ ? flat_->version() + "; between nodes " + across_->version() : flat_->version();
  }
  /// Excludes what either backend excludes, because any operation may be composed.
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    capabilities found = flat_->examine(devices);
    if (!across_) return found;
    for (exclusion& one : across_->examine(devices).exclusions) found.exclusions.push_back(std::move(one));
    return found;
  }
  [[nodiscard]] unique_id make_unique_id() override { return flat_->make_unique_id(); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    auto flat = flat_->create(id, self, world_size, std::move(where));
    auto nodes = nodes_->find(id, world_size);
    if (!nodes || !has_hierarchy(*nodes, terms_)) return flat;
    return std::make_shared<hierarchical_communicator>(
        std::move(flat),
        hierarchy_setup{.nodes = std::move(*nodes), .terms = terms_, .memories = memories_, .across = across_});
  }

private:
  std::shared_ptr<backend> flat_;
  std::shared_ptr<const node_directory> nodes_;
  hierarchy_terms terms_;
  std::shared_ptr<backend> across_;
  std::shared_ptr<hierarchy_memories> memories_;
};

} // namespace

std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat,
                                                   std::shared_ptr<const node_directory> nodes, hierarchy_terms terms,
                                                   std::shared_ptr<backend> across) {
  return std::make_shared<hierarchical_backend>(std::move(flat), std::move(nodes), terms, std::move(across));
}

std::shared_ptr<backend> make_hierarchical_backend(std::shared_ptr<backend> flat, node_map nodes, hierarchy_terms terms,
                                                   std::shared_ptr<backend> across) {
  return make_hierarchical_backend(std::move(flat), std::make_shared<node_directory>(std::move(nodes)), terms,
                                   std::move(across));
}

} // namespace troupe
