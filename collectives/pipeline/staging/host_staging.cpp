#include <troupe/collectives/pipeline/staging/host_staging.hpp>

#include <troupe/collectives/backend/launch_parts.hpp>

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t least_slot_bytes = 4096;

/// Returns the first \p size_bytes of a buffer as one area.
staged_area whole_area(const buffer& memory, std::size_t size_bytes) {
  return {.memory = memory, .pieces = {{0, size_bytes}}, .size_bytes = size_bytes};
}

bool is_pageable(const buffer& memory) {
  return memory.on_host() && memory.kind() == memory_kind::pageable;
}

} // namespace

/// The device memory of a result, and its destination.
struct host_staging::area_in_use {
  staged_area area;
  staging_slot* slot;
};

host_staging::host_staging(std::shared_ptr<device> where, std::shared_ptr<staging_stock> stock)
  : device_{std::move(where)},
    stock_{std::move(stock)},
    fill_{device_},
    in_{device_},
    out_{device_},
    empty_{device_},
    begun_{device_},
    brought_{device_},
    taken_{device_},
    emptied_{device_},
    inputs_{device_, stock_->limits().slots},
    results_{device_, stock_->limits().slots},
    bounces_in_{device_, stock_->limits().slots},
    bounces_out_{device_, stock_->limits().slots} {}

host_staging::~host_staging() {
  for (staging_ring* const ring : {&bounces_in_, &bounces_out_})
    for (staging_slot& one : ring->slots()) stock_->give_pinned(std::move(one.memory));
}

void host_staging::launch(const operation& what, communicator& peers, stream_ref main, staging_hold& held) {
  if (const auto* move = std::get_if<copy>(&what)) return launch_copy(*move, main, held);
  begin(main);
  const staging_plan plan{what, peers.self(), peers.world_size(), stock_->limits()};
  for (std::size_t i = 0; i < plan.chunk_count(); ++i) launch_chunk(plan, i, peers, main, held);
  finish(main);
}

void host_staging::launch_chunk(const staging_plan& plan, std::size_t index, communicator& peers, stream_ref main,
                                staging_hold& held) {
  const bool transient = plan.is_whole();
  std::vector<area_in_use> inputs;
  std::vector<area_in_use> results;
  const operation cut = plan.chunk(index, [&](const staged_area& area) {
    if (area.size_bytes == 0) return buffer{};
    staging_slot& slot = slot_for(area, transient, held);
    if (area.written) {
      main.wait(slot.free);
      results.push_back({area, &slot});
    } else {
      in_.ref().wait(slot.free);
      bring_in(area, slot.memory.data(), held);
      slot.filled.record(in_);
      main.wait(slot.filled);
      inputs.push_back({area, &slot});
    }
    return slot.memory.slice(0, area.size_bytes);
  });
  launch_with_copies(peers, cut, main);
  for (const area_in_use& one : inputs) one.slot->free.record(main);
  for (const area_in_use& one : results) {
    one.slot->filled.record(main);
    out_.ref().wait(one.slot->filled);
    take_out(one.area, one.slot->memory.data(), held);
    one.slot->free.record(out_);
  }
}

void host_staging::launch_copy(const copy& what, stream_ref main, staging_hold& held) {
  const buffer& from = what.from.memory;
  const buffer& to = what.to.memory;
  const std::size_t length = from.size_bytes();
  if (from.on_host() && to.on_host()) {
    // CUDA's own copy would block its caller.
    held.copies.enqueue(main, gate_, {{to.data(), from.data(), length}});
    return;
  }
  begin(main);
  if (from.on_host())
    bring_in(whole_area(from, length), to.data(), held);
  else
    take_out(whole_area(to, length), from.data(), held);
  finish(main);
}

void host_staging::begin(stream_ref main) {
  begun_.record(main);
  for (const stream* one : {&fill_, &in_, &out_}) one->ref().wait(begun_);
}

void host_staging::finish(stream_ref main) {
  brought_.record(in_);
  taken_.record(out_);
  emptied_.record(empty_);
  for (const event* one : {&brought_, &taken_, &emptied_}) main.wait(*one);
}

staging_slot& host_staging::slot_for(const staged_area& area, bool transient, staging_hold& held) {
  if (transient) { // the parts of a group need all their slots at the same time
    staging_slot& made = held.slots.emplace_back(device_);
    made.memory = stock_->device_memory(device_, area.size_bytes);
    return made;
  }
  // Powers of two, so that slots are rarely replaced.
  const auto make = [this](std::size_t size_bytes) {
    return stock_->device_memory(device_, std::bit_ceil(std::max(size_bytes, least_slot_bytes)));
  };
  return (area.written ? results_ : inputs_).take(area.size_bytes, make, held.memory);
}

