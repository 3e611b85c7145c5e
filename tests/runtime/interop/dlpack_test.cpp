// Tensors of other libraries without a copy: who owns them, what is refused, and whose streams wait for whom.
#include "support/runtimes.hpp"

#include <troupe/device/graph.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/runtime/interop/dlpack.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <dlpack/dlpack.h>

#include <atomic>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::tests::dlpack_test {

namespace {

using Catch::Matchers::ContainsSubstring;

/// Another library's tensor: floats in memory of its own.
struct foreign_tensor {
  std::vector<float> values;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides{};
  DLManagedTensor shown{};
  std::atomic<int> deleted{0};
  std::atomic<std::thread::id> deleted_on{};

  foreign_tensor(std::vector<std::int64_t> extents, float value) : shape{std::move(extents)} {
    std::size_t count = 1;
    for (const std::int64_t one : shape) count *= static_cast<std::size_t>(one);
    values.assign(count, value);
    shown.dl_tensor = {.data = values.data(),
                       .device = {kDLCPU, 0},
                       .ndim = static_cast<int>(shape.size()),
                       .dtype = {kDLFloat, 32, 1},
                       .shape = shape.data(),
                       .strides = nullptr,
                       .byte_offset = 0};
    shown.manager_ctx = this;
    shown.deleter = [](DLManagedTensor* self) {
      auto* const owner = static_cast<foreign_tensor*>(self->manager_ctx);
      owner->deleted_on = std::this_thread::get_id();
      ++owner->deleted;
    };
  }
};

error refusal_of(const world& where, foreign_tensor& from) {
  try {
    static_cast<void>(from_dlpack(where, &from.shown));
  } catch (const exception& failure) {
    CHECK(from.deleted == 0); // it stays its owner's
    return failure.why();
  }
  return {};
}

error export_refusal_of(const buffer& memory, dtype type, std::vector<std::int64_t> shape,
                        const dlpack_reader& reader = {}) {
  try {
    static_cast<void>(to_dlpack(memory, type, shape, reader));
  } catch (const exception& failure) {
    return failure.why();
  }
  return {};
}

operation sum_of(const operand& values, std::size_t count) {
  return all_reduce{values, values, count, dtype::f32, reduction::sum};
}

} // namespace

TROUPE_WORLD_TEST(2, "a tensor of another library is summed in place, and deleted once when its last handle goes",
                  "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  foreign_tensor one{{4, 8}, 1.F};
  foreign_tensor two{{4, 8}, 2.F};
  {
    tensor first = from_dlpack(where, &one.shown);
    const tensor second = from_dlpack(where, owned_dlpack{&two.shown});
    CHECK(first.type == dtype::f32);
    CHECK(first.shape == std::vector<std::size_t>{4, 8});
    CHECK(first.count() == 32);
    CHECK_FALSE(first.on);
    CHECK_FALSE(first.ready);
    CHECK(first.memory.data() == reinterpret_cast<std::byte*>(one.values.data()));
    CHECK(first.memory.size_bytes() == 32 * sizeof(float));
    std::vector<operation> parts{sum_of(first.as_operand(), 32), sum_of(second.as_operand(), 32)};
    where.ask(std::move(parts)).get();
    const buffer kept = first.memory.slice(4, 4);
    first = tensor{};
    CHECK(one.deleted == 0); // a part of it is still held
  }
  where.stop(); // a request that has been answered lets go of its memory soon after
  CHECK(one.deleted == 1);
  CHECK(two.deleted == 1);
  for (const float value : one.values) REQUIRE(value == 3.F);
  for (const float value : two.values) REQUIRE(value == 3.F);
}

