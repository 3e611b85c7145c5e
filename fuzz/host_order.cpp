// Fuzzes the order_server of a host on which the controller does not run, with batches of its ranks and with the
// controller's messages. Two bytes precede each: the sender (0 and 1: these ranks; 2: the controller, decisions for
// rank 0; 3: the controller, a complete message) and the length. From senders 0 to 2 come records without a header; the
// header of the next batch is put before them.
#include "fuzz_target.hpp"

#include <troupe/processes/order/codec/batch_header.hpp>
#include <troupe/processes/order/codec/decision_codec.hpp>
#include <troupe/processes/order/order_server.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

using namespace troupe;

namespace {

constexpr int ranks = 3;
constexpr std::array present{rank{0}, rank{1}};

} // namespace

TROUPE_FUZZ_TARGET() {
  order_server order;
  order.open_host(epoch{1}, ranks, present, {}, {});
  std::array<decision_reader, 2> readers{decision_reader{ranks}, decision_reader{ranks}};
  std::array<std::uint64_t, 3> batches{};
  time_point now{std::chrono::hours{1}};
  while (text.size() > 2) {
    const auto sender = static_cast<std::size_t>(text[0] & 3);
    const auto length = std::min<std::size_t>(static_cast<unsigned char>(text[1]), text.size() - 2);
    const std::string_view said = text.substr(2, length);
    text.remove_prefix(2 + length);
    error why;
    if (sender == 3) {
      const host_frame message = decode_host_frame(said, ranks, why);
      if (!why) why = order.receive_from_controller(message);
    } else {
      wire_writer batch;
      batch_header{.epoch = epoch{1}, .number = ++batches[sender]}.write(batch);
      batch.raw(said);
      host_frame message;
      if (sender == 2) message.batches.push_back({rank{0}, std::string{batch.view()}});
      why = sender == 2 ? order.receive_from_controller(message)
                        : order.receive(rank{static_cast<int>(sender)}, batch.view(), now);
    }
    fuzz::require(!why || !why.text.empty(), "a refusal says why");
    now += std::chrono::seconds{1};
    order.expire(now);
    host_frame asked;
    order.take_for_controller(asked, true);
    error unread;
    static_cast<void>(decode_host_frame(encode(asked), ranks, unread));
    fuzz::require(!unread, "what is for the controller can be read");
    for (const rank self : present)
      for (std::string out = order.take_outgoing(self); !out.empty(); out = order.take_outgoing(self)) {
        wire_reader in{out};
        static_cast<void>(batch_header::read(in));
        decision_record one;
        while (readers[static_cast<std::size_t>(self.value())].next(in, one)) continue;
        fuzz::require(in.ok(), "a decision can be decoded");
      }
  }
}