void host_staging::bring_in(const staged_area& area, std::byte* target, staging_hold& held) {
  const std::byte* const source = area.memory.data();
  if (!is_pageable(area.memory)) {
    for (const staged_area::piece& one : area.pieces) {
      in_.ref().copy(target, source + one.offset_bytes, one.size_bytes);
      target += one.size_bytes;
    }
    return;
  }
  for_each_bounce(area, [&](const std::vector<staged_area::piece>& pieces, std::size_t offset, std::size_t size_bytes) {
    staging_slot& bounce = bounce_slot(bounces_in_, held);
    std::vector<host_copies::piece> copies;
    std::byte* to = bounce.memory.data();
    for (const staged_area::piece& one : pieces) {
      copies.push_back({to, source + one.offset_bytes, one.size_bytes});
      to += one.size_bytes;
    }
    fill_.ref().wait(bounce.free);
    held.copies.enqueue(fill_, gate_, std::move(copies));
    bounce.filled.record(fill_);
    in_.ref().wait(bounce.filled);
    in_.ref().copy(target + offset, bounce.memory.data(), size_bytes);
    bounce.free.record(in_);
  });
}

void host_staging::take_out(const staged_area& area, const std::byte* source, staging_hold& held) {
  std::byte* const target = area.memory.data();
  if (!is_pageable(area.memory)) {
    for (const staged_area::piece& one : area.pieces) {
      out_.ref().copy(target + one.offset_bytes, source, one.size_bytes);
      source += one.size_bytes;
    }
    return;
  }
  for_each_bounce(area, [&](const std::vector<staged_area::piece>& pieces, std::size_t offset, std::size_t size_bytes) {
    staging_slot& bounce = bounce_slot(bounces_out_, held);
    std::vector<host_copies::piece> copies;
    const std::byte* from = bounce.memory.data();
    for (const staged_area::piece& one : pieces) {
      copies.push_back({target + one.offset_bytes, from, one.size_bytes});
      from += one.size_bytes;
    }
    out_.ref().wait(bounce.free);
    out_.ref().copy(bounce.memory.data(), source + offset, size_bytes);
    bounce.filled.record(out_);
    empty_.ref().wait(bounce.filled);
    held.copies.enqueue(empty_, gate_, std::move(copies));
    bounce.free.record(empty_);
  });
}

template <class Use>
void host_staging::for_each_bounce(const staged_area& area, const Use& use) const {
  const std::size_t room = stock_->limits().chunk_bytes;
  std::vector<staged_area::piece> pieces;
  std::size_t done = 0;
  std::size_t filled = 0;
  const auto flush = [&] {
    if (filled > 0) use(pieces, done, filled);
    done += std::exchange(filled, 0);
    pieces.clear();
  };
  for (staged_area::piece left : area.pieces)
    while (left.size_bytes > 0) {
      const std::size_t fits = std::min(left.size_bytes, room - filled);
      pieces.push_back({left.offset_bytes, fits});
      left.offset_bytes += fits;
      left.size_bytes -= fits;
      filled += fits;
      if (filled == room) flush();
    }
  flush();
}

staging_slot& host_staging::bounce_slot(staging_ring& ring, staging_hold& held) {
  return ring.take(
      stock_->limits().chunk_bytes, [this](std::size_t) { return stock_->take_pinned(device_); }, held.memory);
}

void host_staging::synchronize() noexcept {
  for (const stream* one : {&fill_, &in_, &out_, &empty_}) {
    try {
      one->ref().synchronize();
    } catch (const exception&) { // the fault that led here was reported
    }
  }
}

staging_slot& staging_ring::take(std::size_t size_bytes, const maker& make, std::vector<buffer>& outgrown) {
  if (slots_.empty() || (slots_.size() < most_ && !order_.front()->free.reached())) {
    slots_.emplace_back(device_);
    order_.push_front(&slots_.back());
  }
  staging_slot& taken = *order_.front();
  order_.pop_front();
  order_.push_back(&taken);
  if (taken.memory.size_bytes() < size_bytes) {
    buffer larger = make(size_bytes);
    outgrown.push_back(std::exchange(taken.memory, std::move(larger)));
  }
  return taken;
}

} // namespace troupe
