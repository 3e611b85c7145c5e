#include <troupe/program/bench/bench_operands.hpp>

#include <troupe/device/memory/leak_report.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <memory>
#include <string>

namespace troupe::program {

namespace {

/// Operations are so far apart that no two share a memory transaction of the device.
constexpr std::size_t stride(std::size_t size_bytes) noexcept {
  return (size_bytes + 255) / 256 * 256;
}

/// CUDA's own allocation. The driver interface lacks it, because troupe itself allocates from pools only (BUF-1). It is
/// looked up at run time, with the types of cuda.h: CUresult is an int, CUdeviceptr a 64-bit number.
struct plain_allocation {
  int (*allocate)(unsigned long long* address, std::size_t size_bytes) = nullptr;
  int (*free)(unsigned long long address) = nullptr;

  static plain_allocation find() {
    plain_allocation found;
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return found;
    found.allocate = reinterpret_cast<decltype(found.allocate)>(::dlsym(library, "cuMemAlloc_v2"));
    found.free = reinterpret_cast<decltype(found.free)>(::dlsym(library, "cuMemFree_v2"));
    return found;
  }
};

buffer allocate_plain(const std::shared_ptr<device>& where, std::size_t size_bytes) {
  static const plain_allocation cuda = plain_allocation::find();
  if (where->api().name() != "cuda" || cuda.allocate == nullptr || cuda.free == nullptr)
    throw exception{errc::unsupported, "ordinary memory needs CUDA, but device " + to_string(where->id()) +
                                           " belongs to driver " + std::string{where->api().name()} +
                                           ": use pool or registered memory"};
  where->api().enter_thread(where->id());
  unsigned long long address = 0;
  if (const int code = cuda.allocate(&address, size_bytes); code != 0)
    throw exception{error{.code = errc::out_of_memory,
                          .text = std::to_string(size_bytes) + " bytes of ordinary memory of device " +
                                  to_string(where->id()) + " could not be allocated: measure smaller operations",
                          .call = "cuMemAlloc",
                          .native_code = code}};
  const auto give_back = [where](void* given) {
    return_or_report("ordinary memory", [&] {
      where->api().enter_thread(where->id());
      static_cast<void>(cuda.free(reinterpret_cast<unsigned long long>(given)));
    });
  };
  auto* const place = reinterpret_cast<void*>(address);
  return adopt(where, place, size_bytes, std::shared_ptr<void>{place, give_back});
}

} // namespace

std::string_view to_string(operand_memory kind) noexcept {
  switch (kind) {
    case operand_memory::ordinary: return "ordinary";
    case operand_memory::pool: return "pool";
    case operand_memory::registered: return "registered";
  }
  return {};
}

operand_memory parse_operand_memory(std::string_view name) {
  for (const auto kind : all_operand_memories)
    if (to_string(kind) == name) return kind;
  throw exception{errc::invalid_argument,
                  "'" + std::string{name} + "' is not a memory of operands: choose one of ordinary, pool, registered"};
}

std::vector<buffer> allocate_operands(world& where, operand_memory kind, std::size_t size_bytes) {
  if (kind == operand_memory::registered) {
    constexpr std::size_t least_bytes = std::size_t{8} << 20U;
    if (where.registered_memory().size_bytes == 0) where.register_memory(std::max(least_bytes, 2 * size_bytes));
    return where.allocate_all(size_bytes);
  }
  std::vector<buffer> memory;
  for (const rank self : where.local_ranks())
    memory.push_back(kind == operand_memory::pool ? where.allocate(self, size_bytes)
                                                  : allocate_plain(where.device_of(self), size_bytes));
  return memory;
}

std::size_t sums_bytes(std::size_t size_bytes, std::size_t count) noexcept {
  return count * stride(size_bytes);
}

std::vector<std::vector<operation>> make_sums(const std::vector<buffer>& memory, std::size_t size_bytes,
                                              std::size_t count, std::size_t first) {
  std::vector<std::vector<operation>> sums(count);
  for (std::size_t i = 0; i < count; ++i)
    for (const buffer& whole : memory) {
      const buffer part = whole.slice(first + i * stride(size_bytes), size_bytes);
      sums[i].emplace_back(all_reduce{.send = part, .recv = part, .count = size_bytes / sizeof(float)});
    }
  return sums;
}

std::vector<std::vector<operation>> by_rank(const std::vector<std::vector<operation>>& sums) {
  std::vector<std::vector<operation>> turned(sums.empty() ? 0 : sums.front().size());
  for (const auto& one : sums)
    for (std::size_t r = 0; r < turned.size(); ++r) turned[r].push_back(one[r]);
  return turned;
}

} // namespace troupe::program