TROUPE_WORLD_TEST(1, "a request in flight holds the tensor, which is deleted on another thread then",
                  "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  const buffer device_side = where.allocate(rank{0}, 32 * sizeof(float));
  where.barrier().get();
  foreign_tensor source{{32}, 5.F};
  const held_client held{where.device_of(rank{0})};
  std::future<completion> reply;
  {
    tensor taken = from_dlpack(where, &source.shown);
    reply = where.ask(rank{0}, copy{taken.as_operand(), held.after(device_side)});
  }
  CHECK(source.deleted == 0);
  held.open();
  reply.get();
  // The reply comes before the request lets go of what it held.
  const auto give_up = std::chrono::steady_clock::now() + 30s;
  while (source.deleted == 0 && std::chrono::steady_clock::now() < give_up) std::this_thread::yield();
  CHECK(source.deleted == 1);
  CHECK(source.deleted_on.load() != std::this_thread::get_id());
  for (const float value : read_back(where, rank{0}, device_side)) REQUIRE(value == 5.F);
}

TROUPE_WORLD_TEST(2, "troupe's own device memory goes out and comes back as the same bytes on the same rank",
                  "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, 24);
  const std::vector<std::int64_t> shape{2, 3, 4};
  for (const rank self : where.local_ranks()) {
    const buffer& memory = values[static_cast<std::size_t>(self.value())];
    owned_dlpack out = to_dlpack(memory, dtype::f32, shape);
    CHECK(out->dl_tensor.data == memory.data());
    CHECK(out->dl_tensor.strides[0] == 12);
    CHECK(out->dl_tensor.strides[2] == 1);
    CHECK(out->dl_tensor.device.device_type == dlpack_device_of(memory).type);
    const tensor back = from_dlpack(where, std::move(out));
    CHECK(back.on == self);
    CHECK(back.memory.kind() == memory_kind::device);
    CHECK(back.memory.data() == memory.data());
    CHECK(back.shape == std::vector<std::size_t>{2, 3, 4});
  }
}

TROUPE_WORLD_TEST(1, "what is lent keeps its memory after every handle of troupe's has gone",
                  "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  owned_dlpack out;
  {
    buffer host = where.allocate_pinned(16 * sizeof(float));
    std::ranges::fill(host.host_span<float>(), 7.F);
    out = to_dlpack(host, dtype::f32, std::vector<std::int64_t>{16});
  }
  const auto* const values = static_cast<const float*>(out->dl_tensor.data);
  CHECK(std::all_of(values, values + 16, [](float one) { return one == 7.F; }));
  std::thread{[mine = std::move(out)]() mutable { mine.reset(); }}.join();
}

TROUPE_WORLD_TEST(1, "requests wait on the device for the stream that fills a tensor", "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto& gpu = where.device_of(rank{0});
  const buffer memory = where.allocate(rank{0}, 64);
  const buffer host = where.allocate_pinned(64);
  where.copy(rank{0}, memory, host).get();
  stream producer{gpu};
  gate held{gpu};
  held.hold(producer);
  producer.ref().fill(memory.data(), 0x2a, 64);
  const tensor taken = from_dlpack(where, to_dlpack(memory, dtype::u8, std::vector<std::int64_t>{64}), producer.ref());
  REQUIRE(taken.ready);
  CHECK_FALSE(taken.ready->reached());
  auto reply = where.ask(rank{0}, copy{taken.as_operand(), host});
  CHECK(reply.wait_for(20ms) == std::future_status::timeout);
  held.open();
  reply.get();
  for (const std::uint8_t one : host.host_span<std::uint8_t>()) REQUIRE(one == 0x2a);
}

TROUPE_WORLD_TEST(1, "a reader's stream waits on the device for the request that makes the values",
                  "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto& gpu = where.device_of(rank{0});
  const buffer memory = where.allocate(rank{0}, 64);
  const buffer host = where.allocate_pinned(64);
  const buffer seen = where.allocate_pinned(64);
  std::ranges::fill(host.host_span<std::uint8_t>(), std::uint8_t{9});
  where.copy(rank{0}, seen, memory).get();
  const held_client held{gpu};
  auto asked = where.ask_overlapped(rank{0}, copy{held.after(host), memory});
  const enqueued told = asked.enqueued.get();
  stream reader{gpu};
  owned_dlpack out = to_dlpack(memory, dtype::u8, std::vector<std::int64_t>{8, 8},
                               {.stream = reader.ref(), .behind = told.ranks.front().behind});
  reader.ref().copy(seen.data(), out->dl_tensor.data, 64);
  CHECK_FALSE(reader.ref().idle());
  out.reset(); // the copy is still in the reader's stream
  held.open();
  asked.outcome.get();
  reader.ref().synchronize();
  for (const std::uint8_t one : seen.host_span<std::uint8_t>()) REQUIRE(one == 9);
}

