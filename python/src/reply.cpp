#include "reply.hpp"

#include "failure.hpp"
#include "interruptible.hpp"
#include "operand.hpp"
#include "released_gil.hpp"
#include "runtime_binding.hpp"

#include <troupe/device/error.hpp>

#include <pybind11/stl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <system_error>
#include <utility>

namespace troupe::python {

loop_mailbox::loop_mailbox() : descriptor_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)} {
  if (descriptor_ < 0)
    throw exception{errc::internal, "eventfd() failed: " + std::generic_category().message(errno) +
                                        ": raise the limit of open files (ulimit -n)"};
}

loop_mailbox::~loop_mailbox() {
  ::close(descriptor_);
}

void loop_mailbox::put(std::list<std::uint64_t> who) noexcept {
  const std::lock_guard lock{mutex_};
  const bool is_first = come_.empty();
  come_.splice(come_.end(), who);
  if (!is_first) return;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(descriptor_, &one, sizeof one)); // fails only after 2^64 writes without a read
}

std::list<std::uint64_t> loop_mailbox::take() {
  std::list<std::uint64_t> next;
  const std::lock_guard lock{mutex_};
  next.swap(come_);
  std::uint64_t count = 0;
  static_cast<void>(!::read(descriptor_, &count, sizeof count));
  return next;
}

shared_event launch_step::behind() const noexcept {
  const std::lock_guard lock{event_mutex_};
  return behind_;
}

void launch_step::settle_with(shared_event behind) noexcept {
  bool is_first = false;
  {
    const std::lock_guard lock{event_mutex_};
    is_first = !std::exchange(is_settled_, true);
    if (is_first || !behind) behind_.swap(behind); // an outcome before the launch's report stays
  }
  if (is_first) settle([] {});
}

std::shared_ptr<reply> reply::make(held_object outputs, std::shared_ptr<device> launched_on) {
  auto made = std::allocate_shared<reply>(recycling_allocator<reply>{}, std::move(outputs));
  if (launched_on) made->launch_ = std::make_shared<launch_step>(std::move(launched_on));
  return made;
}

reply_promise reply::make_reply_promise() {
  self_ = shared_from_this();
  return reply_promise{*this};
}

void reply::deliver(outcome result) noexcept {
  settle([&] { result_.emplace(std::move(result)); });
  if (launch_) launch_->conclude(); // after the outcome: a thread that sees the step finds it
}

namespace {

/// Whether polling for replies has paid lately in this process. Where they come later than it lasts, it only takes the
/// core from the threads that work on them. Threads: any; a lost update does no harm.
class polling_record {
public:
  /// Now and then also where it has not paid, because that may have changed.
  [[nodiscard]] bool is_worthwhile() noexcept {
    return credit_.load(std::memory_order_relaxed) > 0 || skipped_.fetch_add(1, std::memory_order_relaxed) % 64 == 63;
  }
  void note(bool has_paid) noexcept {
    const int credit = credit_.load(std::memory_order_relaxed);
    credit_.store(std::clamp(credit + (has_paid ? 1 : -1), 0, most), std::memory_order_relaxed);
  }

private:
  static constexpr int most = 8;
  std::atomic<int> credit_{most};
  std::atomic<unsigned> skipped_{0};
};

constinit polling_record polling;

} // namespace

