#include <troupe/processes/control/epoch_rings.hpp>

#include <troupe/processes/transport/shared_memory/peer_process.hpp>

#include <chrono>

namespace troupe {

std::optional<ring_session> epoch_rings::knock() {
  gate_ = knock_ && !is_closed_ ? knock_() : std::nullopt;
  return gate_ ? std::optional{gate_->nonce} : std::nullopt;
}

bool epoch_rings::has_gate() const {
  return gate_ && !has_left(*gate_);
}

void epoch_rings::accept(epoch of, rank self) {
  if (!gate_ || is_closed_) return;
  try {
    // The descriptors were sent before the message that announces them, so there is nothing to wait for.
    accepted_ = ring_connection::accept(gate_->socket, session_in(gate_->nonce, of), self,
                                        peer_process::of_socket(gate_->socket), std::chrono::steady_clock::now());
  } catch (const exception& failure) {
    gate_.reset(); // so that the controller cannot offer rings again: it learns of this by a batch without rings
    warn(failure);
  }
}

std::function<void(std::string)> epoch_rings::open(ring_listener to) {
  if (!accepted_) return {};
  try {
    open_ = std::make_shared<ring_endpoint>(*std::exchange(accepted_, std::nullopt), wait_, std::move(to));
    return open_->sender();
  } catch (const exception& failure) { // no thread
    warn(failure);
    return {};
  }
}

void epoch_rings::retire() {
  accepted_.reset();
  if (!open_) return;
  open_->stop();
  retired_.push_back(std::exchange(open_, nullptr));
}

void epoch_rings::close() {
  is_closed_ = true;
  retire();
  gate_.reset();
}

void epoch_rings::warn(const exception& failure) const {
  if (!warned_) return;
  error why = failure.why();
  why.text = "requests go through the control connection, not through shared memory: " + why.text;
  warned_(why);
}

} // namespace troupe