TEST_CASE("memory that a reader's stream still uses is not given out again", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const auto& gpu = where.device_of(rank{0});
  stream reader{gpu};
  gate held{gpu};
  // A look at the pool frees what can be freed, and has done so when it returns.
  const auto used_bytes = [&] {
    static_cast<void>(where.allocate(rank{0}, 256));
    static_cast<void>(where.allocate(rank{0}, 256));
    return dynamic_cast<mock_driver&>(gpu->api()).used_bytes(gpu->id());
  };
  constexpr std::size_t size = 4U << 20U;
  const std::size_t before = used_bytes();
  held.hold(reader);
  static_cast<void>(to_dlpack(where.allocate(rank{0}, size), dtype::u8, std::vector<std::int64_t>{size}));
  CHECK(used_bytes() < before + size / 2); // nobody reads: it is free
  static_cast<void>(
      to_dlpack(where.allocate(rank{0}, size), dtype::u8, std::vector<std::int64_t>{size}, {.stream = reader.ref()}));
  CHECK(used_bytes() > before + size / 2);
  held.open();
  reader.ref().synchronize();
  CHECK(used_bytes() < before + size / 2);
}

TEST_CASE("memory that a reader's stream in capture may use is not given out again, and its keeper is not warned",
          "[runtime][interop][dlpack][plans]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const auto& gpu = where.device_of(rank{0});
  const stream reader{gpu};
  constexpr std::int64_t size = 64;
  const auto read_in_capture = [&](const buffer& memory) {
    stream_capture capture{gpu, reader};
    static_cast<void>(to_dlpack(memory, dtype::u8, std::vector{size}, {.stream = reader.ref()}));
    static_cast<void>(capture.end());
  };
  const auto reports = leak_count();
  const buffer kept = where.allocate(rank{0}, size);
  read_in_capture(kept);
  CHECK(leak_count() == reports);

  const std::byte* dropped = nullptr;
  {
    stream_capture capture{gpu, reader};
    buffer memory = where.allocate(rank{0}, size);
    dropped = memory.data();
    auto shown = to_dlpack(memory, dtype::u8, std::vector{size}, {.stream = reader.ref()});
    memory = {};
    shown.reset();
    static_cast<void>(capture.end());
  }
  CHECK(leak_count() == reports + 1);
  std::vector<buffer> later;
  for (int i = 0; i < 8; ++i) {
    later.push_back(where.allocate(rank{0}, size));
    CHECK(later.back().data() != dropped);
  }
}

TEST_CASE("every dtype goes out and comes back as itself, but fp8, which only comes in", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const buffer memory = where.allocate_pinned(64);
  const std::vector<std::int64_t> shape{8};
  for (const dtype type : all_dtypes) {
    CAPTURE(to_string(type));
    if (type == dtype::f8e4m3 || type == dtype::f8e5m2) {
      const error why = export_refusal_of(memory, type, shape);
      CHECK(why.code == errc::unsupported);
      CHECK_THAT(why.text, ContainsSubstring("dtype::u8") && ContainsSubstring("float8_e"));
      owned_dlpack out = to_dlpack(memory, dtype::u8, shape);
      out->dl_tensor.dtype.code = type == dtype::f8e4m3 ? 10 : 12; // of DLPack 1.1
      CHECK(from_dlpack(where, std::move(out)).type == type);
    } else {
      CHECK(from_dlpack(where, to_dlpack(memory, type, shape)).type == type);
    }
  }
  const owned_dlpack brain = to_dlpack(memory, dtype::bf16, shape);
  CHECK(brain->dl_tensor.dtype.code == kDLBfloat);
  CHECK(brain->dl_tensor.dtype.bits == 16);
}

