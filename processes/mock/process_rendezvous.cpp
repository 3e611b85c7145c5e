#include <troupe/processes/mock/process_rendezvous.hpp>

#include <troupe/collectives/operation/wire.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>
#include <variant>

namespace troupe {

namespace {

using namespace std::chrono_literals;

constexpr nanoseconds longest_join_sleep = 5ms;
constexpr nanoseconds process_check_period = 10ms;
constexpr std::size_t most_bytes_at_once = std::size_t{1} << 20U; ///< Read from one ring before other work is done.
constexpr std::size_t longest_block_bytes = std::size_t{4} << 30U;
constexpr std::size_t longest_text_bytes = 4096;
constexpr std::size_t most_calls = 65'536;

enum class message_kind : std::uint8_t { collectives, sends, receives, failure };

/// Writes or reads the fields of a call, depending on \p Wire. The arguments are const for a wire_writer. The elements
/// follow in the payload.
template <class Wire, class Signature, class Number, class Size>
void call_fields(Wire& wire, Signature& what, Number& factor, Size& payload_bytes, std::size_t world_size) {
  const auto counts = [&](auto& all) { wire.list(all, world_size, 1, [&](auto& one) { wire.field(one); }); };
  wire.field(what.kind, std::variant_size_v<operation::variant> - 1);
  wire.field(what.type, std::ranges::max(all_dtypes));
  wire.field(what.op, std::ranges::max(all_reductions));
  wire.field(what.count);
  wire.field(what.root);
  wire.field(what.tag);
  counts(what.send_counts);
  counts(what.recv_counts);
  wire.field(what.staged);
  wire.field(factor);
  wire.field(payload_bytes);
}

void write_call(wire_writer& out, const mock_call& call, std::size_t payload_bytes) {
  auto factor = std::bit_cast<std::uint64_t>(call.factor);
  if (call.factor_on_device != nullptr) std::memcpy(&factor, call.factor_on_device, size_bytes(call.what.type));
  call_fields(out, call.what, factor, payload_bytes, 0);
}

mock_call read_call(wire_reader& in, std::size_t world_size, std::size_t& payload_bytes) {
  mock_call made;
  made.is_remote = true;
  std::uint64_t factor = 0;
  call_fields(in, made.what, factor, payload_bytes, world_size);
  made.factor = std::bit_cast<std::array<std::byte, 8>>(factor);
  made.send_at.assign(world_size, 0); // only this rank's part was sent
  return made;
}

std::string_view bytes_of(const mock_call& call, const element_range& part) {
  const std::size_t width = size_bytes(call.what.type);
  if (part.count == 0) return {};
  return {reinterpret_cast<const char*>(call.send) + part.first * width, part.count * width};
}

} // namespace

process_rendezvous::process_rendezvous(const unique_id& id, rank self, int world_size, bool launches)
  : id_{id},
    self_{self},
    me_{static_cast<std::size_t>(self.value())},
    world_size_{static_cast<std::size_t>(world_size)},
    launches_{launches},
    links_(world_size_) {}

process_rendezvous::~process_rendezvous() {
  if (pump_) pump_->remove(*this);
  if (memory_ && !is_aborted_)
    memory_->leave(is_formed_ ? formation_memory::presence::gone : formation_memory::presence::aborted);
  ring_all();
}

std::string process_rendezvous::name_of(std::size_t peer) const {
  return "rank " + std::to_string(peer) + " (process " +
         std::to_string(links_[peer].peer ? links_[peer].peer->process.id() : 0) + ")";
}

/// Returns errc::none, or communicator_failed if \p peer has ended or given up.
error process_rendezvous::absence_of(std::size_t peer) const {
  const char* why = nullptr;
  switch (memory_->presence_of(rank{static_cast<int>(peer)})) {
    case formation_memory::presence::aborted: why = "has aborted its communicator"; break;
    case formation_memory::presence::gone: why = "has left"; break;
    case formation_memory::presence::here: break;
  }
  if (links_[peer].peer && links_[peer].peer->process.has_ended()) why = "has ended";
  if (why == nullptr) return {};
  return {.code = errc::communicator_failed, .text = name_of(peer) + " " + why};
}

void process_rendezvous::join(rank self, std::shared_ptr<mock_waker> engine) {
  {
    std::unique_lock lock{mutex_};
    if (is_aborted_) throw exception{aborted_error(self_)};
    if (engine_ || self != self_)
      throw exception{errc::invalid_argument, "rank " + to_string(self) + " has already joined this formation"};
    engine_ = std::move(engine);
    pump_ = process_pump::of_this_process();
    memory_.emplace(id_, self_, static_cast<int>(world_size_), launches_);
    memory_->take({.process = ::getpid(), .bell = pump_->descriptor(), .bells = pump_->session()});
    try {
      connect(lock);
    } catch (...) {
      if (!is_aborted_) memory_->leave(formation_memory::presence::aborted);
      memory_->retire_own();
      throw;
    }
    memory_->retire();
    is_formed_ = true;
    for (std::size_t i = 0; i < world_size_ && launches_; ++i) {
      if (i == me_) continue;
      links_[i].writer.emplace(memory_->writer(rank{static_cast<int>(i)}));
      links_[i].reader.emplace(memory_->reader(rank{static_cast<int>(i)}));
    }
  }
  if (launches_) pump_->add(*this);
}

/// Waits until all ranks are connected to all others.
void process_rendezvous::connect(std::unique_lock<std::mutex>& lock) {
  std::size_t missing = world_size_ - 1;
  if (missing == 0) memory_->connected();
  for (;;) {
    if (is_aborted_) throw exception{aborted_error(self_)};
    const std::uint64_t seen = memory_->changes();
    for (std::size_t i = 0; i < world_size_ && missing > 0; ++i) {
      const auto seat = memory_->seat_of(rank{static_cast<int>(i)});
      if (i == me_ || links_[i].peer || seat.process == 0) continue;
      try {
        links_[i].peer = pump_->peer(seat.process, seat.bell, seat.bells);
      } catch (const exception& failed) {
        if (failed.why().code != errc::rank_lost) throw;
        // A process that is ending closes its files before its end becomes visible.
        throw exception{errc::communicator_failed,
                        "rank " + std::to_string(i) + " (process " + std::to_string(seat.process) +
                            ") has ended or left while the ranks joined (" + failed.why().text + ")"};
      }
      if (--missing == 0) memory_->connected();
    }
    // Checked before the count of connected ranks: in a formation that only synchronises, a rank may leave as soon as
    // all are connected.
    error lost;
    for (std::size_t i = 0; i < world_size_ && !lost; ++i)
      if (i != me_) lost = absence_of(i);
    if (memory_->all_are_connected()) return;
    if (lost) throw exception{std::move(lost)};
    lock.unlock();
    memory_->sleep(seen, longest_join_sleep);
    lock.lock();
  }
}

progress process_rendezvous::meet(mock_launch& mine) {
  bool is_kicked = false;
  bool wakes = false;
  bool has_ended = false;
  {
    const std::lock_guard lock{mutex_};
    if (is_aborted_) return progress::reached; // completion does not mean success
    if (!mine.arrived) {
      arrive(mine);
      is_kicked = move_all() >= state::blocked;
      wakes = std::exchange(must_wake_, false); // launches of other streams, which the engine must poll again
    }
    has_ended = mine.pending == 0 && mine.unsent == 0;
  }
  if (is_kicked) pump_->kick();
  if (wakes) engine_->wake();
  return has_ended ? progress::reached : progress::pending;
}

void process_rendezvous::arrive(mock_launch& mine) {
  mine.arrived = true;
  mine.pending = mine.transfers.size() + (mine.ordinal ? 1 : 0);
  for (mock_launch::transfer& one : mine.transfers) send_transfer(mine, one);
  if (!mine.ordinal) return;
  own_collectives_[*mine.ordinal] = &mine;
  send_collectives(mine);
  conclude(*mine.ordinal);
}

void process_rendezvous::send_collectives(mock_launch& mine) {
  for (std::size_t to = 0; to < world_size_; ++to) {
    if (to == me_) continue;
    outgoing message{.head = {}, .launch = &mine};
    wire_writer out;
    out.u8(static_cast<std::uint8_t>(message_kind::collectives));
    out.varint(*mine.ordinal);
    out.flag(mine.computes);
    out.bytes(std::string_view{mine.text}.substr(0, longest_text_bytes));
    out.varint(mine.collectives.size());
    for (const mock_call& call : mine.collectives) {
      const std::string_view part = mine.computes ? bytes_of(call, elements_for(call, me_, to)) : std::string_view{};
      write_call(out, call, part.size());
      if (!part.empty()) message.payload.push_back(part);
    }
    message.head = out.take();
    post(to, std::move(message));
  }
}

void process_rendezvous::send_transfer(mock_launch& mine, mock_launch::transfer& one) {
  const end_key key{one.call.what.is_send(), one.from, one.to, one.ordinal};
  own_ends_[key] = {&mine, &one};
  if (key.peer() != me_) {
    outgoing message{.head = {}, .launch = &mine};
    const std::string_view part =
        key.sends && mine.computes ? bytes_of(one.call, {0, one.call.what.count}) : std::string_view{};
    wire_writer out;
    out.u8(static_cast<std::uint8_t>(key.sends ? message_kind::sends : message_kind::receives));
    out.varint(one.ordinal);
    out.flag(mine.computes);
    write_call(out, one.call, part.size());
    message.head = out.take();
    if (!part.empty()) message.payload.push_back(part);
    post(key.peer(), std::move(message));
  }
  conclude(key);
}

void process_rendezvous::post(std::size_t to, outgoing message) {
  if (message.launch != nullptr) ++message.launch->unsent;
  links_[to].waiting.push_back(std::move(message));
}

/// Reads and writes as much as is possible now. After a failure it only writes, because the peers must learn what this
/// rank launched.
process_rendezvous::state process_rendezvous::move_all() {
  state found = state::idle;
  for (std::size_t i = 0; i < world_size_; ++i) {
    if (i == me_) continue;
    if (drain(i)) found = std::max(found, state::busy);
    if (flush(links_[i])) found = std::max(found, state::blocked);
  }
  if (!own_collectives_.empty() || !own_ends_.empty()) found = std::max(found, state::pending);
  return found;
}

bool process_rendezvous::has_news() {
  const std::lock_guard lock{mutex_};
  if (is_aborted_ || failure_) return false;
  return std::ranges::any_of(links_, [](link& one) { return one.reader && one.reader->has_news(); });
}

process_rendezvous::state process_rendezvous::advance() {
  state found = state::idle;
  bool wakes = false;
  {
    const std::lock_guard lock{mutex_};
    if (is_aborted_) return state::idle;
    found = move_all();
    if (found >= state::pending && !failure_) find_lost_peers();
    wakes = std::exchange(must_wake_, false);
  }
  if (wakes) engine_->wake();
  return found;
}

bool process_rendezvous::flush(link& to) {
  bool has_written = false;
  while (!to.waiting.empty() && !to.is_cut) {
    outgoing& one = to.waiting.front();
    const std::string_view part = one.part == 0 ? std::string_view{one.head} : one.payload[one.part - 1];
    const std::string_view next = part.substr(one.from, to.writer->most_bytes());
    const bool ends_part = one.from + next.size() == part.size();
    const ring_write written = to.writer->write(next, !ends_part || one.part < one.payload.size());
    if (written == ring_write::forged) {
      to.is_cut = true;
      fail({.code = errc::internal,
            .text = name_of(static_cast<std::size_t>(&to - links_.data())) + " has written " +
                    std::string{describe(to.writer->fault())} + " into the ring that rank " + to_string(self_) +
                    " writes"});
      break;
    }
    if (written == ring_write::full) break;
    has_written = true;
    one.from = ends_part ? 0 : one.from + next.size();
    if (ends_part && ++one.part > one.payload.size()) {
      mock_launch* const launch = one.launch;
      to.waiting.pop_front();
      if (launch == nullptr) continue;
      --launch->unsent;
      if (launch->ordinal && launch->unsent == 0) conclude(*launch->ordinal);
      must_wake_ = must_wake_ || (launch->unsent == 0 && launch->pending == 0);
    }
  }
  if (has_written) to.peer->bell.caller().ring();
  return !to.waiting.empty() && !to.is_cut;
}

bool process_rendezvous::drain(std::size_t from) {
  if (failure_) return false;
  link& one = links_[from];
  bool is_long = false;
  for (std::size_t bytes = 0; bytes < most_bytes_at_once && !failure_;) {
    const std::size_t before = one.partial.size();
    const ring_read got = one.reader->read(one.partial);
    if (got == ring_read::empty) {
      if (is_long) one.peer->bell.caller().ring(); // the writer may wait for space
      return false;
    }
    bytes += one.partial.size() - before;
    is_long = is_long || got == ring_read::continued;
    if (got == ring_read::forged || one.partial.size() > longest_block_bytes)
      fail({.code = errc::internal,
            .text = name_of(from) + " has written " +
                    (got == ring_read::forged ? std::string{describe(one.reader->fault())} : "a message without end") +
                    " into the ring that rank " + to_string(self_) + " reads"});
    else if (got == ring_read::last)
      accept(from, std::exchange(one.partial, {}));
  }
  if (is_long) one.peer->bell.caller().ring();
  return !failure_;
}

void process_rendezvous::accept(std::size_t from, std::string message) {
  auto made =
      std::make_unique<incoming>(incoming{std::move(message), {.self = rank{static_cast<int>(from)}, .text = {}}});
  wire_reader in{made->bytes};
  const auto kind = in.one_of(message_kind::failure);
  if (kind == message_kind::failure) {
    const std::string text{in.bytes(2 * longest_text_bytes)};
    if (in.ok() && !reported_mismatch_) reported_mismatch_ = error{.code = errc::mismatch, .text = text};
    if (in.ok()) return;
  }
  const bool is_collective = kind == message_kind::collectives;
  const std::uint64_t ordinal = in.varint();
  made->launch.computes = in.flag();
  if (is_collective) made->launch.text = in.bytes(longest_text_bytes);
  std::vector<mock_call> calls(is_collective ? in.count(most_calls) : 1);
  std::size_t all_bytes = 0;
  for (mock_call& call : calls) {
    std::size_t& size = made->payload_bytes.emplace_back();
    call = read_call(in, world_size_, size);
    if (size > in.left_bytes() || all_bytes + size > in.left_bytes()) in.refuse("it ends before all that it announces");
    all_bytes += size;
  }
  if (in.ok() && all_bytes != in.left_bytes()) in.refuse("it has more bytes than it announces");
  if (!in.ok()) return fail(in.failure("a message of " + name_of(from)));
  std::size_t at = made->bytes.size() - all_bytes;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    mock_call& call = calls[i];
    call.send = reinterpret_cast<const std::byte*>(made->bytes.data()) + at;
    at += made->payload_bytes[i];
    if (call.what.send_counts.empty()) call.send_first = elements_for(call, from, me_).first;
  }
  if (is_collective) {
    made->launch.collectives = std::move(calls);
    auto& all = peer_collectives_[ordinal];
    all.resize(world_size_);
    all[from] = std::move(made);
    return conclude(ordinal);
  }
  const bool sends = kind == message_kind::sends;
  const end_key theirs{sends, sends ? from : me_, sends ? me_ : from, ordinal};
  made->launch.transfers.push_back(
      {.call = std::move(calls.front()), .from = theirs.from, .to = theirs.to, .ordinal = ordinal});
  peer_ends_[theirs] = std::move(made);
  if (own_ends_.contains(theirs.other())) conclude(theirs.other());
}

