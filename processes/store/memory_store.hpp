/// A store in the memory of one process, for tests and the simulator.
#pragma once

#include <troupe/processes/store/controller_store.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace troupe {

/// What the controllers share, with a clock of its own. Threads: safe from any.
class memory_store_state {
public:
  /// \p now: the store's clock. Its owner may let it run apart from those of the controllers.
  explicit memory_store_state(std::function<boot_time()> now = [] { return boot_clock::now(); })
    : now_{std::move(now)} {}

  /// Lets all calls fail from now on, or none.
  void cut(bool is_cut);
  [[nodiscard]] store_view view();
  /// Returns the number of decisions that were accepted.
  [[nodiscard]] std::size_t decisions();

private:
  friend class memory_store;

  void require_reachable() const;
  [[nodiscard]] bool holds(const store_claim& claim) const;

  const std::function<boot_time()> now_;
  std::mutex mutex_;
  bool is_cut_ = false;
  std::uint64_t revision_ = 0;
  std::size_t decisions_ = 0;
  std::uint64_t elected_ = 0; ///< The revision of the latest claim.
  nanoseconds length_{};
  boot_time ends_{};
  std::string leader_;
  std::optional<std::string> record_;
};

/// One controller's access to it.
class memory_store final : public controller_store {
public:
  explicit memory_store(std::shared_ptr<memory_store_state> shared) : shared_{std::move(shared)} {}

  [[nodiscard]] std::optional<store_claim> campaign(const std::string& leader, nanoseconds length) override;
  [[nodiscard]] bool renew(const store_claim& claim) override;
  [[nodiscard]] bool decide(const store_claim& claim, const std::string& record) override;
  [[nodiscard]] store_view observe() override;
  void resign(const store_claim& claim) override;
  [[nodiscard]] std::string name() const override { return "the memory of this process"; }

private:
  const std::shared_ptr<memory_store_state> shared_;
};

} // namespace troupe
