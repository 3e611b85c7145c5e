/// Mock of GPUs in host memory with CUDA's semantics: streams are queues, work is asynchronous, errors are reported
/// late, memory is limited. A test that fails on the mock fails for the same reason as on a GPU.
#pragma once

#include <troupe/device/driver.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace troupe {

class mock_captures;
class mock_engine;
class mock_memory;
class mock_task;
class mock_waker;

/// Creates a new task at each call, because a task that has run cannot run again.
using mock_task_factory = std::function<std::unique_ptr<mock_task>()>;

/// Selects the thread that runs the streams of a mock.
enum class engine_mode : std::uint8_t {
  threaded, ///< A thread of the engine, in real time.
  manual,   ///< The callers of run_until_blocked(), in an order that depends only on the calls.
};

/// Simulated position of a device in the machine.
struct mock_place {
  std::string pci_bus_id{};        ///< If empty: "mock:N", which exists on no machine.
  std::optional<locality> local{}; ///< If empty: unknown, unless the machine has the PCI address.
};

/// Properties of the simulated devices.
struct mock_options {
  int device_count = 4;
  std::size_t memory_bytes = std::size_t{1} << 30U; ///< Per device.
  engine_mode mode = engine_mode::threaded;
  unsigned multiprocessors = 132;   ///< Of each device; 132 as an H100.
  bool word_operations = true;      ///< False: the devices lack word operations, as some GPUs do.
  device_traits traits{};           ///< The same for each device; by default all are unknown.
  std::vector<mock_place> places{}; ///< Indexed by device. Devices beyond its end have no simulated position.
  /// Describes the connection of two different devices. If empty: peer access, and NVLink unknown.
  std::function<peer_description(device_id from, device_id to)> peers{};
};

/// The mock driver. See troupe::driver for what each function does.
///
/// Errors: a failing task puts its device into an error state. All work queued on that device is dropped (so that
/// words, events and host functions behind it never fire), and later calls on that device throw the error.
/// process_poisoned is sticky, like CUDA's sticky errors: it affects all devices and is never cleared. Any other error
/// is thrown by one call and then cleared (as with cudaGetLastError), but a stream that lost work throws it at every
/// later use. Calls that release something never throw a device's error.
/// Lifetime: a host function must not destroy the driver.
class mock_driver final : public driver {
public:
  explicit mock_driver(mock_options options = {});
  ~mock_driver() override;

  [[nodiscard]] std::string_view name() const noexcept override { return "mock"; }
  [[nodiscard]] std::string version() const override;
  [[nodiscard]] int device_count() override { return options_.device_count; }
  [[nodiscard]] device_description describe(device_id id) override;
  [[nodiscard]] std::uint64_t free_bytes(device_id id) override;
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
  [[nodiscard]] pool_usage usage(device_id id, native_pool pool) override;
  void trim(device_id id, native_pool pool, std::uint64_t keep_bytes) override;
  [[nodiscard]] void* allocate_pinned(std::size_t size_bytes) override;
  void free_pinned(void* address) override;
  std::size_t return_pinned() override { return 0; } // free_pinned() keeps nothing
  [[nodiscard]] peer_mapping allocate_peer_memory(device_id id, std::size_t size_bytes) override;
  [[nodiscard]] file_descriptor export_peer_memory(device_id id, const void* address) override;
  [[nodiscard]] peer_mapping import_peer_memory(device_id id, const file_descriptor& exported,
                                                std::size_t size_bytes) override;
  void unmap_peer_memory(device_id id, const peer_mapping& mapped) override;
  [[nodiscard]] pointer_description describe(const void* address) override;

