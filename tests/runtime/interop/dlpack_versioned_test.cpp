// DLPack's tensors with a version: taken and given as those without, and what their flags forbid is refused.
#include "support/runtimes.hpp"

#include <troupe/runtime/interop/dlpack.hpp>
#include <troupe/runtime/interop/dlpack_versioned.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <utility>
#include <vector>

namespace troupe::tests::dlpack_versioned_test {

namespace {

/// Another library's tensor with a version: floats in memory of its own.
struct versioned_source {
  std::vector<float> values;
  std::vector<std::int64_t> shape;
  DLManagedTensorVersioned shown{};
  int deleted = 0;

  explicit versioned_source(std::size_t count, float value, std::uint64_t flags = 0)
    : values(count, value), shape{static_cast<std::int64_t>(count)} {
    shown.version = {1, 0};
    shown.flags = flags;
    shown.dl_tensor = {.data = values.data(),
                       .device = {kDLCPU, 0},
                       .ndim = 1,
                       .dtype = {kDLFloat, 32, 1},
                       .shape = shape.data(),
                       .strides = nullptr,
                       .byte_offset = 0};
    shown.manager_ctx = this;
    shown.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<versioned_source*>(self->manager_ctx)->deleted;
    };
  }
};

error versioned_refusal_of(const world& where, versioned_source& from, dlpack_use use = dlpack_use::any) {
  try {
    static_cast<void>(from_dlpack(where, &from.shown, {}, use));
  } catch (const exception& failure) {
    CHECK(from.deleted == 0); // it stays its owner's
    return failure.why();
  }
  return {};
}

operation versioned_sum(const operand& from, const operand& to, std::size_t count) {
  return all_reduce{from, to, count, dtype::f32, reduction::sum};
}

} // namespace

TROUPE_WORLD_TEST(2, "a tensor with a version is summed in place, and deleted once when its last handle goes",
                  "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  versioned_source one{32, 1.F};
  versioned_source two{32, 2.F};
  {
    const tensor first = from_dlpack(where, &one.shown);
    const tensor second = from_dlpack(where, owned_versioned_dlpack{&two.shown});
    CHECK(first.shape == std::vector<std::size_t>{32});
    CHECK(first.memory.data() == reinterpret_cast<std::byte*>(one.values.data()));
    std::vector<operation> parts{versioned_sum(first.as_operand(), first.as_operand(), 32),
                                 versioned_sum(second.as_operand(), second.as_operand(), 32)};
    where.ask(std::move(parts)).get();
    CHECK(one.deleted == 0);
  }
  where.stop(); // a request that has been answered lets go of its memory soon after
  CHECK(one.deleted == 1);
  CHECK(two.deleted == 1);
  for (const float value : one.values) REQUIRE(value == 3.F);
  for (const float value : two.values) REQUIRE(value == 3.F);
}

TROUPE_WORLD_TEST(2, "a read-only tensor is read where the caller says that no request writes it",
                  "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  versioned_source one{8, 1.F, dlpack_read_only};
  versioned_source two{8, 2.F, dlpack_read_only | dlpack_is_copied};
  {
    const tensor first = from_dlpack(where, &one.shown, {}, dlpack_use::source);
    const tensor second = from_dlpack(where, owned_versioned_dlpack{&two.shown}, {}, dlpack_use::source);
    versioned_source out{8, 0.F, dlpack_is_copied}; // a copy is its consumer's to write
    const tensor sums = from_dlpack(where, &out.shown);
    const buffer other = where.allocate_pinned(8 * sizeof(float));
    std::vector<operation> parts{versioned_sum(first.as_operand(), sums.as_operand(), 8),
                                 versioned_sum(second.as_operand(), other, 8)};
    where.ask(std::move(parts)).get();
    for (const float value : out.values) REQUIRE(value == 3.F);
    where.stop();
  }
  for (const float value : one.values) REQUIRE(value == 1.F);
  CHECK(one.deleted == 1);
  CHECK(two.deleted == 1);
}

