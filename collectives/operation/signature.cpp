#include <troupe/collectives/operation/agreement.hpp>
#include <troupe/collectives/operation/compact_signature.hpp>
#include <troupe/collectives/operation/signature.hpp>
#include <troupe/collectives/operation/staging_plan.hpp>

#include <algorithm>
#include <numeric>
#include <tuple>
#include <type_traits>

namespace troupe {

namespace {

template <class T>
constexpr std::size_t index_of = [] {
  std::size_t found = 0;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    ((std::is_same_v<T, std::variant_alternative_t<I, operation::variant>> ? void(found = I) : void()), ...);
  }
  (std::make_index_sequence<std::variant_size_v<operation::variant>>{});
  return found;
}();

struct signer {
  template <class T>
  signature operator()(const T& what) const {
    signature made{.kind = index_of<T>};
    if constexpr (requires { what.type; }) made.type = what.type;
    if constexpr (requires { what.op; }) made.op = what.op;
    if constexpr (requires { what.count; }) made.count = what.count;
    if constexpr (requires { what.root; }) made.root = what.root;
    if constexpr (requires { what.peer; }) made.root = what.peer;
    if constexpr (requires { what.tag; }) made.tag = what.tag;
    if constexpr (requires { what.send_parts; }) made.send_counts = what.send_parts.counts;
    if constexpr (requires { what.recv_parts; }) made.recv_counts = what.recv_parts.counts;
    if constexpr (std::is_same_v<T, replay>) made.count = number_of(what);
    if constexpr (std::is_same_v<T, barrier>) made.count = what.commit ? *what.commit + 1 : 0;
    if constexpr (std::is_same_v<T, agree>) {
      if (what.rule != agreement_rule::of_rank) made.root = rank{};
      made.tag = static_cast<int>(what.rule);
      made.count = compared_bytes(what);
    }
    return made;
  }
};

error refuse(std::string text) {
  return error{.code = errc::mismatch, .text = "the ranks disagree: " + std::move(text)};
}

bool same_collective(const signature& one, const signature& other) {
  const auto key = [](const signature& it) { return std::tie(it.kind, it.type, it.op, it.count, it.root, it.tag); };
  if (key(one) != key(other)) return false;
  // Each rank has its own counts in an all_to_all_v; check_matrix() compares them.
  return one.is(index_of<all_to_all_v>) ||
         (one.send_counts == other.send_counts && one.recv_counts == other.recv_counts);
}

std::string memory_name(const signature& what) {
  return what.staged ? "host memory" : "device memory";
}

std::vector<const signature*> collectives_of(const std::vector<signature>& all) {
  std::vector<const signature*> found;
  for (const signature& one : all)
    if (!one.is_point_to_point()) found.push_back(&one);
  return found;
}

/// Checks that rank i sends to rank j as many elements as j receives from i.
error check_matrix(std::span<const std::vector<const signature*>> ranks, std::size_t at) {
  for (std::size_t i = 0; i < ranks.size(); ++i)
    for (std::size_t j = 0; j < ranks.size(); ++j) {
      const auto& sent = ranks[i][at]->send_counts;
      const auto& received = ranks[j][at]->recv_counts;
      if (sent.size() != ranks.size() || received.size() != ranks.size()) continue; // validate() refuses it
      if (sent[j] != received[i])
        return refuse("in an all_to_all_v rank " + std::to_string(i) + " sends " + std::to_string(sent[j]) +
                      " elements to rank " + std::to_string(j) + ", which receives " + std::to_string(received[i]) +
                      " from it: name the same count at both");
    }
  return {};
}

/// One end of a transfer. Ends match in the order of their routes.
struct transfer {
  std::size_t from = 0;
  std::size_t to = 0;
  int tag = 0;
  const signature* what = nullptr;