TEST_CASE("a tensor's offset, its scalars and its extents of one are understood", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  foreign_tensor offset{{6}, 1.F};
  offset.shown.dl_tensor.byte_offset = 8;
  offset.shape = {1, 4};
  offset.strides = {77, 1}; // the stride of an extent of one says nothing
  offset.shown.dl_tensor.shape = offset.shape.data();
  offset.shown.dl_tensor.strides = offset.strides.data();
  offset.shown.dl_tensor.ndim = 2;
  const tensor part = from_dlpack(where, &offset.shown);
  CHECK(part.memory.data() == reinterpret_cast<std::byte*>(offset.values.data() + 2));
  CHECK(part.memory.size_bytes() == 16);

  foreign_tensor scalar{{}, 3.F};
  const tensor one = from_dlpack(where, &scalar.shown);
  CHECK(one.shape.empty());
  CHECK(one.count() == 1);
  CHECK(one.memory.size_bytes() == sizeof(float));
}

TEST_CASE("a tensor without elements names no memory and is deleted at once", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  foreign_tensor nothing{{3, 0, 5}, 0.F};
  nothing.shown.dl_tensor.data = nullptr;
  const tensor taken = from_dlpack(where, &nothing.shown);
  CHECK(nothing.deleted == 1);
  CHECK(taken.count() == 0);
  CHECK_FALSE(taken.memory);
  where.ask(rank{0}, sum_of(taken.as_operand(), 0)).get();
  const owned_dlpack out = to_dlpack(taken);
  CHECK(out->dl_tensor.ndim == 3);
  CHECK(out->dl_tensor.data == nullptr);
}

TEST_CASE("pinned memory that says so comes in as what it is", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  owned_dlpack pinned = to_dlpack(where.allocate_pinned(64), dtype::f32, std::vector<std::int64_t>{16});
  pinned->dl_tensor.device = {kDLCUDAHost, 0};
  const tensor taken = from_dlpack(where, std::move(pinned));
  CHECK(taken.memory.kind() == memory_kind::pinned);
  CHECK_FALSE(taken.on);
}

TEST_CASE("a tensor that cannot be imported is refused with the remedy, and stays its owner's",
          "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  foreign_tensor from{{2, 3}, 1.F};
  DLTensor& shown = from.shown.dl_tensor;
  const auto refused = [&](errc code, const char* text) {
    const error why = refusal_of(where, from);
    CHECK(why.code == code);
    CHECK_THAT(why.text, ContainsSubstring(text));
  };
  SECTION("gaps") {
    from.strides = {4, 1};
    shown.strides = from.strides.data();
    refused(errc::invalid_argument, "dimension 0 of the tensor has stride 4 where elements without gaps have 3");
  }
  SECTION("column-major") {
    from.strides = {1, 2};
    shown.strides = from.strides.data();
    refused(errc::invalid_argument, "contiguous");
  }
  SECTION("bool") {
    shown.dtype = {6, 8, 1};
    refused(errc::unsupported, "view bool as uint8");
  }
  SECTION("complex") {
    shown.dtype = {kDLComplex, 64, 1};
    refused(errc::unsupported, "twice as many real ones");
  }
  SECTION("16-bit integers") {
    shown.dtype = {kDLInt, 16, 1};
    refused(errc::unsupported, "type code 0 with 16 bits");
  }
  SECTION("vectors") {
    shown.dtype = {kDLFloat, 32, 4};
    refused(errc::unsupported, "4 lanes");
  }
  SECTION("between elements") {
    shown.byte_offset = 2;
    refused(errc::invalid_argument, "between elements");
  }
  SECTION("null") {
    shown.data = nullptr;
    refused(errc::invalid_argument, "its data is null");
    CHECK_THROWS_AS(from_dlpack(where, static_cast<DLManagedTensor*>(nullptr)), exception);
  }
  SECTION("no shape") {
    shown.shape = nullptr;
    refused(errc::invalid_argument, "its shape is null");
  }
  SECTION("a negative extent") {
    from.shape = {2, -3};
    refused(errc::invalid_argument, "-3 is negative");
  }
  SECTION("more than there is") {
    from.shape = {1LL << 40, 1LL << 40};
    refused(errc::invalid_argument, "more elements than any memory holds");
  }
  SECTION("a device that no rank has") {
    shown.device = {kDLCUDA, 7};
    refused(errc::wrong_device, "device 7, and no rank of this world in this process uses it: they use 0, 1");
  }
  SECTION("an address that is not the device's") {
    shown.device = {kDLCUDA, 1};
    refused(errc::invalid_argument, "ordinary host memory to the mock driver");
  }
  SECTION("another rank's device") {
    const buffer memory = where.allocate(rank{0}, 64);
    shown.data = memory.data();
    shown.device = {kDLCUDA, 1};
    refused(errc::wrong_device, "device 0, not on device 1");
  }
  SECTION("managed memory") {
    shown.device = {kDLCUDAManaged, 0};
    refused(errc::unsupported, "managed memory");
  }
  SECTION("another vendor's device") {
    shown.device = {kDLROCM, 0};
    refused(errc::unsupported, "DLPack's type 10");
  }
}

