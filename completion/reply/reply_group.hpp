/// Combines the answers of many parts into one: a request to a whole world is answered when its last rank is done.
#pragma once

#include <troupe/completion/reply/reply_promise.hpp>
#include <troupe/completion/sources/recycling.hpp>

#include <cstddef>
#include <vector>

namespace troupe {

/// The promises of the parts of a request.
using divided_answer = std::vector<reply_promise, recycling_allocator<reply_promise>>;

/// Divides \p whole into \p part_count > 0 promises. When the last of them has been answered, \p whole gets the first
/// error in time, if there was one. Otherwise it gets a completion with \p name, the earliest `queued`, and the latest
/// `launched` and `done`. If any part may have run, the error has an unknown outcome and lists the undefined buffers of
/// the parts whose outcome is unknown. Parts that were done have their results.
[[nodiscard]] divided_answer divide_promise(reply_promise whole, ticket name, std::size_t part_count);

} // namespace troupe
