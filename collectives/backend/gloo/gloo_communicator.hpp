/// One rank of a world whose data Gloo moves.
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

/// As communicator. Launches are tasks of the mock's streams; what they ask for runs on a thread of this rank's own, in
/// the order of the launches (gloo_line.hpp), also where they are in several streams.
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
  /// Registers nothing: sockets read and write any memory. But it meets the others, as a real one does.
  void register_region(registered_region& region) override;

private:
  enum class life : std::uint8_t { fresh, formed, ended };
  class launch_task;

  /// What the tasks in the streams share with their communicator, and may outlive it with.
  struct workings {
    workings(std::shared_ptr<gloo_network> network, rank self, int world_size, std::shared_ptr<mock_waker> engine);

    const rank self;
    const int world_size;
    gloo_formation among;
    gloo_line line; ///< After what its jobs use.
    mock_order order;
  };
  /// A split in which a communicator's ranks meet.
  struct parting {
    std::shared_ptr<workings> parent;
    std::uint64_t ordinal = 0;
  };

  gloo_communicator(std::shared_ptr<workings> with, std::shared_ptr<device> where, mock_driver& driver);

  void require_formed() const;
  [[nodiscard]] parting next_parting();
  [[nodiscard]] static gloo_meeting arrange(const parting& one, int color);
  [[nodiscard]] static std::unique_ptr<mock_task> make_task(const std::shared_ptr<workings>& with, mock_launch mine);

  mock_driver& driver_; ///< Held by where().
  const std::shared_ptr<workings> workings_;
  gloo_meeting meeting_; ///< Of one that is split off: none until init().
  parting split_off_{};  ///< What it is split off.
  int color_ = 0;
  std::atomic<life> life_{life::fresh};
  std::mutex splits_guard_; ///< Guards what follows.
  std::vector<std::weak_ptr<workings>> splits_;
  std::uint64_t meetings_ = 0; ///< Of all ranks, beside the launches.
};

} // namespace troupe
