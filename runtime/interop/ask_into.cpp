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

void take_back(const world& where, rank whom, lane which, std::uint64_t position) noexcept {
  try {
    compat::post(where.collective(whom), cancel_request{which, position});
  } catch (...) { // a world that has ended, or no memory for a message: the request has its outcome all the same
  }
}

} // namespace troupe
