/// A handler made of several, one for each alternative of a variant.
#pragma once

namespace troupe {

template <class... Handlers>
struct overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
overloaded(Handlers...) -> overloaded<Handlers...>;

} // namespace troupe
