#include "request.hpp"
#include "operation.hpp"

#include <troupe/collectives/operation/lanes/lane.hpp>
#include <troupe/completion/reply/overlap.hpp>
#include <troupe/device/threads/own_thread.hpp>
#include <troupe/runtime/interop/ask_into.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <variant>

/// Keeps the answer for those that wait for it.
class troupe_reply::state {
public:
  void set(troupe::outcome result) noexcept {
    const std::lock_guard lock{mutex_};
    result_.emplace(std::move(result));
    changed_.notify_all();
  }
  /// Returns the answer, which stays; null if there is none after \p at_most.
  const troupe::outcome* wait(troupe::nanoseconds at_most) {
    std::unique_lock lock{mutex_};
    await(lock, at_most, [this] { return result_.has_value(); });
    return result_ ? &*result_ : nullptr;
  }

  /// The first answer to a request in two steps.
  using first_step = std::variant<troupe::enqueued, troupe::error>;

  void set_first(first_step result) noexcept {
    const std::lock_guard lock{mutex_};
    first_.emplace(std::move(result));
    changed_.notify_all();
  }
  /// Returns the first step, which stays; null if it has not happened after \p at_most.
  const first_step* wait_first(troupe::nanoseconds at_most) {
    std::unique_lock lock{mutex_};
    await(lock, at_most, [this] { return first_.has_value(); });
    return first_ ? &*first_ : nullptr;
  }

  bool is_in_two_steps = false;

private:
  template <class Reached>
  void await(std::unique_lock<std::mutex>& lock, troupe::nanoseconds at_most, Reached reached) {
    if (at_most.count() == TROUPE_FOREVER)
      changed_.wait(lock, reached);
    else if (!reached() && at_most.count() > 0)
      changed_.wait_until(lock, troupe::later(std::chrono::steady_clock::now(), at_most), reached);
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<first_step> first_;
  std::optional<troupe::outcome> result_;
};

troupe_reply::troupe_reply() : of{std::make_shared<state>()} {}

struct troupe_lane {
  troupe_lane(troupe::world where, troupe::rank which, std::optional<troupe::lane> called)
    : world{std::move(where)}, target{which}, name{called}, client{called ? troupe::next_client() : 0} {}
  troupe_lane(const troupe_lane&) = delete;
  troupe_lane& operator=(const troupe_lane&) = delete;
  ~troupe_lane() {
    if (client != 0) leave_lanes(world, target, client);
  }

