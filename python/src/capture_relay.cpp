#include "capture_relay.hpp"

#include "failure.hpp"
#include "interruptible.hpp"
#include "released_gil.hpp"
#include "request.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace troupe::python {

std::shared_ptr<capture_relay> capture_relay::begin(troupe::world where, native_stream stream, std::string name,
                                                    nanoseconds deadline) {
  if (where.local_ranks().size() != 1)
    throw exception{errc::unsupported, "a thread captures the kernels of one rank, and this process has " +
                                           std::to_string(where.local_ranks().size()) + ": start a process per rank"};
  const std::shared_ptr<capture_relay> made{new capture_relay{later(std::chrono::steady_clock::now(), deadline)}};
  std::promise<std::shared_ptr<captured_plan>> captured;
  made->result_ = captured.get_future();
  plan_options options{.streams = {stream}, .deadline = deadline, .name = std::move(name)};
  std::thread{[made, where = std::move(where), options = std::move(options), captured = std::move(captured)]() mutable {
    try {
      captured.set_value(where.capture([made](rank_capture& mine) { made->serve(mine); }, std::move(options)));
    } catch (...) {
      captured.set_exception(std::current_exception());
    }
    const std::lock_guard lock{made->mutex_};
    made->changed_.notify_all();
  }}.detach();
  const auto has_ended = [&] { return made->result_.wait_for(std::chrono::seconds{0}) == std::future_status::ready; };
  wait_interruptibly([&](nanoseconds at_most) {
    std::unique_lock lock{made->mutex_};
    return made->changed_.wait_for(lock, at_most, [&] { return made->phase_ != phase::starting || has_ended(); });
  });
  if (has_ended()) static_cast<void>(made->result_.get()); // throws: no capture succeeds before finish()
  return made;
}

void capture_relay::serve(rank_capture& mine) {
  std::unique_lock lock{mutex_};
  if (phase_ != phase::starting)
    throw exception{errc::stale_epoch, "the graph was captured in an earlier epoch, and its kernels are enqueued by a "
                                       "thread of Python alone: capture it again"};
  phase_ = phase::capturing;
  changed_.notify_all();
  for (;;) {
    const bool is_told =
        changed_.wait_until(lock, until_, [&] { return asked_.has_value() || phase_ != phase::capturing; });
    if (asked_) {
      answer_ = make_launch(mine, lock);
      asked_.reset();
      changed_.notify_all();
      continue;
    }
    const phase how = std::exchange(phase_, phase::ended);
    if (how == phase::failing) throw exception{errc::cancelled, why_};
    if (!is_told)
      throw exception{errc::deadline_exceeded,
                      "the captured function has not returned within the deadline of the capture"};
    return;
  }
}

error capture_relay::make_launch(rank_capture& mine, std::unique_lock<std::mutex>& lock) {
  operation what = std::move(*asked_);
  lock.unlock();
  error why;
  try {
    if (auto* const several = std::get_if<group>(&what))
      mine.launch_together(std::move(several->parts));
    else
      mine.launch(std::move(what));
  } catch (...) {
    why = current_error();
  }
  lock.lock();
  return why;
}

void capture_relay::launch(operation what) {
  std::optional<error> why;
  {
    const released_gil released; // bounded: by the deadline of the capture
    const std::lock_guard one_at_a_time{callers_};
    std::unique_lock lock{mutex_};
    if (phase_ == phase::capturing) {
      asked_ = std::move(what);
      changed_.notify_all();
      changed_.wait(lock, [&] { return answer_.has_value(); });
      why = std::exchange(answer_, std::nullopt);
    }
  }
  if (!why) throw invalid("the capture has ended: this call belongs to no graph");
  if (why->code != errc::none) throw exception{std::move(*why)};
}

std::shared_ptr<captured_plan> capture_relay::finish() {
  {
    const std::lock_guard lock{mutex_};
    if (phase_ == phase::capturing) phase_ = phase::finishing;
    changed_.notify_all();
  }
  return await_interruptibly(std::move(result_));
}

void capture_relay::fail(const std::string& why) {
  {
    const std::lock_guard lock{mutex_};
    if (phase_ != phase::capturing) return;
    phase_ = phase::failing;
    why_ = why;
    changed_.notify_all();
  }
  const released_gil released; // the launcher ends the stream's capture, bounded by its deadline
  result_.wait();
}

void bind_captures(pybind11::module_& module) {
  namespace py = pybind11;
  py::class_<capture_relay, std::shared_ptr<capture_relay>>(module, "CaptureRelay")
      .def("launch", [](capture_relay& self, const asked_operation& one) { self.launch(one.what); })
      .def("finish", &capture_relay::finish)
      .def("fail", &capture_relay::fail);
}

} // namespace troupe::python
