#include <troupe/completion/poller/wake_signal.hpp>
#include <troupe/processes/transport/shared_memory/descriptor_passing.hpp>
#include <troupe/processes/transport/shared_memory/ring_connection.hpp>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// ring_settings::behind / pauses_in_a_limit of each time between two attempts to write counts.
constexpr int pauses_in_a_limit = 16;

/// The message that comes with the descriptors of an offer.
struct rings_offer {
  static constexpr std::uint64_t right_magic = 0x5245464F52555254U; // "TRUROFER"
  static constexpr std::size_t descriptors = 4; ///< Requests, decisions, the service's bell, the rank's bell.

  std::uint64_t magic = right_magic;
  ring_session session{};
  std::uint64_t rank = 0;
  std::uint64_t capacity_bytes = 0;
};
static_assert(sizeof(rings_offer) == 40);

std::string name_of(rank one) {
  return "rank " + to_string(one);
}

std::string name_of(const std::string& role, const peer_process& process) {
  return process.id() == 0 ? role : role + " (process " + std::to_string(process.id()) + ")";
}

std::string describe_forgery(const std::string& peer, ring_fault fault, const std::string& self,
                             std::string_view doing) {
  return peer + " has written " + std::string{describe(fault)} + " into the ring that " + self + " " +
         std::string{doing} + ": the ring is closed";
}

} // namespace

ring_connection ring_connection::offer(const file_descriptor& socket, const ring_session& session, rank to,
                                       peer_process peer, std::shared_ptr<shared_doorbell> service_bell,
                                       const ring_settings& settings) {
  auto requests = shared_ring::create({ring_purpose::requests, session, to}, settings.capacity_bytes);
  auto decisions = shared_ring::create({ring_purpose::decisions, session, to}, settings.capacity_bytes);
  auto bell = std::make_shared<shared_doorbell>(shared_doorbell::create({ring_purpose::rank_bell, session, to}));
  const rings_offer offered{
      .session = session, .rank = static_cast<std::uint64_t>(to.value()), .capacity_bytes = settings.capacity_bytes};
  const std::array<int, rings_offer::descriptors> passed{
      requests.memory().descriptor().native(), decisions.memory().descriptor().native(),
      service_bell->memory().descriptor().native(), bell->memory().descriptor().native()};
  send_descriptors(socket, {reinterpret_cast<const char*>(&offered), sizeof offered}, passed);
  requests.memory().close_descriptor();
  decisions.memory().close_descriptor();
  bell->memory().close_descriptor();
  const std::string self = "the order service", name = name_of(name_of(to), peer);
  return {ring_sender{self, name, settings, std::move(decisions), std::move(bell)},
          ring_receiver{self, name, std::move(peer), std::move(requests), std::move(service_bell)}};
}

ring_connection ring_connection::accept(const file_descriptor& socket, const ring_session& session, rank self,
                                        peer_process service, std::chrono::steady_clock::time_point until,
                                        const ring_settings& settings) {
  const std::string peer = name_of("the order service", service);
  const auto refuse = [&](const std::string& reason) {
    throw exception{errc::internal, "the rings that " + peer + " offers to " + name_of(self) + " " + reason};
  };
  passed_descriptors got;
  rings_offer offered;
  bool is_unused = true;
  while (is_unused) {
    got = receive_descriptors(socket, sizeof(rings_offer), rings_offer::descriptors, until);
    std::memcpy(&offered, got.bytes.data(), sizeof offered);
    if (offered.magic != rings_offer::right_magic) refuse("are not of troupe");
    // Of another epoch of this connection, in which the service has not served the rank after all.
    is_unused = offered.session != session && offered.session.words[0] == session.words[0];
  }
  if (offered.session != session) refuse("are of another session");
  if (offered.rank != static_cast<std::uint64_t>(self.value())) refuse("are of rank " + std::to_string(offered.rank));
  if (offered.capacity_bytes > most_ring_bytes) refuse("are too large");
  const auto capacity_bytes = static_cast<std::size_t>(offered.capacity_bytes);
  const auto what = [&](std::string_view one) {
    return "the " + std::string{one} + " that " + peer + " offers to " + name_of(self);
  };
  auto& from = got.descriptors;
  auto requests = shared_ring::open(std::move(from[0]), {ring_purpose::requests, session, self}, capacity_bytes,
                                    what("ring of requests"));
  auto decisions = shared_ring::open(std::move(from[1]), {ring_purpose::decisions, session, self}, capacity_bytes,
                                     what("ring of decisions"));
  auto service_bell = std::make_shared<shared_doorbell>(shared_doorbell::open(
      std::move(from[2]), {.purpose = ring_purpose::service_bell}, what("doorbell of the service")));
  auto bell = std::make_shared<shared_doorbell>(shared_doorbell::open(
      std::move(from[3]), {ring_purpose::rank_bell, session, self}, what("doorbell of the rank")));
  for (shared_memory* one : {&requests.memory(), &decisions.memory(), &service_bell->memory(), &bell->memory()})
    one->close_descriptor();
  return {ring_sender{name_of(self), peer, settings, std::move(requests), std::move(service_bell)},
          ring_receiver{name_of(self), peer, std::move(service), std::move(decisions), std::move(bell)}};
}

ring_sender::ring_sender(std::string self, std::string peer, const ring_settings& settings, shared_ring out,
                         std::shared_ptr<shared_doorbell> peer_bell)
  : self_{std::move(self)},
    peer_{std::move(peer)},
    settings_{settings},
    out_{std::move(out)},
    peer_bell_{std::move(peer_bell)},
    writer_{out_.writer()},
    running_{time_point{}, {}} {}

