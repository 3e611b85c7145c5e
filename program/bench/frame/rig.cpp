#include <troupe/program/bench/frame/rig.hpp>

#include <troupe/device/memory/leak_report.hpp>
#include <troupe/device/topology/topology.hpp>
#include <troupe/runtime/configuration/settings.hpp>

#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>

namespace troupe::program {

namespace {

/// Returns the links between different devices of \p where. Empty if there is only one device or no link is known.
std::vector<device_pair> links_of(runtime& rt, const world& where) {
  std::vector<device_id> devices;
  for (const rank self : where.local_ranks()) devices.push_back(where.device_of(self)->id());
  std::vector<device_pair> links;
  try {
    const auto found = topology::examine(rt.api(), devices);
    std::ranges::copy_if(found.pairs(), std::back_inserter(links),
                         [](const device_pair& one) { return one.from != one.to; });
  } catch (const exception&) { // The measurement does not need it.
  }
  return links;
}

std::string link_text(const device_pair& one) {
  std::string text{to_string(one.link)};
  if (one.nvlink_count) text += " x" + std::to_string(*one.nvlink_count);
  return one.peer_access ? text : text + " without peer access";
}

} // namespace

bench_rig::bench_rig(const configuration& settings, bool with_raw) : rt{settings}, where{rt.form_world()} {
  if (!with_raw) return;
  raw.emplace(rt, where);
  raw->rest();
}

std::vector<std::string> world_heading(runtime& rt, const world& where) {
  std::vector<std::string> lines{rt.describe(), describe(where.status())};
  for (const rank self : where.local_ranks()) {
    const device& on = *where.device_of(self);
    lines.push_back(" rank " + to_string(self) + ": device " + to_string(on.id()) + ", " + device_line(on));
  }
  std::map<std::string, std::size_t> kinds;
  const auto links = links_of(rt, where);
  for (const device_pair& one : links) ++kinds[link_text(one)];
  std::string text;
  for (const auto& [kind, count] : kinds)
    text += (text.empty() ? "" : ", ") + kind + (kinds.size() > 1 ? " (" + std::to_string(count) + " pairs)" : "");
  if (!text.empty()) lines.push_back(" links: " + text);
  return lines;
}

json begin_world_report(std::string_view bench, const std::vector<std::string>& heading, runtime& rt,
                        const world& where) {
  json report = begin_report(bench, heading);
  report["versions"] = {{"collectives", rt.collectives().version()}, {"driver", rt.api().version()}};
  for (const rank self : where.local_ranks()) {
    json one = device_report(*where.device_of(self));
    one["rank"] = self.value();
    report["devices"].push_back(std::move(one));
  }
  json& links = report["links"] = json::array();
  for (const device_pair& one : links_of(rt, where))
    links.push_back({{"from", one.from.value()}, {"to", one.to.value()}, {"link", link_text(one)}});
  report["changed_settings"] = json::array();
  const configuration defaults;
  for (const setting& one : all_settings()) {
    const std::string text = one.text(rt.settings());
    report["settings"][std::string{one.name}] = text;
    if (text != one.text(defaults)) report["changed_settings"].push_back(one.name);
  }
  return report;
}

namespace {

/// Returns the distance in bytes between the operands of two operations, such that they share no memory transaction of
/// the device.
constexpr std::size_t stride(std::size_t size_bytes) noexcept {
  return (size_bytes + 255) / 256 * 256;
}

/// CUDA's plain allocation functions. The driver interface lacks them, because troupe itself allocates only from pools
/// (BUF-1). They are looked up at run time. Types as in cuda.h: CUresult is an int, CUdeviceptr a 64-bit number.
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
  auto* const place = reinterpret_cast<void*>(address); // NOLINT(performance-no-int-to-ptr): CUDA's form of an address
  return adopt(where, place, size_bytes, std::shared_ptr<void>{place, give_back});
}

} // namespace

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
                                              std::size_t count) {
  std::vector<std::vector<operation>> sums(count);
  for (std::size_t i = 0; i < count; ++i)
    for (const buffer& whole : memory) {
      const buffer part = whole.slice(i * stride(size_bytes), size_bytes);
      sums[i].emplace_back(all_reduce{.send = part, .recv = part, .count = size_bytes / sizeof(float)});
    }
  return sums;
}

request_burst::request_burst(std::vector<std::vector<operation>> separate) : separate_{std::move(separate)} {
  std::vector<group> by_rank(separate_.empty() ? 0 : separate_.front().size());
  for (const auto& parts : separate_)
    for (std::size_t r = 0; r < by_rank.size(); ++r) by_rank[r].parts.push_back(parts[r]);
  for (group& mine : by_rank) together_.emplace_back(std::move(mine));
  for (const operation& mine : together_) addresses_.push_back(pointers_to(std::get<group>(mine).parts));
}

double request_burst::ask(world& where, std::span<rank_lane> lanes, bool together) const {
  std::vector<std::future<completion>> replies;
  replies.reserve(separate_.size() * std::max<std::size_t>(1, lanes.size()));
  const auto began = std::chrono::steady_clock::now();
  if (lanes.empty() && together)
    replies.push_back(where.ask(together_));
  else if (lanes.empty())
    for (const auto& parts : separate_) replies.push_back(where.ask(parts));
  for (std::size_t i = 0; i < lanes.size(); ++i)
    if (together)
      replies.push_back(lanes[i].ask(together_[i]));
    else
      for (const operation* const one : addresses_[i]) replies.push_back(lanes[i].ask(*one));
  for (const auto& one : replies) spin_until_answered(one);
  const auto ended = std::chrono::steady_clock::now();
  for (auto& one : replies) static_cast<void>(one.get());
  return in_microseconds(ended - began);
}

double request_burst::launch(raw_ranks& raw, bool together) const {
  return in_microseconds(raw.time([&](std::size_t index, communicator& peers, stream_ref stream) {
    if (together)
      peers.launch_together(addresses_[index], stream);
    else
      for (const operation* const one : addresses_[index]) peers.launch(*one, stream);
  }));
}

} // namespace troupe::program
