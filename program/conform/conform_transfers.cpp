#include <troupe/program/conform/conform_pieces.hpp>
#include <troupe/program/conform/piece_builder.hpp>

#include <string_view>

namespace troupe::program {

conform_piece make_transfer(const transfer_wish& wish) {
  draws draw{wish.seed};
  const std::size_t first = draw.below(first_limit);
  const value_part part{.first = 0, .count = wish.count, .from = wish.from, .from_first = first};
  const auto range = [&](int owner, std::string_view role) -> conform_range {
    return {.owner = owner,
            .role = role,
            .values = {.type = wish.type},
            .count = wish.count,
            .shift = draw_shift(draw, wish.unaligned)};
  };
  conform_piece made{.ranges = {range(wish.from, "sent"), range(wish.to, "received")}};
  made.ranges[0].before = {part};
  made.ranges[1].after = {part};
  made.steps = {{wish.from,
                 [wish](auto in) {
                   return send{in[0], wish.count, wish.type, rank{wish.to}, wish.tag};
                 },
                 true},
                {wish.to,
                 [wish](auto in) {
                   return recv{in[1], wish.count, wish.type, rank{wish.from}, wish.tag};
                 },
                 true}};
  return made;
}

conform_piece make_barrier(int ranks) {
  conform_piece made;
  for (int r = 0; r < ranks; ++r) made.steps.push_back({r, [](auto) { return barrier{}; }});
  return made;
}

conform_piece make_copies(const copy_wish& wish) {
  draws draw{wish.seed};
  conform_piece made;
  for (int r = 0; r < wish.ranks; ++r) {
    const value_part part{.first = 0, .count = wish.size_bytes, .from = r, .from_first = draw.below(first_limit)};
    const auto range = [&](std::string_view role, bool on_host) -> conform_range {
      return {.owner = r,
              .role = role,
              .values = {},
              .count = wish.size_bytes,
              .shift = draw_shift(draw, wish.unaligned),
              .on_host = on_host};
    };
    const std::size_t from = made.ranges.size();
    made.ranges.push_back(range("source", wish.from_host));
    made.ranges.back().before = {part};
    made.ranges.push_back(range("destination", wish.to_host));
    made.ranges.back().after = {part};
    made.steps.push_back({r, [from](auto in) { return copy{in[from], in[from + 1]}; }});
  }
  return made;
}

} // namespace troupe::program