TEST_CASE("a tensor that says that it is read-only is refused where requests could write it, and stays its owner's",
          "[runtime][interop][dlpack]") {
  using Catch::Matchers::ContainsSubstring;
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  versioned_source from{4, 1.F, dlpack_read_only};
  const error why = versioned_refusal_of(where, from);
  CHECK(why.code == errc::invalid_argument);
  CHECK_THAT(why.text, ContainsSubstring("read-only") && ContainsSubstring("make a copy"));
  CHECK(versioned_refusal_of(where, from, dlpack_use::source).code == errc::none);
  CHECK(from.deleted == 1); // by the tensor made just now, which is gone

  versioned_source given{4, 1.F, dlpack_read_only};
  CHECK_THROWS_AS(from_dlpack(where, owned_versioned_dlpack{&given.shown}), exception);
  CHECK(given.deleted == 1); // handed over
}

TEST_CASE("a tensor of another major version is not looked at", "[runtime][interop][dlpack]") {
  using Catch::Matchers::ContainsSubstring;
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  versioned_source from{4, 1.F};
  from.shown.version = {2, 1};
  from.shown.dl_tensor.ndim = -7; // who knows what is there
  const error why = versioned_refusal_of(where, from);
  CHECK(why.code == errc::unsupported);
  CHECK_THAT(why.text, ContainsSubstring("2.1") && ContainsSubstring("max_version"));
  from.shown.version = {0, 8};
  CHECK(versioned_refusal_of(where, from).code == errc::unsupported);
  from.shown.version = {1, 77}; // minor ones add what older readers need not know
  from.shown.dl_tensor.ndim = 1;
  CHECK(versioned_refusal_of(where, from).code == errc::none);
  CHECK_THROWS_AS(from_dlpack(where, static_cast<DLManagedTensorVersioned*>(nullptr)), exception);
}

TEST_CASE("a tensor with a version without a deleter is nobody's to delete", "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  versioned_source from{4, 1.F};
  from.shown.deleter = nullptr;
  CHECK(from_dlpack(where, &from.shown).memory);
  CHECK(from.deleted == 0);
}

TROUPE_WORLD_TEST(2, "troupe's memory goes out with a version and comes back as the same bytes on the same rank",
                  "[runtime][interop][dlpack]") {
  runtime rt{settings};
  world where = rt.form_world();
  const auto values = ranked_values(where, 24);
  const std::vector<std::int64_t> shape{2, 3, 4};
  for (const rank self : where.local_ranks()) {
    const buffer& memory = values[static_cast<std::size_t>(self.value())];
    owned_versioned_dlpack out = to_versioned_dlpack(memory, dtype::f32, shape);
    CHECK(out->version.major == 1);
    CHECK(out->version.minor == 0);
    CHECK(out->flags == 0);
    CHECK(out->dl_tensor.data == memory.data());
    CHECK(out->dl_tensor.strides[0] == 12);
    CHECK(out->dl_tensor.device.device_type == dlpack_device_of(memory).type);
    const tensor back = from_dlpack(where, std::move(out));
    CHECK(back.on == self);
    CHECK(back.memory.data() == memory.data());
    const owned_versioned_dlpack again = to_versioned_dlpack(back);
    CHECK(again->dl_tensor.data == memory.data());
    CHECK(again->dl_tensor.ndim == 3);
  }
}

TEST_CASE("a tensor that is exported with a version keeps its memory until it is deleted",
          "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  owned_versioned_dlpack out;
  {
    buffer host = where.allocate_pinned(16 * sizeof(float));
    std::ranges::fill(host.host_span<float>(), 7.F);
    out = to_versioned_dlpack(host, dtype::f32, std::vector<std::int64_t>{16});
  }
  const auto* const values = static_cast<const float*>(out->dl_tensor.data);
  CHECK(std::all_of(values, values + 16, [](float one) { return one == 7.F; }));
}

TEST_CASE("every dtype goes out with a version and comes back as itself, fp8 by that of 1.1",
          "[runtime][interop][dlpack]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const buffer memory = where.allocate_pinned(64);
  for (const dtype type : all_dtypes) {
    CAPTURE(to_string(type));
    owned_versioned_dlpack out = to_versioned_dlpack(memory, type, std::vector<std::int64_t>{8});
    CHECK(out->version.minor == (type == dtype::f8e4m3 || type == dtype::f8e5m2 ? 1 : 0));
    CHECK(from_dlpack(where, std::move(out)).type == type);
  }
  CHECK_THROWS_AS(to_versioned_dlpack(memory, dtype::f32, std::vector<std::int64_t>{17}), exception);
}

} // namespace troupe::tests::dlpack_versioned_test
