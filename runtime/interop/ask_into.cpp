#include <troupe/actors/messages.hpp>
#include <troupe/runtime/interop/ask_into.hpp>
#include <troupe/runtime/world.hpp>

#include <memory>
#include <utility>

namespace troupe {

void ask_into(const world& where, world_request asked, answer&& to) {
  compat::post(where.actor(), posted_world_request{std::move(asked), std::make_shared<answer>(std::move(to))});
}

void ask_into(const world& where, rank whom, rank_request asked, answer&& to) {
  const collective_handle& local = where.collective(whom);
  compat::post(local, posted_request{std::move(asked), std::make_shared<answer>(std::move(to))});
}

} // namespace troupe
