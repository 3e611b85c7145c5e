/// Interface between troupe and a GPU. It contains everything that differs between a real GPU and the mock. The two
/// implementations are `device/cuda` and `device/mock`. All other code uses only this interface.
#pragma once

#include <troupe/device/enum_names.hpp>
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

class file_descriptor;
struct kernel;
struct kernel_launch;

/// Stream handle of a driver. With CUDA it *is* the `cudaStream_t`.
using native_stream = struct opaque_stream*;
/// Event handle of a driver. With CUDA it *is* the `cudaEvent_t`.
using native_event = struct opaque_event*;
/// Memory pool handle of a driver. With CUDA it *is* the `cudaMemPool_t`.
using native_pool = struct opaque_pool*;
/// Handle of captured work that can be launched. With CUDA it *is* the `cudaGraphExec_t`.
using native_graph = struct opaque_graph*;

/// Optional features of a device, as reported by its driver. An empty value means unknown.
struct device_traits {
  std::optional<bool> multicast{};       ///< One store reaches several devices through NVSwitch (NVLink SHARP).
  std::optional<bool> virtual_memory{};  ///< Memory can be mapped by handle (CUDA's virtual memory management).
  std::optional<bool> gpu_direct_rdma{}; ///< Network adapters can read and write the device memory.
  std::optional<bool> dma_buf{};         ///< Device memory can be exported to network adapters as a DMA-BUF.

  friend bool operator==(const device_traits&, const device_traits&) = default;
};

/// Properties of a device.
struct device_description {
  std::string name;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  int compute_major = 0; ///< Compute capability; 0 for a device of the mock.
  int compute_minor = 0;
  unsigned multiprocessors = 0; ///< Those that this process can use.
  std::string pci_bus_id;
  device_traits traits{};
  /// The locality if the driver itself knows it. If empty, the locality is looked up by PCI address (topology.hpp).
  std::optional<locality> local{};
};

/// Describes the connection from one device to another, as far as the driver knows it.
struct peer_description {
  bool access = false;               ///< Work on the first device can read and write the memory of the second.
  std::optional<bool> nvlink{};      ///< Whether NVLink connects them, directly or through switches; empty if unknown.
  std::optional<int> nvlink_count{}; ///< Active links between them; empty if there is no NVLink or it is unknown.
  std::string nvlink_source{};       ///< Source of the NVLink data, and why no better source was used. For people.
};

/// Kind of memory that an address refers to.
enum class memory_kind : std::uint8_t {
  device,   ///< Device memory; the device reads and writes it at full speed.
  pinned,   ///< Page-locked host memory that devices can access.
  pageable, ///< Ordinary host memory.
};

/// Kind of memory that an address refers to, and the device that holds it.
struct pointer_description {
  memory_kind kind = memory_kind::pageable;
  std::optional<device_id> device;
};

/// The memory of a pool.
struct pool_usage {
  std::uint64_t reserved_bytes = 0; ///< Taken from the device: in allocations, or unused and kept for later ones.
  std::uint64_t used_bytes = 0;     ///< In allocations.

  [[nodiscard]] std::uint64_t unused_bytes() const noexcept {
    return reserved_bytes > used_bytes ? reserved_bytes - used_bytes : 0;
  }

  friend bool operator==(const pool_usage&, const pool_usage&) = default;
};

/// A word in pinned memory, and the value that the device writes to it when some work is done. Null: there is none.
struct completion_word {
  std::uint32_t* word = nullptr;
  std::uint32_t value = 0;

  [[nodiscard]] explicit operator bool() const noexcept { return word != nullptr; }
  friend bool operator==(const completion_word&, const completion_word&) = default;
};

/// A mapping of peer memory (driver::allocate_peer_memory()).
struct peer_mapping {
  void* address = nullptr;
  std::size_t size_bytes = 0;

  friend bool operator==(const peer_mapping&, const peer_mapping&) = default;
};

/// Whether the work up to the queried point of a stream or event has finished.
enum class progress : std::uint8_t { pending, reached };

/// Whether work enqueued in a stream is captured instead of executed.
enum class capture_status : std::uint8_t {
  none,
  active,
  broken, ///< An operation that cannot be captured was requested; ending the capture will fail.
};

/// Operations of one family of devices.
///
/// Errors: every function that is not noexcept throws troupe::exception. An asynchronous device error is thrown by the
/// first later call on that device that detects it.
/// Threads: all functions may be called from any thread concurrently. The caller must order the calls on one stream.
class driver {
public:
  driver() = default;
  driver(const driver&) = delete;
  driver& operator=(const driver&) = delete;
  virtual ~driver() = default;

