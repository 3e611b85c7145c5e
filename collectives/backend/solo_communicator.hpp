/// The communicator of a world of one rank: it has no peers and never touches NCCL.
#pragma once

#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/solo_scale.hpp>

#include <memory>
#include <span>

namespace troupe {

/// A reduction over one rank is a no-op in place, and otherwise one copy in stream order. pre_mul_sum is a
/// multiplication.
class solo_communicator final : public communicator {
public:
  explicit solo_communicator(const std::shared_ptr<device>& where) noexcept
    : communicator{rank{0}, 1, where}, scale_{where} {}

  void init() override {}
  void launch(const operation& what, stream_ref stream) override;
  void launch_together(std::span<const operation* const> all, stream_ref stream) override;
  void check() override {}
  void abort() override {}
  void destroy() override {}
  [[nodiscard]] std::shared_ptr<communicator> split(const split_seat&) override {
    return std::make_shared<solo_communicator>(where());
  }
  void split_none() override {}
  [[nodiscard]] std::shared_ptr<registered_region> allocate_region(std::size_t size_bytes) override;
  void register_region(registered_region&) override {}
  std::size_t suspend() override { return 0; }
  void resume() override {}

private:
  solo_scale scale_;
};

} // namespace troupe
