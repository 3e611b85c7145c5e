/// The memory of a simulated run's requests: known values in, a mark where results go, and whether what came is right.
#pragma once

#include <troupe/collectives/operation.hpp>
#include <troupe/device/memory_pool.hpp>
#include <troupe/device/undefined_buffer.hpp>
#include <troupe/runtime/simulation/scenario.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace troupe::simulation {

/// Every request has memory of its own on every rank, so that what is written where nothing may be is seen at the end.
/// Threads: the run's.
class simulated_memory {
public:
  /// Hears that nobody but the client holds a request's memory on a rank any more.
  using release_hook = std::function<void(std::size_t request, rank self)>;

  simulated_memory(const scenario& of, const std::vector<std::shared_ptr<device>>& devices);

  void on_release(release_hook hook) { hook_ = std::move(hook); }

  /// \p self's part of \p what; \p less: of one element less.
  [[nodiscard]] operation part_of(const planned_request& what, rank self, bool less = false) const;
  /// Whose memory \p part names, a group's first part; none: of a barrier.
  [[nodiscard]] std::optional<std::size_t> request_of(const operation& part, rank self) const;

  /// As work that hangs may do when it is aborted: \p self's result of \p what is something else from now on.
  void spoil(const planned_request& what, rank self) const;

  /// Whether all of \p self's result of \p what is in \p all.
  [[nodiscard]] bool is_listed(const planned_request& what, rank self, const undefined_buffers& all) const;

  enum class finding : std::uint8_t { nothing, untouched, right, wrong };
  /// What lies where \p self's result of \p what goes; nothing where it has none.
  [[nodiscard]] finding look(const planned_request& what, rank self) const;

private:
  struct shape {
    std::size_t sent = 0;     ///< In elements.
    std::size_t received = 0; ///< 0: nothing is written.
  };
  [[nodiscard]] shape shape_of(const planned_request& what, rank self) const;
  [[nodiscard]] std::uint64_t value(std::size_t request, rank of, std::size_t at) const noexcept;
  [[nodiscard]] std::uint64_t expected(const planned_request& what, rank self, std::size_t at) const noexcept;

  struct place {
    std::byte* sent = nullptr;
    std::byte* received = nullptr;
    shape size{};
  };
  class watched_block;
  /// A range of the rank's memory as an operand, whose release is heard of.
  [[nodiscard]] buffer hand_out(const planned_request& what, rank self, std::byte* first, std::size_t count) const;

  const scenario& of_;
  std::vector<std::shared_ptr<device>> devices_;
  std::vector<buffer> storage_;                                   ///< By rank.
  std::vector<std::map<std::size_t, place>> places_;              ///< By rank, then by request.
  std::vector<std::map<const std::byte*, std::size_t>> requests_; ///< By rank, then by address.
  release_hook hook_;
};

} // namespace troupe::simulation
