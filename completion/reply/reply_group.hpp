/// One answer made of many: a request to a whole world is answered when its last rank is done.
#pragma once

#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <cstddef>
#include <vector>

namespace troupe {

/// The parts of an answer.
using divided_answer = std::vector<reply_promise, recycling_allocator<reply_promise>>;

/// Divides \p whole into \p part_count > 0 answers. When the last of them has been delivered, \p whole gets the first
/// error in time if there was one, else a completion that carries \p name, the earliest `queued`, and the latest
/// `launched` and `done`. If any part may have run, an error says so for the whole, and lists what is undefined of the
/// parts whose outcome is unknown; parts that were done have their results.
[[nodiscard]] divided_answer divide_promise(reply_promise whole, ticket name, std::size_t part_count);

} // namespace troupe
