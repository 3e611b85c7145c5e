#include <troupe/device/memory/leak_report.hpp>
#include <troupe/runtime/interop/dlpack.hpp>
#include <troupe/runtime/interop/dlpack_versioned.hpp>
#include <troupe/runtime/world.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Codes of DLPack 1.1, which older headers lack. They mean the same in every tensor.
constexpr int code_of_bool = 6;
constexpr int code_of_e4m3fn = 10;
constexpr int code_of_e5m2 = 12;

/// Returns whether \p where is a simulated device, whose memory is host memory to other libraries.
bool is_pretended(const device& where) {
  return where.api().name() == "mock";
}

/// Returns the code of \p type. The code does not include the width.
int code_of(dtype type) {
  switch (type) {
    case dtype::u8:
    case dtype::u32:
    case dtype::u64: return kDLUInt;
    case dtype::i8:
    case dtype::i32:
    case dtype::i64: return kDLInt;
    case dtype::f16:
    case dtype::f32:
    case dtype::f64: return kDLFloat;
    case dtype::bf16: return kDLBfloat;
    case dtype::f8e4m3: return code_of_e4m3fn;
    case dtype::f8e5m2: return code_of_e5m2;
  }
  throw exception{errc::invalid_argument, "the value " + std::to_string(static_cast<int>(type)) + " is not a dtype"};
}

dtype import_type(const DLDataType& type) {
  for (const dtype one : all_dtypes)
    if (type.lanes == 1 && type.bits == size_bytes(one) * 8 && type.code == code_of(one)) return one;
  std::string text = "the tensor's elements have DLPack's type code " + std::to_string(type.code) + " with " +
                     std::to_string(type.bits) + " bits and " + std::to_string(type.lanes) +
                     " lanes, which is not a dtype of troupe: those are";
  for (const dtype one : all_dtypes) text += ' ' + std::string{to_string(one)};
  if (type.code == code_of_bool) text += "; view bool as uint8 first";
  if (type.code == kDLComplex) text += "; view complex numbers as twice as many real ones first";
  throw exception{errc::unsupported, std::move(text)};
}

bool is_fp8(dtype type) {
  return type == dtype::f8e4m3 || type == dtype::f8e5m2;
}

DLDataType export_type(dtype type) {
  return {static_cast<std::uint8_t>(code_of(type)), static_cast<std::uint8_t>(size_bytes(type) * 8), 1};
}

void require_readable(dtype type) {
  if (!is_fp8(type)) return;
  throw exception{errc::unsupported, "unversioned DLPack has no code for " + std::string{to_string(type)} +
                                         ": export a versioned tensor (1.1), or export dtype::u8 and let the reader "
                                         "reinterpret it (torch: .view(torch." +
                                         (type == dtype::f8e4m3 ? "float8_e4m3fn" : "float8_e5m2") + "))"};
}

/// Returns the size in bytes. Errors: invalid_argument if \p extents elements of \p element_bytes are not possible.
std::size_t bytes_of(std::span<const std::int64_t> extents, std::size_t element_bytes) {
  std::size_t count = 1;
  bool is_empty = false;
  for (const std::int64_t extent : extents) {
    if (extent < 0) throw exception{errc::invalid_argument, "an extent of " + std::to_string(extent) + " is negative"};
    is_empty = is_empty || extent == 0;
    if (extent == 0) continue;
    if (count > std::numeric_limits<std::size_t>::max() / element_bytes / static_cast<std::size_t>(extent))
      throw exception{errc::invalid_argument, "the shape names more elements than any memory holds"};
    count *= static_cast<std::size_t>(extent);
  }
  return is_empty ? 0 : count * element_bytes;
}

std::span<const std::int64_t> extents_of(const DLTensor& given) {
  if (given.ndim < 0 || (given.ndim > 0 && given.shape == nullptr))
    throw exception{errc::invalid_argument, "the tensor has " + std::to_string(given.ndim) + " dimensions" +
                                                (given.ndim > 0 ? ", but its shape is null" : "")};
  return {given.shape, static_cast<std::size_t>(given.ndim)};
}

