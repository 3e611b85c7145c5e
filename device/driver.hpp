/// The seam between troupe and a GPU: everything that differs between a real GPU and the mock.
/// Two implementations: `device/cuda` and `device/mock`. Everything above speaks only to this.
#pragma once

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/topology/locality.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

/// A driver's own stream; with CUDA this *is* the `cudaStream_t`.
using native_stream = struct opaque_stream*;
/// A driver's own event; with CUDA this *is* the `cudaEvent_t`.
using native_event = struct opaque_event*;
/// A driver's own memory pool; with CUDA this *is* the `cudaMemPool_t`.
using native_pool = struct opaque_pool*;
/// Captured work of a driver, ready to be launched; with CUDA this *is* the `cudaGraphExec_t`.
using native_graph = struct opaque_graph*;

/// What a device can do beyond computing, as its driver tells; none: not known.
struct device_traits {
  std::optional<bool> multicast{};       ///< One store reaches several devices through NVSwitch (NVLink SHARP).
  std::optional<bool> virtual_memory{};  ///< Memory is mapped by handle (CUDA's virtual memory management).
  std::optional<bool> gpu_direct_rdma{}; ///< Network adapters read and write its memory.
  std::optional<bool> dma_buf{};         ///< Its memory can be given to them as a DMA-BUF.

  friend bool operator==(const device_traits&, const device_traits&) = default;
};

/// What a device is.
struct device_description {
  std::string name;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  int compute_major = 0; ///< Compute capability; 0 for a pretend device.
  int compute_minor = 0;
  std::string pci_bus_id;
  device_traits traits{};
  /// Where the driver itself knows it; else the machine is asked for the PCI address (topology.hpp).
  std::optional<locality> local{};
};

/// What a driver knows of the way from one device to another.
struct peer_description {
  bool access = false;               ///< Work on the one can read and write the memory of the other.
  std::optional<bool> nvlink{};      ///< Whether NVLink joins them, directly or through switches; none: not known.
  std::optional<int> nvlink_count{}; ///< Active links between them; none: no NVLink, or not known.
  std::string nvlink_source{};       ///< Who told about NVLink and, where it is not the best to ask, why; for people.
};

/// Where an address lives.
enum class memory_kind : std::uint8_t {
  device,   ///< On a device; the device reads and writes it at full speed.
  pinned,   ///< Page-locked host memory that devices reach.
  pageable, ///< Ordinary host memory.
};

[[nodiscard]] std::string_view to_string(memory_kind kind) noexcept;

/// Where an address lives, and on which device.
struct pointer_description {
  memory_kind kind = memory_kind::pageable;
  std::optional<device_id> device;
};

/// How far a stream or an event has come.
enum class progress : std::uint8_t { pending, reached };

/// Whether what is enqueued in a stream is captured instead of done.
enum class capture_status : std::uint8_t {
  none,
  active,
  broken, ///< Something was asked of the stream that cannot be captured: its end will fail.
};

/// Operations of one family of devices.
///
/// Errors: every function that is not noexcept throws troupe::exception. A device error that
/// arrives late is thrown by whichever later call on that device notices it.
/// Threads: all functions may be called from any thread at once; calls on one stream must be
/// ordered by the caller.
class driver {
public:
  driver() = default;
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  virtual ~driver() = default;

  /// "cuda" or "mock".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Versions of driver and runtime, for people, e.g. "driver 580.159, CUDA 13.0".
  [[nodiscard]] virtual std::string version() const = 0;
  [[nodiscard]] virtual int device_count() = 0;
  [[nodiscard]] virtual device_description describe(device_id id) = 0;
  /// Neither device needs to be open. A device has access to itself. Errors: missing (no such device).
  [[nodiscard]] virtual peer_description describe_peer(device_id from, device_id to) = 0;

  /// Creates what using \p id needs (its context).
  /// Errors: missing (no such device), device_occupied, too_old.
  virtual void open(device_id id) = 0;

  /// Prepares the calling thread: it never breaks a stream capture that a user has begun, and
  /// \p id (if any) is its current device.
  virtual void enter_thread(std::optional<device_id> id) = 0;

