#include <troupe/device/mock/mock_driver.hpp>

#include <troupe/device/file_descriptor.hpp>
#include <troupe/device/keep_for_good.hpp>
#include <troupe/device/kernel.hpp>
#include <troupe/device/mock/mock_captures.hpp>
#include <troupe/device/mock/mock_engine.hpp>
#include <troupe/device/mock/mock_handle.hpp>
#include <troupe/device/mock/mock_memory.hpp>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Returns a task that calls \p step. \p is_work, \p polls: see mock_task.
template <class Step>
std::unique_ptr<mock_task> make_task(Step step, bool is_work, bool polls = false) {
  class task final : public mock_task {
  public:
    task(Step step, bool is_work, bool polls) : step_{std::move(step)}, is_work_{is_work}, polls_{polls} {}
    progress step() override { return step_(); }
    [[nodiscard]] bool is_work() const noexcept override { return is_work_; }
    [[nodiscard]] bool polls() const noexcept override { return polls_; }

  private:
    Step step_;
    bool is_work_;
    bool polls_;
  };
  return std::make_unique<task>(std::move(step), is_work, polls);
}

/// Returns a task that calls \p what once and is then done.
template <class Work>
std::unique_ptr<mock_task> work(Work what) {
  return make_task(
      [what = std::move(what)] {
        what();
        return progress::reached;
      },
      true);
}

/// One run of a kernel.
class kernel_task final : public mock_task {
public:
  explicit kernel_task(std::unique_ptr<mock_kernel> run) noexcept : run_{std::move(run)} {}
  progress step() override {
    last_ = run_->step();
    if (last_ != kernel_step::waiting) mock_waker::wake_all();
    return last_ == kernel_step::ended ? progress::reached : progress::pending;
  }
  [[nodiscard]] bool advanced() const noexcept override { return last_ == kernel_step::advanced; }
  [[nodiscard]] bool polls() const noexcept override { return run_->polls(); }

private:
  std::unique_ptr<mock_kernel> run_;
  kernel_step last_ = kernel_step::waiting;
};

void require_address(const void* address, const char* what) {
  if (address == nullptr) throw exception{errc::invalid_argument, std::string{what} + " needs an address, not null"};
}

} // namespace

std::shared_ptr<mock_driver> make_mock_driver(mock_options options) {
  return std::make_shared<mock_driver>(std::move(options));
}

mock_driver::mock_driver(mock_options options)
  : options_{std::move(options)},
    memory_{
        std::make_unique<mock_memory>(options_.device_count < 0 ? 0 : options_.device_count, options_.memory_bytes)},
    captures_{std::make_unique<mock_captures>()},
    engine_{std::make_unique<mock_engine>(options_.device_count, options_.mode)} {}

mock_driver::~mock_driver() {
  if (engine_->is_inherited()) keep_for_good(std::shared_ptr{std::move(engine_)});
}

std::size_t mock_driver::stream_count(device_id id) {
  return engine_->streams(id);
}

void mock_driver::run_until_blocked() {
  engine_->run_until_blocked();
}

void mock_driver::fail_next(device_id id, error why) {
  engine_->fail_next(id, std::move(why));
}

void mock_driver::wake() noexcept {
  engine_->waker()->wake();
}

const std::shared_ptr<mock_waker>& mock_driver::waker() const noexcept {
  return engine_->waker();
}

std::string mock_driver::version() const {
  return options_.mode == engine_mode::manual ? "mock, run by hand" : "mock, run by a thread";
}

device_description mock_driver::describe(device_id id) {
  engine_->throw_if_failed(id);
  const auto index = static_cast<std::size_t>(id.value());
  const mock_place place = index < options_.places.size() ? options_.places[index] : mock_place{};
  return {.name = "mock GPU",
          .total_bytes = memory_->limit_bytes(id),
          .free_bytes = memory_->free_bytes(id),
          .multiprocessors = options_.multiprocessors,
          .pci_bus_id = place.pci_bus_id.empty() ? "mock:" + to_string(id) : place.pci_bus_id,
          .traits = options_.traits,
          .local = place.local};
}

