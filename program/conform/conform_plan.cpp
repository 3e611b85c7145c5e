#include <troupe/program/conform/conform_pieces.hpp>
#include <troupe/program/conform/conform_plan.hpp>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>
#include <utility>

namespace troupe::program {

namespace {

constexpr std::size_t small_limit = 1'024; ///< Approximate number of elements.

enum class length : std::uint8_t { none, one, odd, unaligned, wrapping, large };

/// Returns a separate seed for each name (FNV-1a).
std::uint64_t seed_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3U;
  return scramble(seed ^ hash);
}

/// A form of a reduction. pre_mul_sum has two forms, because its factor may be in one of two places.
struct reduction_form {
  std::string_view name;
  reduction op = reduction::sum;
  bool factor_on_device = false;
};

std::vector<reduction_form> reduction_forms() {
  std::vector<reduction_form> all;
  for (const reduction op : all_reductions) all.push_back({to_string(op), op});
  all.push_back({"pre_mul_sum-device", reduction::pre_mul_sum, true});
  return all;
}

class planner {
public:
  planner(const conform_scope& scope, const case_visitor& visit) : scope_{scope}, visit_{visit} {}

  void run() {
    for (const dtype type : scope_.types) {
      type_ = type;
      collectives();
      transfers();
      group_of_all();
    }
    mixed_groups();
    barriers_and_copies();
  }

private:
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(scope_.ranks); }
  [[nodiscard]] std::string type_name() const { return std::string{to_string(type_)}; }

  void collectives() {
    static const auto forms = reduction_forms();
    for (const conform_collective& what : conform_collectives()) {
      const std::string name = std::string{what.name} + "/" + type_name();
      if (!what.reduces) {
        placements(what, {}, name);
        continue;
      }
      for (const reduction_form& form : forms) placements(what, form, name + "/" + std::string{form.name});
    }
  }

  void placements(const conform_collective& what, const reduction_form& form, const std::string& name) {
    for (const bool in_place : {false, true})
      if (!in_place || what.can_be_in_place)
        for (const length which : enum_values<length>) {
          const std::string prefix = name + (in_place ? "/in-place/" : "/out-of-place/");
          const std::string kin =
              std::string{what.name} + std::string{form.name} + (in_place ? "in" : "out"); // The same for all dtypes.
          if (which == length::wrapping && !(what.reduces && is_integer(type_))) continue;
          asked(which, prefix, kin, [=, this, &what](conform_case& made, std::uint64_t seed) {
            const std::size_t parts = what.count_is_part ? size() : 1;
            made.pieces.push_back(what.make({.ranks = scope_.ranks,
                                             .values = {type_, form.op, kind_of(what, which)},
                                             .count = count_of(which, parts, seed),
                                             .in_place = in_place,
                                             .unaligned = which == length::unaligned,
                                             .factor_on_device = form.factor_on_device,
                                             .seed = scramble(seed)}));
          });
        }
  }

  [[nodiscard]] static value_kind kind_of(const conform_collective& what, length which) {
    if (!what.reduces) return value_kind::bits;
    return which == length::wrapping || which == length::large ? value_kind::full : value_kind::exact;
  }

  /// \p parts is the number of parts in the longest buffer.
  [[nodiscard]] std::size_t count_of(length which, std::size_t parts, std::uint64_t seed) const {
    draws draw{seed};
    const std::size_t limit = std::max<std::size_t>(8, small_limit / parts);
    switch (which) {
      case length::none: return 0;
      case length::one: return 1;
      case length::odd:
      case length::wrapping: return 2 * draw.below(limit / 2) + 3;
      case length::unaligned: return 1 + draw.below(limit);
      case length::large: break;
    }
    return scope_.large_count() / parts | 1U;
  }

  /// Returns whether there is a large case. For each \p kin, the seed selects two dtypes, and requests to the world or
  /// to ranks.
  [[nodiscard]] bool has_large(const std::string& kin, bool by_rank) const {
    draws draw{seed_of(scope_.seed, kin)};
    const std::size_t first = draw.below(std::size(all_dtypes));
    const std::size_t second = (first + 1 + draw.below(std::size(all_dtypes) - 1)) % std::size(all_dtypes);
    return (type_ == all_dtypes[first] || type_ == all_dtypes[second]) && by_rank == (draw.below(2) == 1);
  }

