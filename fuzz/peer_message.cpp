// Fuzzes the decoders of a rank's process for remote requests: messages of other processes, and messages of CAF nodes.
// The first byte selects the decoder.
#include "fuzz_target.hpp"

#include <troupe/actors/caf/remote_messages.hpp>
#include <troupe/processes/order/peer_requests.hpp>

#include <memory>
#include <string>
#include <string_view>

using namespace troupe;

namespace {

/// Checks that an accepted message survives encoding and decoding.
template <class Message>
void check(std::string_view bytes) {
  Message one, again;
  if (!decode_message(bytes, one)) return;
  const std::string once = encode_message(one);
  fuzz::require(decode_message(once, again), "an encoded message can be decoded");
  fuzz::require(encode_message(again) == once, "decoding an encoded message gives the same message");
}

void check_request(std::string_view bytes) {
  try {
    const world_request one = remote_request::of_bytes(std::string{bytes}).what();
    const remote_request once{one};
    fuzz::require(remote_request{once.what()}.bytes() == once.bytes(), "a request is the same after a second trip");
  } catch (const exception& why) {
    fuzz::require(!why.why().text.empty(), "a refusal says why");
  }
}

/// Lets a rank's process handle the message. It answers requests that it can decode.
void receive(std::string_view bytes) {
  const auto exported = std::make_shared<exported_memory>(1);
  const auto rank_side =
      std::make_shared<peer_requests>(process_address{0}, 2, epoch{1}, exported, [](const peer_requests::messages&) {});
  rank_services services;
  services.ask = [](rank_request, const error&, reply_promise reply, std::uint64_t) { reply.deliver(completion{}); };
  services.here = {.memory = exported};
  services.lend = [](lent_kind, std::size_t, const rank_services::lent& done) {
    done({}, {.code = errc::missing, .text = "nothing is lent here"});
  };
  services.capture = [](std::vector<operation>, const plan_options&, const error&,
                        const rank_services::captured& done) {
    done(nullptr, {.code = errc::unsupported, .text = "nothing is captured here"});
  };
  rank_side->serve(std::move(services));
  rank_side->receive(process_address{-1}, bytes);
  rank_side->close({.code = errc::stopping, .text = "over"});
}

} // namespace

TROUPE_FUZZ_TARGET() {
  if (text.empty()) return;
  const std::string_view bytes = text.substr(1);
  switch (static_cast<unsigned char>(text.front()) % 8U) {
    case 0: return check<completion>(bytes);
    case 1: return check<error>(bytes);
    case 2: return check<remote_buffer>(bytes);
    case 3: return check<find_memory_request>(bytes);
    case 4: return check<world_event>(bytes);
    case 5: return check_request(bytes);
    case 7: return check<ready_query>(bytes);
    default: return receive(bytes);
  }
}
