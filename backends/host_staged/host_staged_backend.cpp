#include <troupe/backends/host_staged/host_staged_backend.hpp>

#include <troupe/backends/host_staged/host_staged_layout.hpp>
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/mock/mock_engine.hpp>
#include <troupe/device/stream.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

constexpr std::size_t smallest_piece = std::size_t{1} << 20U;
constexpr std::size_t room_for_words = 256;
constexpr std::chrono::seconds wait_for_device{1};

/// Pinned memory that a device and a mock device use alternately, with the words by which they signal each other. One
/// communicator uses it at a time. Each launch is one turn; turns are numbered from construction on, over all
/// communicators. Threads: only the launcher's, except release().
class host_staged_memory {
public:
  host_staged_memory(const std::shared_ptr<device>& where, std::size_t size_bytes, std::shared_ptr<mock_waker> host)
    : host_{std::move(host)},
      words_{allocate_pinned(where, room_for_words)},
      data_{allocate_pinned(where, size_bytes)},
      last_use_{where} {
    *words_at() = {.brought = 0, .done = 0};
  }
  host_staged_memory(const host_staged_memory&) = delete;
  host_staged_memory& operator=(const host_staged_memory&) = delete;
  ~host_staged_memory() = default;

  [[nodiscard]] const buffer& data() const noexcept { return data_; }
  /// Makes later work in \p stream wait until the last turn has ended.
  void wait_for_last(stream_ref stream) const { stream.wait(last_use_); }
  /// Returns the next turn's number.
  [[nodiscard]] std::uint32_t next_turn() noexcept {
    const std::lock_guard lock{mutex_};
    return ++turns_;
  }
  /// Signals from the device's \p stream that its inputs have been copied, then makes that stream wait for the host.
  void hand_over(stream_ref stream, std::uint32_t turn) {
    write(stream, words_at()->brought, turn);
    stream.call([](void* host) { static_cast<mock_waker*>(host)->wake(); }, host_.get());
    wait(stream, words_at()->done, turn);
  }
  /// For the host's side, where \p stream belongs to the mock device: await() waits for the inputs, hand_back() signals
  /// that the results are ready.
  void await(stream_ref stream, std::uint32_t turn) { wait(stream, words_at()->brought, turn); }
  void hand_back(stream_ref stream, std::uint32_t turn) { write(stream, words_at()->done, turn); }
  /// Marks the end of a turn in \p stream, the device's stream.
  void note_use(stream_ref stream) { last_use_.record(stream); }
  [[nodiscard]] bool is_idle() const { return last_use_.reached(); }
  /// Ends the waits of all turns so far, even if the other side never signals.
  void release() noexcept {
    const std::lock_guard lock{mutex_};
    std::atomic_ref{words_at()->brought}.store(turns_, std::memory_order_release);
    std::atomic_ref{words_at()->done}.store(turns_, std::memory_order_release);
  }

private:
  struct words {
    std::uint32_t brought; ///< The last turn whose inputs the device has copied.
    std::uint32_t done;    ///< The last turn that the host has finished.
  };
  [[nodiscard]] words* words_at() const noexcept { return reinterpret_cast<words*>(words_.data()); }
  static void write(stream_ref stream, std::uint32_t& word, std::uint32_t turn) {
    stream.where().api().write_word(stream.where().id(), stream.native(), &word, turn);
  }
  static void wait(stream_ref stream, std::uint32_t& word, std::uint32_t turn) {
    stream.where().api().wait_word(stream.where().id(), stream.native(), &word, turn);
  }

  const std::shared_ptr<mock_waker> host_; ///< Woken by signals; without one it polls the words only rarely.
  buffer words_;
  buffer data_;
  event last_use_;
  std::mutex mutex_;
  std::uint32_t turns_ = 0; ///< Protected by mutex_.
};

/// A device's unused pieces of memory. Threads: safe from any.
class host_staged_stock {
public:
  /// \p host runs the streams of the mock device.
  host_staged_stock(std::shared_ptr<device> where, std::shared_ptr<mock_waker> host) noexcept
    : where_{std::move(where)}, host_{std::move(host)} {}