bool awaited::poll(nanoseconds spin, time_point until) const {
  if (is_done()) return true;
  if (spin <= nanoseconds{0} || !polling.is_worthwhile()) return false;
  const time_point spun = std::min(until, later(std::chrono::steady_clock::now(), spin));
  bool is_here = false;
  while (!is_here && std::chrono::steady_clock::now() < spun)
    for (int i = 0; i < 16 && !is_here; ++i) {
      is_here = is_done();
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  polling.note(is_here);
  return is_here;
}

bool awaited::wait(nanoseconds spin, time_point until) {
  if (poll(spin, until)) return true;
  std::unique_lock lock{mutex_};
  const auto done = [this] { return is_done(); };
  if (until == time_point::max()) {
    changed_.wait(lock, done);
    return true;
  }
  return changed_.wait_until(lock, until, done);
}

bool awaited::tell(watcher one) {
  require_own();
  const std::lock_guard lock{mutex_};
  if (is_done()) return false;
  watchers_.push_back(std::move(one));
  return true;
}

namespace py = pybind11;

namespace {

std::atomic<std::int64_t> result_spin_ns{50'000};

bool wait_without_gil(awaited& one, nanoseconds spin, nanoseconds at_most, bool for_ever) {
  if (one.is_done()) return true;
  one.require_own();
  const time_point until = for_ever ? time_point::max() : later(std::chrono::steady_clock::now(), at_most);
  bool is_done = false;
  wait_interruptibly([&](nanoseconds longest) {
    is_done = one.wait(std::exchange(spin, nanoseconds{0}),
                       std::min(until, later(std::chrono::steady_clock::now(), longest)));
    return is_done || std::chrono::steady_clock::now() >= until;
  });
  return is_done;
}

py::object value_of(const reply& one) {
  if (const error* failure = failure_of(one.result())) raise(*failure);
  return py::cast(shown_completion{std::get<completion>(one.result()), one.outputs().get()});
}

void require_done(awaited& one, const py::object& timeout) {
  const bool for_ever = timeout.is_none();
  const nanoseconds at_most = for_ever ? nanoseconds{0} : duration_of(timeout, nanoseconds{0}, "timeout");
  if (wait_without_gil(one, result_spin(), at_most, for_ever)) return;
  PyErr_SetString(PyExc_TimeoutError,
                  "the request has not been answered yet; it continues, and its reply can be waited for again");
  throw py::error_already_set{};
}

py::object value_of(const value_reply& one) {
  struct conversion {
    const value_reply& from;
    py::object operator()(const error& failure) const { raise(failure); }
    py::object operator()(const remote_buffer& found) const { return py::cast(shown_remote{found, from.type()}); }
    py::object operator()(const std::string& bytes) const { return py::bytes{bytes}; }
    py::object operator()(const world_event& now) const {
      return py::module_::import("troupe._world").attr("event_of")(shown_event(now));
    }
    py::object operator()(const world_processes& all) const {
      const py::object made = py::module_::import("troupe._world").attr("WorldProcess");
      py::list shown;
      for (const world_process& one : all)
        shown.append(made(one.name, one.host, one.pid, one.place,
                          one.self ? std::optional{one.self->value()} : std::nullopt, one.is_leaving,
                          one.is_away));
      return shown;
    }
    py::object operator()(const leave_reply&) const { return py::none(); }
  };
  return std::visit(conversion{one}, one.result());
}

/// Waits until \p one has been launched, then makes later work in \p stream of the device wait for it there. Nothing
/// needs to wait for a request that has ended. Throws its error if it has failed.
void order_stream(reply& one, std::uintptr_t stream, const py::object& timeout) {
  if (!one.launch()) throw invalid("the request was asked in one step, so no stream can wait for it: use result()");
  release_due();
  if (!one.is_done()) require_done(*one.launch(), timeout);
  const shared_event behind = one.is_done() ? nullptr : one.launch()->behind();
  if (behind) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a stream's handle, as Python passes it
    const stream_ref yours{one.launch()->where(), reinterpret_cast<native_stream>(stream)};
    const released_gil released;
    yours.wait(*behind);
  }
  if (one.is_done())
    if (const error* failure = failure_of(one.result())) raise(*failure);
}

/// Polls for that long without the GIL, where that pays. Returns whether the result has arrived.
bool spin(awaited& one, double seconds) {
  if (one.is_done()) return true;
  const nanoseconds most = duration_of(py::float_(seconds), {});
  const released_gil released;
  return one.poll(most, time_point::max());
}

/// Binds what both kinds of replies have. \p text is their description, \p about that of result().
template <class Shown>
auto bind_awaited(py::module_& module, const char* name, const char* text, const char* about) {
  return py::class_<Shown, std::shared_ptr<Shown>>(module, name, text)
      .def(
          "done", [](const Shown& one) { return one.is_done(); }, "Returns whether the answer has arrived.")
      .def(
          "result",
          [](Shown& one, const py::object& timeout) {
            require_done(one, timeout);
            return value_of(one);
          },
          py::arg("timeout") = py::none(), about)
      .def(
          "exception",
          [](Shown& one, const py::object& timeout) -> py::object {
            require_done(one, timeout);
            if (const auto* failure = std::get_if<error>(&one.result())) return to_python(*failure);
            return py::none();
          },
          py::arg("timeout") = py::none(), "Waits, and returns the error that result() would raise, or None.")
      .def("__repr__",
           [name](const Shown& one) {
             if (!one.is_done()) return "<troupe." + std::string{name} + ": pending>";
             const auto* const failure = std::get_if<error>(&one.result());
             return "<troupe." + std::string{name} + ": " + (failure ? to_string(*failure) : "succeeded") + ">";
           })
      .def("_spin", [](Shown& one, double seconds) { return spin(one, seconds); })
      .def("_tell",
           [](Shown& one, const std::shared_ptr<loop_mailbox>& box, std::uint64_t who) { return one.tell(box, who); });
}

double seconds_of(time_point when) {
  return std::chrono::duration<double>(when.time_since_epoch()).count();
}

} // namespace

nanoseconds result_spin() noexcept {
  return nanoseconds{result_spin_ns.load(std::memory_order_relaxed)};
}

nanoseconds duration_of(const py::object& span, nanoseconds otherwise, const char* name) {
  if (span.is_none()) return otherwise;
  constexpr const char* wanted = "seconds, from 0 to 9e9, or a timedelta";
  const auto seconds =
      argument<double>(name, py::hasattr(span, "total_seconds") ? span.attr("total_seconds")() : span, wanted);
  if (!(seconds >= 0) || seconds > 9e9)
    throw invalid(std::string{name} + " is " + py::cast<std::string>(py::repr(span)) + ": give " + wanted);
  return nanoseconds{static_cast<std::int64_t>(std::llround(seconds * 1e9))};
}

namespace {

py::bytes as_python_bytes(std::span<const std::byte> all) {
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

void bind_agreed(py::module_& module) {
  py::class_<shown_agreed>(module, "Agreed", "The value of an agree, the same at all ranks.")
      .def_property_readonly(
          "value", [](const shown_agreed& one) { return as_python_bytes(one.what->bytes); }, "The bytes.")
      .def_property_readonly(
          "integers", [](const shown_agreed& one) { return py::tuple(py::cast(one.what->integers())); },
          "The bytes as signed 64-bit integers.")
      .def_property_readonly(
          "integer", [](const shown_agreed& one) { return one.what->integer(); },
          "The first of these integers; 0 if there is none.")
      .def_property_readonly(
          "parts",
          [](const shown_agreed& one) {
            py::list all;
            for (const auto part : one.what->parts()) all.append(as_python_bytes(part));
            return py::tuple(all);
          },
          "The ranks' contributions to a gather_all, in rank order.")
      .def_property_readonly(
          "epoch", [](const shown_agreed& one) { return one.what->epoch.value(); },
          "The epoch in which it was agreed on.")
      .def_property_readonly(
          "position", [](const shown_agreed& one) { return one.what->position; },
          "The position in its lane, counted as in resume points.")
      .def("__eq__",
           [](const shown_agreed& one, const py::object& other) {
             return py::isinstance<shown_agreed>(other) && *one.what == *other.cast<const shown_agreed&>().what;
           })
      .def("__repr__",
           [](const shown_agreed& one) {
             return "troupe.Agreed(position=" + std::to_string(one.what->position) +
                    ", epoch=" + to_string(one.what->epoch) + ", " + std::to_string(one.what->bytes.size()) + " bytes)";
           })
      .def(py::pickle(
          [](const shown_agreed& one) {
            return py::make_tuple(one.what->epoch.value(), one.what->position, as_python_bytes(one.what->bytes),
                                  one.what->part_sizes);
          },
          [](const py::tuple& state) {
            auto made = std::make_shared<agreed_value>();
            made->epoch = epoch{py::cast<std::uint64_t>(py::object{state[0]})};
            made->position = py::cast<std::uint64_t>(py::object{state[1]});
            made->bytes = contribution{py::cast<std::string>(py::object{state[2]})}.bytes;
            made->part_sizes = py::cast<std::vector<std::uint32_t>>(py::object{state[3]});
            return shown_agreed{std::move(made)};
          }));
}

} // namespace

py::object shown(const std::shared_ptr<const agreed_value>& one) {
  return one ? py::cast(shown_agreed{one}) : py::object{py::none()};
}

void bind_replies(py::module_& module) {
  bind_agreed(module);
  py::class_<shown_completion>(module, "Completion", "The reply to a request that succeeded.")
      .def_property_readonly(
          "ticket", [](const shown_completion& one) { return one.what.ticket.value(); },
          "Identifies the request at the rank or world that accepted it.")
      .def_property_readonly(
          "epoch", [](const shown_completion& one) { return one.what.epoch.value(); }, "The epoch in which it ran.")
      .def_property_readonly(
          "launch", [](const shown_completion& one) { return one.what.launch; },
          "The position of the launch in the rank's order, from 1; 0 for a request to all ranks.")
      .def_property_readonly(
          "queued", [](const shown_completion& one) { return seconds_of(one.what.times.queued); },
          "The time when the request was accepted, in seconds of time.monotonic().")
      .def_property_readonly(
          "launched", [](const shown_completion& one) { return seconds_of(one.what.times.launched); },
          "The time when it was launched, in seconds of time.monotonic().")
      .def_property_readonly(
          "done", [](const shown_completion& one) { return seconds_of(one.what.times.done); },
          "The time when it had ended, in seconds of time.monotonic().")
      .def_property_readonly(
          "agreed", [](const shown_completion& one) { return shown(one.what.agreed); },
          "The Agreed value of an agree; None for other requests.")
      .def_readonly("out", &shown_completion::outputs, "The written tensors, as given or allocated.")
      .def("__repr__",
           [](const shown_completion& one) {
             return "troupe.Completion(ticket=" + to_string(one.what.ticket) + ", epoch=" + to_string(one.what.epoch) +
                    ")";
           })
      .def(py::pickle(
          [](const shown_completion& one) {
            const auto& times = one.what.times;
            return py::make_tuple(one.what.ticket.value(), one.what.epoch.value(), one.what.launch,
                                  times.queued.time_since_epoch().count(), times.launched.time_since_epoch().count(),
                                  times.done.time_since_epoch().count(), one.outputs, shown(one.what.agreed));
          },
          [](const py::tuple& state) {
            const auto number = [&](std::size_t place) { return py::cast<std::uint64_t>(py::object{state[place]}); };
            const auto time = [&](std::size_t place) {
              return time_point{nanoseconds{py::cast<std::int64_t>(py::object{state[place]})}};
            };
            return shown_completion{completion{.ticket = ticket{number(0)},
                                               .epoch = epoch{number(1)},
                                               .times = {.queued = time(3), .launched = time(4), .done = time(5)},
                                               .launch = number(2),
                                               .agreed = state[7].is_none()
                                                             ? nullptr
                                                             : py::object{state[7]}.cast<const shown_agreed&>().what},
                                    py::object{state[6]}};
          }));

  bind_awaited<reply>(
      module, "Reply", "The answer to a request, which arrives once.",
      "Waits for the Completion and returns it. Polls for a short time first, without the GIL. Raises "
      "troupe.Error, or TimeoutError if there is no answer within timeout seconds: the request then continues.")
      .def_property_readonly(
          "out", [](const reply& one) { return one.outputs().get(); },
          "The written tensors, as given or allocated: undefined until the reply.")
      .def(
          "launched", [](const reply& one) { return one.launch() ? one.launch()->is_done() : one.is_done(); },
          "Returns whether the request is in the GPU's queue, or has ended. Without two steps: whether it has ended.")
      .def(
          "order", &order_stream, py::arg("stream"), py::arg("timeout") = py::none(),
          "For a request in two steps (Request.ask_overlapped()): waits without the GIL until it is in the GPU's "
          "queue, "
          "then makes later work in the CUDA stream with this handle wait for it, on the GPU. This promises order, not "
          "success. Raises the error of a request that has failed, or TimeoutError.")
      .def("_tell_launch", [](const reply& one, const std::shared_ptr<loop_mailbox>& box, std::uint64_t who) {
        return one.launch() && one.launch()->tell(box, who);
      });
  bind_awaited<value_reply>(
      module, "ValueReply", "The answer to a question whose result is a value, which arrives once.",
      "Waits for the value and returns it. Raises troupe.Error, or TimeoutError if there is no answer within timeout "
      "seconds.");

  py::class_<loop_mailbox, std::shared_ptr<loop_mailbox>>(module, "LoopMailbox")
      .def(py::init<>())
      .def("fileno", &loop_mailbox::descriptor)
      .def("take", [](loop_mailbox& box) {
        release_due();
        return box.take();
      });

  module.def(
      "set_result_spin",
      [](const py::object& seconds) { result_spin_ns = duration_of(seconds, nanoseconds{0}, "seconds").count(); },
      py::arg("seconds"),
      "Sets how long result() polls for the reply before it sleeps, in seconds. The default is 50 microseconds.");
}

} // namespace troupe::python