void require_no_gaps(const DLTensor& given, std::span<const std::int64_t> extents) {
  if (given.strides == nullptr) return;
  std::int64_t packed = 1;
  for (std::size_t i = extents.size(); i-- > 0;) {
    if (extents[i] != 1 && given.strides[i] != packed)
      throw exception{errc::invalid_argument, "dimension " + std::to_string(i) + " of the tensor has stride " +
                                                  std::to_string(given.strides[i]) +
                                                  " where elements without gaps have " + std::to_string(packed) +
                                                  ": make it contiguous first (torch: .contiguous(), NumPy: "
                                                  "ascontiguousarray())"};
    packed *= extents[i];
  }
}

std::byte* address_of(const DLTensor& given, std::size_t element_bytes) {
  if (given.data == nullptr) throw exception{errc::invalid_argument, "the tensor has elements, but its data is null"};
  std::byte* const first = static_cast<std::byte*>(given.data) + given.byte_offset;
  if (reinterpret_cast<std::uintptr_t>(first) % element_bytes != 0)
    throw exception{errc::invalid_argument,
                    "the tensor begins between elements: its address plus byte_offset is not a multiple of " +
                        std::to_string(element_bytes) + " bytes. Copy it"};
  return first;
}

/// Returns the rank on device \p id. Errors: wrong_device, naming \p what.
rank rank_on(const world& where, device_id id, const char* what) {
  std::string known;
  for (const rank self : where.local_ranks()) {
    const device_id has = where.device_of(self)->id();
    if (has == id) return self;
    known += (known.empty() ? "" : ", ") + to_string(has);
  }
  throw exception{errc::wrong_device, std::string{what} + " belongs to device " + to_string(id) +
                                          ", and no rank of this world in this process uses it: they use " +
                                          (known.empty() ? "none" : known)};
}

/// Returns the rank on whose device \p given is, or nothing for host memory. Errors: wrong_device, unsupported.
std::optional<rank> owner_of(const world& where, const DLTensor& given) {
  switch (static_cast<int>(given.device.device_type)) {
    case kDLCPU:
    case kDLCUDAHost: break;
    case kDLCUDA: return rank_on(where, device_id{given.device.device_id}, "the tensor");
    case kDLCUDAManaged:
      throw exception{errc::unsupported, "the tensor is in managed memory, which moves between host and device while "
                                         "requests run: copy it to device memory"};
    default:
      throw exception{errc::unsupported, "the tensor lives on a device of DLPack's type " +
                                             std::to_string(static_cast<int>(given.device.device_type)) +
                                             ": troupe accepts kDLCPU (1), kDLCUDA (2) and kDLCUDAHost (3)"};
  }
  const auto here = where.local_ranks();
  if (here.empty()) throw exception{errc::wrong_device, "no rank of this world lives in this process"};
  const std::shared_ptr<device>& first = where.device_of(here.front());
  if (given.data == nullptr || !is_pretended(*first)) return {};
  const pointer_description found = first->api().describe(static_cast<std::byte*>(given.data) + given.byte_offset);
  if (found.kind != memory_kind::device || !found.device) return {};
  return rank_on(where, *found.device, "the tensor");
}

void require_use(const DLManagedTensorVersioned& given, dlpack_use use) {
  if (given.version.major != 1) // the layout behind the version is unknown
    throw exception{errc::unsupported, "the tensor uses DLPack " + std::to_string(given.version.major) + "." +
                                           std::to_string(given.version.minor) +
                                           ", and troupe reads 1.x: ask its producer with max_version=(1, 0)"};
  if ((given.flags & dlpack_read_only) != 0 && use != dlpack_use::source)
    throw exception{
        errc::invalid_argument,
        "the tensor is read-only, and requests could write it: use it only as a source (dlpack_use::source; in Python "
        "give another tensor as out), or make a copy that may be written (NumPy, CuPy, JAX: .copy(), "
        "torch: .clone())"};
}

