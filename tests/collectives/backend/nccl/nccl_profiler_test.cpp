// The profiler in this program, found and called as NCCL does it: by name, with its own structures.
#include <troupe/collectives/backend/communicator.hpp>
#include <troupe/collectives/backend/nccl/nccl_profiler.hpp>

#include <catch2/catch_test_macros.hpp>

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

using namespace troupe;

namespace {

/// As NCCL writes its events, by offset (NCCL 2.28.9 on 64-bit machines, as a program that includes its
/// profiler_v4.h and profiler_v5.h prints them).
class raw_event {
public:
  template <class Value>
  raw_event& put(std::size_t offset, Value value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof value);
    return *this;
  }
  [[nodiscard]] void* address() { return bytes_.data(); }

private:
  alignas(8) std::array<std::byte, 128> bytes_{};
};

constexpr std::uint64_t collective = 2, point_to_point = 4, proxy_operation = 8, group_call = 256;

struct profiler_table {
  const char* name;
  void* init;
  int (*start)(void* context, void** handle, void* what);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, void* arguments);
  int (*finalize)(void* context);
};

using init_v4 = int (*)(void**, int*, const char*, std::uint64_t, int, int, int, void*);
using init_v5 = int (*)(void**, std::uint64_t, int*, const char*, int, int, int, void*);

const profiler_table& table(const char* symbol) {
  void* const program = ::dlopen(nullptr, RTLD_NOW | RTLD_LOCAL); // what STATIC_PLUGIN means
  REQUIRE(program != nullptr);
  const auto* const found = static_cast<const profiler_table*>(::dlsym(program, symbol));
  INFO("the program does not export " << symbol);
  REQUIRE(found != nullptr);
  return *found;
}

raw_event an_all_reduce() {
  raw_event made;
  made.put(16, 3) // rank
      .put(32, "AllReduce")
      .put(56, std::size_t{1024})
      .put(72, "ncclFloat32")
      .put(80, std::uint8_t{24})
      .put(81, std::uint8_t{16})
      .put(88, "RING")
      .put(96, "LL128");
  return made;
}

void check_all_reduce(const nccl_use& seen, std::uint64_t communicator) {
  CHECK(seen.communicator == communicator);
  CHECK(seen.rank == 3);
  CHECK(seen.function == "AllReduce");
  CHECK(seen.type == "ncclFloat32");
  CHECK(seen.count == 1024);
  CHECK(seen.algorithm == "RING");
  CHECK(seen.protocol == "LL128");
  CHECK(seen.channels == 24);
  CHECK(seen.warps == 16);
  CHECK(seen.proxy_operations == 0);
}

} // namespace

TEST_CASE("NCCL 2.28 and later tell a collective's algorithm, protocol and channels", "[collectives][nccl]") {
  const profiler_table& plugin = table("ncclProfiler_v5");
  CHECK(plugin.name == std::string{"troupe"});
  const std::size_t communicators = profiled_communicators(), mark = nccl_use_count();
  void* context = nullptr;
  int wanted = 0;
  REQUIRE(reinterpret_cast<init_v5>(plugin.init)(&context, 0xfeedULL, &wanted, nullptr, 1, 4, 3, nullptr) == 0);
  CHECK(context != nullptr);
  CHECK(wanted == static_cast<int>(collective | point_to_point | proxy_operation));
  CHECK(profiled_communicators() == communicators + 1);

  void* group = &context;
  CHECK(plugin.start(context, &group, raw_event{}.put(0, group_call).address()) == 0);
  CHECK(group == nullptr); // announced along with the rest; not asked for
  void* handle = nullptr;
  CHECK(plugin.start(context, &handle, an_all_reduce().put(0, collective).address()) == 0);
  REQUIRE(handle != nullptr);
  const auto seen = nccl_uses(mark);
  REQUIRE(seen.size() == 1);
  check_all_reduce(seen.front(), 0xfeed);

  // A step of a host thread of this process belongs to it; one of another process names what is not here.
  void* step = nullptr;
  for (const pid_t process : {::getpid(), ::getppid()})
    CHECK(plugin.start(context, &step, raw_event{}.put(0, proxy_operation).put(8, handle).put(24, process).address()) ==
          0);
  CHECK(nccl_uses(mark).front().proxy_operations == 1);
  CHECK(plugin.record(handle, 24, nullptr) == 0);
  CHECK(plugin.stop(handle) == 0);
  CHECK(plugin.finalize(context) == 0);
  CHECK(nccl_uses(mark).size() == 1);
}

TEST_CASE("NCCL 2.27 tells the same by its older interface, and of a send its peer", "[collectives][nccl]") {
  const profiler_table& plugin = table("ncclProfiler_v4");
  const std::size_t mark = nccl_use_count();
  void* context = nullptr;
  int wanted = 0;
  REQUIRE(reinterpret_cast<init_v4>(plugin.init)(&context, &wanted, "name", 0xbeefULL, 1, 4, 3, nullptr) == 0);
  void* handle = nullptr;
  // Its type is one byte, and what follows is left as it was.
  raw_event first = an_all_reduce();
  first.put(0, std::uint64_t{0xffffffffffffff00} | collective);
  CHECK(plugin.start(context, &handle, first.address()) == 0);
  raw_event second;
  second.put(0, std::uint8_t{point_to_point})
      .put(16, 3)
      .put(24, "Send")
      .put(40, "ncclInt8")
      .put(48, std::size_t{99})
      .put(56, 2)
      .put(60, std::uint8_t{4});
  CHECK(plugin.start(context, &handle, second.address()) == 0);
  const auto seen = nccl_uses(mark);
  REQUIRE(seen.size() == 2);
  check_all_reduce(seen[0], 0xbeef);
  CHECK(seen[1].function == "Send");
  CHECK(seen[1].type == "ncclInt8");
  CHECK(seen[1].count == 99);
  CHECK(seen[1].peer == 2);
  CHECK(seen[1].channels == 4);
  CHECK(seen[1].algorithm.empty());
  CHECK(nccl_uses(mark + 1).size() == 1);
  CHECK(nccl_uses(mark + 100).empty());
}