  const troupe::world world;
  const troupe::rank target;
  const std::optional<troupe::lane> name;
  const std::uint64_t client; ///< 0: no particular client, in the default lane.
  troupe::epoch acknowledged{};
};

namespace troupe::c {
namespace {

std::int64_t nanoseconds_of(time_point when) {
  return std::chrono::duration_cast<nanoseconds>(when.time_since_epoch()).count();
}

/// Lifetime: that of \p from.
troupe_completion shown(const completion& from) {
  const agreed_value* const agreed = from.agreed.get();
  return {.size = sizeof(troupe_completion),
          .ticket = from.ticket.value(),
          .epoch = from.epoch.value(),
          .launch = from.launch,
          .queued_ns = nanoseconds_of(from.times.queued),
          .launched_ns = nanoseconds_of(from.times.launched),
          .done_ns = nanoseconds_of(from.times.done),
          .agreed = agreed != nullptr ? agreed->bytes.data() : nullptr,
          .agreed_bytes = agreed != nullptr ? agreed->bytes.size() : 0,
          .agreed_position = agreed != nullptr ? agreed->position : 0,
          .agreed_part_sizes = agreed != nullptr ? agreed->part_sizes.data() : nullptr,
          .agreed_part_count = agreed != nullptr ? agreed->part_sizes.size() : 0};
}

/// Calls \p done with \p result.
void tell(troupe_done_callback done, void* user, const outcome& result) noexcept {
  const own_thread_scope in_callback;
  const error* const failure = failure_of(result);
  if (failure == nullptr) {
    const troupe_completion completed = shown(std::get<completion>(result));
    return done(user, &completed, nullptr);
  }
  std::optional<const troupe_error> failed;
  try {
    failed.emplace(*failure);
  } catch (...) { // no memory for its texts
    failed.emplace(failure->code, failure->effect);
  }
  done(user, nullptr, &*failed);
}

} // namespace

request_options options_of(const troupe_request_options& given) {
  request_options made;
  made.deadline = span_of(given.deadline_ns, "deadline_ns");
  made.epoch = epoch{given.epoch};
  made.staged = given.staged != 0;
  return made;
}

reply_promise make_promise(const troupe_request_options& options, const troupe_reply* kept, std::size_t part_count) {
  const auto state = kept != nullptr ? kept->of : nullptr;
  if (options.in_two_steps != 0 && !state) throw invalid("a request in two steps needs a reply: give made");
  reply_promise whole = make_reply_promise([done = options.done, user = options.user, state](outcome result) {
    if (done != nullptr) tell(done, user, result);
    if (state) state->set(std::move(result));
  });
  if (options.in_two_steps == 0) return whole;
  state->is_in_two_steps = true;
  auto first = std::make_shared<value_promise<enqueued>>(
      [state](troupe_reply::state::first_step&& step) { state->set_first(std::move(step)); });
  return make_overlapped_promise(std::move(first), part_count, std::move(whole));
}

} // namespace troupe::c

using namespace troupe::c;

namespace {

/// Returns what sends \p parts to all ranks of \p world.
auto sender(const troupe::world& world, std::vector<troupe::operation> parts, const troupe_request_options& given) {
  const std::size_t count = std::max<std::size_t>(parts.size(), 1); // an empty request is refused
  return prepared{count, [&world, asked = make_request(world, std::move(parts), options_of(given), site_of(given))](
                             troupe::reply_promise& to) mutable { ask_into(world, std::move(asked), std::move(to)); }};
}

auto sender(troupe_driver& driver, std::vector<troupe::operation> parts, const troupe_request_options& given) {
  if (given.in_two_steps != 0)
    throw troupe::exception{troupe::errc::unsupported, "a driver is not told when ranks enqueue: ask in one step"};
  return prepared{std::size_t{1},
                  [&driver, asked = troupe::make_request(std::move(parts), options_of(given), site_of(given))](
                      troupe::reply_promise& to) mutable { driver.of.ask(std::move(asked), std::move(to)); }};
}

} // namespace

troupe_code troupe_world_ask(troupe_world* world, const troupe_operation* parts, std::size_t count,
                             const troupe_request_options* options, troupe_reply** made, troupe_error** error) {
  return ask_for(options, made, error, [&](const troupe_request_options& given) {
    return sender(need(world, "world").of, make_operations(parts, count), given);
  });
}

troupe_code troupe_world_ask_each(troupe_world* world, const troupe_operation* what, const troupe_buffer* const* send,
                                  const troupe_buffer* const* recv, std::size_t count,
                                  const troupe_request_options* options, troupe_reply** made, troupe_error** error) {
  return ask_for(options, made, error, [&](const troupe_request_options& given) {
    return sender(need(world, "world").of, make_each(what, send, recv, count), given);
  });
}

troupe_code troupe_world_copy(troupe_world* world, std::int32_t rank, const troupe_buffer* from,
                              const troupe_buffer* to, const troupe_request_options* options, troupe_reply** made,
                              troupe_error** error) {
  return ask_for(options, made, error, [&](const troupe_request_options& given) {
    troupe::world& where = need(world, "world").of;
    static_cast<void>(where.device_of(troupe::rank{rank})); // refuses a rank of another process
    troupe::rank_request asked =
        make_request(troupe::copy{need(from, "from").of, need(to, "to").of}, options_of(given), site_of(given));
    if (asked.epoch == troupe::epoch{}) asked.epoch = where.epoch(); // no peer takes part
    return prepared{std::size_t{1}, [&where, rank, asked = std::move(asked)](troupe::reply_promise& promise) mutable {
                      ask_into(where, troupe::rank{rank}, std::move(asked), std::move(promise));
                    }};
  });
}

troupe_code troupe_lane_create(troupe_world* world, std::int32_t rank, const char* name, troupe_lane** made,
                               troupe_error** error) {
  if (made != nullptr) *made = nullptr;
  return attempt(error, [&] {
    troupe_lane*& stored = need(made, "made");
    const troupe::world& where = need(world, "world").of;
    static_cast<void>(where.device_of(troupe::rank{rank})); // refuses a rank of another process
    stored = new troupe_lane{where, troupe::rank{rank},
                             name != nullptr ? std::optional{troupe::lane::named(name)} : std::nullopt};
  });
}

troupe_code troupe_lane_ask(troupe_lane* lane, const troupe_operation* what, const troupe_request_options* options,
                            troupe_reply** made, troupe_error** error) {
  return ask_for(options, made, error, [&](const troupe_request_options& given) {
    troupe_lane& by = need(lane, "lane");
    troupe::rank_request asked =
        make_request(make_operation(read_struct(what, "what")), options_of(given), site_of(given));
    if (asked.epoch == troupe::epoch{}) asked.epoch = by.acknowledged;
    asked.lane = by.name.value_or(troupe::lane{});
    return prepared{std::size_t{1}, [&by, asked = std::move(asked)](troupe::reply_promise& promise) mutable {
                      ask_into(by.world, by.target, std::move(asked), std::move(promise), by.client);
                    }};
  });
}

troupe_code troupe_lane_acknowledge(troupe_lane* lane, std::uint64_t epoch, troupe_error** error) {
  return attempt(error, [&] { need(lane, "lane").acknowledged = troupe::epoch{epoch}; });
}

troupe_code troupe_lane_cancel(troupe_lane* lane, std::uint64_t position, troupe_error** error) {
  return attempt(error, [&] {
    const troupe_lane& by = need(lane, "lane");
    take_back(by.world, by.target, by.name.value_or(troupe::lane{}), position, by.acknowledged);
  });
}

void troupe_lane_free(troupe_lane* lane) {
  delete lane;
}

troupe_code troupe_driver_ask(troupe_driver* driver, const troupe_operation* parts, std::size_t count,
                              const troupe_request_options* options, troupe_reply** made, troupe_error** error) {
  return ask_for(options, made, error, [&](const troupe_request_options& given) {
    return sender(need(driver, "driver"), make_operations(parts, count), given);
  });
}

troupe_code troupe_driver_ask_each(troupe_driver* driver, const troupe_operation* what,
                                   const troupe_buffer* const* send, const troupe_buffer* const* recv,
                                   std::size_t count, const troupe_request_options* options, troupe_reply** made,
                                   troupe_error** error) {
  return ask_for(options, made, error, [&](const troupe_request_options& given) {
    return sender(need(driver, "driver"), make_each(what, send, recv, count), given);
  });
}

troupe_code troupe_reply_wait(const troupe_reply* reply, std::int64_t at_most_ns, troupe_completion* completion,
                              troupe_error** error) {
  return guarded(error, [&]() -> troupe_code {
    const troupe_reply& from = need(reply, "reply");
    if (at_most_ns != 0) refuse_in_callback("troupe_reply_wait()");
    const troupe::outcome* const result = from.of->wait(span_of(at_most_ns, "at_most_ns"));
    if (result == nullptr) return TROUPE_WAITING;
    if (const troupe::error* failure = failure_of(*result)) return report(*failure, error);
    if (completion != nullptr) write_struct(completion, shown(std::get<troupe::completion>(*result)), "completion");
    return TROUPE_OK;
  });
}

troupe_code troupe_reply_wait_enqueued(const troupe_reply* reply, std::int64_t at_most_ns, troupe_error** error) {
  return guarded(error, [&]() -> troupe_code {
    const troupe_reply& from = need(reply, "reply");
    if (!from.of->is_in_two_steps) throw invalid("the request was made in one step: set in_two_steps in its options");
    if (at_most_ns != 0) refuse_in_callback("troupe_reply_wait_enqueued()");
    const auto* const step = from.of->wait_first(span_of(at_most_ns, "at_most_ns"));
    if (step == nullptr) return TROUPE_WAITING;
    if (const auto* failure = std::get_if<troupe::error>(step)) return report(*failure, error);
    return TROUPE_OK;
  });
}

troupe_code troupe_reply_order(const troupe_reply* reply, troupe_world* world, std::int32_t rank, void* stream,
                               troupe_error** error) {
  return attempt(error, [&] {
    const troupe_reply& from = need(reply, "reply");
    const troupe::world& where = need(world, "world").of;
    const auto* const step = from.of->wait_first(troupe::nanoseconds{0});
    const auto* const told = step != nullptr ? std::get_if<troupe::enqueued>(step) : nullptr;
    if (told == nullptr)
      throw invalid("the request is not in the GPUs' queues: wait for it with troupe_reply_wait_enqueued()");
    stream_of(where, troupe::rank{rank}, stream).wait_for(*told);
  });
}

void troupe_reply_free(troupe_reply* reply) {
  delete reply;
}
