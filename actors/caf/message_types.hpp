/// What an actor system must know of troupe's messages.
#pragma once

namespace troupe {

/// To be called before the first actor system that troupe's actors live in: CAF 1.x keeps a table of types. A runtime
/// does it. Idempotent. Threads: any.
void register_message_types();

} // namespace troupe