  /// Returns a piece of at least this many bytes. May allocate. Errors: out_of_memory.
  [[nodiscard]] std::unique_ptr<host_staged_memory> take(std::size_t size_bytes) {
    {
      const std::lock_guard lock{mutex_};
      const auto fits = [&](const auto& one) { return one->data().size_bytes() >= size_bytes && one->is_idle(); };
      if (const auto found = std::ranges::find_if(resting_, fits); found != resting_.end()) {
        auto one = std::move(*found);
        resting_.erase(found);
        return one;
      }
    }
    return std::make_unique<host_staged_memory>(where_, std::bit_ceil(std::max(size_bytes, smallest_piece)), host_);
  }
  /// Keeps the piece for reuse after its last use has ended.
  void give_back(std::unique_ptr<host_staged_memory> one) noexcept {
    if (!one) return;
    const std::lock_guard lock{mutex_};
    resting_.push_back(std::move(one));
  }

private:
  std::shared_ptr<device> where_;
  std::shared_ptr<mock_waker> host_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<host_staged_memory>> resting_;
};

/// Each launch is a turn. The device's stream copies the inputs to the host and waits. The host's stream runs the inner
/// communicator's operation and signals the device's stream, which copies the results back. abort() ends all waits.
/// BUF-1: after abort() has returned, no operation's memory is accessed any more. Exception: if earlier work in the
/// device's stream delays the operations, abort() waits for one second only, and they write undefined results later.
/// Threads: as communicator.
class host_staged_communicator final : public communicator {
public:
  /// \p peers is on a mock device and not yet formed. \p where is the device whose memory is moved.
  host_staged_communicator(std::shared_ptr<communicator> peers, std::shared_ptr<device> where,
                           std::shared_ptr<host_staged_stock> stock)
    : communicator{peers->self(), peers->world_size(), std::move(where)},
      peers_{std::move(peers)},
      stock_{std::move(stock)},
      host_side_{peers_->where()} {}
  ~host_staged_communicator() override {
    stock_->give_back(std::move(memory_));
    for (auto& one : former_) stock_->give_back(std::move(one));
  }

  void init() override { peers_->init(); }
  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word) override {
    try {
      enqueue_turn(all, stream);
    } catch (...) {
      if (ended_) release_all();
      throw;
    }
    if (ended_) release_all(); // abort() may have run before the turn was enqueued
    return false;
  }
  void check() override { peers_->check(); }
  void interrupt() noexcept override { peers_->interrupt(); }
  void abort() override {
    ended_ = true;
    peers_->abort();
    release_all();
    try {
      host_side_.ref().synchronize(); // it writes into memory that another communicator uses next
      await_device();
    } catch (const exception&) { // a device in error no longer accesses memory
    }
  }
  void drained() noexcept override { peers_->drained(); }
  void destroy() override { peers_->destroy(); }
  [[nodiscard]] std::string_view capture_objection() const noexcept override { return objection_of_host_memory; }

  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override {
    return std::make_shared<host_staged_communicator>(peers_->split(as), where(), stock_);
  }
  void split_none() override { peers_->split_none(); }
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    return make_pooled_region(where(), size_bytes);
  }
  /// Nothing is registered on the host's side, but the ranks still synchronize.
  void register_region(registered_region& region) override { peers_->register_region(region); }
  [[nodiscard]] library_diagnostics last_diagnostics() const override { return peers_->last_diagnostics(); }

