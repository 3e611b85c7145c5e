/// Every operation once, with its result verified. Runs on GPUs where there are some, else on the mock. The regions
/// between two lines of the same name in brackets are the examples of docs/reference.

#include <troupe/runtime/runtime.hpp>
#include <troupe/runtime/world_group.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <future>
#include <utility>
#include <vector>

using namespace troupe;

namespace {

// [helpers]
using values = std::vector<float>;

float number(std::size_t value) {
  return static_cast<float>(value);
}

rank to_rank(std::size_t value) {
  return rank{static_cast<int>(value)};
}

/// A request's parts, one for each rank.
std::vector<operation> each(const world& ranks, const std::function<operation(std::size_t rank)>& part) {
  std::vector<operation> parts;
  for (std::size_t r = 0; r < ranks.local_ranks().size(); ++r) parts.push_back(part(r));
  return parts;
}

/// A buffer on each rank's device that holds what \p held says.
std::vector<buffer> place(world& ranks, const std::function<values(std::size_t rank)>& held) {
  std::vector<buffer> placed;
  for (const rank self : ranks.local_ranks()) {
    const values wanted = held(placed.size());
    const buffer host = ranks.allocate_pinned(wanted.size() * sizeof(float));
    std::ranges::copy(wanted, host.host_span<float>().begin());
    placed.push_back(ranks.allocate(self, host.size_bytes()));
    ranks.copy(self, host, placed.back()).get();
  }
  return placed;
}

int wrong = 0;

/// Compares each rank's buffer with what \p expected says.
void verify(world& ranks, const char* what, const std::vector<buffer>& seen,
            const std::function<values(std::size_t rank)>& expected) {
  bool right = true;
  for (const rank self : ranks.local_ranks()) {
    const auto r = static_cast<std::size_t>(self.value());
    const buffer host = ranks.allocate_pinned(seen[r].size_bytes());
    ranks.copy(self, seen[r], host).get();
    right = right && std::ranges::equal(host.host_span<float>(), expected(r));
  }
  std::printf("%-17s %s\n", what, right ? "right" : "WRONG");
  if (!right) ++wrong;
}
// [helpers]

void run_all_reduce(world& ranks, std::size_t n) {
  // [all_reduce]
  // Every rank brings its number and 1, and gets the sums over all ranks, in place.
  const auto memory = place(ranks, [](std::size_t r) { return values{number(r), 1}; });
  const auto ask = [&](std::size_t r) -> operation {
    return all_reduce{.send = memory[r], .recv = memory[r], .count = 2, .type = dtype::f32, .op = reduction::sum};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "all_reduce", memory, [n](std::size_t) { return values{number(n * (n - 1) / 2), number(n)}; });
  // [all_reduce]
}

void run_reduce(world& ranks, std::size_t n) {
  // [reduce]
  // Rank 0 gets the largest of what the ranks bring; the others need no recv and keep their values.
  const auto memory = place(ranks, [](std::size_t r) { return values{number(r)}; });
  const auto ask = [&](std::size_t r) -> operation {
    return reduce{.send = memory[r], .recv = r == 0 ? memory[r] : buffer{}, .count = 1, .op = reduction::max};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "reduce", memory, [n](std::size_t r) { return values{number(r == 0 ? n - 1 : r)}; });
  // [reduce]
}

void run_broadcast(world& ranks) {
  // [broadcast]
  // All ranks get what rank 0 has; the others need no send.
  const auto memory = place(ranks, [](std::size_t r) { return r == 0 ? values{7, 8} : values{0, 0}; });
  const auto ask = [&](std::size_t r) -> operation {
    return broadcast{.send = r == 0 ? memory[r] : buffer{}, .recv = memory[r], .count = 2};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "broadcast", memory, [](std::size_t) { return values{7, 8}; });
  // [broadcast]
}

void run_all_gather(world& ranks, std::size_t n) {
  // [all_gather]
  // Every rank brings its number, and gets those of all ranks in their order.
  const auto mine = place(ranks, [](std::size_t r) { return values{number(r)}; });
  const auto all = place(ranks, [n](std::size_t) { return values(n); });
  const auto ask = [&](std::size_t r) -> operation { return all_gather{.send = mine[r], .recv = all[r], .count = 1}; };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "all_gather", all, [n](std::size_t) {
    values expected;
    for (std::size_t r = 0; r < n; ++r) expected.push_back(number(r));
    return expected;
  });
  // [all_gather]
}

