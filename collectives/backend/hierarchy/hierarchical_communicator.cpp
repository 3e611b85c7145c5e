#include <troupe/collectives/backend/hierarchy/hierarchical_communicator.hpp>

#include <troupe/collectives/backend/hierarchy/hierarchy_plan.hpp>
#include <troupe/collectives/backend/mock/small_float.hpp>
#include <troupe/collectives/pipeline/launch_parts.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <exception>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

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

/// Returns 1/\p parts as an element.
troupe::factor inverse_of(int parts, dtype type) {
  const float value = 1.0F / static_cast<float>(parts);
  switch (type) {
    case dtype::f64: return troupe::factor::of(1.0 / static_cast<double>(parts));
    case dtype::f32: return troupe::factor::of(value);
    case dtype::f16: return troupe::factor::of(float16::encode(value));
    case dtype::bf16: return troupe::factor::of(bfloat16::encode(value));
    case dtype::f8e4m3: return troupe::factor::of(float8_e4m3::encode(value));
    case dtype::f8e5m2: return troupe::factor::of(float8_e5m2::encode(value));
    // An integer factor is valid only if parts is 1.
    case dtype::u8: return troupe::factor::of(static_cast<std::uint8_t>(parts));
    case dtype::i8: return troupe::factor::of(static_cast<std::int8_t>(parts));
    case dtype::i32: return troupe::factor::of(static_cast<std::int32_t>(parts));
    case dtype::u32: return troupe::factor::of(static_cast<std::uint32_t>(parts));
    case dtype::i64: return troupe::factor::of(static_cast<std::int64_t>(parts));
    case dtype::u64: return troupe::factor::of(static_cast<std::uint64_t>(parts));
  }
  throw exception{errc::internal, "unknown dtype"};
}

/// The memory of one composed operation in a world of \p world_size ranks. Both arguments must outlive the binding.
class hierarchy_binding {
public:
  hierarchy_binding(const operation& asked, const buffer& scratch, int world_size);

  /// Returns the operation that a part's communicator launches for \p step.
  [[nodiscard]] operation bound(const hierarchy_step& step) const;
  void enqueue(const hierarchy_copy& what, stream_ref stream) const;

private:
  [[nodiscard]] buffer at(const hierarchy_range& where) const;
  [[nodiscard]] troupe::factor factor_of(hierarchy_factor which) const;

  buffer send_;
  buffer recv_;
  const buffer& scratch_;
  const troupe::factor* given_ = nullptr;
  dtype type_{};
  int world_size_;
};

hierarchy_binding::hierarchy_binding(const operation& asked, const buffer& scratch, int world_size)
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

buffer hierarchy_binding::at(const hierarchy_range& where) const {
  using memory = hierarchy_range::memory;
  if (where.in == memory::none) return {};
  const buffer& whole = where.in == memory::send ? send_ : where.in == memory::recv ? recv_ : scratch_;
  const std::size_t offset = where.first * size_bytes(type_);
  return whole.slice(offset, whole.size_bytes() - offset);
}

troupe::factor hierarchy_binding::factor_of(hierarchy_factor which) const {
  switch (which) {
    case hierarchy_factor::given: return *given_;
    case hierarchy_factor::one: return inverse_of(1, type_);
    case hierarchy_factor::mean: return inverse_of(world_size_, type_);
    case hierarchy_factor::none: break;
  }
  return {};
}

operation hierarchy_binding::bound(const hierarchy_step& step) const {
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

void hierarchy_binding::enqueue(const hierarchy_copy& what, stream_ref stream) const {
  const buffer from = at(what.from), to = at(what.to);
  if (from.data() != to.data()) stream.copy(to.data(), from.data(), what.count * size_bytes(type_));
}

} // namespace

/// An operation and its plan.
struct hierarchical_communicator::composed {
  const operation* what;
  hierarchy_plan plan;
};

hierarchical_communicator::hierarchical_communicator(part flat, hierarchy_setup setup)
  : communicator{flat->self(), flat->world_size(), flat->where()}, flat_{std::move(flat)}, setup_{std::move(setup)} {}

void hierarchical_communicator::init() {
  where()->api().enter_thread(where()->id());
  if (has_hierarchy(setup_.nodes, setup_.terms))
    scratch_ = std::make_unique<hierarchy_scratch>(setup_.memories->of(where()), where());
  end_each(std::exchange(before_, {}), [](communicator& one) { one.abort(); });
  flat_->init();
  if (!scratch_) return;

  form_inside();
  form_across();
}

void hierarchical_communicator::form_inside() {
  const auto me = static_cast<std::size_t>(self().value());
  const std::size_t node = setup_.nodes.node_of(me), size = setup_.nodes.members(node).size();
  form_part(inside_, size > 1,
            {.color = static_cast<int>(node),
             .self = rank{static_cast<int>(setup_.nodes.index_of(me))},
             .world_size = static_cast<int>(size)});
}

