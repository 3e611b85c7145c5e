/// Memory, tensors and streams.
#include "boundary.hpp"

#include <troupe/collectives/operation/remote_buffer.hpp>
#include <troupe/runtime/interop/client_stream.hpp>
#include <troupe/runtime/interop/dlpack.hpp>
#include <troupe/runtime/interop/views.hpp>

#include <span>

using namespace troupe::c;

troupe_code troupe_world_allocate(troupe_world* world, std::int32_t rank, std::size_t size_bytes, troupe_buffer** made,
                                  troupe_error** error) {
  return make_handle(made, "made", error,
                     [&] { return need(world, "world").of.allocate(troupe::rank{rank}, size_bytes); });
}

troupe_code troupe_world_allocate_all(troupe_world* world, std::size_t size_bytes, troupe_buffer** made,
                                      std::size_t count, troupe_error** error) {
  if (made != nullptr) std::fill_n(made, count, nullptr);
  return attempt(error, [&] {
    const troupe::world& of = need(world, "world").of;
    static_cast<void>(need(made, "made"));
    const troupe::per_rank<troupe::buffer> all = of.allocate_all(size_bytes);
    if (all.size() != count)
      throw invalid("the array has " + std::to_string(count) + " elements, and this process has " +
                    std::to_string(all.size()) + " ranks: give one for each");
    std::vector<std::unique_ptr<troupe_buffer>> buffers;
    for (const troupe::buffer& one : all) buffers.push_back(std::make_unique<troupe_buffer>(troupe_buffer{one}));
    for (std::size_t i = 0; i < count; ++i) made[i] = buffers[i].release();
  });
}

troupe_code troupe_world_allocate_pinned(troupe_world* world, std::size_t size_bytes, troupe_buffer** made,
                                         troupe_error** error) {
  return make_handle(made, "made", error, [&] { return need(world, "world").of.allocate_pinned(size_bytes); });
}

troupe_code troupe_world_adopt(troupe_world* world, std::int32_t rank, void* address, std::size_t size_bytes,
                               void (*release)(void* user), void* user, troupe_buffer** made, troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    const troupe::world& of = need(world, "world").of;
    troupe_buffer*& stored = need(made, "made");
    client_pointer client{user, release};
    auto handle = std::make_unique<troupe_buffer>();
    handle->of = adopt_elements(of, troupe::rank{rank}, address, size_bytes, troupe::dtype::u8, client.owner()).memory;
    client.accept();
    stored = handle.release();
  });
}

troupe_code troupe_world_register_memory(troupe_world* world, std::size_t size_bytes, troupe_error** error) {
  return attempt(error, [&] {
    troupe::world& of = need(world, "world").of;
    refuse_in_callback("troupe_world_register_memory()");
    of.register_memory(size_bytes);
  });
}

troupe_code troupe_world_release_unused(troupe_world* world, std::size_t* released, troupe_error** error) {
  return attempt(error, [&] {
    const std::size_t bytes = need(world, "world").of.release_unused();
    if (released != nullptr) *released = bytes;
  });
}

troupe_code troupe_buffer_slice(const troupe_buffer* buffer, std::size_t offset_bytes, std::size_t size_bytes,
                                troupe_buffer** made, troupe_error** error) {
  return make_handle(made, "made", error, [&] {
    const troupe::buffer& of = need(buffer, "buffer").of;
    return is_remote(of) ? remote_of(of).slice(offset_bytes, size_bytes).as_buffer()
                         : of.slice(offset_bytes, size_bytes);
  });
}

void* troupe_buffer_address(const troupe_buffer* buffer) {
  return buffer != nullptr && !is_remote(buffer->of) ? buffer->of.data() : nullptr;
}

std::size_t troupe_buffer_size(const troupe_buffer* buffer) {
  return buffer != nullptr ? buffer->of.size_bytes() : 0;
}

std::int32_t troupe_buffer_on_host(const troupe_buffer* buffer) {
  return buffer != nullptr && buffer->of.on_host() ? 1 : 0;
}

std::int32_t troupe_buffer_is_stale(const troupe_buffer* buffer) {
  return buffer != nullptr && buffer->of.stale() ? 1 : 0;
}

void troupe_buffer_free(troupe_buffer* buffer) {
  delete buffer;
}

troupe_code troupe_world_export(troupe_world* world, std::int32_t rank, const troupe_buffer* buffer, const char* name,
                                troupe_remote_buffer* handle, troupe_error** error) {
  return attempt(error, [&] {
    const troupe::world& of = need(world, "world").of;
    check_size(need(handle, "handle").size, first_size_bytes<troupe_remote_buffer>, "handle");
    write_remote(of.export_memory(troupe::rank{rank}, need(buffer, "buffer").of, name != nullptr ? name : ""), handle);
  });
}

troupe_code troupe_world_unexport(troupe_world* world, const troupe_remote_buffer* handle, troupe_error** error) {
  return attempt(error, [&] { need(world, "world").of.unexport(read_remote(handle)); });
}

