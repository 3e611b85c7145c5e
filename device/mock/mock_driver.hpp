/// Pretend GPUs in host memory that keep CUDA's semantics: streams are queues, work is asynchronous, errors come late,
/// memory runs out. A test against it fails for the reason for which it would fail on a GPU.
#pragma once

#include <troupe/device/driver.hpp>
#include <troupe/device/mock/mock_captures.hpp>
#include <troupe/device/mock/mock_engine.hpp>
#include <troupe/device/mock/mock_memory.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

/// Where a pretend device pretends to be.
struct mock_place {
  std::string pci_bus_id{};        ///< Empty: "mock:N", which no machine has.
  std::optional<locality> local{}; ///< None: unknown, unless the machine has the address.
};

/// What a mock pretends to be.
struct mock_options {
  int device_count = 4;
  std::size_t memory_bytes = std::size_t{1} << 30U; ///< Of each device.
  engine_mode mode = engine_mode::threaded;
  bool word_operations = true;      ///< As of a GPU that lacks them, where false.
  device_traits traits{};           ///< Of each device; by default nothing is known.
  std::vector<mock_place> places{}; ///< By device; those beyond its end pretend nothing.
  /// Between two different devices; none: access, and nothing known of NVLink.
  std::function<peer_description(device_id from, device_id to)> peers{};
};

/// The mock. See troupe::driver for what each function does.
///
/// Errors: a task that fails puts its device into an error state: whatever is queued on that device is dropped (so
/// that words, events and host functions behind it never fire), and later calls on that device throw the error.
/// process_poisoned is sticky, as CUDA's sticky errors are: it does so to all devices, for ever. Any other is thrown
/// by one call and then forgotten (cudaGetLastError), but a stream that lost work throws it at every later use. Calls
/// that give something back never throw a device's error. Lifetime: not to be destroyed by a host function.
class mock_driver final : public driver {
public:
  explicit mock_driver(mock_options options = {});

  [[nodiscard]] std::string_view name() const noexcept override { return "mock"; }
  [[nodiscard]] std::string version() const override;
  [[nodiscard]] int device_count() override { return options_.device_count; }
  [[nodiscard]] device_description describe(device_id id) override;
  [[nodiscard]] peer_description describe_peer(device_id from, device_id to) override;
  void open(device_id id) override;
  void enter_thread(std::optional<device_id> id) override;

  [[nodiscard]] native_stream create_stream(device_id id) override;
  void destroy_stream(device_id id, native_stream stream) override;
  [[nodiscard]] progress query(device_id id, native_stream stream) override;
  void synchronize(device_id id, native_stream stream) override;

  [[nodiscard]] native_event create_event(device_id id) override;
  void destroy_event(device_id id, native_event event) override;
  void record(device_id id, native_event event, native_stream stream) override;
  void wait(device_id id, native_stream stream, native_event event) override;
  [[nodiscard]] progress query(native_event event) override;

  [[nodiscard]] native_pool create_pool(device_id id) override;
  void destroy_pool(device_id id, native_pool pool) override;
  [[nodiscard]] void* allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream) override;
  void free(device_id id, native_pool pool, void* address, native_stream stream) override;
  [[nodiscard]] void* allocate_pinned(std::size_t size_bytes) override;
  void free_pinned(void* address) override;
  [[nodiscard]] pointer_description describe(const void* address) override;

  void copy(device_id id, native_stream stream, void* to, const void* from, std::size_t size_bytes) override;
  void fill(device_id id, native_stream stream, void* to, std::uint8_t value, std::size_t size_bytes) override;
  [[nodiscard]] bool has_word_operations(device_id) override { return options_.word_operations; }
  void write_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) override;
  void wait_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) override;
  /// \p function runs on the one thread of all streams, so it must not block.
  void call(device_id id, native_stream stream, host_function function, void* argument) override;

  void begin_capture(device_id id, native_stream stream) override;
  [[nodiscard]] native_graph end_capture(device_id id, native_stream stream) override;
  [[nodiscard]] capture_status status_of_capture(device_id id, native_stream stream) override;
  void launch_graph(device_id id, native_graph graph, native_stream stream) override;
  void destroy_graph(device_id id, native_graph graph) override;
  /// Streams of \p id that have not been destroyed.
  [[nodiscard]] std::size_t stream_count(device_id id) { return engine_.streams(id); }
  /// Graphs that have not been destroyed.
  [[nodiscard]] std::size_t graph_count() const;

  /// Manual mode: runs tasks until none can proceed.
  void run_until_blocked() { engine_.run_until_blocked(); }

  /// Injects: the next work of \p id that is executed (copy, fill, word, host function, collective; not a wait, a
  /// record or a free) fails with \p why instead.
  void fail_next(device_id id, error why) { engine_.fail_next(id, std::move(why)); }
  /// Injects: \p id is held exclusively by another process, as far as open() is concerned.
  void occupy(device_id id) { occupied_ = id.value(); }
  /// Injects: \p id runs out of memory once \p size_bytes more than now have been allocated.
  void exhaust_after(device_id id, std::size_t size_bytes);

  /// For communicators: \p task runs in stream order. Refused in a stream that is in capture.
  void enqueue(device_id id, native_stream stream, std::unique_ptr<mock_task> task);
  /// For communicators: the same for work that can be captured. \p make is called at once, or, where the stream is in
  /// capture, at each launch of the graph, by the thread that launches it.
  void enqueue(device_id id, native_stream stream, const mock_task_factory& make);
  /// For communicators: something that a task waits for may have changed.
  void wake() noexcept { engine_.waker()->wake(); }
  /// wake() for those who may outlive the driver.
  [[nodiscard]] const std::shared_ptr<mock_waker>& waker() const noexcept { return engine_.waker(); }

private:
  void expect_word_operations() const;
  template <class Make>
  void put(device_id id, native_stream stream, const Make& make);
  /// Whether one record has been reached; shared with the tasks, since an event may be destroyed before that.
  using record_mark = std::shared_ptr<std::atomic<bool>>;
  struct event_entry {
    device_id device;
    record_mark last; ///< None: never recorded.
  };

  /// What end_capture() made.
  struct graph_entry {
    device_id device;
    std::vector<mock_task_factory> tasks;
  };

  event_entry& find_event(native_event event);

  mock_options options_;
  std::atomic<int> occupied_{-1};
  mock_memory memory_;      // before the engine, whose tasks hold memory
  std::mutex events_guard_; ///< Taken before the engine's.
  std::unordered_map<native_event, event_entry> events_;
  mock_captures captures_;
  mutable std::mutex graphs_guard_;
  std::unordered_map<native_graph, std::shared_ptr<const graph_entry>> graphs_;
  mock_engine engine_; // last: its thread ends first
};

[[nodiscard]] std::shared_ptr<mock_driver> make_mock_driver(mock_options options = {});

} // namespace troupe