std::uint64_t mock_driver::free_bytes(device_id id) {
  engine_->throw_if_failed(id);
  return memory_->free_bytes(id);
}

std::size_t mock_driver::used_bytes(device_id id) {
  engine_->require(id);
  return memory_->used_bytes(id);
}

std::size_t mock_driver::refused_allocations() const {
  return memory_->refused_count();
}

std::size_t mock_driver::loaded_kernel_count() const {
  const std::lock_guard lock{loaded_guard_};
  return loaded_.size();
}

peer_description mock_driver::describe_peer(device_id from, device_id to) {
  engine_->require(from);
  engine_->require(to);
  if (from != to && options_.peers) return options_.peers(from, to);
  return {.access = true, .nvlink_source = "mock"};
}

void mock_driver::open(device_id id) {
  engine_->throw_if_failed(id);
  if (occupied_.load() == id.value())
    throw exception{errc::device_occupied,
                    "device " + to_string(id) + " is held exclusively by another process: free it or choose another"};
}

void mock_driver::enter_thread(std::optional<device_id> id) {
  if (id) engine_->require(*id);
}

native_stream mock_driver::create_stream(device_id id) {
  return engine_->create_stream(id);
}

void mock_driver::destroy_stream(device_id id, native_stream stream) {
  captures_->refuse(stream, "the destruction of a stream");
  engine_->destroy_stream(id, stream);
}

progress mock_driver::query(device_id id, native_stream stream) {
  captures_->refuse(stream, "a query of the stream");
  return engine_->query(id, stream);
}

void mock_driver::synchronize(device_id id, native_stream stream) {
  captures_->refuse(stream, "a wait for the stream");
  engine_->synchronize(id, stream);
}

mock_driver::event_entry& mock_driver::find_event(native_event event) {
  const auto found = events_.find(event);
  if (found == events_.end())
    throw exception{errc::invalid_argument, "no such event: it was destroyed, or another driver made it"};
  return found->second;
}

native_event mock_driver::create_event(device_id id) {
  engine_->throw_if_failed(id);
  const std::lock_guard lock{events_guard_};
  const auto event = to_native<native_event>(next_mock_handle());
  events_.emplace(event, event_entry{id, nullptr});
  return event;
}

void mock_driver::destroy_event(device_id, native_event event) {
  const std::lock_guard lock{events_guard_};
  static_cast<void>(find_event(event));
  captures_->forget(event);
  events_.erase(event);
}

void mock_driver::record(device_id id, native_event event, native_stream stream) {
  auto mark = std::make_shared<std::atomic<bool>>(false);
  const std::lock_guard lock{events_guard_};
  event_entry& entry = find_event(event);
  if (entry.device != id)
    throw exception{errc::invalid_argument,
                    "the event belongs to device " + to_string(entry.device) + ", not to device " + to_string(id)};
  if (captures_->record(event, stream)) {
    entry.last = nullptr;
    return;
  }
  captures_->forget(event);
  engine_->enqueue(id, stream,
                   make_task(
                       [mark] {
                         mark->store(true, std::memory_order_release);
                         return progress::reached;
                       },
                       false));
  entry.last = std::move(mark);
}

void mock_driver::wait(device_id id, native_stream stream, native_event event) {
  record_mark last;
  {
    const std::lock_guard lock{events_guard_};
    last = find_event(event).last; // a later record of the event does not affect this wait
  }
  if (captures_->wait(stream, event, last != nullptr)) return;
  if (last)
    engine_->enqueue(
        id, stream,
        make_task([last] { return last->load(std::memory_order_acquire) ? progress::reached : progress::pending; },
                  false));
  else
    engine_->throw_if_failed(id);
}

progress mock_driver::query(native_event event) {
  event_entry seen;
  {
    const std::lock_guard lock{events_guard_};
    seen = find_event(event);
  }
  captures_->refuse_query(event);
  engine_->throw_if_failed(seen.device);
  return !seen.last || seen.last->load(std::memory_order_acquire) ? progress::reached : progress::pending;
}

native_pool mock_driver::create_pool(device_id id) {
  engine_->throw_if_failed(id);
  return memory_->create_pool(id);
}

