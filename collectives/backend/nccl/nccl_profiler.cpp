#include <troupe/collectives/backend/nccl/nccl_profiler.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <deque>
#include <mutex>

// Declares NCCL's interface for profiler plugins. Source: NCCL 2.27.3 to 2.30, src/include/plugin/profiler/
// profiler_v4.h and profiler_v5.h, nccl_profiler.h. NCCL 2.27 asks for v4. NCCL 2.28 and later prefer v5 or newer, and
// accept v5.
namespace troupe::nccl_abi {

enum event_type : std::uint64_t { collective = 1U << 1U, point_to_point = 1U << 2U, proxy_operation = 1U << 3U };

struct collective_task {
  std::uint64_t sequence;
  const char* function;
  const void* send;
  void* recv;
  std::size_t count;
  int root;
  const char* type;
  std::uint8_t channels;
  std::uint8_t warps;
  const char* algorithm;
  const char* protocol;
};

struct point_to_point_task {
  const char* function;
  void* memory;
  const char* type;
  std::size_t count;
  int peer;
  std::uint8_t channels;
};

struct proxy_task {
  ::pid_t process; ///< The process whose address space contains the parent.
  std::uint8_t channel;
  int peer;
  int steps;
  int chunk_bytes;
  int sends;
};

/// NCCL's structures are longer; only the members declared here are read. The versions differ in the width of the type.
template <class Type>
struct event {
  Type type;
  void* parent;
  int rank;
  union {
    collective_task coll;
    point_to_point_task p2p;
    proxy_task proxy;
  };
};
using event_v4 = event<std::uint8_t>;
using event_v5 = event<std::uint64_t>;

static_assert(offsetof(event_v4, parent) == 8 && offsetof(event_v4, rank) == 16 && offsetof(event_v4, coll) == 24);
static_assert(offsetof(event_v5, parent) == 8 && offsetof(event_v5, rank) == 16 && offsetof(event_v5, coll) == 24);
static_assert(offsetof(collective_task, count) == 32 && offsetof(collective_task, type) == 48);
static_assert(offsetof(collective_task, channels) == 56 && offsetof(collective_task, warps) == 57);
static_assert(offsetof(collective_task, algorithm) == 64 && offsetof(collective_task, protocol) == 72);
static_assert(offsetof(point_to_point_task, peer) == 32 && offsetof(point_to_point_task, channels) == 36);
static_assert(offsetof(proxy_task, peer) == 8);

using logger = void (*)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

struct profiler_v4 {
  const char* name;
  int (*init)(void** context, int* activation, const char* communicator_name, std::uint64_t communicator, int nodes,
              int ranks, int rank, logger log);
  int (*start)(void* context, void** handle, event_v4* what);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};

struct profiler_v5 {
  const char* name;
  int (*init)(void** context, std::uint64_t communicator, int* activation, const char* communicator_name, int nodes,
              int ranks, int rank, logger log);
  int (*start)(void* context, void** handle, event_v5* what);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};

} // namespace troupe::nccl_abi

namespace troupe {

namespace {

using namespace nccl_abi;

/// Never destroyed, and never frees an element: NCCL's threads may hold handles while the process exits.
struct recorder {
  static constexpr std::size_t most = 4096;

  std::mutex mutex;
  std::deque<std::uint64_t> communicators; ///< A context is the address of an element.
  std::deque<nccl_use> uses;               ///< A handle is the address of an element.

  static recorder& instance() {
    static auto* const made = new recorder;
    return *made;
  }
};

std::string words(const char* text) {
  return text != nullptr ? text : "";
}

int enter(void** context, std::uint64_t communicator, int* activation) noexcept try {
  recorder& all = recorder::instance();
  const std::lock_guard lock{all.mutex};
  *context = &all.communicators.emplace_back(communicator);
  *activation = static_cast<int>(collective | point_to_point | proxy_operation);
  return 0;
} catch (...) {
  return 1; // NCCL continues without a profiler
}

/// NCCL also announces kinds of events that were not asked for. They get no handle.
template <class Event>
int start(void* context, void** handle, const Event* what) noexcept try {
  *handle = nullptr;
  if (context == nullptr) return 0;
  recorder& all = recorder::instance();
  const std::lock_guard lock{all.mutex};
  if (what->type == proxy_operation) {
    if (what->parent != nullptr && what->proxy.process == ::getpid())
      ++static_cast<nccl_use*>(what->parent)->proxy_operations;
    return 0;
  }
  if ((what->type != collective && what->type != point_to_point) || all.uses.size() >= recorder::most) return 0;
  nccl_use one{.communicator = *static_cast<const std::uint64_t*>(context), .rank = what->rank};
  if (what->type == collective) {
    one.function = words(what->coll.function);
    one.type = words(what->coll.type);
    one.count = what->coll.count;
    one.algorithm = words(what->coll.algorithm);
    one.protocol = words(what->coll.protocol);
    one.channels = what->coll.channels;
    one.warps = what->coll.warps;
  } else {
    one.function = words(what->p2p.function);
    one.type = words(what->p2p.type);
    one.count = what->p2p.count;
    one.channels = what->p2p.channels;
    one.peer = what->p2p.peer;
  }
  *handle = &all.uses.emplace_back(std::move(one));
  return 0;
} catch (...) {
  return 0; // the event is not recorded
}

int init_v4(void** context, int* activation, const char*, std::uint64_t communicator, int, int, int, logger) {
  return enter(context, communicator, activation);
}
int init_v5(void** context, std::uint64_t communicator, int* activation, const char*, int, int, int, logger) {
  return enter(context, communicator, activation);
}
int start_v4(void* context, void** handle, event_v4* what) {
  return start(context, handle, what);
}
int start_v5(void* context, void** handle, event_v5* what) {
  return start(context, handle, what);
}
int stop(void*) {
  return 0;
}
int record(void*, int, void*) {
  return 0;
}
int finalize(void*) {
  return 0;
}

} // namespace

std::size_t profiled_communicators() {
  recorder& all = recorder::instance();
  const std::lock_guard lock{all.mutex};
  return all.communicators.size();
}

std::size_t nccl_use_count() {
  recorder& all = recorder::instance();
  const std::lock_guard lock{all.mutex};
  return all.uses.size();
}

std::vector<nccl_use> nccl_uses(std::size_t from) {
  recorder& all = recorder::instance();
  const std::lock_guard lock{all.mutex};
  const std::size_t first = std::min(from, all.uses.size());
  return {all.uses.begin() + static_cast<std::ptrdiff_t>(first), all.uses.end()};
}

} // namespace troupe

// NCCL finds the plugin by these names.
extern "C" {
extern const troupe::nccl_abi::profiler_v4 ncclProfiler_v4;
extern const troupe::nccl_abi::profiler_v5 ncclProfiler_v5;
const troupe::nccl_abi::profiler_v4 ncclProfiler_v4{"troupe",     troupe::init_v4, troupe::start_v4,
                                                    troupe::stop, troupe::record,  troupe::finalize};
const troupe::nccl_abi::profiler_v5 ncclProfiler_v5{"troupe",     troupe::init_v5, troupe::start_v5,
                                                    troupe::stop, troupe::record,  troupe::finalize};
}
