/// An object that calls a function when its last owner drops it. Its end shows under which locks that happens.
#pragma once

#include <memory>
#include <utility>

namespace troupe::tests {

template <class What>
[[nodiscard]] std::shared_ptr<void> at_its_end(What what) {
  return {nullptr, [what = std::move(what)](void*) { what(); }};
}

} // namespace troupe::tests
