#include <troupe/collectives/backend/mock/mock_backend.hpp>
#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <initializer_list>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// One rank's launch, as a task of its stream.
class rendezvous_task final : public mock_task {
public:
  rendezvous_task(std::shared_ptr<mock_rendezvous> place, mock_launch mine)
    : place_{std::move(place)}, mine_{std::move(mine)} {}
  // If the device failed, the task is dropped: from here on the peers must not access this rank's memory.
  ~rendezvous_task() override { place_->leave(mine_); }

  progress step() override { return place_->meet(mine_); }

private:
  std::shared_ptr<mock_rendezvous> place_;
  mock_launch mine_;
};

/// Returns the id of a communicator that is derived from \p parent for \p purpose. Every rank computes the same id
/// without communication.
unique_id derived_id(const unique_id& parent, std::initializer_list<std::uint32_t> purpose,
                     std::span<const rank> without = {}) {
  unique_id id;
  std::array<std::uint32_t, sizeof id.bytes / sizeof(std::uint32_t)> words{};
  std::vector<std::uint32_t> seed(words.size());
  std::memcpy(seed.data(), parent.bytes.data(), sizeof words);
  seed.insert(seed.end(), purpose.begin(), purpose.end());
  for (const rank one : without) seed.push_back(static_cast<std::uint32_t>(one.value()));
  std::seed_seq{seed.begin(), seed.end()}.generate(words.begin(), words.end());
  std::memcpy(id.bytes.data(), words.data(), sizeof words);
  return id;
}

/// Returns the id for \p color of the split with number \p ordinal.
unique_id split_id(const unique_id& parent, std::uint64_t ordinal, int color) {
  return derived_id(parent, {static_cast<std::uint32_t>(ordinal), static_cast<std::uint32_t>(color)});
}

constexpr int every_color = -1;
constexpr std::uint32_t no_split = 0xFFFFFFFF; ///< Takes the place of a split's ordinal; the purpose follows.
constexpr std::uint32_t for_shrinking = 1, for_revoking = 2;

/// Behaviour and features of the mock's communicators.
struct mock_features {
  mock_results results;
  mock_rendezvous_maker connect; ///< Null: all ranks are in this process.
  bool shrinks;
  bool revokes;
  bool suspends;
};

/// Returns the rendezvous of \p id for the rank \p self. \p launches: false if the ranks only join.
std::shared_ptr<mock_rendezvous> make_rendezvous(const unique_id& id, rank self, int world_size,
                                                 mock_rendezvous_maker connect, bool launches) {
  if (connect == nullptr) return local_rendezvous::find_or_make(id, world_size);
  return connect(id, self, world_size, launches);
}

class mock_communicator final : public communicator {
public:
  mock_communicator(const unique_id& id, rank self, int world_size, std::shared_ptr<device> where, mock_driver& driver,
                    mock_features supported)
    : communicator{self, world_size, std::move(where)},
      id_{id},
      place_{make_rendezvous(id, self, world_size, supported.connect, true)},
      driver_{driver},
      features_{supported} {}

  /// Makes a communicator split off \p parent. Its init() synchronizes the parent's ranks, then those of the split.
  mock_communicator(mock_communicator& parent, std::shared_ptr<mock_rendezvous> all, const unique_id& id,
                    const split_spec& as)
    : mock_communicator{id, as.self, as.world_size, parent.where(), parent.driver_, parent.features_} {
    first_ = std::move(all); // NOLINT(cppcoreguidelines-prefer-member-initializer): another constructor runs first
    self_in_parent_ = parent.self();
  }

  /// Makes a successor of \p failed. The operations of \p failed end when the successor forms.
  mock_communicator(mock_communicator& failed, const unique_id& id, rank self, int world_size)
    : mock_communicator{id, self, world_size, failed.where(), failed.driver_, failed.features_} {
    failed_ = failed.place_; // NOLINT(cppcoreguidelines-prefer-member-initializer): as above
    self_in_parent_ = failed.self();
  }

  ~mock_communicator() override {
    if (life_ == life::formed)
      report_leak({.code = errc::internal, .text = "a communicator was neither destroyed nor aborted", .rank = self()});
  }

