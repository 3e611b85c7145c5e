#include "support/drivers.hpp"
#include "support/outcomes.hpp"

#include <troupe/program/bench/completion_probe.hpp>

#include <troupe/device/memory/leak_report.hpp>

#include <algorithm>

using namespace troupe;
using namespace troupe::program;
using tests::error_of;

namespace {

/// Says of everything that it is done.
class hasty_source final : public completion_source {
public:
  void prepare(const std::shared_ptr<device>&) override {}
  void arm(stream_ref, std::uint64_t) override {}
  [[nodiscard]] bool reached(std::uint64_t) override { return true; }
  void drained() noexcept override {}
};

bool all_positive(const std::vector<double>& samples) {
  return std::ranges::all_of(samples, [](double one) { return one > 0; });
}

} // namespace

TROUPE_DRIVER_TEST(1, "every quantity of every strategy is measured as often as asked, and nothing stays behind",
                   "[bench]") {
  const auto gpu = device::open(api, device_id{0});
  const auto slots = std::make_shared<slot_table>(gpu, 1);
  const std::size_t unreturned = leak_count();
  constexpr std::size_t count = 7;
  const auto measure = [&](std::unique_ptr<completion_source> source) {
    completion_probe probe{gpu, std::move(source), 4};
    for (const auto& samples :
         {probe.arm_alone(count), probe.arm_behind(count, 3), probe.look(count, 10), probe.release_to_seen(count),
          probe.enqueue_to_seen(count), probe.each_of_many(count, 16, true), probe.each_of_many(count, 16, false)}) {
      CHECK(samples.size() == count);
      CHECK(all_positive(samples));
    }
  };
  measure(std::make_unique<bare_word_source>(gpu));
  for (const auto strategy : all_completion_strategies) {
    INFO(to_string(strategy));
    measure(make_completion_source(strategy, gpu, slots));
  }
  CHECK(leak_count() == unreturned);
  CHECK_NOTHROW(slots->acquire()); // the flag's came back
}

TROUPE_DRIVER_TEST(1, "a strategy that sees work done before it is fails the measurement", "[bench]") {
  completion_probe probe{device::open(api, device_id{0}), std::make_unique<hasty_source>(), 4};
  CHECK(error_of([&] { static_cast<void>(probe.look(1, 1)); }).code == errc::internal);
}

TEST_CASE("a device that fails while it is measured ends the measurement with its error", "[bench][mock]") {
  const auto api = make_mock_driver({.device_count = 1});
  const auto gpu = device::open(api, device_id{0});
  completion_probe probe{gpu, std::make_unique<bare_word_source>(gpu), 4};
  api->fail_next(device_id{0}, {.code = errc::device_failed, .text = "injected"});
  CHECK(error_of([&] { static_cast<void>(probe.enqueue_to_seen(1)); }).code == errc::device_failed);
}