troupe_code troupe_buffer_from_remote(const troupe_remote_buffer* handle, troupe_buffer** made, troupe_error** error) {
  return make_handle(made, "made", error, [&] { return read_remote(handle).as_buffer(); });
}

// DLPack --------------------------------------------------------------------------------------------------------------

namespace {

/// Calls \p import and stores the memory of the tensor that it returns. From then on that memory owns what was
/// imported.
template <class Import>
troupe_code import_tensor(troupe_world* world, troupe_tensor_info* info, troupe_buffer** made, troupe_error** error,
                          const Import& import) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    const troupe::world& where = need(world, "world").of;
    troupe_buffer*& stored = need(made, "made");
    if (info != nullptr) check_size(info->size, first_size_bytes<troupe_tensor_info>, "info");
    auto handle = std::make_unique<troupe_buffer>();
    const troupe::tensor imported = import(where); // the last that can fail
    if (info != nullptr)
      write_struct(info,
                   {.size = 0,
                    .count = imported.count(),
                    .type = static_cast<troupe_dtype>(imported.type),
                    .rank = imported.on ? imported.on->value() : -1},
                   "info");
    handle->of = imported.memory;
    stored = handle.release();
  });
}

/// Returns the memory and shape of an exported tensor.
std::span<const std::int64_t> shape_of(const std::int64_t* shape, std::size_t dimensions) {
  if (dimensions == 0) return {};
  check_count(dimensions, "dimensions", 1024);
  return {&need(shape, "shape"), dimensions};
}

} // namespace

troupe_code troupe_world_import_dlpack(troupe_world* world, DLManagedTensor* tensor, troupe_tensor_info* info,
                                       troupe_buffer** made, troupe_error** error) {
  return import_tensor(world, info, made, error,
                       [&](const troupe::world& where) { return troupe::from_dlpack(where, tensor); });
}

troupe_code troupe_world_import_dlpack_versioned(troupe_world* world, DLManagedTensorVersioned* tensor,
                                                 std::int32_t read_only_allowed, troupe_tensor_info* info,
                                                 troupe_buffer** made, troupe_error** error) {
  const auto use = read_only_allowed != 0 ? troupe::dlpack_use::source : troupe::dlpack_use::any;
  return import_tensor(world, info, made, error,
                       [&](const troupe::world& where) { return troupe::from_dlpack(where, tensor, {}, use); });
}

troupe_code troupe_buffer_to_dlpack(const troupe_buffer* buffer, troupe_dtype type, const std::int64_t* shape,
                                    std::size_t dimensions, DLManagedTensor** made, troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    DLManagedTensor*& stored = need(made, "made");
    stored = troupe::to_dlpack(need(buffer, "buffer").of, enum_of(type, troupe::dtype::f8e5m2, "dtype"),
                               shape_of(shape, dimensions))
                 .release();
  });
}

troupe_code troupe_buffer_to_dlpack_versioned(const troupe_buffer* buffer, troupe_dtype type, const std::int64_t* shape,
                                              std::size_t dimensions, DLManagedTensorVersioned** made,
                                              troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    DLManagedTensorVersioned*& stored = need(made, "made");
    stored = troupe::to_versioned_dlpack(need(buffer, "buffer").of, enum_of(type, troupe::dtype::f8e5m2, "dtype"),
                                         shape_of(shape, dimensions))
                 .release();
  });
}

// Streams of the client -----------------------------------------------------------------------------------------------

troupe_code troupe_stream_create(troupe_world* world, std::int32_t rank, troupe_stream** made, troupe_error** error) {
  return make_handle(made, "made", error,
                     [&] { return troupe::stream{need(world, "world").of.device_of(troupe::rank{rank})}; });
}

void* troupe_stream_native(const troupe_stream* stream) {
  return stream != nullptr ? stream->of.ref().native() : nullptr;
}

troupe_code troupe_stream_copy(troupe_stream* stream, void* to, const void* from, std::size_t size_bytes,
                               troupe_error** error) {
  return attempt(error, [&] {
    const troupe::stream_ref in = need(stream, "stream").of.ref();
    if (to == nullptr || from == nullptr) throw invalid("an address of a copy is NULL: it must not be");
    in.copy(to, from, size_bytes);
  });
}

troupe_code troupe_stream_synchronize(troupe_stream* stream, troupe_error** error) {
  return attempt(error, [&] {
    const troupe::stream_ref in = need(stream, "stream").of.ref();
    refuse_in_callback("troupe_stream_synchronize()");
    in.synchronize();
  });
}

void troupe_stream_free(troupe_stream* stream) {
  delete stream;
}

troupe_code troupe_event_record(troupe_world* world, std::int32_t rank, void* stream, troupe_event** made,
                                troupe_error** error) {
  return make_handle(made, "made", error,
                     [&] { return stream_of(need(world, "world").of, troupe::rank{rank}, stream).mark(); });
}

void troupe_event_free(troupe_event* event) {
  delete event;
}