  void init() override {
    driver_.open(where()->id()); // throws for a failed device
    if (failed_) failed_->abort(self_in_parent_);
    if (first_) first_->join(self_in_parent_, driver_.waker());
    place_->join(self(), driver_.waker());
    auto expected = life::fresh;
    if (!life_.compare_exchange_strong(expected, life::formed)) require_formed(); // abort() ran meanwhile
  }

  bool do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word) override {
    require_formed();
    if (is_suspended_)
      throw exception{
          error{.code = errc::internal,
                .text = "launch() between suspend() and resume(), while the memory that it needs is released",
                .rank = self()}};
    mock_launch mine = make_launch(all, self(), world_size());
    mine.computes = features_.results == mock_results::computed;
    if (driver_.status_of_capture(where()->id(), stream.native()) == capture_status::none) {
      order_->number(mine);
      driver_.enqueue(where()->id(), stream.native(), std::make_unique<rendezvous_task>(place_, std::move(mine)));
      return false;
    }
    driver_.enqueue(where()->id(), stream.native(), mock_task_factory{[place = place_, order = order_, mine] {
                      mock_launch next = mine; // each launch of the graph has its own numbers
                      order->number(next);
                      return std::make_unique<rendezvous_task>(place, std::move(next));
                    }});
    return false;
  }

  void check() override { place_->check(self()); }

  void abort() override {
    if (life_.exchange(life::ended) == life::ended) return;
    if (first_) first_->abort(self_in_parent_);
    place_->abort(self());
    std::shared_ptr<mock_rendezvous> forming;
    {
      const std::lock_guard lock{splits_guard_};
      forming = splits_.lock();
    }
    if (forming) forming->abort(self());
  }

  void destroy() override { life_ = life::ended; }

  [[nodiscard]] std::shared_ptr<communicator> split(const split_spec& as) override {
    const auto ordinal = next_split();
    return std::make_shared<mock_communicator>(*this, rendezvous_of(ordinal), split_id(id_, ordinal, as.color), as);
  }

  void split_none() override { synchronize_all(); }

  [[nodiscard]] std::shared_ptr<communicator> shrink(const shrink_spec& as) override {
    if (!features_.shrinks) return communicator::shrink(as);
    require_formed();
    return std::make_shared<mock_communicator>(*this, derived_id(id_, {no_split, for_shrinking}, as.without), as.self,
                                               as.world_size);
  }

  [[nodiscard]] std::shared_ptr<communicator> revoke_and_split() override {
    if (!features_.revokes) return communicator::revoke_and_split();
    require_formed();
    return std::make_shared<mock_communicator>(*this, derived_id(id_, {no_split, for_revoking}), self(), world_size());
  }

  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override {
    require_formed();
    return make_pooled_region(where(), size_bytes);
  }

  /// Registers nothing, but synchronizes with the other ranks as a real communicator does.
  void register_region(registered_region&) override { synchronize_all(); }

  /// Has no memory to release, but refuses launches until resume(), as a real communicator must.
  std::size_t suspend() override {
    if (!features_.suspends) return communicator::suspend();
    synchronize_all();
    is_suspended_ = true;
    return 0;
  }

  void resume() override {
    if (!features_.suspends) return communicator::resume();
    synchronize_all();
    is_suspended_ = false;
  }

