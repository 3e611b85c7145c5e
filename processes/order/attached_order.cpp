#include <troupe/processes/order/attached_order.hpp>

#include <troupe/processes/order/batch_window.hpp>
#include <troupe/processes/order/codec/batch_header.hpp>

#include <optional>
#include <utility>

namespace troupe {

struct attached_order::outgoing {
  outgoing(epoch begun, std::function<void(std::string)> send) : window{std::in_place, std::move(send)}, of{begun} {}

  std::mutex mutex;
  std::optional<batch_window> window; ///< Empty after close().
  const epoch of;
  request_writer writer;
  std::uint64_t sent = 0;

  void acknowledge(std::uint64_t seen) {
    const std::lock_guard lock{mutex};
    if (window) window->acknowledge(seen);
  }

  void pass(peer_requests::messages all) {
    const std::lock_guard lock{mutex};
    if (!window) return;
    for (auto& one : all) {
      writer.add({.kind = request_record::form::message, .to = one.first, .message = std::move(one.second)});
      if (writer.size_bytes() >= full_batch_bytes) flush();
    }
    if (!writer.empty()) flush();
  }

private:
  void flush() { window->send(writer.take({.epoch = of, .number = ++sent})); }
};

attached_order::attached_order(process_address self, int world_size, epoch of, std::function<void(std::string)> send)
  : epoch_{of},
    out_{std::make_shared<outgoing>(of, std::move(send))},
    peers_{std::make_shared<peer_requests>(self, world_size, of, nullptr,
                                           [out = out_](peer_requests::messages all) { out->pass(std::move(all)); })},
    in_{world_size} {}

attached_order::~attached_order() {
  close({.code = errc::abandoned, .text = "the connection to the world has ended before the request was answered"});
}

error attached_order::receive(std::string_view batch) {
  wire_reader in{batch};
  const batch_header header = batch_header::read(in);
  if (in.ok() && header.epoch < epoch_) return {};
  if (header.epoch > epoch_) in.refuse("it is of an epoch that has not begun here");
  if (header.number != received_ + 1) in.refuse("batches before it are missing, or it is a duplicate");
  if (in.ok()) {
    received_ = header.number;
    out_->acknowledge(header.seen);
  }
  decision_record one;
  while (in_.next(in, one)) {
    if (one.kind == decision_record::form::message)
      peers_->receive(one.from, one.message);
    else
      in.refuse("it has a decision for a rank");
  }
  return in.failure("a batch for a process without a rank");
}

void attached_order::close(const error& why) {
  {
    const std::lock_guard lock{out_->mutex};
    out_->window.reset();
  }
  peers_->close(why);
}

} // namespace troupe