  [[nodiscard]] auto route() const { return std::tie(from, to, tag); }
};

std::string name_route(const transfer& one) {
  return "rank " + std::to_string(one.from) + " to rank " + std::to_string(one.to) + " with tag " +
         std::to_string(one.tag);
}

error check_transfers(std::span<const std::vector<signature>> ranks) {
  std::vector<transfer> sends;
  std::vector<transfer> recvs;
  for (std::size_t self = 0; self < ranks.size(); ++self)
    for (const signature& one : ranks[self]) {
      const auto peer = static_cast<std::size_t>(one.root.value());
      if (one.is_send()) sends.push_back({self, peer, one.tag, &one});
      if (one.is_recv()) recvs.push_back({peer, self, one.tag, &one});
    }
  const auto by_route = [](const transfer& a, const transfer& b) { return a.route() < b.route(); };
  std::ranges::stable_sort(sends, by_route);
  std::ranges::stable_sort(recvs, by_route);
  for (std::size_t i = 0; i < std::max(sends.size(), recvs.size()); ++i) {
    const bool lone_send = i >= recvs.size() || (i < sends.size() && sends[i].route() < recvs[i].route());
    const bool lone_recv = i >= sends.size() || (i < recvs.size() && recvs[i].route() < sends[i].route());
    if (lone_send) return refuse("a send from " + name_route(sends[i]) + " has no recv: request both");
    if (lone_recv) return refuse("a recv from " + name_route(recvs[i]) + " has no send: request both");
    const signature& sent = *sends[i].what;
    const signature& received = *recvs[i].what;
    if (sent.count != received.count || sent.type != received.type)
      return refuse("from " + name_route(sends[i]) + ", " + describe(sent) + " does not match " + describe(received) +
                    ": name the same count and dtype at both");
  }
  return {};
}

/// Returns whether \p one is compared by its compact signature alone.
bool is_compared_by_compact(const operation& one, const compact_signature& of_it) {
  return reach_of(one) == operation_reach::all_ranks && is_decided_by_compact(of_it);
}

/// Returns true if \p first and \p others certainly match, part by part. In a group, `staged` is not compared.
bool certainly_agree(const group& first, std::span<const operation> others) {
  const auto has_as_many = [&](const operation& one) {
    const auto* const several = std::get_if<group>(&one);
    return several != nullptr && several->parts.size() == first.parts.size();
  };
  if (!std::ranges::all_of(others, has_as_many)) return false;
  for (std::size_t i = 0; i < first.parts.size(); ++i) {
    const compact_signature made = compact_unstaged(first.parts[i]);
    const auto is_same = [&](const operation& one) {
      return compact_unstaged(std::get_if<group>(&one)->parts[i]) == made;
    };
    if (!is_compared_by_compact(first.parts[i], made) || !std::ranges::all_of(others, is_same)) return false;
  }
  return true;
}

/// Fast path: returns true if \p parts certainly match. Most requests need no further check.
bool certainly_agree(std::span<const operation> parts) {
  if (parts.empty()) return false;
  const operation& first = parts.front();
  const auto others = parts.subspan(1);
  if (const auto* const several = std::get_if<group>(&first)) return certainly_agree(*several, others);
  const compact_signature made = compact(first);
  return is_compared_by_compact(first, made) &&
         std::ranges::all_of(others, [&](const operation& one) { return compact(one) == made; });
}

} // namespace

bool signature::is_send() const noexcept {
  return kind == index_of<send>;
}

bool signature::is_recv() const noexcept {
  return kind == index_of<recv>;
}

std::vector<signature> signatures_of(const operation& what) {
  const auto* several = std::get_if<group>(&what);
  if (several == nullptr) {
    std::vector<signature> one{std::visit(signer{}, what)};
    one.front().staged = is_launched_in_chunks(what);
    return one;
  }
  std::vector<signature> all;
  all.reserve(several->parts.size());
  for (const operation& part : several->parts)
    if (!std::holds_alternative<copy>(part)) all.push_back(std::visit(signer{}, part)); // a copy is local to its rank
  return all;
}

std::vector<std::size_t> point_to_point_order(std::span<const signature> all) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i].is_point_to_point()) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return all[i].tag; });
  return order;
}

