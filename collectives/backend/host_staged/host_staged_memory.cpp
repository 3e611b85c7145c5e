#include <troupe/collectives/backend/host_staged/host_staged_memory.hpp>
#include <troupe/device/mock/mock_engine.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t smallest_piece = std::size_t{1} << 20U;
constexpr std::size_t room_for_words = 256;

} // namespace

host_staged_memory::host_staged_memory(const std::shared_ptr<device>& where, std::size_t size_bytes,
                                       std::shared_ptr<mock_waker> host)
  : host_{std::move(host)},
    words_{allocate_pinned(where, room_for_words)},
    data_{allocate_pinned(where, size_bytes)},
    last_use_{where} {
  *words_at() = {.brought = 0, .done = 0};
}

std::uint32_t host_staged_memory::next_turn() noexcept {
  const std::lock_guard lock{guard_};
  return ++turns_;
}

void host_staged_memory::hand_over(stream_ref stream, std::uint32_t turn) {
  const device& on = stream.where();
  on.api().write_word(on.id(), stream.native(), &words_at()->brought, turn);
  stream.call([](void* host) { static_cast<mock_waker*>(host)->wake(); }, host_.get());
  on.api().wait_word(on.id(), stream.native(), &words_at()->done, turn);
}

void host_staged_memory::await(stream_ref stream, std::uint32_t turn) {
  const device& on = stream.where();
  on.api().wait_word(on.id(), stream.native(), &words_at()->brought, turn);
}

void host_staged_memory::hand_back(stream_ref stream, std::uint32_t turn) {
  const device& on = stream.where();
  on.api().write_word(on.id(), stream.native(), &words_at()->done, turn);
}

void host_staged_memory::release() noexcept {
  const std::lock_guard lock{guard_};
  std::atomic_ref{words_at()->brought}.store(turns_, std::memory_order_release);
  std::atomic_ref{words_at()->done}.store(turns_, std::memory_order_release);
}

std::unique_ptr<host_staged_memory> host_staged_stock::take(std::size_t size_bytes) {
  {
    const std::lock_guard lock{guard_};
    const auto fits = [&](const auto& one) { return one->data().size_bytes() >= size_bytes && one->is_idle(); };
    if (const auto found = std::ranges::find_if(resting_, fits); found != resting_.end()) {
      auto one = std::move(*found);
      resting_.erase(found);
      return one;
    }
  }
  return std::make_unique<host_staged_memory>(where_, std::bit_ceil(std::max(size_bytes, smallest_piece)), host_);
}

void host_staged_stock::give_back(std::unique_ptr<host_staged_memory> one) noexcept {
  if (!one) return;
  const std::lock_guard lock{guard_};
  resting_.push_back(std::move(one));
}

host_staged_device host_staged_devices::of(const std::shared_ptr<device>& where) {
  driver& api = where->api();
  if (!api.has_word_operations(where->id()))
    throw exception{
        errc::unsupported,
        "the streams of device " + to_string(where->id()) +
            " cannot wait for words in host memory, which moving its data through host memory needs: use NCCL"};
  const std::lock_guard lock{guard_};
  if (!host_) host_ = make_mock_driver({.device_count = api.device_count()});
  host_staged_device& one = all_[where];
  if (!one.memory)
    one = {.memory = std::make_shared<host_staged_stock>(where, host_->waker()),
           .host = device::open(host_, where->id())};
  return one;
}

} // namespace troupe
