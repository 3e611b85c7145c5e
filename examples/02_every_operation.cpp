/// Runs every operation once and verifies its result. Runs on GPUs if there are any, otherwise on the mock. The regions
/// between two lines with the same name in brackets are the examples of docs/reference.

#include <troupe/runtime/rank_lane.hpp>
#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/world_group.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <future>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

// [helpers]
using values = std::vector<float>;

/// Returns \p count elements with the value \p value.
values repeat(int count, float value) {
  return values(static_cast<std::size_t>(count), value);
}

float number(int value) {
  return static_cast<float>(value);
}

/// Returns a buffer on each rank's device with the values that \p held returns for the rank.
per_rank<buffer> place(world& ranks, const std::function<values(int rank)>& held) {
  return {ranks.local_ranks(), [&](rank self) {
            const values wanted = held(self.value());
            buffer placed = ranks.allocate(self, wanted.size() * sizeof(float));
            ranks.write(self, wanted, placed).get();
            return placed;
          }};
}

int wrong = 0;

void tell(const char* what, bool right) {
  std::printf("%-17s %s\n", what, right ? "right" : "WRONG");
  if (!right) ++wrong;
}

/// Compares each rank's buffer with the values that \p expected returns for the rank.
void verify(world& ranks, const char* what, const per_rank<buffer>& seen,
            const std::function<values(int rank)>& expected) {
  bool right = true;
  for (const rank self : ranks.local_ranks())
    right = right && ranks.read<float>(self, seen[self]).get() == expected(self.value());
  tell(what, right);
}
// [helpers]

void run_all_reduce(world& ranks, int n) {
  // [all_reduce]
  // Every rank contributes its number and 1, and receives the sums over all ranks, in place.
  const auto memory = place(ranks, [](int r) { return values{number(r), 1}; });
  ranks.all_reduce(memory, memory, 2, dtype::f32, reduction::sum).get();
  verify(ranks, "all_reduce", memory, [n](int) { return values{number(n * (n - 1) / 2), number(n)}; });
  // [all_reduce]
}

void run_reduce(world& ranks, int n) {
  // [reduce]
  // Rank 0 receives the maximum over all ranks; the other ranks keep their values.
  const auto memory = place(ranks, [](int r) { return values{number(r)}; });
  ranks.reduce(memory, memory[rank{0}], 1, dtype::f32, reduction::max, rank{0}).get();
  verify(ranks, "reduce", memory, [n](int r) { return values{number(r == 0 ? n - 1 : r)}; });
  // [reduce]
}

void run_broadcast(world& ranks) {
  // [broadcast]
  // All ranks receive the values of rank 0.
  const auto memory = place(ranks, [](int r) { return r == 0 ? values{7, 8} : values{0, 0}; });
  ranks.broadcast(memory[rank{0}], memory, 2, dtype::f32, rank{0}).get();
  verify(ranks, "broadcast", memory, [](int) { return values{7, 8}; });
  // [broadcast]
}

void run_all_gather(world& ranks, int n) {
  // [all_gather]
  // Every rank contributes its number, and receives the numbers of all ranks in rank order.
  const auto mine = place(ranks, [](int r) { return values{number(r)}; });
  const auto all = place(ranks, [n](int) { return repeat(n, 0); });
  ranks.all_gather(mine, all, 1, dtype::f32).get();
  verify(ranks, "all_gather", all, [n](int) {
    values expected = repeat(n, 0);
    std::iota(expected.begin(), expected.end(), 0.F);
    return expected;
  });
  // [all_gather]
}

void run_reduce_scatter(world& ranks, int n) {
  // [reduce_scatter]
  // Every rank contributes n elements with its number; rank r receives the sum over all ranks of element r.
  const auto all = place(ranks, [n](int r) { return repeat(n, number(r)); });
  const auto mine = place(ranks, [](int) { return values{0}; });
  ranks.reduce_scatter(all, mine, 1, dtype::f32, reduction::sum).get();
  verify(ranks, "reduce_scatter", mine, [n](int) { return values{number(n * (n - 1) / 2)}; });
  // [reduce_scatter]
}