void hierarchical_communicator::form_across() {
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

/// Gathers a unique id from each rank with \p makes_one, and returns one entry per rank. The ids are capabilities: the
/// device's copy is wiped (SEC-1).
std::vector<unique_id> hierarchical_communicator::exchanged_names(bool makes_one) {
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
    throw exception{
        error{.code = errc::communicator_failed, .text = "the communicator was aborted during init()", .rank = self()}};
  return names;
}

void hierarchical_communicator::form_part(part& which, bool takes_part, const split_spec& as) {
  if (takes_part)
    form(which, flat_->split(as));
  else
    flat_->split_none();
}

void hierarchical_communicator::form(part& which, const part& made) {
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

std::optional<hierarchy_plan> hierarchical_communicator::plan_of(const operation& what) const {
  return compose(what, setup_.nodes, self(), setup_.terms);
}

void hierarchical_communicator::launch(const operation& what, stream_ref stream) {
  if (std::holds_alternative<group>(what)) {
    const operation* const one = &what;
    return launch_together({&one, 1}, stream);
  }
  auto plan = plan_of(what);
  if (!plan) return flat_->launch(what, stream);
  const composed one{&what, std::move(*plan)};
  enqueue({&one, 1}, stream);
}

void hierarchical_communicator::launch_together(std::span<const operation* const> all, stream_ref stream) {
  const launch_parts parts = parts_of_launch(all);
  std::vector<composed> chosen;
  std::vector<const operation*> rest;
  for (const operation* one : parts.collectives) {
    if (auto plan = plan_of(*one))
      chosen.push_back({one, std::move(*plan)});
    else
      rest.push_back(one);
  }
  if (chosen.empty()) return flat_->launch_together(all, stream);
  const std::span<const composed> waiting{chosen};
  for (std::size_t begin = 0, end = 1; begin < waiting.size(); begin = end++) {
    while (end < waiting.size() && can_run_together(waiting[begin].plan, waiting[end].plan)) ++end;
    enqueue(waiting.subspan(begin, end - begin), stream);
  }
  rest.insert(rest.end(), parts.transfers.begin(), parts.transfers.end());
  if (!rest.empty()) flat_->launch_together(rest, stream);
}

void hierarchical_communicator::enqueue(std::span<const composed> all, stream_ref stream) {
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

std::vector<hierarchical_communicator::part> hierarchical_communicator::all_parts() const {
  const std::lock_guard lock{mutex_};
  std::vector<part> all;
  for (const part& one : {across_, inside_, flat_})
    if (one) all.push_back(one);
  return all;
}

std::vector<hierarchical_communicator::part> hierarchical_communicator::parts_on_devices() const {
  std::vector<part> parts = all_parts();
  if (setup_.across) std::erase(parts, across_);
  return parts;
}

std::size_t hierarchical_communicator::suspend() {
  std::size_t bytes = 0;
  for (const part& one : parts_on_devices()) bytes += one->suspend();
  return bytes;
}

void hierarchical_communicator::resume() {
  for (const part& one : parts_on_devices()) one->resume();
}

void hierarchical_communicator::check() {
  for (const part& one : all_parts()) one->check();
}

void hierarchical_communicator::abort() {
  {
    const std::lock_guard lock{mutex_};
    ended_ = true;
  }
  end_each(all_parts(), [](communicator& one) { one.abort(); });
}

void hierarchical_communicator::destroy() {
  end_each(all_parts(), [](communicator& one) { one.destroy(); });
}

std::shared_ptr<communicator> hierarchical_communicator::shrink(const shrink_spec& as) {
  return made_of_this(flat_->shrink(as), setup_.nodes.without(as.without));
}

std::shared_ptr<communicator> hierarchical_communicator::revoke_and_split() {
  return made_of_this(flat_->revoke_and_split(), setup_.nodes);
}

std::shared_ptr<communicator> hierarchical_communicator::made_of_this(part flat, node_map nodes) const {
  auto made = std::make_shared<hierarchical_communicator>(std::move(flat), hierarchy_setup{.nodes = std::move(nodes),
                                                                                           .terms = setup_.terms,
                                                                                           .memories = setup_.memories,
                                                                                           .across = setup_.across});
  for (const part& one : all_parts())
    if (one != flat_) made->before_.push_back(one);
  return made;
}

hierarchy_memory::hierarchy_memory(const std::shared_ptr<device>& where, std::size_t size_bytes)
  : size_bytes_{size_bytes}, pool_{memory_pool::create(where)}, side_{where} {
  pool_->reserve(2 * size_bytes_);
}

void hierarchy_memory::give_back(const buffer& scratch, const event& last_use) {
  const std::lock_guard lock{mutex_};
  side_.ref().wait(last_use);
  scratch.note_use(side_);
}

std::shared_ptr<hierarchy_memory> hierarchy_memories::of(const std::shared_ptr<device>& where) {
  const std::lock_guard lock{mutex_};
  auto& one = all_[where];
  if (one == nullptr) one = std::make_shared<hierarchy_memory>(where, size_bytes_);
  return one;
}

hierarchy_scratch::~hierarchy_scratch() {
  try {
    home_->give_back(memory_, last_use_);
  } catch (const exception&) { // a device in error no longer accesses memory
  }
}

void hierarchy_scratch::used_in(stream_ref stream) {
  const device& where = stream.where();
  if (where.api().status_of_capture(where.id(), stream.native()) == capture_status::none) last_use_.record(stream);
}

} // namespace troupe