error check_agreement(std::span<const std::vector<signature>> ranks) {
  if (ranks.empty())
    return error{.code = errc::invalid_argument,
                 .text = "a request to a world needs one part for each rank, and has none"};
  std::vector<std::vector<const signature*>> collectives;
  for (const auto& one : ranks) collectives.push_back(collectives_of(one));
  const auto& first = collectives.front();
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    const auto& mine = collectives[r];
    for (std::size_t i = 0; i < std::max(first.size(), mine.size()); ++i) {
      if (i < first.size() && i < mine.size() && same_collective(*first[i], *mine[i])) continue;
      const auto name = [i](const auto& all) { return i < all.size() ? describe(*all[i]) : std::string{"nothing"}; };
      return refuse("rank 0 asks for " + name(first) + ", rank " + std::to_string(r) + " for " + name(mine) +
                    ": give every rank the same operation");
    }
    for (std::size_t i = 0; i < first.size(); ++i)
      if (first[i]->staged != mine[i]->staged)
        return refuse("in " + describe(*first[i]) + ", rank 0 has " + memory_name(*first[i]) + " and rank " +
                      std::to_string(r) + ' ' + memory_name(*mine[i]) +
                      ": give every rank the same kind of memory, or set staged at those that have device memory");
  }
  for (std::size_t i = 0; i < first.size(); ++i)
    if (first[i]->is(index_of<all_to_all_v>))
      if (error failure = check_matrix(collectives, i)) return failure;
  return check_transfers(ranks);
}

error check_agreement(std::span<const operation> parts) {
  if (certainly_agree(parts)) return {};
  std::vector<std::vector<signature>> ranks;
  ranks.reserve(parts.size());
  for (const operation& one : parts) ranks.push_back(signatures_of(one));
  return check_agreement(ranks);
}

std::string describe(const signature& what) {
  std::string text{name_of_kind(what.kind)};
  const auto sum = [](const std::vector<std::size_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  };
  const auto list = [](const std::vector<std::size_t>& counts) {
    std::string all;
    for (const std::size_t count : counts) all += (all.empty() ? "" : " ") + std::to_string(count);
    return all;
  };
  const auto elements = [&](std::size_t count) {
    return " of " + std::to_string(count) + ' ' + std::string{to_string(what.type)};
  };
  const auto with_op = [&] { return ", " + std::string{to_string(what.op)}; };
  const auto with_root = [&] { return ", root " + to_string(what.root); };
  switch (what.kind) {
    case index_of<all_reduce>:
    case index_of<reduce_scatter>: return text + elements(what.count) + with_op();
    case index_of<reduce>: return text + elements(what.count) + with_op() + with_root();
    case index_of<broadcast>:
    case index_of<gather>:
    case index_of<scatter>: return text + elements(what.count) + with_root();
    case index_of<all_gather>:
    case index_of<all_to_all>: return text + elements(what.count);
    case index_of<all_gather_v>:
      return text + elements(sum(what.recv_counts)) + " in parts of " + list(what.recv_counts);
    case index_of<reduce_scatter_v>:
      return text + elements(sum(what.send_counts)) + " in parts of " + list(what.send_counts) + with_op();
    case index_of<gather_v>:
      return text + elements(sum(what.recv_counts)) + " in parts of " + list(what.recv_counts) + with_root();
    case index_of<scatter_v>:
      return text + elements(sum(what.send_counts)) + " in parts of " + list(what.send_counts) + with_root();
    case index_of<all_to_all_v>:
      return text + elements(sum(what.send_counts)) + " out, " + std::to_string(sum(what.recv_counts)) + " in";
    case index_of<send>:
      return text + elements(what.count) + " to rank " + to_string(what.root) + ", tag " + std::to_string(what.tag);
    case index_of<recv>:
      return text + elements(what.count) + " from rank " + to_string(what.root) + ", tag " + std::to_string(what.tag);
    case index_of<replay>: return text + " of plan " + std::to_string(what.count);
    case index_of<agree>: {
      const auto rule = static_cast<agreement_rule>(what.tag);
      text += " by " + std::string{to_string(rule)};
      if (rule == agreement_rule::of_rank) return text + ' ' + to_string(what.root);
      return compares_sizes(rule) ? text + ", " + std::to_string(what.count) + " bytes" : text;
    }
    case index_of<barrier>: return what.count > 0 ? "commit " + std::to_string(what.count - 1) : text;
    default: return text;
  }
}

} // namespace troupe