void mock_driver::destroy_pool(device_id id, native_pool pool) {
  memory_->destroy_pool(id, pool);
}

void* mock_driver::allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream) {
  captures_->refuse(stream, "an allocation");
  static_cast<void>(engine_->query(id, stream)); // checks that the stream exists and has no error
  return memory_->allocate(id, pool, size_bytes, stream);
}

void mock_driver::free(device_id id, native_pool pool, void* address, native_stream stream) {
  captures_->refuse(stream, "a free");
  // The end of the task frees the memory, also if it is dropped: the device then no longer uses the memory.
  engine_->enqueue_give_back(
      id, stream,
      make_task([held = memory_->begin_free(id, pool, address, stream)] { return progress::reached; }, false));
}

pool_usage mock_driver::usage(device_id id, native_pool pool) {
  return memory_->usage(id, pool);
}

void mock_driver::trim(device_id id, native_pool pool, std::uint64_t keep_bytes) {
  engine_->throw_if_failed(id);
  memory_->trim(id, pool, keep_bytes);
}

void* mock_driver::allocate_pinned(std::size_t size_bytes) {
  engine_->throw_if_poisoned();
  return memory_->allocate_pinned(size_bytes);
}

void mock_driver::free_pinned(void* address) {
  memory_->free_pinned(address);
}

peer_mapping mock_driver::allocate_peer_memory(device_id id, std::size_t size_bytes) {
  expect_virtual_memory(id);
  return memory_->allocate_peer(id, size_bytes);
}

file_descriptor mock_driver::export_peer_memory(device_id id, const void* address) {
  expect_virtual_memory(id);
  return memory_->export_peer(address);
}

peer_mapping mock_driver::import_peer_memory(device_id id, const file_descriptor& exported, std::size_t size_bytes) {
  expect_virtual_memory(id);
  const auto home = memory_->home_of_peer(exported);
  if (home && !describe_peer(id, *home).access)
    throw exception{errc::unsupported, "device " + to_string(id) + " has no peer access to device " + to_string(*home) +
                                           ", which holds the memory"};
  return memory_->import_peer(id, exported, size_bytes);
}

void mock_driver::unmap_peer_memory(device_id, const peer_mapping& mapped) {
  memory_->unmap_peer(mapped);
}

void mock_driver::expect_virtual_memory(device_id id) {
  engine_->throw_if_failed(id);
  if (!options_.traits.virtual_memory.value_or(true))
    throw exception{errc::unsupported,
                    "device " + to_string(id) + " has no virtual memory management, which peer memory needs"};
}

pointer_description mock_driver::describe(const void* address) {
  return memory_->describe(address);
}

void mock_driver::copy(device_id id, native_stream stream, void* to, const void* from, std::size_t size_bytes) {
  if (size_bytes > 0) {
    require_address(to, "a copy");
    require_address(from, "a copy");
  }
  put(id, stream, [=] {
    return work([=] {
      if (size_bytes > 0) std::memmove(to, from, size_bytes);
    });
  });
}

void mock_driver::fill(device_id id, native_stream stream, void* to, std::uint8_t value, std::size_t size_bytes) {
  if (size_bytes > 0) require_address(to, "a fill");
  put(id, stream, [=, memory = memory_.get()] {
    return work([=] {
      if (size_bytes > 0) memory->fill(to, value, size_bytes);
    });
  });
}

void mock_driver::write_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) {
  require_address(word, "a word to write");
  expect_word_operations();
  put(id, stream, [=] { return work([=] { std::atomic_ref{*word}.store(value, std::memory_order_release); }); });
}

void mock_driver::wait_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) {
  require_address(word, "a word to wait for");
  expect_word_operations();
  put(id, stream, [=] {
    return make_task(
        [=] {
          const std::uint32_t seen = std::atomic_ref{*word}.load(std::memory_order_acquire);
          return static_cast<std::int32_t>(seen - value) >= 0 ? progress::reached : progress::pending;
        },
        false, true);
  });
}

void mock_driver::expect_word_operations() const {
  if (!options_.word_operations)
    throw exception{errc::unsupported, "the streams of these devices have no word operations"};
}

