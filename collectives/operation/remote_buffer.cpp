#include <troupe/collectives/operation/exported_memory.hpp>
#include <troupe/collectives/operation/remote_buffer.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Memory of another process. Its device is null, so buffer::where() distinguishes it from memory of this process.
class remote_block final : public memory_block {
public:
  explicit remote_block(const remote_buffer& of)
    : memory_block{nullptr, of.on_host ? memory_kind::pinned : memory_kind::device, nullptr, of.size_bytes}, of_{of} {}

  void note_use(stream_ref) override {
    throw exception{errc::unsupported,
                    "note_use() needs memory of this process, and this is memory of rank " + to_string(of_.exporter)};
  }
  [[nodiscard]] const remote_buffer& of() const noexcept { return of_; }

private:
  remote_buffer of_;
};

std::string bytes_of(std::size_t size) {
  return std::to_string(size) + " bytes";
}

} // namespace

remote_buffer remote_buffer::slice(std::size_t from_bytes, std::size_t length_bytes) const {
  if (from_bytes > size_bytes || length_bytes > size_bytes - from_bytes)
    throw exception{errc::invalid_argument, "the slice of " + bytes_of(length_bytes) + " at " +
                                                std::to_string(from_bytes) + " exceeds the remote buffer's " +
                                                bytes_of(size_bytes)};
  remote_buffer part = *this;
  part.offset_bytes += from_bytes;
  part.size_bytes = length_bytes;
  return part;
}

buffer remote_buffer::as_buffer() const {
  return buffer{std::make_shared<remote_block>(*this)};
}

std::string to_string(const remote_buffer& one) {
  std::string text = to_string(one.exporter);
  for (const std::uint64_t each : {one.session, one.id, std::uint64_t{one.offset_bytes}, std::uint64_t{one.size_bytes}})
    text += ':' + std::to_string(each);
  return one.on_host ? text + ":host" : text;
}

remote_buffer parse_remote_buffer(std::string_view text) {
  const auto refuse = [&] {
    return exception{errc::invalid_argument,
                     "'" + std::string{text} + "' is not a remote buffer: pass a text that to_string() has returned"};
  };
  remote_buffer made;
  std::string_view left = text;
  if (left.ends_with(":host")) {
    made.on_host = true;
    left.remove_suffix(5);
  }
  std::array<std::uint64_t, 5> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [end, failure] = std::from_chars(left.data(), left.data() + left.size(), all[i]);
    if (failure != std::errc{}) throw refuse();
    left.remove_prefix(static_cast<std::size_t>(end - left.data()));
    const bool is_last = i + 1 == all.size();
    if (is_last ? !left.empty() : !left.starts_with(':')) throw refuse();
    if (!is_last) left.remove_prefix(1);
  }
  constexpr std::uint64_t most_ranks = 1U << 30U;
  if (all[0] >= most_ranks) throw refuse();
  made.exporter = rank{static_cast<int>(all[0])};
  made.session = all[1];
  made.id = all[2];
  made.offset_bytes = all[3];
  made.size_bytes = all[4];
  return made;
}

bool is_remote(const buffer& one) noexcept {
  return one && one.where() == nullptr;
}

remote_buffer remote_of(const buffer& one) {
  const auto& block = static_cast<const remote_block&>(*one.block());
  return block.of().slice(one.offset_bytes(), one.size_bytes());
}

remote_buffer exported_memory::add(rank self, buffer memory, const std::string& name) {
  return hold(self, {.memory = std::move(memory)}, name);
}

remote_buffer exported_memory::lend(rank self, buffer memory, std::uint64_t holder, nanoseconds lease, time_point now) {
  return hold(self, {.memory = std::move(memory), .holder = holder, .lease = lease}, {}, now);
}

