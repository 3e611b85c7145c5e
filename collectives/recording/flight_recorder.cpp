#include <troupe/collectives/recording/flight_recorder.hpp>

#include <algorithm>
#include <bit>
#include <map>
#include <tuple>
#include <utility>

namespace troupe {

namespace {

enum class ending : std::uint32_t { finished, answered };

constexpr std::uint64_t low_half = 0xFFFF'FFFFU;

std::uint64_t packed(flight_name name) noexcept {
  return name.ticket.value() << 1U | std::uint64_t{name.of_world ? 1U : 0U};
}

std::uint64_t packed(epoch formed_in, std::uint64_t beside) noexcept {
  return formed_in.value() << 32U | (beside & low_half);
}

std::uint64_t packed(time_point when) noexcept {
  return static_cast<std::uint64_t>(when.time_since_epoch().count());
}

flight_name name_from(std::uint64_t key, std::uint64_t with_epoch) noexcept {
  return {ticket{key >> 1U}, (key & 1U) != 0, epoch{with_epoch >> 32U}};
}

/// A zero word means no time.
std::optional<time_point> time_from(std::uint64_t word) noexcept {
  if (word == 0) return std::nullopt;
  return time_point{nanoseconds{static_cast<nanoseconds::rep>(word)}};
}

} // namespace

flight_line::flight_line(flight_place who, std::size_t capacity)
  : who_{who}, asked_{capacity}, launched_{capacity}, ended_{2 * capacity} {}

void flight_line::follow(std::weak_ptr<const progress_record> present) {
  const std::lock_guard lock{mutex_};
  present_ = std::move(present);
}

std::optional<pipeline_progress::counts> flight_line::progress() const {
  std::shared_ptr<const progress_record> present;
  {
    const std::lock_guard lock{mutex_};
    present = present_.lock();
  }
  return present ? std::optional{present->read().collectives} : std::nullopt;
}

void flight_line::asked(flight_name name, const operation_sketch& what, std::uint64_t client, std::size_t bytes,
                        call_site site, time_point when) noexcept {
  const auto& sketch = what.packed();
  asked_.write({packed(name), packed(when), sketch[0], sketch[1], sketch[2], sketch[3], client, bytes,
                reinterpret_cast<std::uintptr_t>(site.file), packed(name.epoch, site.line)});
}

void flight_line::launched(flight_name name, std::uint64_t position, const flight_timestamps& when) noexcept {
  launched_.write({packed(name), position, packed(when.matched), packed(when.launch_began), packed(when.launched),
                   when.at.launch, packed(name.epoch, when.fused)});
}

void flight_line::finished(flight_name name, std::optional<time_point> started, time_point when) noexcept {
  ended_.write({packed(name), packed(name.epoch, static_cast<std::uint64_t>(ending::finished)),
                started ? packed(*started) : 0, packed(when)});
}

void flight_line::answered(flight_name name, errc result, time_point when) noexcept {
  const auto kind = static_cast<std::uint64_t>(ending::answered) | static_cast<std::uint64_t>(result) << 8U;
  ended_.write({packed(name), packed(name.epoch, kind), 0, packed(when)});
}

std::vector<flight> flight_line::read() const {
  std::map<flight_name, flight> known;
  std::vector<flight_name> order;
  const auto find = [&](std::uint64_t key, std::uint64_t with_epoch) -> flight& {
    const flight_name name = name_from(key, with_epoch);
    const auto [at, is_new] = known.try_emplace(name);
    if (is_new) {
      at->second.name = name;
      order.push_back(name);
    }
    return at->second;
  };
  // Reads the logs in the order of a request's life. A request that is made during the read may appear without its
  // beginning.
  const auto beginnings = asked_.read();
  for (const auto& one : beginnings) {
    flight& to = find(one[0], one[9]);
    to.asked = time_from(one[1]);
    to.what = operation_sketch{operation_sketch::words{one[2], one[3], one[4], one[5]}}.unpack();
    to.client = one[6];
    to.bytes = static_cast<std::size_t>(one[7]);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the log holds words
    to.site = {reinterpret_cast<const char*>(static_cast<std::uintptr_t>(one[8])),
               static_cast<unsigned>(one[9] & low_half)};
  }
  for (const auto& one : launched_.read()) {
    flight& to = find(one[0], one[6]);
    if (to.what) to.what->position = one[1];
    to.matched = time_from(one[2]);
    to.launch_began = time_from(one[3]);
    to.launched = time_from(one[4]);
    to.launch = one[5];
    to.fused = static_cast<std::size_t>(one[6] & low_half);
  }
  for (const auto& one : ended_.read()) {
    flight& to = find(one[0], one[1]);
    if (static_cast<ending>(one[1] & 0xFFU) == ending::finished) {
      to.started = time_from(one[2]);
      to.finished = time_from(one[3]);
      // Answered at this time, unless it was answered before at its deadline. A part of a request to the world has no
      // answer of its own.
      if (!to.replied && !to.name.of_world) to.replied = to.finished;
    } else {
      to.result = static_cast<errc>(one[1] >> 8U & 0xFFU);
      to.replied = time_from(one[3]);
    }
  }
  std::vector<flight> all;
  all.reserve(order.size());
  for (const flight_name& name : order) all.push_back(std::move(known.at(name)));
  std::ranges::stable_sort(all, {}, [](const flight& one) { return one.asked.value_or(time_point{}); });
  return all;
}

namespace {

/// Lines of ended worlds that are kept: reports are often requested after the world has ended.
constexpr std::ptrdiff_t most_ended = 32;

} // namespace

std::shared_ptr<flight_recorder> flight_recorder::silent() {
  auto made = std::make_shared<flight_recorder>(0);
  made->is_silent_ = true;
  return made;
}

std::shared_ptr<flight_line> flight_recorder::line_of(const flight_place& who) {
  if (is_silent_) return nullptr;
  const std::lock_guard lock{mutex_};
  const auto known = std::ranges::find_if(lines_, [&](const auto& one) { return one->who() == who; });
  if (known != lines_.end()) return *known;
  lines_.push_back(std::make_shared<flight_line>(who, requests_));
  auto made = lines_.back();
  const auto has_ended = [](const auto& one) { return one.use_count() == 1; };
  auto ended = std::ranges::count_if(lines_, has_ended);
  std::erase_if(lines_, [&](const auto& one) { return has_ended(one) && ended-- > most_ended; });
  return made;
}

std::vector<std::shared_ptr<const flight_line>> flight_recorder::lines() const {
  const std::lock_guard lock{mutex_};
  return {lines_.begin(), lines_.end()};
}

} // namespace troupe
