#include <troupe/actors/actor_error.hpp>

#include <caf/message.hpp>
#include <caf/sec.hpp>

namespace troupe {

caf::error to_caf(const error& why) {
  // The code that CAF sees is the same for all: what it stands for is in the context.
  return caf::make_error(caf::sec::runtime_error, why);
}

error from_caf(const caf::error& failure) {
  if (compat::failed(failure)) {
    const caf::message& context = failure.context();
    if (context.size() == 1 && context.match_element<error>(0)) return context.get_as<error>(0);
  }
  return error{.code = errc::abandoned,
               .effect = effect::unknown_outcome,
               .text = "the actor that was asked has ended (" + to_string(failure) + ")"};
}

} // namespace troupe