  /// Adds one case with a request to the world and one with requests to ranks. \p fill completes each.
  template <class Fill>
  void asked(length which, const std::string& prefix, const std::string& kin, Fill fill) {
    for (const bool by_rank : {false, true}) {
      if (which == length::large && !has_large(kin, by_rank)) continue;
      add(prefix + std::string{troupe::to_string(which)}, by_rank, fill);
    }
  }

  template <class Fill>
  void add(const std::string& prefix, bool by_rank, const Fill& fill) {
    const std::string name = scope_.prefix + prefix + (by_rank ? "/rank" : "/world");
    visit_(name, [&] {
      conform_case made{.name = name, .by_rank = by_rank};
      fill(made, seed_of(scope_.seed, name));
      return made;
    });
  }

  void transfers() {
    for (const length which : enum_values<length>) {
      if (which == length::wrapping) continue;
      const auto spec = [=, this](int from, int to, int tag, std::uint64_t seed) {
        constexpr std::size_t most_at_once = 8; // A large ring has six transfers on each rank.
        return make_transfer({.from = from,
                              .to = to,
                              .tag = tag,
                              .type = type_,
                              .count = count_of(which, which == length::large ? most_at_once : 1, seed),
                              .unaligned = which == length::unaligned,
                              .seed = scramble(seed)});
      };
      asked(which, "send-recv/" + type_name() + "/pairs/", "pairs", [=, this](conform_case& made, std::uint64_t seed) {
        for (int r = 0; r + 1 < scope_.ranks; r += 2)
          made.pieces.push_back(spec(r, r + 1, 0, seed_of(seed, to_string(rank{r}))));
      });
      asked(which, "send-recv/" + type_name() + "/ring/", "ring", [=, this](conform_case& made, std::uint64_t seed) {
        made.grouped = true;
        made.shuffled = seed;
        constexpr int tags = 3;
        for (int r = 0; r < scope_.ranks; ++r)
          for (int tag = 0; tag < tags; ++tag) {
            const int next = (r + 1) % scope_.ranks;
            const std::uint64_t mine = seed_of(seed, std::to_string(r * tags + tag));
            made.pieces.push_back(spec(r, next, tag, mine));
            made.pieces.push_back(spec(next, r, tag + tags, scramble(mine)));
          }
      });
    }
    every_pair();
    one_tag();
  }

  /// Adds a group in which each rank sends to each rank, including itself.
  void every_pair() {
    for (const bool by_rank : {false, true})
      add("send-recv/" + type_name() + "/every-pair", by_rank, [this](conform_case& made, std::uint64_t seed) {
        made.grouped = true;
        made.shuffled = seed;
        for (int from = 0; from < scope_.ranks; ++from)
          for (int to = 0; to < scope_.ranks; ++to) {
            const std::uint64_t mine = scramble(seed ^ static_cast<std::uint64_t>(from * scope_.ranks + to));
            made.pieces.push_back(make_transfer(
                {.from = from, .to = to, .tag = to % 3, .type = type_, .count = mine % 200, .seed = mine}));
          }
      });
  }

  /// Adds several transfers with one tag: the k-th send matches the k-th recv.
  void one_tag() {
    for (const bool by_rank : {false, true})
      add("send-recv/" + type_name() + "/one-tag", by_rank, [this](conform_case& made, std::uint64_t seed) {
        made.grouped = true;
        for (int r = 0; r < scope_.ranks; ++r)
          for (std::size_t k = 1; k <= 3; ++k)
            made.pieces.push_back(make_transfer({.from = r,
                                                 .to = (r + 1) % scope_.ranks,
                                                 .tag = 7,
                                                 .type = type_,
                                                 .count = 10 * k,
                                                 .seed = scramble(seed + k)}));
      });
  }