void run_all_to_all(world& ranks, int n) {
  // [all_to_all]
  // Rank r sends its number to every rank, so every rank receives the numbers of all ranks.
  const auto out = place(ranks, [n](int r) { return repeat(n, number(r)); });
  const auto in = place(ranks, [n](int) { return repeat(n, 0); });
  ranks.all_to_all(out, in, 1, dtype::f32).get();
  verify(ranks, "all_to_all", in, [n](int) {
    values expected = repeat(n, 0);
    std::iota(expected.begin(), expected.end(), 0.F);
    return expected;
  });
  // [all_to_all]
}

void run_gather(world& ranks, int n) {
  // [gather]
  // Rank 0 receives the numbers of all ranks.
  const auto mine = place(ranks, [](int r) { return values{number(r)}; });
  const auto all = place(ranks, [n](int) { return repeat(n, 0); });
  ranks.gather(mine, all[rank{0}], 1, dtype::f32, rank{0}).get();
  verify(ranks, "gather", all, [n](int r) {
    values expected = repeat(n, 0);
    if (r == 0) std::iota(expected.begin(), expected.end(), 0.F);
    return expected;
  });
  // [gather]
}

void run_scatter(world& ranks, int n) {
  // [scatter]
  // Rank 0 sends one of n numbers to each rank.
  const auto all = place(ranks, [n](int) {
    values dealt;
    for (int r = 0; r < n; ++r) dealt.push_back(number(10 * r));
    return dealt;
  });
  const auto mine = place(ranks, [](int) { return values{-1}; });
  ranks.scatter(all[rank{0}], mine, 1, dtype::f32, rank{0}).get();
  verify(ranks, "scatter", mine, [](int r) { return values{number(10 * r)}; });
  // [scatter]
}

/// Returns the partition in which rank r has r + 1 elements.
partition growing_parts(int n) {
  std::vector<std::size_t> counts(static_cast<std::size_t>(n));
  std::iota(counts.begin(), counts.end(), std::size_t{1});
  return partition::packed(std::move(counts));
}

void run_all_gather_v(world& ranks, int n) {
  // [all_gather_v]
  // Rank r contributes r + 1 elements, and all ranks receive the elements of all ranks.
  const partition parts = growing_parts(n); // counts 1, 2, 3, … without gaps
  const auto mine = place(ranks, [](int r) { return repeat(r + 1, number(r)); });
  const auto all = place(ranks, [n](int) { return repeat(n * (n + 1) / 2, 0); });
  ranks.all_gather_v(mine, all, parts, dtype::f32).get();
  verify(ranks, "all_gather_v", all, [n](int) {
    values expected;
    for (int r = 0; r < n; ++r) std::ranges::copy(repeat(r + 1, number(r)), std::back_inserter(expected));
    return expected;
  });
  // [all_gather_v]
}

void run_reduce_scatter_v(world& ranks, int n) {
  // [reduce_scatter_v]
  // Every rank contributes ones; rank r receives the sums of its r + 1 elements.
  const partition parts = growing_parts(n); // counts 1, 2, 3, … without gaps
  const auto all = place(ranks, [n](int) { return repeat(n * (n + 1) / 2, 1); });
  const auto mine = place(ranks, [](int r) { return repeat(r + 1, 0); });
  ranks.reduce_scatter_v(all, mine, parts, dtype::f32, reduction::sum).get();
  verify(ranks, "reduce_scatter_v", mine, [n](int r) { return repeat(r + 1, number(n)); });
  // [reduce_scatter_v]
}

void run_gather_v(world& ranks, int n) {
  // [gather_v]
  // Rank 0 receives r + 1 elements from rank r.
  const partition parts = growing_parts(n); // counts 1, 2, 3, … without gaps
  const auto mine = place(ranks, [](int r) { return repeat(r + 1, number(r)); });
  const auto all = place(ranks, [n](int) { return repeat(n * (n + 1) / 2, 0); });
  ranks.gather_v(mine, all[rank{0}], parts, dtype::f32, rank{0}).get();
  verify(ranks, "gather_v", all, [n](int r) {
    values expected;
    for (int from = 0; from < n; ++from)
      std::ranges::copy(repeat(from + 1, r == 0 ? number(from) : 0), std::back_inserter(expected));
    return expected;
  });
  // [gather_v]
}

