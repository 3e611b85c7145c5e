// Arrays of a client's own as operands: whose they are, what they are, and what is refused.
#include "support/runtimes.hpp"

#include <troupe/runtime/interop/views.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::tests::views_test {

/// A half type of a client's own.
struct brain_half {
  std::uint16_t bits;
};

/// Like thrust::device_vector: its pointers are no plain ones, and it is no range of the standard's.
class device_array {
public:
  class pointer {
  public:
    explicit pointer(float* to) : to_{to} {}
    [[nodiscard]] float* get() const { return to_; }

  private:
    float* to_;
  };

  device_array(const world& where, rank target, std::size_t count)
    : memory_{where.allocate(target, count * sizeof(float))}, count_{count} {}
  [[nodiscard]] pointer data() const { return pointer{reinterpret_cast<float*>(memory_.data())}; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] const buffer& memory() const { return memory_; }

private:
  buffer memory_;
  std::size_t count_;
};

/// Tells when it ends.
class counted_array {
public:
  counted_array(std::vector<int> values, std::shared_ptr<int> ended)
    : values_{std::move(values)}, ended_{std::move(ended)} {}
  counted_array(counted_array&&) noexcept = default;
  counted_array& operator=(counted_array&&) = delete;
  ~counted_array() {
    if (ended_) ++*ended_;
  }
  int* data() { return values_.data(); }
  [[nodiscard]] std::size_t size() const { return values_.size(); }

private:
  std::vector<int> values_;
  std::shared_ptr<int> ended_;
};

} // namespace troupe::tests::views_test

template <>
struct troupe::dtype_of<troupe::tests::views_test::brain_half> {
  static constexpr dtype value = dtype::bf16;
};

