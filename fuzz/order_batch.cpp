// Fuzzes the order_server with batches of requests from the ranks' processes, and the decision_readers with its
// decisions. Two bytes precede each batch: the sending rank with a flag (4), and the length. Without the flag the bytes
// are records, before which the header of the rank's next batch is put, so that inputs outlive the header's versions.
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

} // namespace

TROUPE_FUZZ_TARGET() {
  order_server order;
  order.open(epoch{1}, ranks);
  std::array<decision_reader, ranks> readers{decision_reader{ranks}, decision_reader{ranks}, decision_reader{ranks}};
  std::array<std::uint64_t, ranks + 1> batches{};
  time_point now{std::chrono::hours{1}};
  while (text.size() > 2) {
    const rank from{text[0] & 3}; // 0 to 3, where 3 is out of range
    const bool has_header = (text[0] & 4) != 0;
    const auto length = std::min<std::size_t>(static_cast<unsigned char>(text[1]), text.size() - 2);
    wire_writer batch;
    if (!has_header)
      batch_header{.epoch = epoch{1}, .number = ++batches[static_cast<std::size_t>(from.value())]}.write(batch);
    batch.raw(text.substr(2, length));
    if (const error why = order.receive(from, batch.view(), now))
      fuzz::require(!why.text.empty(), "a refusal says why");
    text.remove_prefix(2 + length);
    now += std::chrono::seconds{1};
    order.expire(now);
    static_cast<void>(order.take_straggling());
    for (int i = 0; i < ranks; ++i)
      for (std::string out = order.take_outgoing(rank{i}); !out.empty(); out = order.take_outgoing(rank{i})) {
        wire_reader in{out};
        static_cast<void>(batch_header::read(in));
        decision_record one;
        while (readers[static_cast<std::size_t>(i)].next(in, one)) continue;
        fuzz::require(in.ok(), "a decision can be decoded");
      }
  }
}