void run_scatter_v(world& ranks, int n) {
  // [scatter_v]
  // Rank 0 sends r + 1 of its elements to rank r.
  const partition parts = growing_parts(n); // counts 1, 2, 3, … without gaps
  const auto all = place(ranks, [n](int) {
    values sent;
    for (int r = 0; r < n; ++r) std::ranges::copy(repeat(r + 1, number(10 * r)), std::back_inserter(sent));
    return sent;
  });
  const auto mine = place(ranks, [](int r) { return repeat(r + 1, -1); });
  ranks.scatter_v(all[rank{0}], mine, parts, dtype::f32, rank{0}).get();
  verify(ranks, "scatter_v", mine, [](int r) { return repeat(r + 1, number(10 * r)); });
  // [scatter_v]
}

void run_all_to_all_v(world& ranks, int n) {
  // [all_to_all_v]
  // Rank r sends q + 1 elements with its number to rank q, so rank q receives q + 1 elements from every rank.
  const auto out = place(ranks, [n](int r) { return repeat(n * (n + 1) / 2, number(r)); });
  const auto in = place(ranks, [n](int r) { return repeat(n * (r + 1), 0); });
  const per_rank sends{ranks.local_ranks(), [n](rank) { return growing_parts(n); }};
  const per_rank receives{ranks.local_ranks(), [n](rank self) {
                            const auto from_each = static_cast<std::size_t>(self.value()) + 1;
                            return partition::packed(std::vector(static_cast<std::size_t>(n), from_each));
                          }};
  ranks.all_to_all_v(out, in, sends, receives, dtype::f32).get();
  verify(ranks, "all_to_all_v", in, [n](int r) {
    values expected;
    for (int from = 0; from < n; ++from) std::ranges::copy(repeat(r + 1, number(from)), std::back_inserter(expected));
    return expected;
  });
  // [all_to_all_v]
}

void run_send(world& ranks, int n) {
  // [send]
  // A ring: every rank sends its number to the next rank and receives that of the previous rank, in one group.
  const auto out = place(ranks, [](int r) { return values{number(r)}; });
  const auto in = place(ranks, [](int) { return values{-1}; });
  world_group ring{ranks};
  for (const rank self : ranks.local_ranks()) {
    ring.send(self, out[self], 1, dtype::f32, rank{(self.value() + 1) % n});
    ring.recv(self, in[self], 1, dtype::f32, rank{(self.value() + n - 1) % n});
  }
  ring.ask().get();
  verify(ranks, "send", in, [n](int r) { return values{number((r + n - 1) % n)}; });
  // [send]
}

void run_recv(world& ranks, int n) {
  // [recv]
  // Rank 0 sends to the last rank twice. Tags match each send with its recv, whatever the order of the calls.
  const auto out = place(ranks, [](int) { return values{1, 2}; });
  const auto in = place(ranks, [](int) { return values{0, 0}; });
  const rank first{0};
  const rank last{n - 1};
  const auto part = [](const buffer& memory, std::size_t i) { return memory.slice(i * sizeof(float), sizeof(float)); };
  world_group both{ranks};
  both.send(first, part(out[first], 0), 1, dtype::f32, last, 0)
      .send(first, part(out[first], 1), 1, dtype::f32, last, 1);
  both.recv(last, part(in[last], 1), 1, dtype::f32, first, 1).recv(last, part(in[last], 0), 1, dtype::f32, first, 0);
  both.ask().get();
  verify(ranks, "recv", in, [n](int r) { return r == n - 1 ? values{1, 2} : values{0, 0}; });
  // [recv]
}

void run_barrier(world& ranks) {
  // [barrier]
  // When the barrier is answered, all earlier requests are complete on every rank.
  const auto memory = place(ranks, [](int) { return values{1}; });
  const auto copies = place(ranks, [](int) { return values{0}; });
  std::vector<std::future<completion>> earlier;
  for (const rank self : ranks.local_ranks()) earlier.push_back(ranks.copy(self, memory[self], copies[self]));
  ranks.barrier().get();
  verify(ranks, "barrier", copies, [](int) { return values{1}; });
  // [barrier]
  for (auto& one : earlier) one.get();
}

void run_copy(world& ranks) {
  // [copy]
  // Copies from host memory to rank 0's device. No other rank takes part.
  const buffer host = ranks.allocate_pinned(2 * sizeof(float));
  std::ranges::fill(host.host_span<float>(), 5.0F);
  const auto memory = place(ranks, [](int) { return values{0, 0}; });
  ranks.copy(rank{0}, host, memory[rank{0}]).get();
  verify(ranks, "copy", memory, [](int r) { return r == 0 ? values{5, 5} : values{0, 0}; });
  // [copy]
}

