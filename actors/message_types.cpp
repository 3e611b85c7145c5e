#include <troupe/actors/message_types.hpp>
#include <troupe/actors/messages.hpp>

#include <mutex>

namespace troupe {

void register_message_types() {
  static std::once_flag once;
  std::call_once(once, [] {
    TROUPE_REGISTER_LOCAL_TYPES(troupe);
    compat::register_core_types();
  });
}

} // namespace troupe
