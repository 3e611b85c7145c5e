#include <troupe/program/bench/process_footprint.hpp>

#include <troupe/program/bench/allocated_bytes.hpp>

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace troupe::program {

namespace {

std::size_t entries_of(const char* folder) {
  std::error_code failed; // a folder that is not there has no entries
  std::filesystem::directory_iterator all{folder, failed};
  return failed ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t resident_bytes() {
  std::ifstream file{"/proc/self/statm"};
  std::size_t pages = 0, resident = 0;
  file >> pages >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

} // namespace

process_footprint measure_footprint(const world& where) {
  process_footprint now;
  for (const rank self : where.local_ranks()) {
    const device& on = *where.device_of(self);
    const device_description what = on.api().describe(on.id());
    now.device_bytes += static_cast<std::size_t>(what.total_bytes - what.free_bytes);
  }
  now.file_descriptors = entries_of("/proc/self/fd");
  now.threads = entries_of("/proc/self/task");
  now.shared_memory = entries_of("/dev/shm");
  now.heap_bytes = allocated_bytes();
  now.resident_bytes = resident_bytes();
  return now;
}

} // namespace troupe::program