/// An exported tensor, versioned or not.
template <class Managed>
struct exported_tensor {
  Managed shown{};
  buffer memory;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::optional<stream_ref> reader;
};

/// Never releases \p memory, because a graph that uses it may be launched at any time.
void keep_for_good(buffer memory) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<buffer>; // destroyed by nobody: devices end before static objects
  const std::lock_guard lock{mutex};
  kept->push_back(std::move(memory));
}

template <class Managed>
void delete_exported(Managed* self) noexcept {
  const std::unique_ptr<exported_tensor<Managed>> ended{static_cast<exported_tensor<Managed>*>(self->manager_ctx)};
  if (!ended->reader) return;
  return_or_report("memory exported by DLPack", [&] {
    try {
      ended->memory.note_use(*ended->reader);
    } catch (const exception& failure) {
      if (failure.why().code == errc::unsupported) return; // memory that does not come from troupe's pools
      if (failure.why().code == errc::invalid_argument) {  // the reader's stream is in capture
        if (ended->memory.block().use_count() > 1) return; // somebody else holds the memory, as a capture needs
        keep_for_good(std::move(ended->memory));
      }
      throw;
    }
  });
}

/// Imports \p from, and takes ownership of it only when nothing can fail any more.
template <class Managed>
tensor take_tensor(const world& where, Managed* from, std::optional<stream_ref> produced_on) {
  const DLTensor& given = from->dl_tensor;
  const auto extents = extents_of(given);
  tensor made{.type = import_type(given.dtype)};
  made.shape.assign(extents.begin(), extents.end());
  const std::size_t size = bytes_of(extents, size_bytes(made.type));
  if (size > 0) require_no_gaps(given, extents);
  made.on = owner_of(where, given);
  if (produced_on)
    made.ready = record_event(where.device_of(rank_on(where, produced_on->where().id(), "the stream")), *produced_on);

  const auto owner = std::make_shared<std::unique_ptr<Managed, dlpack_deleter>>();
  if (size > 0) {
    std::byte* const first = address_of(given, size_bytes(made.type));
    made.memory = made.on ? adopt(where.device_of(*made.on), first, size, owner) : where.adopt_host(first, size, owner);
  }
  owner->reset(from); // nothing throws after this line
  return made;
}

void require_tensor(const void* from) {
  if (from == nullptr) throw exception{errc::invalid_argument, "the pointer to the DLPack tensor is null"};
}

template <class Managed>
std::unique_ptr<Managed, dlpack_deleter>
export_tensor(const buffer& memory, dtype type, std::span<const std::int64_t> shape, const dlpack_reader& reader) {
  const DLDataType type_shown = export_type(type);
  const std::size_t size = bytes_of(shape, size_bytes(type));
  if (size > memory.size_bytes())
    throw exception{errc::invalid_argument, "the shape needs " + std::to_string(size) + " bytes, and the buffer has " +
                                                std::to_string(memory.size_bytes())};
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % size_bytes(type) != 0)
    throw exception{errc::invalid_argument, "the buffer begins between elements: its address is not a multiple of " +
                                                std::to_string(size_bytes(type)) + " bytes"};
  if (reader.behind && !reader.stream)
    throw exception{errc::invalid_argument, "an event needs a stream that waits for it: name the reader's stream, or "
                                            "wait for the request's reply and name no event"};
  const bool on_device = memory && memory.kind() == memory_kind::device;
  if (reader.stream && on_device && &reader.stream->where() != memory.where())
    throw exception{errc::wrong_device, "the reader's stream belongs to device " +
                                            to_string(reader.stream->where().id()) + ", and the memory to device " +
                                            to_string(memory.where()->id())};

  auto exported = std::make_unique<exported_tensor<Managed>>();
  exported->memory = memory;
  exported->shape.assign(shape.begin(), shape.end());
  exported->strides.resize(shape.size());
  std::int64_t packed = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    exported->strides[i] = packed;
    packed *= std::max<std::int64_t>(shape[i], 1);
  }
  if (on_device) exported->reader = reader.stream;
  const dlpack_device at = dlpack_device_of(memory);
  // Strides are set because newer consumers require them.
  exported->shown.dl_tensor = {.data = memory.data(),
                               .device = {static_cast<DLDeviceType>(at.type), at.id},
                               .ndim = static_cast<int>(shape.size()),
                               .dtype = type_shown,
                               .shape = exported->shape.data(),
                               .strides = exported->strides.data(),
                               .byte_offset = 0};
  exported->shown.deleter = [](Managed* self) { delete_exported(self); };
  exported->shown.manager_ctx = exported.get();
  if constexpr (std::is_same_v<Managed, DLManagedTensorVersioned>)
    exported->shown.version = {1, is_fp8(type) ? 1U : 0U};
  if (reader.behind) reader.stream->wait(*reader.behind);
  return std::unique_ptr<Managed, dlpack_deleter>{&exported.release()->shown};
}