TEST_CASE("a tensor that is handed over is deleted where it is refused, too", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  foreign_tensor from{{2, 3}, 1.F};
  from.shown.dl_tensor.byte_offset = 1;
  CHECK_THROWS_AS(from_dlpack(where, owned_dlpack{&from.shown}), exception);
  CHECK(from.deleted == 1);
}

TEST_CASE("a tensor without a deleter is nobody's to delete", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  foreign_tensor from{{2, 3}, 1.F};
  from.shown.deleter = nullptr;
  CHECK(from_dlpack(where, &from.shown).memory);
  CHECK(from.deleted == 0);
}

TEST_CASE("memory that cannot be exported is refused with the remedy", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  const buffer memory = where.allocate(rank{0}, 64);
  CHECK(export_refusal_of(memory, dtype::f32, {17}).code == errc::invalid_argument);
  CHECK(export_refusal_of(memory, dtype::f32, {-1}).code == errc::invalid_argument);
  CHECK(export_refusal_of(memory, static_cast<dtype>(99), {1}).code == errc::invalid_argument);
  CHECK_THAT(export_refusal_of(memory.slice(2, 62), dtype::f32, {4}).text, ContainsSubstring("between elements"));
  stream reader{where.device_of(rank{1})};
  CHECK(export_refusal_of(memory, dtype::f32, {4}, {.stream = reader.ref()}).code == errc::wrong_device);
  const shared_event behind = record_event(where.device_of(rank{1}), reader);
  CHECK_THAT(export_refusal_of(memory, dtype::f32, {4}, {.behind = behind}).text,
             ContainsSubstring("an event needs a stream"));
  CHECK(export_refusal_of(memory, dtype::f32, {4, 4}).code == errc::none);
}

TEST_CASE("a rank's device says what a reader must expect of it", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  CHECK(dlpack_device_of(where.allocate(rank{0}, 4)) == dlpack_device{kDLCPU, 0}); // a pretended device
  CHECK(dlpack_device_of(buffer{}) == dlpack_device{kDLCPU, 0});
}

TEST_CASE("nccl: device memory says so to readers, and pinned memory that it is the host's",
          "[runtime][interop][dlpack][gpu]") {
  runtime rt{gpu_settings(1)};
  world where = rt.form_world();
  CHECK(dlpack_device_of(where.allocate(rank{0}, 4)) == dlpack_device{kDLCUDA, where.device_of(rank{0})->id().value()});
  CHECK(dlpack_device_of(where.allocate_pinned(4)) == dlpack_device{kDLCPU, 0});
  const owned_dlpack out = to_dlpack(where.allocate_pinned(64), dtype::f32, std::vector<std::int64_t>{16});
  CHECK(out->dl_tensor.device.device_type == kDLCPU);
}

} // namespace troupe::tests::dlpack_test
