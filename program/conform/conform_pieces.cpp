#include <troupe/program/conform/conform_pieces.hpp>
#include <troupe/program/conform/piece_builder.hpp>

#include <utility>

namespace troupe::program {

namespace {

std::size_t index(int rank) {
  return static_cast<std::size_t>(rank);
}

std::ptrdiff_t offset(std::size_t elements) {
  return static_cast<std::ptrdiff_t>(elements);
}

conform_piece make_all_reduce(const piece_wish& wish) {
  piece_builder made{wish};
  const std::size_t n = made.count();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at = made.arguments(r, made.input(r, n), made.result(n));
    made.step(r, [=, type = made.type(), op = made.op(), factor = made.factor_of(r)](auto in) {
      return all_reduce{at.send.in(in), at.recv.in(in), n, type, op, factor(in)};
    });
  }
  return made.finish();
}

conform_piece make_reduce(const piece_wish& wish) {
  piece_builder made{wish};
  const std::size_t n = made.count();
  const int root = made.draw_root();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at =
        r == root ? made.arguments(r, made.input(r, n), made.result(n)) : made.send_only(r, made.input(r, n));
    made.step(r, [=, type = made.type(), op = made.op(), factor = made.factor_of(r)](auto in) {
      return reduce{at.send.in(in), at.recv.in(in), n, type, op, rank{root}, factor(in)};
    });
  }
  return made.finish();
}

conform_piece make_reduce_scatter(const piece_wish& wish) {
  piece_builder made{wish};
  const std::size_t n = made.count();
  for (int r = 0; r < made.ranks(); ++r) {
    const std::size_t own = index(r) * n;
    const places at = made.arguments(r, made.input(r, made.size() * n), made.result(n, own), -offset(own));
    made.step(r, [=, type = made.type(), op = made.op(), factor = made.factor_of(r)](auto in) {
      return reduce_scatter{at.send.in(in), at.recv.in(in), n, type, op, factor(in)};
    });
  }
  return made.finish();
}

conform_piece make_reduce_scatter_v(const piece_wish& wish) {
  piece_builder made{wish};
  const partition parts = made.spread(made.uneven());
  for (int r = 0; r < made.ranks(); ++r) {
    argument sent{piece_builder::extent(parts), {}};
    for (std::size_t q = 0; q < made.size(); ++q)
      sent.parts.push_back(made.values(r, parts.counts[q], parts.displacements[q], parts.displacements[q]));
    const std::size_t own = parts.displacements[index(r)];
    const places at = made.arguments(r, std::move(sent), made.result(parts.counts[index(r)], own), -offset(own));
    made.step(r, [=, type = made.type(), op = made.op(), factor = made.factor_of(r)](auto in) {
      return reduce_scatter_v{at.send.in(in), at.recv.in(in), parts, type, op, factor(in)};
    });
  }
  return made.finish();
}

conform_piece make_broadcast(const piece_wish& wish) {
  piece_builder made{wish};
  const std::size_t n = made.count();
  const int root = made.draw_root();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at =
        r == root ? made.arguments(r, made.input(r, n), made.input(root, n)) : made.recv_only(r, made.input(root, n));
    made.step(r, [=, type = made.type()](auto in) {
      return broadcast{at.send.in(in), at.recv.in(in), n, type, rank{root}};
    });
  }
  return made.finish();
}

/// Returns all ranks' inputs of \p n elements, one behind another.
argument gathered(const piece_builder& made, std::size_t n) {
  argument all{made.size() * n, {}};
  for (int q = 0; q < made.ranks(); ++q) all.parts.push_back(made.values(q, n, 0, index(q) * n));
  return all;
}

conform_piece make_all_gather(const piece_wish& wish) {
  piece_builder made{wish};
  const std::size_t n = made.count();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at = made.arguments(r, made.input(r, n), gathered(made, n), offset(index(r) * n));
    made.step(r, [=, type = made.type()](auto in) { return all_gather{at.send.in(in), at.recv.in(in), n, type}; });
  }
  return made.finish();
}

conform_piece make_all_gather_v(const piece_wish& wish) {
  piece_builder made{wish};
  const partition parts = made.spread(made.uneven());
  for (int r = 0; r < made.ranks(); ++r) {
    argument all{piece_builder::extent(parts), {}};
    for (int q = 0; q < made.ranks(); ++q)
      all.parts.push_back(made.values(q, parts.counts[index(q)], 0, parts.displacements[index(q)]));
    const places at =
        made.arguments(r, made.input(r, parts.counts[index(r)]), std::move(all), offset(parts.displacements[index(r)]));
    made.step(r, [=, type = made.type()](auto in) {
      return all_gather_v{at.send.in(in), at.recv.in(in), parts, type};
    });
  }
  return made.finish();
}

conform_piece make_gather(const piece_wish& wish) {
  piece_builder made{wish};
  const std::size_t n = made.count();
  const int root = made.draw_root();
  for (int r = 0; r < made.ranks(); ++r) {
    const places at = r == root ? made.arguments(r, made.input(r, n), gathered(made, n), offset(index(r) * n))
                                : made.send_only(r, made.input(r, n));
    made.step(r, [=, type = made.type()](auto in) {
      return gather{at.send.in(in), at.recv.in(in), n, type, rank{root}};
    });
  }
  return made.finish();
}