/// Computes this rank's result of the collectives with the number \p ordinal, if all ranks' parts have arrived.
void process_rendezvous::conclude(std::uint64_t ordinal) {
  const auto own = own_collectives_.find(ordinal);
  if (own == own_collectives_.end() || failure_) return;
  mock_launch& mine = *own->second;
  std::vector<const mock_launch*> all(world_size_);
  const auto others = peer_collectives_.find(ordinal);
  if (others == peer_collectives_.end() && world_size_ > 1) return;
  for (std::size_t i = 0; i < world_size_; ++i) {
    if (i != me_ && !others->second[i]) return;
    all[i] = i == me_ ? &mine : &others->second[i]->launch;
  }
  if (error why = find_mismatch(ordinal, all)) return fail(std::move(why));
  if (mine.unsent > 0) return; // the result may replace what is not sent yet
  if (std::ranges::all_of(all, &mock_launch::computes)) {
    for (std::size_t i = 0; i < world_size_; ++i)
      for (std::size_t k = 0; i != me_ && k < mine.collectives.size(); ++k) {
        const mock_call& call = all[i]->collectives[k];
        const std::size_t expected = elements_for(call, i, me_).count * size_bytes(call.what.type);
        const auto& received = mine.collectives[k].what.recv_counts;
        const bool fits = call.what.send_counts.empty() || received.empty() ||
                          received.at(i) * size_bytes(call.what.type) == expected;
        if (others->second[i]->payload_bytes[k] != expected || !fits)
          return fail({.code = errc::internal,
                       .text = name_of(i) + " has sent " + std::to_string(others->second[i]->payload_bytes[k]) +
                               " bytes for " + describe(call.what) + ", which needs " + std::to_string(expected)});
      }
    perform_all(all);
  }
  --mine.pending;
  must_wake_ = true;
  own_collectives_.erase(own);
  if (others != peer_collectives_.end()) peer_collectives_.erase(others);
}

