/// Implements the driver interface with CUDA. Only for device/cuda: all other code uses `driver`.
#pragma once

#include <troupe/device/cuda/cuda_scope.hpp>
#include <troupe/device/driver.hpp>

#include <atomic>
#include <vector>

namespace troupe {

/// Opened primary contexts are kept until the process ends. No destructor here calls CUDA.
class cuda_api final : public driver {
public:
  explicit cuda_api(int device_count);

  // cuda_driver.cpp: devices, streams, events
  [[nodiscard]] std::string_view name() const noexcept override { return "cuda"; }
  [[nodiscard]] std::string version() const override;
  [[nodiscard]] int device_count() override { return static_cast<int>(contexts_.size()); }
  /// Describes a device. free_bytes is 0 until the device is open, because querying it would create a context.
  [[nodiscard]] device_description describe(device_id id) override;
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

  // cuda_peers.cpp
  [[nodiscard]] peer_description describe_peer(device_id from, device_id to) override;

  // cuda_memory.cpp: memory, copies, words, host functions
  [[nodiscard]] native_pool create_pool(device_id id) override;
  void destroy_pool(device_id id, native_pool pool) override;
  [[nodiscard]] void* allocate(device_id id, native_pool pool, std::size_t size_bytes, native_stream stream) override;
  void free(device_id id, native_pool pool, void* address, native_stream stream) override;
  [[nodiscard]] void* allocate_pinned(std::size_t size_bytes) override;
  void free_pinned(void* address) override;
  [[nodiscard]] pointer_description describe(const void* address) override;

  void copy(device_id id, native_stream stream, void* to, const void* from, std::size_t size_bytes) override;
  void fill(device_id id, native_stream stream, void* to, std::uint8_t value, std::size_t size_bytes) override;
  [[nodiscard]] bool has_word_operations(device_id id) override;
  void write_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) override;
  void wait_word(device_id id, native_stream stream, std::uint32_t* word, std::uint32_t value) override;
  void call(device_id id, native_stream stream, host_function function, void* argument) override;

  // cuda_graph.cpp
  void begin_capture(device_id id, native_stream stream) override;
  [[nodiscard]] native_graph end_capture(device_id id, native_stream stream) override;
  [[nodiscard]] capture_status status_of_capture(device_id id, native_stream stream) override;
  void launch_graph(device_id id, native_graph graph, native_stream stream) override;
  void destroy_graph(device_id id, native_graph graph) override;

private:
  /// Returns the context of an opened device.
  /// Errors: missing (no such device), invalid_argument (not opened), stopping (the process is ending).
  [[nodiscard]] CUcontext context_of(device_id id) const;
  /// Throws missing unless \p id is a device.
  void expect_device(device_id id) const;
  /// Throws stopping if the process is ending, because CUDA may already be unloaded.
  static void expect_cuda();
  /// Makes the device \p id current. For calls that create something.
  [[nodiscard]] cuda_scope on(device_id id) const;
  /// Makes some opened device current. For calls that identify the device by their stream, event or address.
  [[nodiscard]] cuda_scope anywhere() const;

  cuda_entry_points entry_;
  std::vector<std::atomic<CUcontext>> contexts_; ///< Indexed by device; null until opened.
  std::atomic<CUcontext> first_opened_{nullptr};
};

inline cudaStream_t as_cuda(native_stream stream) noexcept {
  return reinterpret_cast<cudaStream_t>(stream);
}
inline cudaEvent_t as_cuda(native_event event) noexcept {
  return reinterpret_cast<cudaEvent_t>(event);
}
inline cudaMemPool_t as_cuda(native_pool pool) noexcept {
  return reinterpret_cast<cudaMemPool_t>(pool);
}
inline cudaGraphExec_t as_cuda(native_graph graph) noexcept {
  return reinterpret_cast<cudaGraphExec_t>(graph);
}

} // namespace troupe