void run_group(world& ranks, int n) {
  // [group]
  // Two collectives on different buffers as one launch: the sum over all ranks, and the value of the last rank.
  const auto sums = place(ranks, [](int r) { return values{number(r)}; });
  const auto lasts = place(ranks, [](int r) { return values{number(r)}; });
  const rank last{n - 1};
  world_group both{ranks};
  both.all_reduce(sums, sums, 1, dtype::f32, reduction::sum);
  both.broadcast(lasts[last], lasts, 1, dtype::f32, last);
  both.ask().get();
  verify(ranks, "group: all_reduce", sums, [n](int) { return values{number(n * (n - 1) / 2)}; });
  verify(ranks, "group: broadcast", lasts, [n](int) { return values{number(n - 1)}; });
  // [group]
}

void run_replay(world& ranks, int n) {
  // [replay]
  // One request runs an all_reduce on every rank, followed by the client's own copy, which stands for a kernel.
  const auto sums = place(ranks, [](int r) { return values{number(r)}; });
  const auto copies = place(ranks, [](int) { return values{0}; });
  const auto plan = ranks.capture([=](rank_capture& mine) {
    const buffer& sum = sums[mine.self()];
    mine.launch(all_reduce{.send = sum, .recv = sum, .count = 1, .op = reduction::sum});
    mine.stream().copy(copies[mine.self()].data(), sum.data(), sizeof(float));
  });
  ranks.replay(plan).get();
  verify(ranks, "replay", copies, [n](int) { return values{number(n * (n - 1) / 2)}; });
  // [replay]
}

void run_call(world& ranks, int n) {
  // [call]
  // A function of the user's own runs behind an all_reduce on each rank; the copy stands for a kernel.
  const auto sums = place(ranks, [](int r) { return values{number(r)}; });
  const auto copies = place(ranks, [](int) { return values{0}; });
  const auto keep = ranks.register_function("keep", [](const rank_call& with) {
    with.stream.copy(with.memory[1].data(), with.memory[0].data(), with.memory[0].size_bytes());
  });
  auto sum = ranks.all_reduce(sums, sums, 1, dtype::f32, reduction::sum);
  std::vector<operation> parts;
  for (const rank self : ranks.local_ranks()) parts.emplace_back(call{keep, {sums[self], copies[self]}});
  auto kept = ranks.ask(std::move(parts));
  sum.get();
  kept.get();
  verify(ranks, "call", copies, [n](int) { return values{number(n * (n - 1) / 2)}; });
  // [call]
}

void run_agree(world& ranks) {
  // [agree]
  // Each rank has a number of free blocks. All admit as many users as the rank with the fewest, at the same step.
  std::vector<rank_lane> clients;
  std::vector<std::future<completion>> replies;
  for (const rank self : ranks.local_ranks()) {
    clients.emplace_back(ranks, self, lane::named("admission"));
    replies.push_back(clients.back().agree(agreement_rule::min, 10 + self.value()));
  }
  bool right = true;
  for (auto& one : replies) right = right && one.get().agreed->integer() == 10;
  tell("agree", right);
  // [agree]
}

} // namespace

int main() try {
  runtime here;
  world ranks = here.form_world();
  const int n = ranks.size();
  run_all_reduce(ranks, n);
  run_reduce(ranks, n);
  run_broadcast(ranks);
  run_all_gather(ranks, n);
  run_reduce_scatter(ranks, n);
  run_all_to_all(ranks, n);
  run_gather(ranks, n);
  run_scatter(ranks, n);
  run_all_gather_v(ranks, n);
  run_reduce_scatter_v(ranks, n);
  run_gather_v(ranks, n);
  run_scatter_v(ranks, n);
  run_all_to_all_v(ranks, n);
  run_send(ranks, n);
  run_recv(ranks, n);
  run_barrier(ranks);
  run_copy(ranks);
  run_group(ranks, n);
  run_replay(ranks, n);
  run_call(ranks, n);
  run_agree(ranks);
  std::printf("%d ranks, %d wrong\n", ranks.size(), wrong);
  return wrong == 0 ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