  /// Makes one collective of a group. The seed determines all its properties.
  [[nodiscard]] conform_piece drawn_piece(const conform_collective& what, dtype type, std::uint64_t seed) const {
    static const auto forms = reduction_forms();
    draws draw{seed};
    const reduction_form& form = forms[draw.below(forms.size())];
    return what.make({.ranks = scope_.ranks,
                      .values = {type, form.op, what.reduces ? value_kind::full : value_kind::bits},
                      .count = draw.below(std::max<std::size_t>(8, small_limit / 4 / size())),
                      .in_place = what.can_be_in_place && draw.below(2) == 1,
                      .unaligned = draw.below(2) == 1,
                      .factor_on_device = form.factor_on_device,
                      .seed = scramble(seed)});
  }

  void group_of_all() {
    for (const bool by_rank : {false, true})
      add("group/" + type_name() + "/every-collective", by_rank, [this](conform_case& made, std::uint64_t seed) {
        made.grouped = true;
        for (const conform_collective& what : conform_collectives())
          made.pieces.push_back(drawn_piece(what, type_, seed_of(seed, what.name)));
      });
  }

  /// Adds groups of random collectives and transfers with random dtypes.
  void mixed_groups() {
    constexpr int groups = 32;
    for (int i = 0; i < groups; ++i)
      for (const bool by_rank : {false, true})
        add("group/mixed/" + std::to_string(i), by_rank, [this](conform_case& made, std::uint64_t seed) {
          made.grouped = true;
          made.shuffled = seed;
          draws draw{seed};
          const std::size_t pieces = 1 + draw.below(8);
          for (std::size_t piece = 0; piece < pieces; ++piece) {
            const dtype type = all_dtypes[draw.below(std::size(all_dtypes))];
            const std::uint64_t mine = scramble(seed + piece);
            if (draw.below(2) == 0)
              made.pieces.push_back(
                  drawn_piece(conform_collectives()[draw.below(conform_collectives().size())], type, mine));
            else
              made.pieces.push_back(make_transfer({.from = static_cast<int>(draw.below(size())),
                                                   .to = static_cast<int>(draw.below(size())),
                                                   .tag = static_cast<int>(piece),
                                                   .type = type,
                                                   .count = draw.below(500),
                                                   .unaligned = draw.below(2) == 1,
                                                   .seed = mine}));
          }
        });
    for (const bool by_rank : {false, true})
      add("group/empty", by_rank, [](conform_case& made, std::uint64_t) { made.grouped = true; });
  }

  void barriers_and_copies() {
    for (const bool by_rank : {false, true}) {
      add("barrier", by_rank,
          [this](conform_case& made, std::uint64_t) { made.pieces.push_back(make_barrier(scope_.ranks)); });
      for (const agreement_rule rule : enum_values<agreement_rule>)
        add("agree/" + std::string{troupe::to_string(rule)}, by_rank,
            [rule, this](conform_case& made, std::uint64_t seed) {
              made.pieces.push_back(make_agree(scope_.ranks, rule, seed));
            });
      for (const bool from_host : {false, true})
        for (const bool to_host : {false, true})
          for (const length which : enum_values<length>)
            if (which != length::wrapping)
              add(std::string{"copy/"} + (from_host ? "host" : "device") + "-to-" + (to_host ? "host/" : "device/") +
                      std::string{troupe::to_string(which)},
                  by_rank, [=, this](conform_case& made, std::uint64_t seed) {
                    made.pieces.push_back(make_copies({.ranks = scope_.ranks,
                                                       .from_host = from_host,
                                                       .to_host = to_host,
                                                       .size_bytes = count_of(which, 1, seed),
                                                       .unaligned = which == length::unaligned,
                                                       .seed = scramble(seed)}));
                  });
    }
  }

  const conform_scope& scope_;
  const case_visitor& visit_;
  dtype type_{};
};

} // namespace

std::size_t conform_scope::large_count() const noexcept {
  constexpr std::size_t ranks_that_fit = 4;
  return largest * ranks_that_fit / std::max(ranks_that_fit, static_cast<std::size_t>(ranks));
}

std::size_t conform_scope::room_bytes() const noexcept {
  // Two buffers of the widest elements, and extra space for gaps, guard zones and groups of many small ranges.
  constexpr std::size_t widest = 8;
  constexpr std::size_t plenty = std::size_t{8} << 20U;
  return 2 * widest * large_count() + plenty;
}

void visit_cases(const conform_scope& scope, const case_visitor& visit) {
  planner{scope, visit}.run();
}

} // namespace troupe::program