error ring_sender::fail(errc code, std::string text) {
  if (!failure_) failure_ = {.code = code, .text = std::move(text)};
  kept_.clear();
  kept_bytes_ = kept_from_ = 0;
  return failure_;
}

std::size_t ring_sender::write(std::string_view message, std::size_t from) {
  do {
    const std::string_view part = message.substr(from, writer_.most_bytes());
    if (writer_.write(part, from + part.size() < message.size()) != ring_write::written) return from;
    from += part.size();
  } while (from < message.size());
  return std::string_view::npos;
}

error ring_sender::send(std::string_view message, time_point now) {
  error why = post(message, now);
  if (std::exchange(has_posted_, false)) peer_bell_->caller().ring();
  return why;
}

void ring_sender::wake_posted() {
  if (std::exchange(has_posted_, false)) peer_bell_->caller().ring_after_fence();
}

error ring_sender::post(std::string_view message, time_point now) {
  if (failure_) return failure_;
  if (message.size() > longest_ring_message_bytes)
    return {.code = errc::invalid_argument,
            .text = "a message of " + std::to_string(message.size()) + " bytes exceeds the limit of " +
                    std::to_string(longest_ring_message_bytes)};
  // The kept messages go first. They also show what the peer has read since the last attempt, which may be long ago.
  if (!kept_.empty()) {
    if (error why = flush(now)) return why;
    if (!kept_.empty()) return keep(message, 0);
  }
  const std::size_t at = write(message, 0);
  has_posted_ = has_posted_ || at > 0; // some of it has been written, or all (npos)
  if (at == std::string_view::npos) return {};
  read_words_ = writer_.read_words();
  running_ = running_clock{now, settings_.behind / pauses_in_a_limit};
  progress_ = running_.last();
  return keep(message, at);
}

error ring_sender::keep(std::string_view message, std::size_t from) {
  if (writer_.fault() != ring_fault::none)
    return fail(errc::internal, describe_forgery(peer_, writer_.fault(), self_, "writes"));
  if (kept_bytes_ + message.size() > settings_.most_waiting_bytes)
    return fail(errc::deadline_exceeded, peer_ + " is fenced: it does not read the ring that " + self_ +
                                             " writes, and " + std::to_string(kept_bytes_ + message.size()) +
                                             " bytes wait for it");
  if (kept_.empty()) kept_from_ = from;
  kept_bytes_ += message.size();
  kept_.emplace_back(message);
  return {};
}

error ring_sender::flush(time_point now) {
  if (failure_ || kept_.empty()) return failure_;
  bool has_written = false;
  while (!kept_.empty()) {
    const std::size_t at = write(kept_.front(), kept_from_);
    has_written = has_written || at > kept_from_;
    if (at != std::string_view::npos) {
      kept_from_ = at;
      break;
    }
    kept_bytes_ -= kept_.front().size();
    kept_.pop_front();
    kept_from_ = 0;
  }
  if (has_written) peer_bell_->caller().ring();
  return kept_.empty() ? error{} : check_progress(now);
}

error ring_sender::check_progress(time_point real) {
  if (writer_.fault() != ring_fault::none)
    return fail(errc::internal, describe_forgery(peer_, writer_.fault(), self_, "writes"));
  const running_time now = running_.read(real);
  if (writer_.read_words() != read_words_) {
    read_words_ = writer_.read_words();
    progress_ = now;
  }
  if (now - progress_ <= settings_.behind) return {};
  return fail(errc::deadline_exceeded,
              peer_ + " is fenced: it has read nothing for " +
                  std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now - progress_).count()) +
                  " ms from the ring that " + self_ + " writes, which is full");
}

ring_receiver::ring_receiver(std::string self, std::string peer, peer_process process, shared_ring in,
                             std::shared_ptr<shared_doorbell> own_bell)
  : self_{std::move(self)},
    peer_{std::move(peer)},
    process_{std::move(process)},
    in_{std::move(in)},
    own_bell_{std::move(own_bell)},
    reader_{in_.reader()} {}

error ring_receiver::fail(errc code, std::string text) {
  if (!failure_) failure_ = {.code = code, .text = std::move(text)};
  partial_.clear();
  return failure_;
}

bool ring_receiver::receive(std::string& into) {
  while (!failure_) {
    const ring_read got = reader_.read(partial_);
    if (got == ring_read::empty) return false;
    if (got == ring_read::forged) {
      fail(errc::internal, describe_forgery(peer_, reader_.fault(), self_, "reads"));
    } else if (partial_.size() > longest_ring_message_bytes) {
      fail(errc::internal, peer_ + " has written a message of more than " + std::to_string(longest_ring_message_bytes) +
                               " bytes into the ring that " + self_ + " reads: the ring is closed");
    } else if (got == ring_read::last) {
      into.clear();
      into.swap(partial_);
      return true;
    }
  }
  return false;
}

error ring_receiver::check_peer() {
  if (!failure_ && process_.has_ended()) fail(errc::rank_lost, peer_ + " has ended; " + self_ + " was connected to it");
  return failure_;
}

bool ring_receiver::wait(const wait_profile& profile, time_point until, nanoseconds longest_park) {
  time_point now = steady_now();
  const time_point spun = later(now, profile.spin);
  time_point checked = now;
  while (!has_news() && now < until) {
    if (now < spun) {
      for (int i = 0; i < 64 && !has_news(); ++i) spin_pause();
    } else {
      own_bell_->sleeper().park([this] { return has_news(); }, std::min<nanoseconds>(until - now, longest_park));
    }
    now = steady_now();
    if (now - checked >= longest_park && !has_news()) {
      checked = now;
      check_peer();
    }
  }
  return has_news();
}

} // namespace troupe