private:
  enum class life : std::uint8_t { fresh, formed, ended };

  void synchronize_all() { rendezvous_of(next_split())->join(self(), driver_.waker()); }

  std::uint64_t next_split() {
    require_formed();
    const std::lock_guard lock{splits_guard_};
    return split_count_++;
  }

  std::shared_ptr<mock_rendezvous> rendezvous_of(std::uint64_t ordinal) {
    auto all = make_rendezvous(split_id(id_, ordinal, every_color), self(), world_size(), features_.connect, false);
    const std::lock_guard lock{splits_guard_};
    splits_ = all;
    if (life_ == life::ended) all->abort(self()); // abort() ran concurrently and has not seen this one
    return all;
  }

  void require_formed() const {
    switch (life_.load()) {
      case life::formed: return;
      case life::fresh: throw exception{errc::invalid_argument, "launch() or split() before init() has returned"};
      case life::ended:
        throw exception{error{
            .code = errc::communicator_failed, .text = "the communicator was aborted or destroyed", .rank = self()}};
    }
  }

  const unique_id id_;
  const std::shared_ptr<mock_rendezvous> place_;
  std::shared_ptr<mock_rendezvous> first_;  ///< The rendezvous of a split's parent; otherwise null.
  std::shared_ptr<mock_rendezvous> failed_; ///< The rendezvous of a failed predecessor; otherwise null.
  rank self_in_parent_{};
  mock_driver& driver_; ///< Kept alive by where().
  const mock_features features_;
  std::mutex splits_guard_;
  std::uint64_t split_count_ = 0;
  std::weak_ptr<mock_rendezvous> splits_; ///< The last split's rendezvous; aborted together with this communicator.
  std::atomic<life> life_{life::fresh};
  std::atomic<bool> is_suspended_ = false;
  /// Used by the launcher only. Shared with the work that graphs hold.
  std::shared_ptr<mock_order> order_ = std::make_shared<mock_order>();
};

class mock_backend final : public backend {
public:
  mock_backend(std::vector<feature> without, mock_results results, mock_rendezvous_maker connect)
    : without_{std::move(without)}, results_{results}, connect_{connect} {}

  [[nodiscard]] std::string_view name() const noexcept override { return "mock"; }
  [[nodiscard]] std::string version() const override {
    return connect_ != nullptr ? "mock, in processes of their own" : "mock, in this process's memory";
  }

  [[nodiscard]] capabilities examine(std::span<const std::shared_ptr<device>>) override {
    capabilities found{.backend = std::string{name()}, .version = version(), .features = {}, .exclusions = {}};
    for (const feature one : all_features) {
      const bool lacks = !has(one);
      const std::string why = lacks ? "the mock is configured without " + std::string{to_string(one)}
                              : connect_ != nullptr
                                  ? "the mock's ranks exchange data in shared memory and compute on the host"
                                  : "the mock's ranks share one memory and compute on the host";
      found.features.push_back({one, lacks ? availability::no : availability::yes, why});
      if (!lacks) continue;
      for (exclusion& each : consequences_of(one, why)) found.exclusions.push_back(std::move(each));
    }
    return found;
  }

  [[nodiscard]] unique_id make_unique_id() override {
    unique_id id;
    std::random_device entropy;
    for (std::size_t at = 0; at < id.bytes.size(); at += sizeof(unsigned)) {
      const unsigned word = entropy();
      std::memcpy(&id.bytes[at], &word, sizeof word);
    }
    return id;
  }

  [[nodiscard]] std::shared_ptr<communicator> create(const unique_id& id, rank self, int world_size,
                                                     std::shared_ptr<device> where) override {
    if (world_size < 1 || self.value() < 0 || self.value() >= world_size)
      throw exception{errc::invalid_argument, "rank " + to_string(self) + " is not in a world of " +
                                                  std::to_string(world_size) + " (ranks count from 0)"};
    auto* const driver = where ? dynamic_cast<mock_driver*>(&where->api()) : nullptr;
    if (driver == nullptr)
      throw exception{errc::invalid_argument, "the mock's communicators need a device of the mock driver, not of " +
                                                  (where ? std::string{where->api().name()} : "none")};
    return std::make_shared<mock_communicator>(id, self, world_size, std::move(where), *driver,
                                               mock_features{.results = results_,
                                                             .connect = connect_,
                                                             .shrinks = has(feature::shrink),
                                                             .revokes = has(feature::revoke),
                                                             .suspends = has(feature::suspend)});
  }

private:
  [[nodiscard]] bool has(feature what) const { return std::ranges::find(without_, what) == without_.end(); }

  std::vector<feature> without_;
  mock_results results_;
  mock_rendezvous_maker connect_;
};

} // namespace

std::shared_ptr<backend> make_mock_backend(std::vector<feature> without, mock_results results,
                                           mock_rendezvous_maker connect) {
  return std::make_shared<mock_backend>(std::move(without), results, connect);
}

} // namespace troupe