private:
  void enqueue_turn(std::span<const operation* const> all, stream_ref stream) {
    const host_staged_layout layout{all, self(), world_size()};
    host_staged_memory& memory = room_for(layout.size_bytes());
    std::vector<operation> moved;
    moved.reserve(all.size());
    for (const operation* one : all) moved.push_back(layout.moved(*one, memory.data()));

    const std::uint32_t turn = memory.next_turn();
    memory.await(host_side_, turn);
    if (moved.size() == 1)
      peers_->launch(moved.front(), host_side_);
    else
      peers_->launch_together(pointers_to(moved), host_side_);
    memory.hand_back(host_side_, turn);

    std::byte* const front = memory.data().data();
    memory.wait_for_last(stream);
    for (const host_staged_copy& one : layout.before()) stream.copy(front + one.host, one.device, one.size_bytes);
    memory.hand_over(stream, turn);
    for (const host_staged_copy& one : layout.after()) stream.copy(one.device, front + one.host, one.size_bytes);
    memory.note_use(stream);
  }

  /// Returns memory with room for a launch of this many bytes.
  [[nodiscard]] host_staged_memory& room_for(std::size_t size_bytes) {
    if (memory_ && memory_->data().size_bytes() >= size_bytes) return *memory_;
    auto larger = stock_->take(size_bytes); // without the lock: abort() must not wait for an allocation
    const std::lock_guard lock{mutex_};
    std::swap(memory_, larger);
    if (larger) former_.push_back(std::move(larger));
    return *memory_;
  }

  void release_all() noexcept {
    const std::lock_guard lock{mutex_};
    if (memory_) memory_->release();
    for (const auto& one : former_) one->release();
  }

  /// BUF-1: waits until the device's stream has finished copying results back. The wait is bounded, because earlier
  /// work in that stream may take any time.
  void await_device() {
    const auto until = std::chrono::steady_clock::now() + wait_for_device;
    const auto is_idle = [this] {
      const std::lock_guard lock{mutex_};
      const auto idle = [](const auto& one) { return !one || one->is_idle(); };
      return idle(memory_) && std::ranges::all_of(former_, idle);
    };
    while (!is_idle() && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  }

  const std::shared_ptr<communicator> peers_;
  const std::shared_ptr<host_staged_stock> stock_;
  stream host_side_;
  std::mutex mutex_; ///< Protects the pointers to memory: abort() may run concurrently.
  std::unique_ptr<host_staged_memory> memory_;
  std::vector<std::unique_ptr<host_staged_memory>> former_; ///< Memory that was too small and may still be in use.
  std::atomic<bool> ended_{false};
};

class host_staged_backend final : public backend {
public:
  explicit host_staged_backend(std::shared_ptr<backend> inner) : inner_{std::move(inner)} {}

  [[nodiscard]] std::string_view name() const noexcept override { return inner_->name(); }
  [[nodiscard]] std::string version() const override { return inner_->version() + ", through host memory"; }
  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>> devices) override {
    capabilities found = inner_->examine(devices);
    found.version = version();
    return found;
  }
  [[nodiscard]] unique_id make_unique_id() override { return inner_->make_unique_id(); }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    const host_staged_device by = resources_of(where);
    return std::make_shared<host_staged_communicator>(inner_->create(id, self, world_size, by.host), std::move(where),
                                                      by.memory);
  }

private:
  /// The resources for moving a device's data over the host.
  struct host_staged_device {
    std::shared_ptr<host_staged_stock> memory;
    std::shared_ptr<device> host; ///< A mock device of the same number, whose streams run the host's side.
  };

  /// Returns the resources of \p where, created on first use and kept. Errors: unsupported for a device whose streams
  /// cannot wait for words.
  [[nodiscard]] host_staged_device resources_of(const std::shared_ptr<device>& where) {
    driver& api = where->api();
    if (!api.has_word_operations(where->id()))
      throw exception{
          errc::unsupported,
          "the streams of device " + to_string(where->id()) +
              " cannot wait for words in host memory, which moving its data through host memory needs: use NCCL"};
    const std::lock_guard lock{mutex_};
    if (!host_) host_ = make_mock_driver({.device_count = api.device_count()});
    host_staged_device& one = devices_[where];
    if (!one.memory)
      one = {.memory = std::make_shared<host_staged_stock>(where, host_->waker()),
             .host = device::open(host_, where->id())};
    return one;
  }

  std::shared_ptr<backend> inner_;
  std::mutex mutex_;
  std::map<std::shared_ptr<device>, host_staged_device> devices_;
  std::shared_ptr<mock_driver> host_; // last: destroyed first, so that none of its tasks accesses freed memory
};

} // namespace

std::shared_ptr<backend> make_host_staged_backend(std::shared_ptr<backend> inner) {
  return std::make_shared<host_staged_backend>(std::move(inner));
}

} // namespace troupe
