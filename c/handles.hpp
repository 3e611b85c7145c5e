/// The objects behind the opaque handles of <troupe/troupe.h>. Each holds one C++ handle.
#pragma once

#include "troupe.h"

#include <troupe/actors/world/world_event.hpp>
#include <troupe/collectives/operation/captured_plan.hpp>
#include <troupe/collectives/operation/rank_function.hpp>
#include <troupe/device/error.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>
#include <troupe/processes/controller.hpp>
#include <troupe/processes/world_driver.hpp>
#include <troupe/runtime/configuration/configuration.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/world.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct troupe_error {
  explicit troupe_error(troupe::error failure);
  /// Makes an error without texts, which needs no memory.
  troupe_error(troupe::errc code, troupe::effect effect) noexcept : why{.code = code, .effect = effect} {}

  troupe::error why;
  std::string line;
  std::vector<std::int32_t> missing{}; ///< The ranks that have not asked.
  /// The texts of one rank of the absence report.
  struct standing {
    std::string last_asked, last_launched, last_finished;
  };
  std::vector<standing> standings{};
};

struct troupe_settings {
  troupe::configuration of;
};
struct troupe_runtime {
  troupe::runtime of;
};
struct troupe_world {
  troupe::world of;
};
struct troupe_driver {
  troupe::world_driver of;
};
struct troupe_processes {
  troupe::world_processes of;
};
struct troupe_controller {
  troupe::controller of;
};
struct troupe_buffer {
  troupe::buffer of;
};
struct troupe_stream {
  troupe::stream of;
};
struct troupe_event {
  troupe::shared_event of;
};
struct troupe_plan {
  std::shared_ptr<troupe::captured_plan> of;
};
struct troupe_function {
  std::shared_ptr<const troupe::rank_function> of;
};

struct troupe_status {
  explicit troupe_status(troupe::world_event event);

  troupe::world_event of;
  std::string text, straggling, report, recovery, restored, one_shot;
  std::unique_ptr<const troupe_error> reason{}; ///< Null: none.
  std::vector<std::int32_t> local_ranks{}, origins{}, lost{};
  std::vector<std::uint64_t> lost_last_in{};
  /// The ranks of one incomplete operation.
  struct incomplete {
    std::vector<std::int32_t> succeeded, unknown;
  };
  std::vector<std::vector<incomplete>> later{}; ///< By resume point.
};
