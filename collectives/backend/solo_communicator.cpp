#include <troupe/collectives/backend/solo_communicator.hpp>

#include <troupe/collectives/backend/host_reduce.hpp>
#include <troupe/collectives/backend/launch_parts.hpp>
#include <troupe/collectives/backend/registered_pool.hpp>
#include <troupe/collectives/operation/extents.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <variant>
#include <vector>

namespace troupe {

namespace {

/// Executes any operation of a world of one rank as a transfer of the rank to itself.
struct solo_launch { // NOLINT(cppcoreguidelines-pro-type-member-init): a stream_ref has no empty state
  stream_ref stream;
  solo_scale& scale;

  void move(std::byte* to, const std::byte* from, std::size_t length) const {
    if (length > 0 && to != from) stream.copy(to, from, length);
  }

  void operator()(const operation& what) const {
    if (const auto* several = std::get_if<group>(&what)) return together(pointers_to(several->parts));
    if (std::holds_alternative<replay>(what))
      throw exception{errc::internal, "a replay launches its plan's graph and never reaches a communicator"};
    extent from, to; // the range that is read, beside a factor, and the range that is written
    auto note = [&](const extent& one) {
      if (one.role != "factor") (one.written ? to : from) = one;
    };
    visit_extents(what, rank{0}, 1, note);
    if (from.memory == nullptr || to.memory == nullptr) return;
    const std::size_t width = size_bytes(to.type);
    std::byte* const target = to.memory->data() + to.first * width;
    const std::byte* const source = from.memory->data() + from.first * width;
    const factor* const by = std::visit(
        [](const auto& one) -> const factor* {
          if constexpr (requires { one.op; })
            if (one.op == reduction::pre_mul_sum) return &one.factor;
          return nullptr;
        },
        what);
    if (by != nullptr) return scale.enqueue(target, source, to.count, to.type, *by, stream);
    move(target, source, to.count * width);
  }

  void together(std::span<const operation* const> all) const {
    const launch_parts parts = parts_of_launch(all);
    std::vector<const send*> sends;
    std::vector<const recv*> recvs;
    for (const operation* each : parts.transfers) {
      if (const auto* one = std::get_if<send>(each)) sends.push_back(one);
      if (const auto* one = std::get_if<recv>(each)) recvs.push_back(one);
    }
    if (sends.size() != recvs.size())
      throw exception{errc::mismatch, "a world of one rank sends to itself: give a recv for each send"};
    for (std::size_t i = 0; i < sends.size(); ++i)
      move(recvs[i]->memory.memory.data(), sends[i]->memory.memory.data(),
           sends[i]->count * size_bytes(sends[i]->type));
    for (const operation* one : parts.collectives) (*this)(*one);
  }
};

} // namespace

std::shared_ptr<registered_region> solo_communicator::allocate_region(std::size_t size_bytes) {
  return make_pooled_region(where(), size_bytes, "a world of one rank has no peers to reach");
}

bool solo_communicator::do_launch(const operation& what, stream_ref stream, completion_word) {
  solo_launch{stream, scale_}(what);
  return false;
}

bool solo_communicator::do_launch_together(std::span<const operation* const> all, stream_ref stream, completion_word) {
  solo_launch{stream, scale_}.together(all);
  return false;
}

namespace {

constexpr std::size_t factor_bytes = 8;
constexpr std::size_t piece_bytes = std::size_t{4} << 20U;

/// The argument of one host function, which deletes it. If the stream fails, the function never runs and the object
/// leaks.
struct piece {
  buffer memory;
  std::size_t count = 0;
  dtype type{};
  std::array<std::byte, factor_bytes> by{};
  bool by_is_in_memory = false;
};

void multiply(void* argument) {
  const std::unique_ptr<piece> mine{static_cast<piece*>(argument)};
  std::byte* const values = mine->memory.data() + factor_bytes;
  reduce_part part{.send = values, .recv = values, .factor = mine->by};
  if (mine->by_is_in_memory) std::memcpy(part.factor.data(), mine->memory.data(), factor_bytes);
  reduce_parts({&part, 1}, mine->count, mine->type, reduction::pre_mul_sum);
}

} // namespace

void solo_scale::enqueue(std::byte* to, const std::byte* from, std::size_t count, dtype type, const factor& by,
                         stream_ref stream) {
  const std::size_t width = size_bytes(type);
  if (!scratch_) scratch_ = allocate_pinned(device_, factor_bytes + piece_bytes);
  const bool on_device = static_cast<bool>(by.memory);
  if (on_device) stream.copy(scratch_.data(), by.memory.data(), width);
  for (std::size_t first = 0; first < count; first += piece_bytes / width) {
    const std::size_t now = std::min(count - first, piece_bytes / width);
    std::byte* const values = scratch_.data() + factor_bytes;
    stream.copy(values, from + first * width, now * width);
    auto work = std::make_unique<piece>(piece{scratch_, now, type, by.value, on_device});
    device_->api().call(device_->id(), stream.native(), multiply, work.get());
    static_cast<void>(work.release());
    stream.copy(to + first * width, values, now * width);
  }
}

} // namespace troupe
