// How many blocks of one-shot kernels may wait at once. A model of devices whose multiprocessors are taken block by
// block in every order finds where kernels that wait for peers exclude each other.
#include <troupe/collectives/backend/one_shot/block_budget.hpp>
#include <troupe/collectives/backend/one_shot/one_shot_table.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

namespace troupe::tests::block_budget_test {

namespace {

/// A kernel of some ranks. Kernels are launched in one order on all devices.
struct kernel_of_ranks {
  bool of_library = false;
  std::size_t stream = 0; ///< Of its communicator: on each device one kernel after another.
  std::vector<std::size_t> devices{};
  unsigned blocks = 1; ///< On each device. Each takes a multiprocessor until the kernel has ended there.
};

/// On one device only, a kernel waits until another has ended.
struct dependency {
  std::size_t device, earlier, later;
};

struct scene {
  std::size_t devices = 2;
  unsigned multiprocessors = 1;
  std::vector<kernel_of_ranks> kernels{}; ///< In the order of their launches.
  bool library_keeps_order = true;        ///< Its kernels begin in the order of their launches.
  /// On each device its kernels wait for one-shot kernels that were launched before (kernel_order).
  bool library_waits = true;
  std::vector<dependency> after{};
};

/// Tries all orders in which blocks begin and kernels end. A kernel can end on a device when all its blocks have begun
/// on all of its devices.
class exclusion_search {
public:
  explicit exclusion_search(scene given) : scene_{std::move(given)} {}

  /// Returns whether there is a state in which kernels are left and none can go on.
  [[nodiscard]] bool finds_deadlock() { return search(state(scene_.kernels.size() * scene_.devices, 0)); }

private:
  using state = std::vector<std::uint8_t>; ///< By kernel and device: its blocks that have begun, or `ended`.
  static constexpr std::uint8_t ended = 0xFF;

  [[nodiscard]] std::size_t at(std::size_t which, std::size_t device) const { return which * scene_.devices + device; }
  [[nodiscard]] bool is_on(std::size_t which, std::size_t device) const {
    return std::ranges::count(scene_.kernels[which].devices, device) != 0;
  }
  [[nodiscard]] bool has_begun(const state& now, std::size_t which, std::size_t device) const {
    return now[at(which, device)] >= scene_.kernels[which].blocks;
  }
  [[nodiscard]] bool has_room(const state& now, std::size_t device) const {
    unsigned taken = 0;
    for (std::size_t i = 0; i < scene_.kernels.size(); ++i)
      if (now[at(i, device)] != ended) taken += now[at(i, device)];
    return taken < scene_.multiprocessors;
  }
  [[nodiscard]] bool may_begin(const state& now, std::size_t which, std::size_t device) const {
    const kernel_of_ranks& one = scene_.kernels[which];
    if (has_begun(now, which, device) || !has_room(now, device)) return false;
    for (std::size_t i = 0; i < which; ++i) {
      if (!is_on(i, device)) continue;
      const kernel_of_ranks& earlier = scene_.kernels[i];
      if (earlier.stream == one.stream && now[at(i, device)] != ended) return false;
      if (scene_.library_keeps_order && earlier.of_library && one.of_library && !has_begun(now, i, device))
        return false;
      if (scene_.library_waits && !earlier.of_library && one.of_library && now[at(i, device)] != ended) return false;
    }
    return std::ranges::all_of(scene_.after, [&](const dependency& after) {
      return after.later != which || after.device != device || now[at(after.earlier, device)] == ended;
    });
  }
  [[nodiscard]] bool may_end(const state& now, std::size_t which, std::size_t device) const {
    return now[at(which, device)] != ended &&
           std::ranges::all_of(scene_.kernels[which].devices,
                               [&](std::size_t other) { return has_begun(now, which, other); });
  }

  bool search(const state& now) {
    if (!seen_.insert(now).second) return false;
    bool goes_on = false;
    bool is_done = true;
    for (std::size_t i = 0; i < scene_.kernels.size(); ++i)
      for (const std::size_t device : scene_.kernels[i].devices) {
        is_done = is_done && now[at(i, device)] == ended;
        state next = now;
        if (may_end(now, i, device))
          next[at(i, device)] = ended;
        else if (may_begin(now, i, device))
          ++next[at(i, device)];
        else
          continue;
        goes_on = true;
        if (search(next)) return true;
      }
    return !goes_on && !is_done;
  }