void run_reduce_scatter(world& ranks, std::size_t n) {
  // [reduce_scatter]
  // Every rank brings n times its number; rank r gets the sum of all ranks' r-th.
  const auto all = place(ranks, [n](std::size_t r) { return values(n, number(r)); });
  const auto mine = place(ranks, [](std::size_t) { return values{0}; });
  const auto ask = [&](std::size_t r) -> operation {
    return reduce_scatter{.send = all[r], .recv = mine[r], .count = 1, .op = reduction::sum};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "reduce_scatter", mine, [n](std::size_t) { return values{number(n * (n - 1) / 2)}; });
  // [reduce_scatter]
}

void run_all_to_all(world& ranks, std::size_t n) {
  // [all_to_all]
  // Rank r sends its number to every rank, so every rank receives the numbers of all.
  const auto out = place(ranks, [n](std::size_t r) { return values(n, number(r)); });
  const auto in = place(ranks, [n](std::size_t) { return values(n); });
  const auto ask = [&](std::size_t r) -> operation { return all_to_all{.send = out[r], .recv = in[r], .count = 1}; };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "all_to_all", in, [n](std::size_t) {
    values expected;
    for (std::size_t r = 0; r < n; ++r) expected.push_back(number(r));
    return expected;
  });
  // [all_to_all]
}

void run_gather(world& ranks, std::size_t n) {
  // [gather]
  // Rank 0 gets every rank's number; the others need no recv.
  const auto mine = place(ranks, [](std::size_t r) { return values{number(r)}; });
  const auto all = place(ranks, [n](std::size_t) { return values(n); });
  const auto ask = [&](std::size_t r) -> operation {
    return gather{.send = mine[r], .recv = r == 0 ? all[r] : buffer{}, .count = 1, .root = rank{0}};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "gather", all, [n](std::size_t r) {
    values expected(n);
    for (std::size_t i = 0; r == 0 && i < n; ++i) expected[i] = number(i);
    return expected;
  });
  // [gather]
}

void run_scatter(world& ranks, std::size_t n) {
  // [scatter]
  // Rank 0 deals out n numbers; the others need no send.
  const auto all = place(ranks, [n](std::size_t) {
    values dealt;
    for (std::size_t r = 0; r < n; ++r) dealt.push_back(number(10 * r));
    return dealt;
  });
  const auto mine = place(ranks, [](std::size_t) { return values{-1}; });
  const auto ask = [&](std::size_t r) -> operation {
    return scatter{.send = r == 0 ? all[r] : buffer{}, .recv = mine[r], .count = 1, .root = rank{0}};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "scatter", mine, [](std::size_t r) { return values{number(10 * r)}; });
  // [scatter]
}

/// 1, 2, 3, … elements of the ranks in turn.
partition growing_parts(std::size_t n) {
  std::vector<std::size_t> counts;
  for (std::size_t r = 0; r < n; ++r) counts.push_back(r + 1);
  return partition::packed(std::move(counts));
}

void run_all_gather_v(world& ranks, std::size_t n) {
  // [all_gather_v]
  // Rank r brings r + 1 elements, in place: its own part of what all get.
  const partition parts = growing_parts(n); // counts 1, 2, 3, … one behind the other
  const std::size_t total = n * (n + 1) / 2;
  const auto memory = place(ranks, [&](std::size_t r) {
    values held(total);
    std::fill_n(held.begin() + static_cast<std::ptrdiff_t>(parts.displacements[r]), parts.counts[r], number(r));
    return held;
  });
  const auto ask = [&](std::size_t r) -> operation {
    const buffer mine = memory[r].slice(parts.displacements[r] * sizeof(float), parts.counts[r] * sizeof(float));
    return all_gather_v{.send = mine, .recv = memory[r], .recv_parts = parts};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "all_gather_v", memory, [n](std::size_t) {
    values expected;
    for (std::size_t r = 0; r < n; ++r) expected.insert(expected.end(), r + 1, number(r));
    return expected;
  });
  // [all_gather_v]
}

