#include <troupe/device/mock/mock_captures.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

void mock_captures::begin(native_stream stream) {
  const std::lock_guard lock{mutex_};
  if (streams_.contains(stream))
    throw exception{errc::invalid_argument, "the stream is already being captured: end that capture first"};
  auto made = std::make_shared<recording>(recording{.origin = stream});
  made->members.emplace(stream, recording::member{});
  streams_.emplace(stream, std::move(made));
  count_.fetch_add(1, std::memory_order_acq_rel);
}

std::vector<mock_task_factory> mock_captures::end(native_stream stream) {
  std::shared_ptr<recording> ended; // destroyed without the lock: its tasks may own events
  const std::lock_guard lock{mutex_};
  ended = find(stream);
  if (!ended || ended->origin != stream)
    throw exception{errc::invalid_argument,
                    "no capture was begun in this stream: end the capture in the stream that began it"};
  std::erase_if(streams_, [&](const auto& one) { return one.second == ended; });
  std::erase_if(events_, [&](const auto& one) { return one.second.where == ended; });
  count_.fetch_sub(1, std::memory_order_acq_rel);
  throw_if_broken(*ended);
  for (const auto& [one, how] : ended->members)
    if (one != stream && how.joined_count < how.task_count)
      throw exception{errc::invalid_argument,
                      "a stream that joined the capture has work that the first stream does not wait for: record an "
                      "event after it, and let the first stream wait for that event"};
  return std::move(ended->tasks);
}

capture_status mock_captures::status(native_stream stream) const {
  const std::lock_guard lock{mutex_};
  const auto found = find(stream);
  if (!found) return capture_status::none;
  return found->broken.empty() ? capture_status::active : capture_status::broken;
}

bool mock_captures::keep(native_stream stream, const mock_task_factory& make) {
  const std::lock_guard lock{mutex_};
  const auto found = find(stream);
  if (!found) return false;
  throw_if_broken(*found);
  found->tasks.push_back(make);
  ++found->members[stream].task_count;
  return true;
}

void mock_captures::refuse(native_stream stream, const char* what) {
  if (!any()) return;
  const std::lock_guard lock{mutex_};
  if (const auto found = find(stream))
    break_off(*found, std::string{what} + " cannot be captured: call it outside of the capture");
}

bool mock_captures::record(native_event event, native_stream stream) {
  if (!any()) return false;
  const std::lock_guard lock{mutex_};
  const auto found = find(stream);
  if (!found) return false;
  throw_if_broken(*found);
  events_.insert_or_assign(event, mark{found, stream, found->members[stream].task_count});
  return true;
}

void mock_captures::forget(native_event event) {
  if (!any()) return;
  const std::lock_guard lock{mutex_};
  events_.erase(event);
}

bool mock_captures::wait(native_stream stream, native_event event, bool recorded) {
  if (!any()) return false;
  const std::lock_guard lock{mutex_};
  const auto mine = find(stream);
  const auto captured = events_.find(event);
  if (captured == events_.end()) {
    if (mine && recorded) break_off(*mine, "a wait for an event that was recorded outside of the capture");
    return mine != nullptr;
  }
  const mark& at = captured->second;
  if (mine && mine != at.where) break_off(*mine, "a wait for an event of another capture");
  if (!mine) streams_.emplace(stream, at.where);
  auto& from = at.where->members[at.stream];
  from.joined_count = std::max(from.joined_count, at.task_count);
  ++at.where->members[stream].task_count; // the waiting stream has work now too, so it must be joined in turn
  return true;
}

void mock_captures::refuse_query(native_event event) const {
  if (!any()) return;
  const std::lock_guard lock{mutex_};
  const auto found = events_.find(event);
  if (found == events_.end()) return;
  break_off(*found->second.where, "a query of an event that is being captured");
}

std::shared_ptr<mock_captures::recording> mock_captures::find(native_stream stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? nullptr : found->second;
}

void mock_captures::throw_if_broken(const recording& one) {
  if (!one.broken.empty()) throw exception{errc::invalid_argument, "the capture is broken: " + one.broken};
}

void mock_captures::break_off(recording& one, std::string why) {
  if (one.broken.empty()) one.broken = why;
  throw exception{errc::invalid_argument, std::move(why)};
}

} // namespace troupe
