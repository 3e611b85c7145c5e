#include <troupe/actors/caf/inner_messages.hpp>
#include <troupe/actors/caf/message_types.hpp>

#include <mutex>

namespace troupe {

void register_message_types() {
  static std::once_flag once;
  std::call_once(once, [] {
    TROUPE_REGISTER_LOCAL_TYPES(troupe);
    TROUPE_REGISTER_LOCAL_TYPES(troupe_inner);
    compat::register_core_types();
  });
}

} // namespace troupe
