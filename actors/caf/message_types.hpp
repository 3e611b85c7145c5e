/// Registers troupe's message types with CAF.
#pragma once

namespace troupe {

/// Registers troupe's message types. Call it before the first actor system in which troupe's actors live, because CAF
/// 1.x keeps a table of types. A runtime does so itself. Idempotent. Threads: any.
void register_message_types();

} // namespace troupe