  /// Returns "cuda" or "mock".
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// Returns the versions as text for people, e.g. "driver 580.159 for CUDA 13.0, runtime CUDA 12.8".
  [[nodiscard]] virtual std::string version() const = 0;
  [[nodiscard]] virtual int device_count() = 0;
  [[nodiscard]] virtual device_description describe(device_id id) = 0;
  /// Describes the connection between two devices. Neither device needs to be open. A device has access to itself.
  /// Errors: missing (no such device).
  [[nodiscard]] virtual peer_description describe_peer(device_id from, device_id to) = 0;

  /// Creates the state that is needed to use \p id (its context).
  /// Errors: missing (no such device), device_occupied, too_old.
  virtual void open(device_id id) = 0;

  /// Prepares the calling thread. Afterwards its calls never break a stream capture begun by a user, and \p id (if any)
  /// is its current device.
  virtual void enter_thread(std::optional<device_id> id) = 0;

  [[nodiscard]] virtual native_stream create_stream(device_id id) = 0;
  /// Destroys a stream without waiting. Work already in the stream still runs.
  virtual void destroy_stream(device_id id, native_stream stream) = 0;
  /// Returns whether all work in \p stream has finished. Throws the device's error if there is one.
  [[nodiscard]] virtual progress query(device_id id, native_stream stream) = 0;
  /// Blocks the calling thread until all work in \p stream has finished. Actors never call it (BLK-1).
  virtual void synchronize(device_id id, native_stream stream) = 0;

  /// Creates an event without timing.
  [[nodiscard]] virtual native_event create_event(device_id id) = 0;
  virtual void destroy_event(device_id id, native_event event) = 0;
  /// Records \p event behind the work currently in \p stream. Both belong to \p id.
  virtual void record(device_id id, native_event event, native_stream stream) = 0;
  /// Makes later work in \p stream wait, on the device, for the last record of \p event (of any device).
  virtual void wait(device_id id, native_stream stream, native_event event) = 0;
  /// Returns whether the last record of \p event has been reached. An event that was never recorded counts as reached.
  [[nodiscard]] virtual progress query(native_event event) = 0;

  /// Creates a pool of memory on \p id. Every device with peer access to \p id can access its allocations. It keeps the
  /// memory that it has taken from the device until trim().
  [[nodiscard]] virtual native_pool create_pool(device_id id) = 0;
  virtual void destroy_pool(device_id id, native_pool pool) = 0;
  /// Allocates \p size_bytes > 0, aligned to at least 256 bytes. Errors: out_of_memory (the pool keeps what it took
  /// from the device while it tried). Order: work ordered behind the current end of \p stream may use the memory.
  [[nodiscard]] virtual void* allocate(device_id id, native_pool pool, std::size_t size_bytes,
                                       native_stream stream) = 0;
  /// Frees \p address.
  /// Order: allocations ordered behind the current end of \p stream may reuse the memory.
  virtual void free(device_id id, native_pool pool, void* address, native_stream stream) = 0;

  /// Allocates page-locked host memory, aligned to 256 bytes. Every device accesses it under the same address.
  /// Errors: out_of_memory.
  [[nodiscard]] virtual void* allocate_pinned(std::size_t size_bytes) = 0;
  /// Releases pinned memory that no device accesses any more. Does not wait for devices.
  virtual void free_pinned(void* address) = 0;

  /// Allocates peer memory on \p id: device memory outside of all pools, which kernels of other devices and processes
  /// can access. It is accessible to \p id and to each opened device with peer access to it. The size is rounded up to
  /// the device's granularity (2 MiB with CUDA). The content is undefined. Blocks; does not wait for work of the
  /// device. Lifetime: the physical memory is used for nothing else as long as any process maps it, or holds a
  /// descriptor of it. Errors: invalid_argument (size 0); unsupported (no virtual memory management); out_of_memory.
  [[nodiscard]] virtual peer_mapping allocate_peer_memory(device_id id, std::size_t size_bytes) = 0;
  /// Returns a new descriptor of the peer memory at \p address, the begin of a mapping. Another process may receive it
  /// over a Unix domain socket. Errors: invalid_argument (not peer memory), unsupported.
  [[nodiscard]] virtual file_descriptor export_peer_memory(device_id id, const void* address) = 0;
  /// Maps the peer memory of \p exported, from this process or another, at a new address, accessible to \p id.
  /// \p size_bytes: the size of the allocation, as its mapping tells. The descriptor may be closed afterwards.
  /// Errors: invalid_argument (no such memory, or its size is another, as far as the driver can tell); unsupported (no
  /// virtual memory management, or \p id has no access to the device that holds the memory); out_of_memory.
  [[nodiscard]] virtual peer_mapping import_peer_memory(device_id id, const file_descriptor& exported,
                                                        std::size_t size_bytes) = 0;
  /// Ends a mapping that allocate_peer_memory() or import_peer_memory() of \p id returned. Precondition: no work that
  /// uses this mapping is in flight in this process. Other mappings of the memory stay valid.
  virtual void unmap_peer_memory(device_id id, const peer_mapping& mapped) = 0;