/// Ends a send or a recv of this rank, if the other end has arrived.
void process_rendezvous::conclude(const end_key& mine) {
  const auto own = own_ends_.find(mine);
  if (own == own_ends_.end() || failure_) return;
  mock_launch::transfer& here = *own->second.transfer;
  if (mine.peer() == me_) {
    const auto there = own_ends_.find(mine.other());
    if (there == own_ends_.end()) return;
    mock_launch::transfer& sent = mine.sends ? here : *there->second.transfer;
    mock_launch::transfer& received = mine.sends ? *there->second.transfer : here;
    if (error why = find_mismatch(sent, received)) return fail(std::move(why));
    if (own->second.launch->computes) perform_transfer(sent.call, received.call);
    end(own->second);
    end(there->second);
    own_ends_.erase(there);
    own_ends_.erase(mine);
    return;
  }
  const auto there = peer_ends_.find(mine.other());
  if (there == peer_ends_.end()) return;
  const mock_launch::transfer& other = there->second->launch.transfers.front();
  if (error why = mine.sends ? find_mismatch(here, other) : find_mismatch(other, here)) {
    for (std::size_t i = 0; i < world_size_; ++i) {
      if (i == me_) continue;
      wire_writer out;
      out.u8(static_cast<std::uint8_t>(message_kind::failure));
      out.bytes(why.text);
      post(i, {.head = out.take()});
      flush(links_[i]);
    }
    return fail(std::move(why));
  }
  if (!mine.sends && there->second->launch.computes) {
    const std::size_t expected = here.call.what.count * size_bytes(here.call.what.type);
    if (const std::size_t sent = there->second->payload_bytes.front(); sent != expected)
      return fail({.code = errc::internal,
                   .text = name_of(mine.peer()) + " has sent " + std::to_string(sent) + " bytes for " +
                           describe(other.call.what) + ", which needs " + std::to_string(expected)});
    perform_transfer(other.call, here.call);
  }
  end(own->second);
  own_ends_.erase(own);
  peer_ends_.erase(there);
}

