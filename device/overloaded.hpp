/// Combines several function objects into one visitor for the alternatives of a variant.
#pragma once

namespace troupe {

/// Calls the function object of \p Handlers that accepts the argument.
template <class... Handlers>
struct overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
overloaded(Handlers...) -> overloaded<Handlers...>;

} // namespace troupe