  [[nodiscard]] virtual pointer_description describe(const void* address) = 0;

  /// Copies between any two of device, pinned and pageable memory. May block the caller if pageable memory is involved
  /// or if both sides are host memory.
  virtual void copy(device_id id, native_stream stream, void* to, const void* from, std::size_t size_bytes) = 0;
  virtual void fill(device_id id, native_stream stream, void* to, std::uint8_t value, std::size_t size_bytes) = 0;

  /// Returns whether streams of \p id support write_word() and wait_word(). If not, these two throw unsupported.
  [[nodiscard]] virtual bool has_word_operations(device_id id) = 0;
  /// Writes \p value to a word in pinned memory, in stream order, after a full memory fence.
  virtual void write_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) = 0;
  /// Blocks \p stream until the word in pinned memory is at least \p value (cyclic comparison). Tests use it as a gate
  /// that makes "not done yet" deterministic.
  virtual void wait_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) = 0;

  using host_function = void (*)(void* argument);
  /// Calls \p function on a thread of the driver, in stream order. \p function must not call the driver.
  virtual void call(device_id id, native_stream stream, host_function function, void* argument) = 0;

  /// Loads \p what on \p id, so that its first launch does not. Returns how many blocks of \p threads threads of it run
  /// on the device at once if nothing else does. Blocks: CUDA may wait for all work of the device.
  /// Errors: unsupported (the kernel is not compiled for this driver, or not for this device).
  [[nodiscard]] virtual unsigned load(device_id id, const kernel& what, unsigned threads) = 0;
  /// Enqueues a kernel. It can be captured; each launch of the graph then runs it with the same arguments.
  /// Errors: invalid_argument; unsupported (the kernel is not compiled for this driver).
  virtual void launch(device_id id, native_stream stream, const kernel_launch& one) = 0;

  /// States that the host has stored something that a running kernel may wait for. Threads: any, at any time. Never
  /// blocks. The default implementation does nothing: CUDA's kernels see it by themselves.
  virtual void note_host_store() noexcept {}

  /// Begins a capture. From now on, work enqueued in \p stream, and in streams that wait for its events, is captured
  /// instead of executed. An operation that cannot be captured (a query of the stream, waiting for the stream) throws
  /// and breaks the capture. Calls of other threads neither break the capture nor fail because of it.
  /// Errors: invalid_argument (\p stream is already being captured).
  virtual void begin_capture(device_id id, native_stream stream) = 0;
  /// Ends the capture, even if it throws. Must be called by the thread that began the capture. The graph can be
  /// launched any number of times.
  /// Errors: invalid_argument (the capture is broken, or a forked stream was not joined again).
  [[nodiscard]] virtual native_graph end_capture(device_id id, native_stream stream) = 0;
  [[nodiscard]] virtual capture_status status_of_capture(device_id id, native_stream stream) = 0;
  /// Enqueues all of \p graph in \p stream. Later work in \p stream waits for all of it. The graph uses the addresses
  /// that were captured.
  virtual void launch_graph(device_id id, native_graph graph, native_stream stream) = 0;
  /// Destroys \p graph. Launches that are in flight still run.
  virtual void destroy_graph(device_id id, native_graph graph) = 0;

  /// Returns the bytes of \p id, which must be open, that no pool and no process has taken.
  [[nodiscard]] virtual std::uint64_t free_bytes(device_id id) = 0;
  [[nodiscard]] virtual pool_usage usage(device_id id, native_pool pool) = 0;
  /// Returns unused memory of \p pool to the device until it has at most \p keep_bytes reserved, or no more that is
  /// unused. Freed memory counts as unused once a wait for its stream has returned. Does not wait for work of the
  /// device.
  virtual void trim(device_id id, native_pool pool, std::uint64_t keep_bytes) = 0;
  /// Returns to the host the pinned memory that free_pinned() has kept for later allocations, and the number of its
  /// bytes. Waits for all work of all devices.
  virtual std::size_t return_pinned() = 0;
};

} // namespace troupe