void process_rendezvous::end(own_end& mine) {
  mine.transfer->over = true;
  --mine.launch->pending;
  must_wake_ = true;
}

/// Returns whether an operation of this rank waits for \p peer.
bool process_rendezvous::needs(std::size_t peer) const {
  if (!links_[peer].waiting.empty()) return true;
  const auto waits_for = [&](const auto& one) {
    const auto others = peer_collectives_.find(one.first);
    return others == peer_collectives_.end() || !others->second[peer];
  };
  return std::ranges::any_of(own_collectives_, waits_for) ||
         std::ranges::any_of(own_ends_, [&](const auto& one) { return one.first.peer() == peer; });
}

void process_rendezvous::find_lost_peers() {
  const time_point now = steady_now();
  const bool checks_processes = now - last_process_check_ >= process_check_period;
  if (checks_processes) last_process_check_ = now;
  for (std::size_t i = 0; i < world_size_ && !failure_; ++i) {
    if (i == me_ || !needs(i)) continue;
    if (memory_->presence_of(rank{static_cast<int>(i)}) == formation_memory::presence::here && !checks_processes)
      continue;
    error lost = absence_of(i);
    if (!lost) continue;
    while (drain(i)) {
    }
    if (needs(i)) fail(std::move(lost));
  }
}

