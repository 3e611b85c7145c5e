#include <troupe/collectives/mock/mock_backend.hpp>
#include <troupe/collectives/mock/mock_rendezvous.hpp>
#include <troupe/device/mock/mock_driver.hpp>
#include <troupe/device/unreturned.hpp>

#include <atomic>
#include <cstring>
#include <random>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// One rank's launch in its stream.
class meeting_task final : public mock_task {
public:
  meeting_task(std::shared_ptr<mock_rendezvous> place, mock_launch mine)
    : place_{std::move(place)}, mine_{std::move(mine)} {}
  // Dropped when its device failed: the peers must not touch this rank's memory any more.
  ~meeting_task() override { place_->leave(mine_); }

  progress step() override { return place_->meet(mine_); }

private:
  std::shared_ptr<mock_rendezvous> place_;
  mock_launch mine_;
};

class mock_communicator final : public communicator {
public:
  mock_communicator(std::shared_ptr<mock_rendezvous> place, rank self, int world_size, std::shared_ptr<device> where,
                    mock_driver& driver)
    : communicator{self, world_size, std::move(where)}, place_{std::move(place)}, driver_{driver} {}

  ~mock_communicator() override {
    if (life_ == life::formed)
      report_unreturned(
          {.code = errc::internal, .text = "a communicator was neither destroyed nor aborted", .rank = self()});
  }

  void init() override {
    driver_.open(where()->id()); // a failed device cannot take part
    place_->join(self(), driver_.waker());
    auto expected = life::fresh;
    if (!life_.compare_exchange_strong(expected, life::formed)) require_formed(); // aborted just now
  }

  void launch(const operation& what, stream_ref stream) override {
    require_formed();
    driver_.enqueue(where()->id(), stream.native(),
                    std::make_unique<meeting_task>(place_, order_.next(what, self(), world_size())));
  }

  void check() override { place_->check(self()); }

  void abort() override {
    if (life_.exchange(life::ended) != life::ended) place_->abort(self());
  }

  void destroy() override { life_ = life::ended; }

private:
  enum class life : std::uint8_t { fresh, formed, ended };

  void require_formed() const {
    switch (life_.load()) {
      case life::formed: return;
      case life::fresh: throw exception{errc::invalid_argument, "launch() before init() has returned"};
      case life::ended:
        throw exception{error{
            .code = errc::communicator_failed, .text = "the communicator was aborted or destroyed", .rank = self()}};
    }
  }

  const std::shared_ptr<mock_rendezvous> place_;
  mock_driver& driver_; ///< Held by where().
  std::atomic<life> life_{life::fresh};
  mock_order order_; ///< The launcher's own.
};

class mock_backend final : public backend {
public:
  [[nodiscard]] std::string_view name() const noexcept override { return "mock"; }
  [[nodiscard]] std::string version() const override { return "mock, in this process's memory"; }

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
    return std::make_shared<mock_communicator>(mock_rendezvous::find_or_make(id, world_size), self, world_size,
                                               std::move(where), *driver);
  }
};

} // namespace

std::shared_ptr<backend> make_mock_backend() {
  return std::make_shared<mock_backend>();
}

} // namespace troupe