conform_piece make_scatter(const piece_wish& wish) {
  piece_builder made{wish};
  const std::size_t n = made.count();
  const int root = made.draw_root();
  for (int r = 0; r < made.ranks(); ++r) {
    const std::size_t own = index(r) * n;
    const argument part{n, {made.values(root, n, own)}};
    const places at =
        r == root ? made.arguments(r, made.input(r, made.size() * n), part, -offset(own)) : made.recv_only(r, part);
    made.step(r, [=, type = made.type()](auto in) {
      return scatter{at.send.in(in), at.recv.in(in), n, type, rank{root}};
    });
  }
  return made.finish();
}

conform_piece make_gather_v(const piece_wish& wish) {
  piece_builder made{wish};
  const partition parts = made.spread(made.uneven());
  const int root = made.draw_root();
  for (int r = 0; r < made.ranks(); ++r) {
    const std::size_t own = parts.counts[index(r)];
    argument all{piece_builder::extent(parts), {}};
    for (int q = 0; q < made.ranks(); ++q)
      all.parts.push_back(made.values(q, parts.counts[index(q)], 0, parts.displacements[index(q)]));
    const places at = r == root
                          ? made.arguments(r, made.input(r, own), std::move(all), offset(parts.displacements[index(r)]))
                          : made.send_only(r, made.input(r, own));
    made.step(r, [=, type = made.type()](auto in) {
      return gather_v{at.send.in(in), at.recv.in(in), parts, type, rank{root}};
    });
  }
  return made.finish();
}

conform_piece make_scatter_v(const piece_wish& wish) {
  piece_builder made{wish};
  const partition parts = made.spread(made.uneven());
  const int root = made.draw_root();
  for (int r = 0; r < made.ranks(); ++r) {
    const std::size_t own = parts.displacements[index(r)];
    const std::size_t count = parts.counts[index(r)];
    argument sent{piece_builder::extent(parts), {}};
    for (std::size_t q = 0; q < made.size(); ++q)
      sent.parts.push_back(made.values(r, parts.counts[q], parts.displacements[q], parts.displacements[q]));
    const argument part{count, {made.values(root, count, own)}};
    const places at = r == root ? made.arguments(r, std::move(sent), part, -offset(own)) : made.recv_only(r, part);
    made.step(r, [=, type = made.type()](auto in) {
      return scatter_v{at.send.in(in), at.recv.in(in), parts, type, rank{root}};
    });
  }
  return made.finish();
}

conform_piece make_all_to_all(const piece_wish& wish) {
  piece_builder made{wish};
  const std::size_t n = made.count();
  for (int r = 0; r < made.ranks(); ++r) {
    argument received{made.size() * n, {}};
    for (int q = 0; q < made.ranks(); ++q) received.parts.push_back(made.values(q, n, index(r) * n, index(q) * n));
    const places at = made.arguments(r, made.input(r, made.size() * n), std::move(received));
    made.step(r, [=, type = made.type()](auto in) { return all_to_all{at.send.in(in), at.recv.in(in), n, type}; });
  }
  return made.finish();
}

conform_piece make_all_to_all_v(const piece_wish& wish) {
  piece_builder made{wish};
  std::vector<partition> sent;
  for (int r = 0; r < made.ranks(); ++r) sent.push_back(made.spread(made.uneven()));
  for (int r = 0; r < made.ranks(); ++r) {
    std::vector<std::size_t> counts;
    for (const partition& one : sent) counts.push_back(one.counts[index(r)]);
    const partition received = made.spread(std::move(counts));
    argument out{piece_builder::extent(sent[index(r)]), {}};
    argument in_parts{piece_builder::extent(received), {}};
    for (int q = 0; q < made.ranks(); ++q) {
      const std::size_t out_at = sent[index(r)].displacements[index(q)];
      out.parts.push_back(made.values(r, sent[index(r)].counts[index(q)], out_at, out_at));
      in_parts.parts.push_back(made.values(q, received.counts[index(q)], sent[index(q)].displacements[index(r)],
                                           received.displacements[index(q)]));
    }
    const places at = made.arguments(r, std::move(out), std::move(in_parts));
    made.step(r, [=, mine = sent[index(r)], type = made.type()](auto in) {
      return all_to_all_v{at.send.in(in), at.recv.in(in), mine, received, type};
    });
  }
  return made.finish();
}

} // namespace

std::span<const conform_collective> conform_collectives() noexcept {
  static constexpr conform_collective all[] = {
      {.name = "all_reduce", .reduces = true, .make = &make_all_reduce},
      {.name = "reduce", .reduces = true, .make = &make_reduce},
      {.name = "reduce_scatter", .reduces = true, .count_is_part = true, .make = &make_reduce_scatter},
      {.name = "reduce_scatter_v", .reduces = true, .count_is_part = true, .make = &make_reduce_scatter_v},
      {.name = "broadcast", .make = &make_broadcast},
      {.name = "all_gather", .count_is_part = true, .make = &make_all_gather},
      {.name = "all_gather_v", .count_is_part = true, .make = &make_all_gather_v},
      {.name = "gather", .count_is_part = true, .make = &make_gather},
      {.name = "scatter", .count_is_part = true, .make = &make_scatter},
      {.name = "gather_v", .count_is_part = true, .make = &make_gather_v},
      {.name = "scatter_v", .count_is_part = true, .make = &make_scatter_v},
      {.name = "all_to_all", .can_be_in_place = false, .count_is_part = true, .make = &make_all_to_all},
      {.name = "all_to_all_v", .can_be_in_place = false, .count_is_part = true, .make = &make_all_to_all_v},
  };
  return all;
}

} // namespace troupe::program