namespace troupe::tests::views_test {

namespace {

static_assert(contiguous_elements<std::vector<float>>);
static_assert(contiguous_elements<const std::span<double>>);
static_assert(contiguous_elements<std::array<std::byte, 4>>);
static_assert(contiguous_elements<device_array>);
static_assert(contiguous_elements<std::vector<brain_half>>);
static_assert(!contiguous_elements<const std::vector<float>>); // an operand may be written
static_assert(!contiguous_elements<std::vector<bool>>);
static_assert(!contiguous_elements<std::vector<short>>);
static_assert(!contiguous_elements<std::vector<std::string>>);
static_assert(dtype_of<long>::value == dtype::i64 && dtype_of<unsigned long long>::value == dtype::u64);
static_assert(dtype_of<std::uint32_t>::value == dtype::u32 && dtype_of<signed char>::value == dtype::i8);

template <class Range>
concept can_be_given = requires(const world& where, Range&& one) {
  give(where, rank{0}, std::forward<Range>(one));
};
template <class Range>
concept can_be_borrowed = requires(const world& where, Range&& one) {
  borrow(where, rank{0}, std::forward<Range>(one));
};
static_assert(can_be_given<std::vector<float>> && !can_be_given<std::vector<float>&>);
static_assert(!can_be_given<std::span<float>>); // it owns nothing
static_assert(can_be_borrowed<std::vector<float>&> && !can_be_borrowed<std::vector<float>>);
static_assert(can_be_borrowed<std::span<float>>);

operation sum_of(const tensor& values) {
  return all_reduce{values.as_operand(), values.as_operand(), values.count(), values.type, reduction::sum};
}

} // namespace

TROUPE_WORLD_TEST(2, "spans, vectors and arrays on devices are summed where they are", "[runtime][interop][views]") {
  runtime rt{settings};
  world where = rt.form_world();
  std::vector<float> first(100, 1.F);
  std::vector<float> second(100, 2.F);
  const tensor one = borrow(where, rank{0}, first);
  const tensor two = borrow(where, rank{1}, std::span{second});
  CHECK(one.memory.data() == reinterpret_cast<std::byte*>(first.data()));
  CHECK(one.memory.kind() == memory_kind::pageable);
  CHECK(one.shape == std::vector<std::size_t>{100});
  CHECK_FALSE(one.on);
  where.ask(std::vector<operation>{sum_of(one), sum_of(two)}).get();
  for (const float value : second) REQUIRE(value == 3.F);

  std::vector<device_array> arrays;
  std::vector<operation> parts;
  for (const rank self : where.local_ranks()) {
    arrays.emplace_back(where, self, 100);
    where.copy(self, one.memory, arrays.back().memory()).get();
    const tensor values = borrow(where, self, arrays.back());
    CHECK(values.on == self);
    CHECK(values.type == dtype::f32);
    CHECK(values.memory.kind() == memory_kind::device);
    parts.push_back(sum_of(values));
  }
  where.ask(std::move(parts)).get();
  for (const float value : read_back(where, rank{1}, arrays[1].memory())) REQUIRE(value == 6.F);
}

TEST_CASE("shared and adopted memory ends with the last handle, once", "[runtime][interop][views]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const auto ended = std::make_shared<int>(0);
  SECTION("given") {
    tensor values = give(where, rank{0}, counted_array{{1, 2, 3}, ended});
    CHECK(values.type == dtype::i32);
    const buffer part = values.memory.slice(4, 8);
    values = tensor{};
    CHECK(*ended == 0);
    CHECK(part.host_span<int>()[1] == 3);
  }
  SECTION("shared") {
    auto array = std::make_shared<counted_array>(std::vector<int>{1, 2, 3}, ended);
    const tensor values = share(where, rank{0}, array);
    array.reset();
    CHECK(*ended == 0);
    CHECK(values.memory.host_span<int>()[2] == 3);
  }
  CHECK(*ended == 1);
}

TEST_CASE("a refused array ends, or stays its owner's, and says what is wrong", "[runtime][interop][views]") {
  runtime rt{mock_settings(2)};
  world where = rt.form_world();
  device_array there{where, rank{1}, 8};
  try {
    static_cast<void>(borrow(where, rank{0}, there));
    FAIL("memory of another rank's device was taken");
  } catch (const exception& failure) {
    CHECK(failure.why().code == errc::wrong_device);
  }
  std::vector<float> values(4);
  CHECK_THROWS_AS(borrow(where, rank{7}, values), exception);
  CHECK_THROWS_AS(borrow(where, rank{0}, std::span<float>(static_cast<float*>(nullptr), 3)), exception);
  CHECK_THROWS_AS(adopt_elements(where, rank{0}, values.data(), 4, static_cast<dtype>(99), nullptr), exception);
  CHECK_THROWS_AS(adopt_elements(where, rank{0}, values.data(), SIZE_MAX / 2, dtype::f64, nullptr), exception);
  const auto ended = std::make_shared<int>(0);
  CHECK_THROWS_AS(give(where, rank{7}, counted_array{{1}, ended}), exception);
  CHECK(*ended == 1);
}

TEST_CASE("half types and arrays without elements", "[runtime][interop][views]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  std::vector<brain_half> halves(6);
  const tensor values = borrow(where, rank{0}, halves);
  CHECK(values.type == dtype::bf16);
  CHECK(values.memory.size_bytes() == 12);
  where.ask(rank{0}, sum_of(values)).get();

  const tensor nothing = give(where, rank{0}, std::vector<float>{});
  CHECK(nothing.count() == 0);
  CHECK_FALSE(nothing.memory);
  where.ask(rank{0}, sum_of(nothing)).get();
}

TEST_CASE("pinned memory is found to be pinned", "[runtime][interop][views]") {
  runtime rt{mock_settings(1)};
  world where = rt.form_world();
  const buffer host = where.allocate_pinned(64);
  CHECK(borrow(where, rank{0}, host.host_span<float>()).memory.kind() == memory_kind::pinned);
}

} // namespace troupe::tests::views_test
