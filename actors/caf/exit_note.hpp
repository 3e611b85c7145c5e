/// Remembers which exit message ends an actor, so that the reason of its end can name the sender.
#pragma once

#include <caf/actor_addr.hpp>
#include <caf/mailbox_element.hpp>

#include <mutex>
#include <string>

namespace troupe {

/// Sees the messages of one actor before they enter its mailbox. Threads: any.
class exit_note {
public:
  /// \p self is the address of the actor that receives \p element.
  void see(const caf::mailbox_element& element, const caf::actor_addr& self);
  /// Returns who ended the actor, from the first exit message with a reason: " by actor 17, which is linked to it
  /// (runtime_error)", or " by an exit message (kill)". Empty if there was none.
  [[nodiscard]] std::string text() const;

private:
  mutable std::mutex mutex_;
  std::string text_;
};

} // namespace troupe