  [[nodiscard]] virtual native_stream create_stream(device_id id) = 0;
  /// Order: returns without waiting; work already in the stream still runs.
  virtual void destroy_stream(device_id id, native_stream stream) = 0;
  /// Whether all work in \p stream has finished. Throws the device's error if there is one.
  [[nodiscard]] virtual progress query(device_id id, native_stream stream) = 0;
  /// Blocks the calling thread until all work in \p stream has finished. Never called by an actor (BLK-1).
  virtual void synchronize(device_id id, native_stream stream) = 0;

  /// An untimed event.
  [[nodiscard]] virtual native_event create_event(device_id id) = 0;
  virtual void destroy_event(device_id id, native_event event) = 0;
  /// Records \p event behind the work now in \p stream; both belong to \p id.
  virtual void record(device_id id, native_event event, native_stream stream) = 0;
  /// Later work in \p stream waits, on the device, for the last record of \p event (of any device).
  virtual void wait(device_id id, native_stream stream, native_event event) = 0;
  /// Whether the last record of \p event has been reached; an event never recorded counts as reached.
  [[nodiscard]] virtual progress query(native_event event) = 0;

  /// A pool of \p id's memory whose allocations every device of this driver may access.
  [[nodiscard]] virtual native_pool create_pool(device_id id) = 0;
  virtual void destroy_pool(device_id id, native_pool pool) = 0;
  /// \p size_bytes > 0, aligned to 256 bytes at least. Errors: out_of_memory.
  /// Order: usable by work ordered behind the present end of \p stream.
  [[nodiscard]] virtual void* allocate(device_id id, native_pool pool, std::size_t size_bytes,
                                       native_stream stream) = 0;
  /// Order: the memory may be reused by allocations ordered behind the present end of \p stream.
  virtual void free(device_id id, native_pool pool, void* address, native_stream stream) = 0;

  /// Page-locked host memory, 256-byte aligned, that every device reaches under the same address.
  [[nodiscard]] virtual void* allocate_pinned(std::size_t size_bytes) = 0;
  virtual void free_pinned(void* address) = 0;

  [[nodiscard]] virtual pointer_description describe(const void* address) = 0;

  /// Copies between any two of device, pinned and pageable memory; pageable, or host to host, may hold the caller.
  virtual void copy(device_id id, native_stream stream, void* to, const void* from, std::size_t size_bytes) = 0;
  virtual void fill(device_id id, native_stream stream, void* to, std::uint8_t value, std::size_t size_bytes) = 0;

  /// Whether streams of \p id have write_word() and wait_word(). Without them those two throw unsupported.
  [[nodiscard]] virtual bool has_word_operations(device_id id) = 0;
  /// Writes \p value to a word in pinned memory, in stream order, behind a full memory fence.
  virtual void write_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) = 0;
  /// Holds \p stream until the word in pinned memory is at least \p value (cyclic comparison).
  /// It is the gate that makes "not done yet" deterministic in tests.
  virtual void wait_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) = 0;

  using host_function = void (*)(void* argument);
  /// Calls \p function on a thread of the driver, in stream order. It must not call the driver.
  virtual void call(device_id id, native_stream stream, host_function function, void* argument) = 0;

  /// From now on work enqueued in \p stream, and in streams that wait for its events, is captured and not done. What
  /// cannot be captured (a look at the stream, waiting for it) throws, and breaks the capture. Other threads' calls
  /// neither break it nor are refused because of it. Errors: invalid_argument (it is in capture already).
  virtual void begin_capture(device_id id, native_stream stream) = 0;
  /// Ends it, also where it throws; by the thread that began it. The graph can be launched any number of times.
  /// Errors: invalid_argument (the capture is broken, or a stream has not been joined again).
  [[nodiscard]] virtual native_graph end_capture(device_id id, native_stream stream) = 0;
  [[nodiscard]] virtual capture_status status_of_capture(device_id id, native_stream stream) = 0;
  /// Enqueues all of \p graph in \p stream: what is behind it waits for all of it. The addresses are those captured.
  virtual void launch_graph(device_id id, native_graph graph, native_stream stream) = 0;
  /// Launches under way run on.
  virtual void destroy_graph(device_id id, native_graph graph) = 0;
};

} // namespace troupe
