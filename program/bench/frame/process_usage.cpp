#include <troupe/program/bench/frame/process_usage.hpp>

#include <malloc.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

namespace troupe::program {

namespace {

using std::chrono::nanoseconds;

/// Returns the CPU time of the thread of this process with kernel id \p id, or an empty optional if the thread has
/// ended. clock_getcpuclockid() converts only process ids, so the clock's number is composed here: the complement of
/// the id, with the kernel's flags for "per thread" and "scheduled time".
std::optional<nanoseconds> clock_of(int id) noexcept {
  constexpr unsigned of_a_thread = 4, time_it_ran = 2;
  const auto clock = static_cast<clockid_t>((~static_cast<unsigned>(id) << 3U) | of_a_thread | time_it_ran);
  timespec used{};
  if (::clock_gettime(clock, &used) != 0) return std::nullopt;
  return std::chrono::seconds{used.tv_sec} + nanoseconds{used.tv_nsec};
}

} // namespace

thread_group group_of(std::string_view name, bool first) noexcept {
  if (first) return thread_group::clients;
  if (name.starts_with("troupe/gpu")) return thread_group::launchers;
  if (name == "troupe/poll") return thread_group::poller;
  if (name.starts_with("caf.")) return thread_group::workers;
  if (name.starts_with("bench/raw")) return thread_group::raw;
  if (name.starts_with("bench/")) return thread_group::clients;
  return thread_group::others;
}

thread_times thread_times::now() {
  thread_times all;
  std::error_code gone; // A thread may end meanwhile.
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/task", gone}) {
    const int id = std::stoi(entry.path().filename().string());
    const auto used = clock_of(id);
    if (!used) continue;
    thread_use one{.id = id, .name = {}, .cpu = *used};
    std::getline(std::ifstream{entry.path() / "comm"}, one.name);
    one.group = group_of(one.name, id == ::getpid());
    all.threads_[id] = std::move(one);
  }
  all.taken_at_ = std::chrono::steady_clock::now();
  return all;
}

std::vector<thread_use> thread_times::since(const thread_times& before) const {
  std::vector<thread_use> uses;
  for (const auto& [id, now] : threads_) {
    uses.push_back(now);
    const auto earlier = before.threads_.find(id);
    if (earlier != before.threads_.end()) uses.back().cpu -= earlier->second.cpu;
  }
  return uses;
}

nanoseconds sum_of(const std::vector<thread_use>& uses, thread_group group) noexcept {
  nanoseconds all{0};
  for (const thread_use& one : uses)
    if (one.group == group) all += one.cpu;
  return all;
}

} // namespace troupe::program

// A function of the sanitizers' runtime. Allocations of a sanitized program do not go through the heap that mallinfo2
// reports.
extern "C" [[gnu::weak]] std::size_t __sanitizer_get_current_allocated_bytes(); // NOLINT(bugprone-reserved-identifier)

namespace troupe::program {

std::size_t allocated_bytes() {
  if (__sanitizer_get_current_allocated_bytes != nullptr) return __sanitizer_get_current_allocated_bytes();
  const struct mallinfo2 heap = ::mallinfo2();
  return heap.uordblks + heap.hblkhd;
}

} // namespace troupe::program
