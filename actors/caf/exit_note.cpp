#include <troupe/actors/caf/exit_note.hpp>

#include <caf/error.hpp>
#include <caf/system_messages.hpp>

namespace troupe {

void exit_note::see(const caf::mailbox_element& element, const caf::actor_addr& self) {
  const auto& content = element.content();
  if (!content.match_elements<caf::exit_msg>()) return;
  const auto& message = content.get_as<caf::exit_msg>(0);
  if (!message.reason) return; // CAF ignores it
  const std::string reason = " (" + to_string(message.reason) + ")";
  const std::lock_guard lock{mutex_};
  if (!text_.empty()) return;
  // A message that no actor sent names the receiver, or none.
  const bool has_sender = message.source && message.source != self;
  text_ = (has_sender ? " by actor " + std::to_string(message.source.id()) + ", which is linked to it"
                      : " by an exit message") +
          reason;
}

std::string exit_note::text() const {
  const std::lock_guard lock{mutex_};
  return text_;
}

} // namespace troupe