void mock_driver::call(device_id id, native_stream stream, host_function function, void* argument) {
  if (function == nullptr) throw exception{errc::invalid_argument, "a host function must not be null"};
  put(id, stream, [=] { return work([=] { function(argument); }); });
}

unsigned mock_driver::load(device_id id, const kernel& what, unsigned threads) {
  constexpr unsigned threads_of_multiprocessor = 2048; // as an H100
  engine_->require(id);
  if (what.start_mock == nullptr)
    throw exception{errc::unsupported, "the mock cannot run the kernel " + std::string{what.name}};
  {
    const std::lock_guard lock{loaded_guard_};
    loaded_.insert(&what);
  }
  return options_.multiprocessors * (threads_of_multiprocessor / threads);
}

void mock_driver::launch(device_id id, native_stream stream, const kernel_launch& one) {
  if (one.what == nullptr || one.blocks == 0 || one.threads == 0)
    throw exception{errc::invalid_argument, "a launch needs a kernel and at least one block and one thread"};
  if (one.what->start_mock == nullptr)
    throw exception{errc::unsupported, "the mock cannot run the kernel " + std::string{one.what->name}};
  const auto* const bytes = static_cast<const std::byte*>(one.arguments);
  put(id, stream, [what = one.what, arguments = std::vector<std::byte>(bytes, bytes + one.argument_bytes)] {
    return std::make_unique<kernel_task>(what->start_mock(arguments.data()));
  });
}

void mock_driver::exhaust_after(device_id id, std::size_t size_bytes) {
  engine_->require(id);
  memory_->exhaust_after(id, size_bytes);
}

template <class Make>
void mock_driver::put(device_id id, native_stream stream, const Make& make) {
  if (captures_->any() && captures_->keep(stream, make)) return;
  engine_->enqueue(id, stream, make());
}

void mock_driver::begin_capture(device_id id, native_stream stream) {
  static_cast<void>(engine_->query(id, stream)); // checks that the stream exists and has no error
  captures_->begin(stream);
}

native_graph mock_driver::end_capture(device_id id, native_stream stream) {
  auto made = std::make_shared<const graph_entry>(graph_entry{id, captures_->end(stream)});
  const std::lock_guard lock{graphs_guard_};
  const auto name = to_native<native_graph>(next_mock_handle());
  graphs_.emplace(name, std::move(made));
  return name;
}

capture_status mock_driver::status_of_capture(device_id, native_stream stream) {
  return captures_->any() ? captures_->status(stream) : capture_status::none;
}

void mock_driver::launch_graph(device_id id, native_graph graph, native_stream stream) {
  std::shared_ptr<const graph_entry> found;
  {
    const std::lock_guard lock{graphs_guard_};
    const auto at = graphs_.find(graph);
    if (at != graphs_.end()) found = at->second;
  }
  if (!found) throw exception{errc::invalid_argument, "no such graph: it was destroyed, or another driver made it"};
  if (found->device != id)
    throw exception{errc::invalid_argument,
                    "the graph belongs to device " + to_string(found->device) + ", not to device " + to_string(id)};
  for (const mock_task_factory& make : found->tasks) put(id, stream, make);
}

void mock_driver::destroy_graph(device_id, native_graph graph) {
  std::shared_ptr<const graph_entry> gone; // destroyed after the lock is released
  const std::lock_guard lock{graphs_guard_};
  const auto at = graphs_.find(graph);
  if (at == graphs_.end())
    throw exception{errc::invalid_argument, "no such graph: it was destroyed, or another driver made it"};
  gone = std::move(at->second);
  graphs_.erase(at);
}

std::size_t mock_driver::graph_count() const {
  const std::lock_guard lock{graphs_guard_};
  return graphs_.size();
}

void mock_driver::enqueue(device_id id, native_stream stream, const mock_task_factory& make) {
  put(id, stream, make);
}

void mock_driver::enqueue(device_id id, native_stream stream, std::unique_ptr<mock_task> task) {
  captures_->refuse(stream, "this work");
  engine_->enqueue(id, stream, std::move(task));
}

} // namespace troupe
