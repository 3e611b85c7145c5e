/// A handler made of several, one for each alternative of a variant.
#pragma once

namespace troupe {

/// Calls whichever of \p Handlers fits.
template <class... Handlers>
struct overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
overloaded(Handlers...) -> overloaded<Handlers...>;

} // namespace troupe
