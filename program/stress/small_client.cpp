#include <troupe/program/bench/frame/reference_values.hpp>
#include <troupe/program/stress/small_client.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <span>
#include <utility>

namespace troupe::program {

namespace {

constexpr std::size_t most_requests_in_flight = 4;
constexpr std::size_t most_plans = 3;

/// Returns whether \p code is how a world ends a request that did not finish in time, or one behind it.
bool is_hang(errc code) {
  return code == errc::deadline_exceeded || code == errc::communicator_failed || code == errc::device_failed ||
         code == errc::rebuilding || code == errc::world_failed;
}

std::vector<operation> for_all(std::size_t ranks, const operation& what) {
  return std::vector<operation>(ranks, what);
}

} // namespace

small_totals& small_totals::operator+=(const small_totals& more) {
  operations += more.operations;
  kernels += more.kernels;
  replays += more.replays;
  wrong += more.wrong;
  hung += more.hung;
  failed += more.failed;
  if (first.empty()) first = more.first;
  return *this;
}

small_client::small_client(const world& where, const small_spec& spec, std::size_t most, meddling meddle)
  : where_{where}, most_{most}, limits_{spec.limits}, meddle_{std::move(meddle)}, script_{spec, where.capabilities()} {
  for (const rank self : where_.local_ranks()) {
    arenas_.push_back(where_.allocate(self, script_.arena_bytes()));
    pinned_.push_back(where_.allocate_pinned(script_.arena_bytes()));
    std::ranges::copy(script_.image(arenas_.size() - 1), pinned_.back().host_span<std::byte>().begin());
  }
  capture_plans();
}

std::vector<operation> small_client::request_of(const group_of_operations& group) const {
  std::vector<operation> parts;
  for (std::size_t r = 0; r < arenas_.size(); ++r) {
    const rank self{static_cast<int>(r)};
    if (group.size() == 1) {
      parts.push_back(part_of(group.front(), self, arenas_[r]));
      continue;
    }
    troupe::group all;
    for (const small_operation& one : group) all.parts.push_back(part_of(one, self, arenas_[r]));
    parts.emplace_back(std::move(all));
  }
  return parts;
}

void small_client::capture_plans() {
  try {
    while (plans_.size() < most_plans) {
      plan made;
      plan_steps steps;
      for (std::size_t i = 0; i <= plans_.size(); ++i) {
        group_of_operations group = script_.draw_group(1 + script_.choices().below(most_));
        if (group.empty()) return;
        steps.push_back(request_of(group));
        made.steps.push_back(std::move(group));
      }
      made.captured = where_.capture(std::move(steps));
      plans_.push_back(std::move(made));
      script_.keep_drawn();
    }
  } catch (const exception& failure) {
    if (failure.why().code != errc::unsupported) throw;
    std::fprintf(stderr, "stress: no plans are replayed: %s\n", failure.why().text.c_str());
  }
}

void small_client::note(std::size_t small_totals::*count, std::size_t by, const std::string& what) {
  totals_.*count += by;
  if (by > 0 && totals_.first.empty()) totals_.first = what;
}

void small_client::await(std::size_t most_left) {
  for (; in_flight_.size() > most_left; in_flight_.pop_front()) {
    try {
      in_flight_.front().get();
    } catch (const exception& failure) {
      note(is_hang(failure.why().code) ? &small_totals::hung : &small_totals::failed, 1, to_string(failure.why()));
    }
  }
}

void small_client::send(std::vector<operation> parts) {
  await(most_requests_in_flight - 1);
  in_flight_.push_back(where_.ask(std::move(parts)));
}

void small_client::copy_arenas(std::size_t first, bool to_host) {
  std::vector<operation> parts;
  for (std::size_t r = 0; r < arenas_.size(); ++r) {
    const buffer device = arenas_[r].slice(first, script_.arena_bytes() - first);
    const buffer host = pinned_[r].slice(first, script_.arena_bytes() - first);
    parts.emplace_back(to_host ? troupe::copy{device, host} : troupe::copy{host, device});
  }
  send(std::move(parts));
  await(0);
}

void small_client::run(const group_of_operations& group) {
  script_.run(group);
  totals_.operations += group.size();
  for (const small_operation& one : group)
    if (one.part_bytes() <= limits_.part_bytes && limits_.part_bytes > 0) ++totals_.kernels;
}

void small_client::run_round(const std::function<bool(std::size_t)>& done) {
  script_.begin_round();
  for (plan& one : plans_) one.has_run = false;
  std::vector<operation> restored;
  for (const buffer& arena : arenas_)
    restored.emplace_back(
        troupe::copy{arena.slice(0, script_.table_bytes()), arena.slice(script_.table_bytes(), script_.table_bytes())});
  send(std::move(restored));
  while (is_clean() && !done(totals_.operations)) {
    draws& choices = script_.choices();
    if (plan* const one = plans_.empty() ? nullptr : &plans_[choices.below(plans_.size())];
        one != nullptr && !one->has_run && choices.below(8) == 0) {
      one->has_run = true;
      ++totals_.replays;
      send(for_all(arenas_.size(), replay{one->captured}));
      for (const auto& step : one->steps) run(step);
      continue;
    }
    const group_of_operations group = script_.draw_group(choices.below(4) == 0 ? 1 : most_);
    if (group.empty()) return;
    auto parts = request_of(group);
    if (meddle_) meddle_(parts);
    send(std::move(parts));
    run(group); // while the devices do the same
  }
}

void small_client::compare(std::size_t first) {
  copy_arenas(first, true);
  for (std::size_t r = 0; r < arenas_.size() && is_clean(); ++r) {
    std::string what;
    const auto seen = std::as_bytes(pinned_[r].host_span<std::byte>()).subspan(first);
    const std::size_t wrong = script_.find_faults(r, first, seen, what);
    note(&small_totals::wrong, wrong, what);
  }
}

small_totals small_client::run(const std::function<bool(std::size_t)>& done) {
  try {
    copy_arenas(0, false);
    while (is_clean() && !done(totals_.operations)) {
      run_round(done);
      if (is_clean()) compare(script_.table_bytes());
    }
    if (is_clean()) compare(0);        // the tables, too, which nothing may have written
  } catch (const exception& failure) { // a request was refused
    note(&small_totals::failed, 1, to_string(failure.why()));
  }
  await(0);
  return totals_;
}

device_pressure::device_pressure(const world& where, std::uint64_t seed) : where_{where}, kernels_{where} {
  for (std::size_t place = 0; place < where_.local_ranks().size(); ++place)
    threads_.emplace_back([this, place, seed](const std::stop_token& ending) { fill(place, ending, seed + place); });
}

device_pressure::~device_pressure() {
  for (std::jthread& one : threads_) one.request_stop();
}

void device_pressure::fill(std::size_t place, const std::stop_token& ending, std::uint64_t seed) {
  constexpr std::size_t bytes = std::size_t{16} << 20U;
  const rank self = where_.local_ranks()[place];
  const buffer memory = where_.allocate(self, 2 * bytes);
  const stream own{where_.device_of(self)};
  draws choices{seed};
  while (!ending.stop_requested()) {
    const std::size_t kind = choices.below(3);
    for (std::size_t i = 0; i < 8 && kind == 0; ++i)
      own.ref().fill(memory.data(), static_cast<std::uint8_t>(i), 2 * bytes);
    for (std::size_t i = 0; i < 8 && kind == 1; ++i) own.ref().copy(memory.data() + bytes, memory.data(), bytes);
    if (kind == 2) kernels_.at(place).occupy(own.ref(), std::chrono::microseconds{50 + choices.below(1'000)});
    own.ref().synchronize();
    turns_.fetch_add(1, std::memory_order_relaxed);
    std::this_thread::sleep_for(std::chrono::microseconds{choices.below(200)});
  }
}

} // namespace troupe::program
