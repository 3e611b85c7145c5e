#include "handover.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

using namespace std::chrono_literals;

handover::handover(troupe::world where, handover_shape shape)
  : world_{std::move(where)}, shape_{shape}, slots_(static_cast<std::size_t>(shape.slots)) {
  const std::size_t bytes = static_cast<std::size_t>(shape.blocks) * shape.block_elements * sizeof(float);
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].lane = troupe::lane::named("kv " + std::to_string(i));
    slots_[i].made = world_.allocate_pinned(bytes);
    slots_[i].arrived = world_.allocate_pinned(bytes);
  }
  for (const troupe::rank self : world_.local_ranks())
    if (self.value() < shape.prefill_ranks) kernels_.emplace(self, troupe::stream{world_.device_of(self)});
}

void handover::turn(bool admit_more) {
  const troupe::world_event now = world_.status();
  if (now.phase == troupe::world_phase::failed) throw troupe::exception{now.reason};
  const bool is_ready = now.phase == troupe::world_phase::ready;
  for (transfer& one : slots_) {
    if (one.open) look(one);
    if (!is_ready) continue;
    if (!one.open && admit_more)
      admit(one, now.epoch);
    else if (one.open && one.epoch != now.epoch) {
      ++figures_.asked_again;
      begin(one, now.epoch);
    }
    if (!one.open || one.lost) continue;
    // Either side may be ahead of the other, by any number of blocks.
    if (draw_() % 2 == 0 && one.sent < shape_.blocks) send_next(one);
    if (draw_() % 2 == 0 && !one.fetched) receive_next(one);
  }
}

bool handover::idle() const {
  return std::ranges::none_of(slots_, &transfer::open);
}

void handover::admit(transfer& one, troupe::epoch now) {
  one.open = true;
  one.request = figures_.admitted++;
  const auto among = [&](int first, int count) {
    return troupe::rank{first + static_cast<int>(draw_() % static_cast<unsigned>(count))};
  };
  one.from = among(0, shape_.prefill_ranks);
  one.to = among(shape_.prefill_ranks, world_.size() - shape_.prefill_ranks);
  one.began = std::chrono::steady_clock::now();
  float next = static_cast<float>(one.request % 1024) * 4096; // exact in floats
  for (float& value : one.made.host_span<float>()) value = next++;
  begin(one, now);
}

/// Begins with the first block, in new memory: operations that hang in a failed epoch may write to the old memory until
/// they have been aborted.
void handover::begin(transfer& one, troupe::epoch now) {
  if (one.source) one.source.note_use(kernels_.at(one.from));
  one.epoch = now;
  one.source = world_.allocate(one.from, one.made.size_bytes());
  one.target = world_.allocate(one.to, one.made.size_bytes());
  one.sent = one.received = 0;
  one.fetched = one.lost = false;
  one.open_replies.clear();
}

// [send]
void handover::send_next(transfer& one) {
  const troupe::buffer made = block(one.source, one.sent);
  const troupe::stream& kernels = kernels_.at(one.from);
  // The prefill kernel would be launched here; this copy stands for it. The send waits for it on the device.
  kernels.ref().copy(made.data(), block(one.made, one.sent).data(), made.size_bytes());
  const troupe::operand ready{made, record_event(world_.device_of(one.from), kernels)};
  ask(one, one.from, troupe::send{.memory = ready, .count = shape_.block_elements, .peer = one.to, .tag = one.sent});
  ++one.sent;
}

void handover::receive_next(transfer& one) {
  if (one.received < shape_.blocks) {
    ask(one, one.to,
        troupe::recv{.memory = block(one.target, one.received),
                     .count = shape_.block_elements,
                     .peer = one.from,
                     .tag = one.received});
    ++one.received;
  } else { // runs behind the last recv, because it is in the same lane
    ask(one, one.to, troupe::copy{one.target, one.arrived});
    one.fetched = true;
  }
}

void handover::ask(transfer& one, troupe::rank whom, troupe::operation what) {
  one.open_replies.push_back(
      world_.ask(whom, troupe::rank_request{.what = std::move(what), .epoch = one.epoch, .lane = one.lane}));
}
// [send]

void handover::look(transfer& one) {
  std::erase_if(one.open_replies, [&](std::future<troupe::completion>& reply) {
    if (reply.wait_for(0s) != std::future_status::ready) return false;
    try {
      reply.get();
    } catch (const troupe::exception&) {
      one.lost = true; // the transfer restarts when the world is ready in its next epoch
    }
    return true;
  });
  if (one.lost || !one.fetched || one.sent < shape_.blocks || !one.open_replies.empty()) return;
  ++figures_.arrived;
  if (!std::ranges::equal(one.arrived.host_span<float>(), one.made.host_span<float>())) ++figures_.wrong;
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - one.began;
  figures_.took_ms.push_back(took.count());
  one.source = one.target = {};
  one.open = false;
}

troupe::buffer handover::block(const troupe::buffer& all, int number) const {
  const std::size_t bytes = shape_.block_elements * sizeof(float);
  return all.slice(static_cast<std::size_t>(number) * bytes, bytes);
}
