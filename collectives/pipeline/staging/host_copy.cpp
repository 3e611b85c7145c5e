#include <troupe/collectives/pipeline/staging/host_copy.hpp>

#include <cstring>
#include <mutex>
#include <utility>

namespace troupe {

struct host_copies::job {
  job(std::shared_ptr<memory_gate> allowed, std::vector<piece> what)
    : gate{std::move(allowed)}, pieces{std::move(what)} {}

  static void run(void* argument) {
    auto& self = *static_cast<job*>(argument);
    self.gate->pass([&] {
      for (const piece& one : self.pieces) std::memcpy(one.to, one.from, one.size_bytes);
    });
    self.ran.store(true, std::memory_order_release); // the last access to the job
  }

  std::shared_ptr<memory_gate> gate;
  std::vector<piece> pieces;
  std::atomic<bool> ran{false};
};

host_copies::host_copies() = default;

host_copies::~host_copies() {
  // Kept reachable, so that leak checkers do not report it.
  static std::mutex mutex;
  static auto* const left_behind = new std::vector<std::unique_ptr<job>>;
  for (auto& one : jobs_)
    if (!one->ran.load(std::memory_order_acquire)) {
      const std::lock_guard lock{mutex};
      left_behind->push_back(std::move(one));
    }
}

void host_copies::enqueue(stream_ref stream, std::shared_ptr<memory_gate> gate, std::vector<piece> pieces) {
  jobs_.push_back(std::make_unique<job>(std::move(gate), std::move(pieces)));
  // A failed call may have enqueued the job nevertheless, so it is stored first.
  stream.call(&job::run, jobs_.back().get());
}

} // namespace troupe
