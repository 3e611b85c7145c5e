/// Uses troupe with the parts of an existing program: its actor system, streams, arrays, tensors of other libraries,
/// coroutines and senders (docs/interop.md). Runs on GPUs if there are any, otherwise on the mock.

#include <troupe/runtime/interop/awaitable_reply.hpp>
#include <troupe/runtime/interop/client_stream.hpp>
#include <troupe/runtime/interop/dlpack.hpp>
#include <troupe/runtime/interop/host_system.hpp>
#include <troupe/runtime/interop/request_sender.hpp>
#include <troupe/runtime/interop/views.hpp>
#include <troupe/runtime/runtime.hpp>

#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include <algorithm>
#include <coroutine>
#include <cstdio>
#include <exception>
#include <vector>

namespace {

constexpr std::size_t count = 1024;

bool all_are(const std::vector<float>& values, float expected) {
  return std::ranges::all_of(values, [&](float one) { return one == expected; });
}

/// Returns an in-place all_reduce of each rank's tensor.
std::vector<troupe::operation> sums(const std::vector<troupe::tensor>& values) {
  std::vector<troupe::operand> operands;
  for (const troupe::tensor& one : values) operands.push_back(one.as_operand());
  troupe::request_builder requests{static_cast<int>(values.size())};
  return requests.all_reduce(operands, operands, count, values.front().type, troupe::reduction::sum).parts;
}

/// Sums vectors of the program without copying them.
bool sum_vectors(troupe::world& world) {
  const auto ranks = world.local_ranks();
  // [views]
  std::vector<std::vector<float>> arrays(ranks.size(), std::vector<float>(count, 1.F));
  std::vector<troupe::tensor> values;
  for (std::size_t i = 0; i < ranks.size(); ++i) values.push_back(troupe::borrow(world, ranks[i], arrays[i]));
  world.ask(sums(values)).get();
  // [views]
  return all_are(arrays.front(), static_cast<float>(world.size()));
}

/// Exports a buffer as a DLPack tensor, imports it again, and sums it with its peers, without a copy.
bool sum_tensors(troupe::world& world) {
  if (!troupe::has_dlpack()) return true;
  std::vector<troupe::tensor> values;
  for (const troupe::rank self : world.local_ranks()) {
    const troupe::buffer memory = world.allocate(self, count * sizeof(float));
    // [dlpack]
    // Memory of troupe for another library; the tensor's deleter releases it.
    const std::vector<std::int64_t> shape{32, 32};
    troupe::owned_dlpack lent = troupe::to_dlpack(memory, troupe::dtype::f32, shape);

    // A tensor of another library, filled on its stream. Requests wait on the device for that stream.
    const troupe::stream theirs{world.device_of(self)};
    theirs.ref().fill(memory.data(), 0, memory.size_bytes());
    values.push_back(troupe::from_dlpack(world, std::move(lent), theirs.ref()));
    // [dlpack]
  }
  world.ask(sums(values)).get();
  const auto seen = world.read<float>(world.local_ranks().front(), values.front().memory).get();
  return values.front().shape.size() == 2 && all_are(seen, 0.F);
}

/// Orders a request behind earlier work in the program's own stream, and later work behind the request, on the device.
bool chain_with_stream(troupe::world& world) {
  const troupe::rank self = world.local_ranks().front();
  const troupe::buffer memory = world.allocate(self, count);
  const troupe::buffer seen = world.allocate_pinned(count);
  const troupe::stream owned{world.device_of(self)};
  const troupe::native_stream yours = owned.ref().native(); // or your cudaStream_t
  // [streams]
  const troupe::client_stream stream{world, self, yours};
  stream.ref().fill(memory.data(), 7, count); // stands for a kernel of yours

  troupe::overlapped asked = world.ask_overlapped(self, troupe::copy{stream.after(memory), seen});
  stream.wait_for(asked.enqueued.get());
  // What you launch in your stream now runs behind the copy.

  asked.outcome.get(); // events guarantee order, not success
  // [streams]
  return std::ranges::all_of(seen.host_span<std::uint8_t>(), [](std::uint8_t one) { return one == 7; });
}

// [task]
/// The coroutine type is your own. This one starts immediately and destroys itself at its end.
struct detached {
  struct promise_type {
    detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

detached sum_twice(troupe::world world, std::vector<troupe::operation> parts, troupe::resume_queue& queue,
                   bool& succeeded) {
  using namespace std::chrono_literals;
  auto first = troupe::reply_on(queue.resumer(), world, parts);
  auto second = troupe::reply_on(queue.resumer(), world, parts, {.deadline = 10s}); // sent immediately, with a deadline
  // Both replies are awaited even if the first fails, because the requests use borrowed memory.
  const troupe::outcome later = co_await std::move(second).as_outcome();
  try {
    const troupe::completion reply = co_await first;
    succeeded = troupe::failure_of(later) == nullptr && reply.epoch == world.epoch();
  } catch (const troupe::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
  }
  queue.close(); // no other coroutine uses this queue
}
// [task]

bool sum_in_coroutine(troupe::world& world) {
  std::vector<std::vector<float>> arrays(world.local_ranks().size(), std::vector<float>(count, 1.F));
  std::vector<troupe::tensor> values;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    values.push_back(troupe::borrow(world, world.local_ranks()[i], arrays[i]));
  bool succeeded = false;
  // [queue]
  troupe::resume_queue queue;
  sum_twice(world, sums(values), queue, succeeded);
  queue.run(); // resumes the coroutine on this thread
  // [queue]
  return succeeded && all_are(arrays.front(), static_cast<float>(world.size() * world.size()));
}

// [receiver]
struct receiver {
  troupe::resume_queue* queue;
  bool* succeeded;

  void set_value(const troupe::completion&) const&& {
    *succeeded = true;
    queue->close();
  }
  void set_error(const troupe::error& why) const&& {
    std::fprintf(stderr, "%s\n", to_string(why).c_str());
    queue->close();
  }
  void set_stopped() const&& { queue->close(); }
};

bool send_barrier(troupe::world& world) {
  bool succeeded = false;
  troupe::resume_queue queue;
  const std::vector<troupe::operation> parts(world.local_ranks().size(), troupe::barrier{});
  auto state = troupe::request_sender{queue.resumer(), world, parts}.connect(receiver{&queue, &succeeded});
  state.start();
  queue.run();
  return succeeded;
}
// [receiver]

} // namespace

int main() try {
  // [guest]
  const troupe::configuration settings = troupe::configuration::from_environment();
  caf::actor_system_config host_settings;
  troupe::prepare_host(host_settings, settings); // before the system is made
  caf::actor_system host{host_settings};
  bool right = true;
  {
    troupe::runtime runtime{host, settings};
    troupe::world world = runtime.form_world();
    right = sum_vectors(world) && sum_tensors(world) && chain_with_stream(world) && sum_in_coroutine(world) &&
            send_barrier(world);
  }
  // The runtime's actors have ended; the actor system continues.
  // [guest]
  std::printf("arrays, tensors, streams, coroutines and senders in the program's actor system: %s; %zu actors left\n",
              right ? "right" : "WRONG", host.registry().running());
  return right && host.registry().running() == 0 ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
