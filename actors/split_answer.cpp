#include <troupe/actors/messages.hpp>

#include <utility>

namespace troupe {

split_answer::~split_answer() {
  deliver(error{.code = errc::abandoned, .text = "the world ended before it was split"});
}

void split_answer::deliver(std::variant<split_reply, error> result) {
  if (const sink to = std::exchange(sink_, nullptr)) to(std::move(result));
}

} // namespace troupe