void process_rendezvous::fail(error why) {
  if (!failure_) failure_ = std::move(why);
}

void process_rendezvous::leave(mock_launch& mine) noexcept {
  const std::lock_guard lock{mutex_};
  withdraw(mine);
}

void process_rendezvous::withdraw(const mock_launch& mine) noexcept {
  if (!mine.arrived || (mine.pending == 0 && mine.unsent == 0)) return;
  std::erase_if(own_collectives_, [&](const auto& one) { return one.second == &mine; });
  std::erase_if(own_ends_, [&](const auto& one) { return one.second.launch == &mine; });
  for (link& one : links_) {
    // A partly written message cannot be withdrawn, and the reader could not parse messages behind it.
    const auto is_begun = [&](const outgoing& first) { return first.part > 0 || first.from > 0; };
    if (!one.waiting.empty() && one.waiting.front().launch == &mine && is_begun(one.waiting.front())) one.is_cut = true;
    std::erase_if(one.waiting, [&](const outgoing& each) { return each.launch == &mine; });
  }
}

void process_rendezvous::check(rank self) const {
  const std::lock_guard lock{mutex_};
  if (failure_ || reported_mismatch_) {
    error why = failure_ ? *failure_ : *reported_mismatch_;
    why.rank = self;
    if (why.code != errc::mismatch) why.effect = effect::unknown_outcome;
    throw exception{std::move(why)};
  }
  if (is_aborted_) throw exception{aborted_error(self)};
}

void process_rendezvous::abort(rank) noexcept {
  const std::lock_guard lock{mutex_};
  if (std::exchange(is_aborted_, true)) return;
  own_collectives_.clear();
  own_ends_.clear();
  peer_collectives_.clear();
  peer_ends_.clear();
  for (link& one : links_) one.waiting.clear();
  if (memory_) memory_->leave(formation_memory::presence::aborted);
  ring_all();
  if (engine_) engine_->wake();
}

void process_rendezvous::ring_all() noexcept {
  for (link& one : links_)
    if (one.peer) one.peer->bell.caller().ring();
}

std::shared_ptr<mock_rendezvous> connect_over_processes(const unique_id& id, rank self, int world_size, bool launches) {
  return std::make_shared<process_rendezvous>(id, self, world_size, launches);
}

} // namespace troupe