void run_reduce_scatter_v(world& ranks, std::size_t n) {
  // [reduce_scatter_v]
  // Every rank brings ones; rank r gets the sums of its r + 1 elements.
  const partition parts = growing_parts(n); // counts 1, 2, 3, … one behind the other
  const auto all = place(ranks, [n](std::size_t) { return values(n * (n + 1) / 2, 1); });
  const auto mine = place(ranks, [](std::size_t r) { return values(r + 1); });
  const auto ask = [&](std::size_t r) -> operation {
    return reduce_scatter_v{.send = all[r], .recv = mine[r], .send_parts = parts, .op = reduction::sum};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "reduce_scatter_v", mine, [n](std::size_t r) { return values(r + 1, number(n)); });
  // [reduce_scatter_v]
}

void run_gather_v(world& ranks, std::size_t n) {
  // [gather_v]
  // Rank 0 gets r + 1 elements of rank r; the others need no recv.
  const partition parts = growing_parts(n); // counts 1, 2, 3, … one behind the other
  const auto mine = place(ranks, [](std::size_t r) { return values(r + 1, number(r)); });
  const auto all = place(ranks, [n](std::size_t) { return values(n * (n + 1) / 2); });
  const auto ask = [&](std::size_t r) -> operation {
    return gather_v{.send = mine[r], .recv = r == 0 ? all[r] : buffer{}, .recv_parts = parts, .root = rank{0}};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "gather_v", all, [n](std::size_t r) {
    values expected;
    for (std::size_t from = 0; from < n; ++from) expected.insert(expected.end(), from + 1, r == 0 ? number(from) : 0);
    return expected;
  });
  // [gather_v]
}

void run_scatter_v(world& ranks, std::size_t n) {
  // [scatter_v]
  // Rank 0 sends r + 1 of its elements to rank r; the others need no send.
  const partition parts = growing_parts(n); // counts 1, 2, 3, … one behind the other
  const auto all = place(ranks, [n](std::size_t) {
    values sent;
    for (std::size_t r = 0; r < n; ++r) sent.insert(sent.end(), r + 1, number(10 * r));
    return sent;
  });
  const auto mine = place(ranks, [](std::size_t r) { return values(r + 1, -1); });
  const auto ask = [&](std::size_t r) -> operation {
    return scatter_v{.send = r == 0 ? all[r] : buffer{}, .recv = mine[r], .send_parts = parts, .root = rank{0}};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "scatter_v", mine, [](std::size_t r) { return values(r + 1, number(10 * r)); });
  // [scatter_v]
}

void run_all_to_all_v(world& ranks, std::size_t n) {
  // [all_to_all_v]
  // Rank r sends q + 1 times its number to rank q, which so receives q + 1 elements from every rank.
  const auto out = place(ranks, [n](std::size_t r) { return values(n * (n + 1) / 2, number(r)); });
  const auto in = place(ranks, [n](std::size_t r) { return values(n * (r + 1)); });
  const auto ask = [&](std::size_t r) -> operation {
    return all_to_all_v{.send = out[r],
                        .recv = in[r],
                        .send_parts = growing_parts(n), // counts 1, 2, 3, … one behind the other
                        .recv_parts = partition::packed(std::vector<std::size_t>(n, r + 1))};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "all_to_all_v", in, [n](std::size_t r) {
    values expected;
    for (std::size_t from = 0; from < n; ++from) expected.insert(expected.end(), r + 1, number(from));
    return expected;
  });
  // [all_to_all_v]
}

void run_send(world& ranks, std::size_t n) {
  // [send]
  // A ring: every rank sends its number to the next one and receives that of the one before, in one group.
  const auto out = place(ranks, [](std::size_t r) { return values{number(r)}; });
  const auto in = place(ranks, [](std::size_t) { return values{-1}; });
  const auto ask = [&](std::size_t r) -> operation {
    const rank next = to_rank((r + 1) % n);
    const rank previous = to_rank((r + n - 1) % n);
    return group{
        {send{.memory = out[r], .count = 1, .peer = next}, recv{.memory = in[r], .count = 1, .peer = previous}}};
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "send", in, [n](std::size_t r) { return values{number((r + n - 1) % n)}; });
  // [send]
}