/// Adds the tensor's own event if \p reader names none.
dlpack_reader reader_behind(const tensor& exported, dlpack_reader reader) {
  if (!reader.behind && exported.ready && !exported.ready->reached()) reader.behind = exported.ready;
  return reader;
}

std::vector<std::int64_t> extents_of(const tensor& exported) {
  return {exported.shape.begin(), exported.shape.end()};
}

} // namespace

bool has_dlpack() noexcept {
  return true;
}

void dlpack_deleter::operator()(DLManagedTensor* tensor) const noexcept {
  if (tensor->deleter != nullptr) tensor->deleter(tensor);
}

void dlpack_deleter::operator()(DLManagedTensorVersioned* tensor) const noexcept {
  if (tensor->deleter != nullptr) tensor->deleter(tensor);
}

tensor from_dlpack(const world& where, DLManagedTensor* from, std::optional<stream_ref> produced_on) {
  require_tensor(from);
  return take_tensor(where, from, produced_on);
}

tensor from_dlpack(const world& where, owned_dlpack from, std::optional<stream_ref> produced_on) {
  tensor made = from_dlpack(where, from.get(), produced_on);
  static_cast<void>(from.release());
  return made;
}

tensor from_dlpack(const world& where, DLManagedTensorVersioned* from, std::optional<stream_ref> produced_on,
                   dlpack_use use) {
  require_tensor(from);
  require_use(*from, use);
  return take_tensor(where, from, produced_on);
}

tensor from_dlpack(const world& where, owned_versioned_dlpack from, std::optional<stream_ref> produced_on,
                   dlpack_use use) {
  tensor made = from_dlpack(where, from.get(), produced_on, use);
  static_cast<void>(from.release());
  return made;
}

owned_dlpack to_dlpack(const buffer& memory, dtype type, std::span<const std::int64_t> shape,
                       const dlpack_reader& reader) {
  require_readable(type);
  return export_tensor<DLManagedTensor>(memory, type, shape, reader);
}

owned_dlpack to_dlpack(const tensor& exported, dlpack_reader reader) {
  return to_dlpack(exported.memory, exported.type, extents_of(exported), reader_behind(exported, std::move(reader)));
}

owned_versioned_dlpack to_versioned_dlpack(const buffer& memory, dtype type, std::span<const std::int64_t> shape,
                                           const dlpack_reader& reader) {
  return export_tensor<DLManagedTensorVersioned>(memory, type, shape, reader);
}

owned_versioned_dlpack to_versioned_dlpack(const tensor& exported, dlpack_reader reader) {
  return to_versioned_dlpack(exported.memory, exported.type, extents_of(exported),
                             reader_behind(exported, std::move(reader)));
}

dlpack_device dlpack_device_of(const buffer& memory) {
  const device* const where = memory.where();
  if (where == nullptr || is_pretended(*where) || memory.on_host()) return {kDLCPU, 0};
  return {kDLCUDA, where->id().value()};
}

} // namespace troupe