remote_buffer exported_memory::hold(rank self, range what, const std::string& name, time_point now) {
  if (!what.memory || is_remote(what.memory))
    throw exception{errc::invalid_argument, !what.memory
                                                ? "an empty buffer cannot be exported"
                                                : "memory of another process cannot be exported: pass its handle on"};
  if (name.size() > longest_export_name_bytes)
    throw exception{errc::invalid_argument, "the name of exported memory has " + std::to_string(name.size()) +
                                                " bytes, and the limit is " +
                                                std::to_string(longest_export_name_bytes)};
  remote_buffer made{
      .exporter = self, .session = session_, .size_bytes = what.memory.size_bytes(), .on_host = what.memory.on_host()};
  const std::lock_guard lock{mutex_};
  made.id = ++last_;
  if (what.holder != 0) what.ends = later(running_.read(now), what.lease);
  held_.emplace(made.id, std::move(what));
  if (!name.empty()) names_[name].insert_or_assign(self, made.id);
  return made;
}

void exported_memory::renew(std::uint64_t holder, time_point now) {
  const std::lock_guard lock{mutex_};
  const running_time running = running_.read(now);
  for (auto& [id, one] : held_)
    if (one.holder == holder && holder != 0) one.ends = later(running, one.lease);
}

void exported_memory::expire(time_point now) {
  std::vector<buffer> dropped; // destroyed without the lock
  const std::lock_guard lock{mutex_};
  const running_time running = running_.read(now);
  for (auto at = held_.begin(); at != held_.end();) {
    const bool is_over = at->second.ends <= running;
    if (is_over) dropped.push_back(std::move(at->second.memory));
    at = is_over ? held_.erase(at) : std::next(at);
  }
}

void exported_memory::remove(const remote_buffer& one) noexcept {
  decltype(held_)::node_type dropped; // destroyed without the lock
  const std::lock_guard lock{mutex_};
  if (one.session != session_) return;
  dropped = held_.extract(one.id);
  for (auto& [name, ranks] : names_) std::erase_if(ranks, [&](const auto& of) { return of.second == one.id; });
  std::erase_if(names_, [](const auto& each) { return each.second.empty(); });
}

remote_buffer exported_memory::find(const std::string& name, rank self, bool is_only_rank) const {
  const std::lock_guard lock{mutex_};
  std::uint64_t latest = 0;
  if (const auto named = names_.find(name); named != names_.end())
    for (const auto& [of, id] : named->second)
      if (of == self || is_only_rank) latest = std::max(latest, id);
  const auto held = held_.find(latest);
  if (held == held_.end())
    throw exception{error{.code = errc::missing,
                          .text = "rank " + to_string(self) + " has exported no memory called '" + name + "'",
                          .rank = self}};
  return {.exporter = self,
          .session = session_,
          .id = held->first,
          .size_bytes = held->second.memory.size_bytes(),
          .on_host = held->second.memory.on_host()};
}

buffer exported_memory::find(const remote_buffer& one, rank self, error& why) const {
  const auto refuse = [&](errc code, std::string text) {
    why = {.code = code, .text = std::move(text), .rank = self};
    return buffer{};
  };
  if (one.session != session_)
    return refuse(errc::stale_buffer, "a remote buffer of rank " + to_string(self) +
                                          " was exported by another process, which has ended or has another rank: ask "
                                          "the rank's process for a new handle");
  buffer found;
  {
    const std::lock_guard lock{mutex_};
    if (const auto held = held_.find(one.id); held != held_.end()) found = held->second.memory;
  }
  if (!found)
    return refuse(errc::stale_buffer, "rank " + to_string(self) +
                                          " has released the memory of a remote buffer: ask its process for a new "
                                          "handle");
  if (one.offset_bytes > found.size_bytes() || one.size_bytes > found.size_bytes() - one.offset_bytes)
    return refuse(errc::invalid_argument, "a remote buffer of " + bytes_of(one.size_bytes) + " at " +
                                              std::to_string(one.offset_bytes) + " exceeds the " +
                                              bytes_of(found.size_bytes()) + " that rank " + to_string(self) +
                                              " has exported");
  return found.slice(one.offset_bytes, one.size_bytes);
}

std::size_t exported_memory::size() const {
  const std::lock_guard lock{mutex_};
  return held_.size();
}

} // namespace troupe
