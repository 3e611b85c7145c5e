#include <troupe/collectives/backend/gloo/gloo_mesh.hpp>
#include <troupe/device/memory/leak_report.hpp>

#include <gloo/transport/pair.h>
#include <gloo/transport/unbound_buffer.h>

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

namespace troupe {

namespace {

[[noreturn]] void report_cut() {
  throw exception{errc::communicator_failed, "the communicator was aborted"};
}

} // namespace

class gloo_mesh::tracked_buffer final : public gloo::transport::UnboundBuffer {
public:
  tracked_buffer(std::shared_ptr<tracker> all, std::unique_ptr<UnboundBuffer> inner)
    : UnboundBuffer{inner->ptr, inner->size}, all_{std::move(all)}, inner_{std::move(inner)} {
    const std::lock_guard lock{all_->guard};
    if (all_->is_cut) report_cut();
    all_->buffers.insert(inner_.get());
  }
  tracked_buffer(const tracked_buffer&) = delete;
  tracked_buffer& operator=(const tracked_buffer&) = delete;
  // The destructor of inner_ waits until the transport's thread no longer uses the buffer. After that no thread touches
  // the memory.
  ~tracked_buffer() override {
    const std::lock_guard lock{all_->guard};
    all_->buffers.erase(inner_.get());
  }

  bool waitRecv(int* peer, std::chrono::milliseconds timeout) override {
    if (!inner_->waitRecv(peer, timeout)) report_cut();
    return true;
  }
  bool waitSend(int* peer, std::chrono::milliseconds timeout) override {
    if (!inner_->waitSend(peer, timeout)) report_cut();
    return true;
  }
  void abortWaitRecv() override { inner_->abortWaitRecv(); }
  void abortWaitSend() override { inner_->abortWaitSend(); }

  void send(int to, std::uint64_t slot, std::size_t offset, std::size_t size_bytes) override {
    expect_whole();
    inner_->send(to, slot, offset, size_bytes);
  }
  void recv(int from, std::uint64_t slot, std::size_t offset, std::size_t size_bytes) override {
    expect_whole();
    inner_->recv(from, slot, offset, size_bytes);
  }
  void recv(std::vector<int> from, std::uint64_t slot, std::size_t offset, std::size_t size_bytes) override {
    expect_whole();
    inner_->recv(std::move(from), slot, offset, size_bytes);
  }

private:
  /// Throws after cut(). The inner buffer forgets an aborted wait, so a loop of waits would continue without this
  /// check.
  void expect_whole() {
    const std::lock_guard lock{all_->guard};
    if (all_->is_cut) report_cut();
  }

  const std::shared_ptr<tracker> all_;
  const std::unique_ptr<UnboundBuffer> inner_;
};

gloo_mesh::gloo_mesh(std::shared_ptr<gloo::transport::Context> inner, std::weak_ptr<gloo_reach> reach)
  : Context{inner->rank, inner->size}, inner_{std::move(inner)}, reach_{std::move(reach)} {}

std::unique_ptr<gloo::transport::Pair>& gloo_mesh::getPair(int peer) {
  if (const auto reach = reach_.lock()) reach->connecting(troupe::rank{peer});
  return inner_->getPair(peer);
}

std::unique_ptr<gloo::transport::Pair>& gloo_mesh::createPair(int peer) {
  const std::lock_guard lock{pairs_guard_};
  {
    const std::lock_guard also{all_->guard};
    if (all_->is_cut) report_cut();
  }
  inner_->setTimeout(getTimeout());
  return inner_->createPair(peer);
}

std::unique_ptr<gloo::transport::UnboundBuffer> gloo_mesh::createUnboundBuffer(void* memory, size_t size_bytes) {
  return std::make_unique<tracked_buffer>(all_, inner_->createUnboundBuffer(memory, size_bytes));
}

void gloo_mesh::cut() noexcept {
  return_or_report("a communicator's connections", [&] {
    {
      const std::lock_guard lock{all_->guard};
      all_->is_cut = true;
      for (gloo::transport::UnboundBuffer* one : all_->buffers) {
        one->abortWaitRecv();
        one->abortWaitSend();
      }
    }
    const std::lock_guard lock{pairs_guard_};
    for (int i = 0; i < size; ++i)
      if (const auto& one = inner_->getPair(i)) one->close();
  });
}

std::shared_ptr<gloo::transport::Context> gloo_mesh_device::createContext(int self, int world_size) {
  const std::lock_guard lock{guard_};
  if (is_cut_) report_cut();
  made_ = std::make_shared<gloo_mesh>(inner_->createContext(self, world_size), reach_);
  return made_;
}

void gloo_mesh_device::cut() noexcept {
  std::shared_ptr<gloo_mesh> whole;
  {
    const std::lock_guard lock{guard_};
    is_cut_ = true;
    whole = made_;
  }
  if (whole) whole->cut();
}

} // namespace troupe
