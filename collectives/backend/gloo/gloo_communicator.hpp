/// The communicator of one rank whose data Gloo moves.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/gloo/gloo_formation.hpp>
#include <troupe/collectives/backend/gloo/gloo_line.hpp>
#include <troupe/collectives/backend/mock/mock_rendezvous.hpp>
#include <troupe/device/mock/mock_driver.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

/// Implements communicator. Launches are tasks of the mock's streams. Their operations run on one thread of this rank,
/// in the order of the launches (gloo_line.hpp), also if the launches are in several streams.
/// BUF-1: when abort() has returned, no operation's memory is touched any more.
class gloo_communicator final : public communicator {
public:
  gloo_communicator(std::shared_ptr<gloo_network> network, const gloo_door& door, rank self, int world_size,
                    std::shared_ptr<device> where, mock_driver& driver);
  ~gloo_communicator() override;

  void init() override;
  void launch(const operation& what, stream_ref stream) override;
  void launch_together(std::span<const operation* const> all, stream_ref stream) override;
  void check() override;
  void abort() override;
  void destroy() override;

  [[nodiscard]] std::shared_ptr<communicator> split(const split_seat& as) override;
  void split_none() override;
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override;
  /// Registers nothing, because sockets read and write any memory. Waits for the other ranks, as a registration of NCCL
  /// does.
  void register_region(registered_region& region) override;

private:
  enum class life : std::uint8_t { fresh, formed, ended };
  class launch_task;

  /// State that the tasks in the streams share with their communicator. Tasks may outlive the communicator.
  struct workings {
    workings(std::shared_ptr<gloo_network> network, rank self, int world_size, std::shared_ptr<mock_waker> engine);

    const rank self;
    const int world_size;
    gloo_formation among;
    gloo_line line; ///< Declared after the members that its jobs use.
    mock_order order;
  };
  /// One exchange among a communicator's ranks beside the launches: a split or a registration.
  struct parting {
    std::shared_ptr<workings> parent;
    std::uint64_t ordinal = 0;
  };

  gloo_communicator(std::shared_ptr<workings> with, std::shared_ptr<device> where, mock_driver& driver);

  void require_formed() const;
  [[nodiscard]] parting next_parting();
  [[nodiscard]] static gloo_meeting arrange(const parting& one, int color);
  [[nodiscard]] static std::unique_ptr<mock_task> make_task(const std::shared_ptr<workings>& with, mock_launch mine);

  mock_driver& driver_; ///< Kept alive by where().
  const std::shared_ptr<workings> workings_;
  gloo_meeting meeting_; ///< For a communicator made by split(): empty until init().
  parting split_off_{};  ///< For a communicator made by split(): its parent.
  int color_ = 0;
  std::atomic<life> life_{life::fresh};
  std::mutex splits_guard_; ///< Protects the members below.
  std::vector<std::weak_ptr<workings>> splits_;
  std::uint64_t meetings_ = 0; ///< Exchanges so far; the same number on all ranks. Launches do not count.
};

} // namespace troupe