  void copy(device_id id, native_stream stream, void* to, const void* from, std::size_t size_bytes) override;
  void fill(device_id id, native_stream stream, void* to, std::uint8_t value, std::size_t size_bytes) override;
  [[nodiscard]] bool has_word_operations(device_id) override { return options_.word_operations; }
  void write_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) override;
  void wait_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) override;
  /// Calls \p function on the single thread that runs all streams, so \p function must not block.
  void call(device_id id, native_stream stream, host_function function, void* argument) override;

  [[nodiscard]] unsigned load(device_id id, const kernel& what, unsigned threads) override;
  void launch(device_id id, native_stream stream, const kernel_launch& one) override;
  void note_host_store() noexcept override { wake(); }

  void begin_capture(device_id id, native_stream stream) override;
  [[nodiscard]] native_graph end_capture(device_id id, native_stream stream) override;
  [[nodiscard]] capture_status status_of_capture(device_id id, native_stream stream) override;
  void launch_graph(device_id id, native_graph graph, native_stream stream) override;
  void destroy_graph(device_id id, native_graph graph) override;
  /// Returns the number of streams of \p id that have not been destroyed.
  [[nodiscard]] std::size_t stream_count(device_id id);
  /// Returns the bytes of \p id in allocations whose free has not been executed.
  [[nodiscard]] std::size_t used_bytes(device_id id);
  /// Returns the number of allocations for which a pool took all that its device had left, in vain.
  [[nodiscard]] std::size_t refused_allocations() const;
  /// Returns the number of kernels that load() has loaded, on any device.
  [[nodiscard]] std::size_t loaded_kernel_count() const;
  /// Returns the number of graphs that have not been destroyed.
  [[nodiscard]] std::size_t graph_count() const;

  /// Runs tasks until none can proceed. For manual mode.
  void run_until_blocked();

  /// Fault injection: the next work of \p id that is executed (copy, fill, word, host function, collective; not a wait,
  /// a record or a free) fails with \p why instead.
  void fail_next(device_id id, error why);
  /// Fault injection: open() behaves as if another process held \p id exclusively.
  void occupy(device_id id) { occupied_ = id.value(); }
  /// Fault injection: \p id runs out of memory once \p size_bytes more than now have been allocated.
  void exhaust_after(device_id id, std::size_t size_bytes);

  /// For communicators: runs \p task in stream order. Throws if the stream is being captured.
  void enqueue(device_id id, native_stream stream, std::unique_ptr<mock_task> task);
  /// For communicators: enqueues work that can be captured. \p make is called at once or, if the stream is being
  /// captured, at each launch of the graph, by the thread that launches it.
  void enqueue(device_id id, native_stream stream, const mock_task_factory& make);
  /// For communicators: signals that a condition that a task waits for may have changed.
  void wake() noexcept;
  /// Returns an object with the same wake(), for users that may outlive the driver.
  [[nodiscard]] const std::shared_ptr<mock_waker>& waker() const noexcept;

private:
  void expect_word_operations() const;
  void expect_virtual_memory(device_id id);
  template <class Make>
  void put(device_id id, native_stream stream, const Make& make);
  /// Whether one record has been reached. Shared with the tasks, because an event may be destroyed before that.
  using record_mark = std::shared_ptr<std::atomic<bool>>;
  struct event_entry {
    device_id device;
    record_mark last; ///< Null if never recorded, or if the last record was captured.
  };

  /// A graph made by end_capture().
  struct graph_entry {
    device_id device;
    std::vector<mock_task_factory> tasks;
  };

  event_entry& find_event(native_event event);

  mock_options options_;
  std::atomic<int> occupied_{-1};
  std::unique_ptr<mock_memory> memory_; // declared before the engine, whose tasks hold memory
  mutable std::mutex loaded_guard_;
  std::set<const kernel*> loaded_;
  std::mutex events_guard_; ///< Locked before the engine's mutex.
  std::unordered_map<native_event, event_entry> events_;
  std::unique_ptr<mock_captures> captures_;
  mutable std::mutex graphs_guard_;
  std::unordered_map<native_graph, std::shared_ptr<const graph_entry>> graphs_;
  std::unique_ptr<mock_engine> engine_; // declared last, so that its thread ends first
};

[[nodiscard]] std::shared_ptr<mock_driver> make_mock_driver(mock_options options = {});

} // namespace troupe