  scene scene_;
  std::set<state> seen_;
};

bool finds_deadlock(scene given) {
  return exclusion_search{std::move(given)}.finds_deadlock();
}

/// The blocks of two communicators with one-shot kernels.
struct two_shares {
  unsigned first = 0;
  unsigned second = 0;
};

constexpr unsigned most_blocks = 2;
constexpr unsigned most_for_pairs = 3; ///< Multiprocessors, up to which pairs of dependencies are tried.

two_shares shares_of(unsigned multiprocessors, unsigned library_blocks) {
  const unsigned room = room_for_blocks(multiprocessors, multiprocessors, {.blocks = library_blocks});
  const unsigned first = share_of_room(room, 0, most_blocks);
  return {.first = first, .second = share_of_room(room, first, most_blocks)};
}

/// Returns all dependencies that can be at one device only: on what was launched there earlier.
std::vector<dependency> dependencies_in(const scene& made) {
  std::vector<dependency> found;
  const auto is_on = [&](std::size_t which, std::size_t device) {
    return std::ranges::count(made.kernels[which].devices, device) != 0;
  };
  for (std::size_t device = 0; device < made.devices; ++device)
    for (std::size_t later = 1; later < made.kernels.size(); ++later)
      for (std::size_t earlier = 0; earlier < later; ++earlier)
        if (is_on(later, device) && is_on(earlier, device) &&
            made.kernels[earlier].stream != made.kernels[later].stream)
          found.push_back({device, earlier, later});
  return found;
}

/// How the library's kernels behave.
struct library_rules {
  bool keeps_order = true;
  bool waits = true;
};

/// Returns whether some order of launches of three communicators can deadlock: of the library's kernel alone, of a
/// one-shot kernel and then the library's, and of a one-shot kernel. Both pairs of devices and overlapping ones; with
/// none, each one and, on small devices, each two of the dependencies at one device only.
bool any_deadlock(unsigned multiprocessors, unsigned library_blocks, two_shares blocks, library_rules rules = {}) {
  const std::vector<std::vector<std::vector<std::size_t>>> layouts{{{0, 1}, {0, 1}, {0, 1}}, {{0, 1}, {1, 2}, {0, 2}}};
  for (const auto& devices : layouts) {
    std::vector<std::size_t> order{0, 1, 1, 2}; // the streams
    do {
      scene made{.devices = 3,
                 .multiprocessors = multiprocessors,
                 .library_keeps_order = rules.keeps_order,
                 .library_waits = rules.waits};
      bool is_second = false;
      for (const std::size_t stream : order) {
        const bool of_library = stream == 0 || (stream == 1 && is_second);
        is_second = is_second || stream == 1;
        const unsigned own = stream == 1 ? blocks.first : blocks.second;
        if (!of_library && own == 0) continue; // it has no kernels
        made.kernels.push_back({of_library, stream, devices[stream], of_library ? library_blocks : own});
      }
      if (finds_deadlock(made)) return true;
      const std::vector<dependency> all = dependencies_in(made);
      for (std::size_t one = 0; one < all.size(); ++one)
        for (std::size_t other = one; other < (multiprocessors <= most_for_pairs ? all.size() : one + 1); ++other) {
          made.after = {all[one], all[other]};
          if (finds_deadlock(made)) return true;
        }
    } while (std::ranges::next_permutation(order).found);
  }
  return false;
}

} // namespace

TEST_CASE(
    "kernels that wait for peers never exclude each other, in whatever order their blocks begin, and whatever waits "
    "for them at one device only",
    "[collectives][one-shot]") {
  for (unsigned multiprocessors = 2; multiprocessors <= 5; ++multiprocessors)
    for (unsigned library_blocks = 1; library_blocks < multiprocessors; ++library_blocks) {
      CAPTURE(multiprocessors, library_blocks);
      const two_shares blocks = shares_of(multiprocessors, library_blocks);
      CHECK(blocks.first > 0);
      CHECK_FALSE(any_deadlock(multiprocessors, library_blocks, blocks));
    }
}

TEST_CASE("the search finds where kernels that wait exclude each other", "[collectives][one-shot]") {
  SECTION("half of the device is too much, if the library's kernels need more than the other half") {
    CHECK(any_deadlock(4, 3, {.first = 2, .second = 2}));
  }
  SECTION("the library must keep the order of its kernels") {
    CHECK(any_deadlock(5, 3, shares_of(5, 3), {.keeps_order = false}));
  }
  SECTION("the library's kernels must wait for one-shot kernels, if others wait for those at one device only") {
    const std::vector<std::size_t> both{0, 1};
    scene made{.multiprocessors = 4,
               .kernels = {{false, 0, both, 1}, {false, 0, both, 2}, {true, 1, both, 2}, {true, 2, both, 2}}};
    made.library_waits = false;
    CHECK_FALSE(finds_deadlock(made));
    made.after = {{.device = 1, .earlier = 1, .later = 2}};
    CHECK(finds_deadlock(made));
    made.library_waits = true;
    CHECK_FALSE(finds_deadlock(made));
  }
}

TEST_CASE("one-shot kernels leave free what a kernel of the library needs, wherever that is",
          "[collectives][one-shot]") {
  constexpr unsigned h100 = 132;
  CHECK(room_for_blocks(h100, h100, {.blocks = 64}) == 68);
  CHECK(room_for_blocks(h100, h100, {.blocks = 64, .cluster_blocks = 4}) == 68 - 9 * 3);
  CHECK(room_for_blocks(h100, 20, {.blocks = 64}) == 20); // no more than run at once
  CHECK(room_for_blocks(h100, 2 * h100, {}) == h100);
  CHECK(room_for_blocks(64, 64, {.blocks = 64}) == 0);
  CHECK(room_for_blocks(60, 60, {.blocks = 64}) == 0);
}

TEST_CASE("the first communicator gets most of the room, later ones less, and all together no more than there is",
          "[collectives][one-shot]") {
  std::vector<unsigned> shares;
  for (int i = 0; i < 8; ++i)
    shares.push_back(share_of_room(41, std::accumulate(shares.begin(), shares.end(), 0U), one_shot_blocks));
  CHECK(shares == std::vector<unsigned>{32, 4, 2, 1, 1, 1, 0, 0});
}

} // namespace troupe::tests::block_budget_test