void run_recv(world& ranks, std::size_t n) {
  // [recv]
  // Rank 0 sends to the last rank twice; tags say which is which, in whatever order they are asked for.
  const auto out = place(ranks, [](std::size_t) { return values{1, 2}; });
  const auto in = place(ranks, [](std::size_t) { return values{0, 0}; });
  const auto one = [](const buffer& memory, std::size_t i) { return memory.slice(i * sizeof(float), sizeof(float)); };
  const auto ask = [&](std::size_t r) -> operation {
    group parts; // of nothing for the ranks that take no part
    if (r == 0)
      for (const int tag : {0, 1})
        parts.parts.emplace_back(send{one(out[r], static_cast<std::size_t>(tag)), 1, dtype::f32, to_rank(n - 1), tag});
    if (r == n - 1)
      for (const int tag : {1, 0})
        parts.parts.emplace_back(recv{one(in[r], static_cast<std::size_t>(tag)), 1, dtype::f32, rank{0}, tag});
    return parts;
  };
  ranks.ask(each(ranks, ask)).get();
  verify(ranks, "recv", in, [n](std::size_t r) { return r == n - 1 ? values{1, 2} : values{0, 0}; });
  // [recv]
}

void run_barrier(world& ranks) {
  // [barrier]
  // What was asked before is done on every rank when the barrier is answered.
  const auto memory = place(ranks, [](std::size_t) { return values{1}; });
  const auto copies = place(ranks, [](std::size_t) { return values{0}; });
  std::vector<std::future<completion>> earlier;
  for (const rank self : ranks.local_ranks()) {
    const auto r = static_cast<std::size_t>(self.value());
    earlier.push_back(ranks.copy(self, memory[r], copies[r]));
  }
  ranks.ask(each(ranks, [](std::size_t) { return barrier{}; })).get();
  verify(ranks, "barrier", copies, [](std::size_t) { return values{1}; });
  // [barrier]
  for (auto& one : earlier) one.get();
}

void run_copy(world& ranks) {
  // [copy]
  // From host memory to rank 0's device; no other rank takes part.
  const buffer host = ranks.allocate_pinned(2 * sizeof(float));
  std::ranges::fill(host.host_span<float>(), 5.0F);
  const auto memory = place(ranks, [](std::size_t) { return values{0, 0}; });
  ranks.ask(rank{0}, copy{.from = host, .to = memory[0]}).get();
  verify(ranks, "copy", memory, [](std::size_t r) { return r == 0 ? values{5, 5} : values{0, 0}; });
  // [copy]
}

void run_group(world& ranks, std::size_t n) {
  // [group]
  // Two collectives of different kinds and buffers as one launch: the sum of all, and what the last rank has.
  const auto sums = place(ranks, [](std::size_t r) { return values{number(r)}; });
  const auto lasts = place(ranks, [](std::size_t r) { return values{number(r)}; });
  world_group both{ranks};
  both.on_all([&](rank self) {
    const buffer& mine = sums[static_cast<std::size_t>(self.value())];
    return all_reduce{.send = mine, .recv = mine, .count = 1, .op = reduction::sum};
  });
  both.on_all([&](rank self) {
    const buffer& mine = lasts[static_cast<std::size_t>(self.value())];
    return broadcast{.send = mine, .recv = mine, .count = 1, .root = to_rank(n - 1)};
  });
  both.ask().get();
  verify(ranks, "group: all_reduce", sums, [n](std::size_t) { return values{number(n * (n - 1) / 2)}; });
  verify(ranks, "group: broadcast", lasts, [n](std::size_t) { return values{number(n - 1)}; });
  // [group]
}

void run_replay(world& ranks, std::size_t n) {
  // [replay]
  // An all_reduce and, behind it, a copy of the client's own (where a kernel would be) on every rank, by one request.
  const auto sums = place(ranks, [](std::size_t r) { return values{number(r)}; });
  const auto copies = place(ranks, [](std::size_t) { return values{0}; });
  const auto plan = ranks.capture([=](rank_capture& mine) {
    const auto r = static_cast<std::size_t>(mine.self().value());
    mine.launch(all_reduce{.send = sums[r], .recv = sums[r], .count = 1, .op = reduction::sum});
    mine.stream().copy(copies[r].data(), sums[r].data(), sizeof(float));
  });
  ranks.ask(each(ranks, [&](std::size_t) { return replay{plan}; })).get();
  verify(ranks, "replay", copies, [n](std::size_t) { return values{number(n * (n - 1) / 2)}; });
  // [replay]
}

} // namespace

int main() try {
  runtime here;
  world ranks = here.form_world();
  const auto n = static_cast<std::size_t>(ranks.size());
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
  std::printf("%d ranks, %d wrong\n", ranks.size(), wrong);
  return wrong == 0 ? 0 : 1;
} catch (const troupe::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
