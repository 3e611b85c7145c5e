#include <troupe/device/error.hpp>
#include <troupe/processes/transport/shared_memory/shared_memory.hpp>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace troupe {

namespace {

constexpr int size_seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void refuse_memory(const std::string& what, const std::string& reason) {
  throw exception{errc::internal, what + " " + reason};
}

} // namespace

void throw_memory_failure(const char* call, const std::string& text) {
  const int code = errno;
  const bool is_full = code == ENOMEM || code == ENOSPC || code == EMFILE || code == ENFILE;
  throw_system_error(is_full ? errc::out_of_memory : errc::unsupported, call, text, code);
}

shared_memory::shared_memory(file_descriptor descriptor, std::size_t size_bytes) : descriptor_{std::move(descriptor)} {
  // Populated: the first access to a page costs more than a message.
  void* const at =
      ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor_.native(), 0);
  if (at == MAP_FAILED)
    throw_memory_failure("mmap", std::to_string(size_bytes) + " bytes of shared memory could not be mapped");
  words_ = {static_cast<std::uint64_t*>(at), memory_unmapping{size_bytes}};
}

void memory_unmapping::operator()(std::uint64_t* words) const noexcept {
  ::munmap(words, size_bytes);
}

shared_memory shared_memory::create(const std::string& name, std::size_t size_bytes) {
  file_descriptor made{::memfd_create(name.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!made)
    throw_memory_failure("memfd_create", "shared memory could not be made: raise the limit of descriptors (ulimit -n)");
  const std::string text = std::to_string(size_bytes) + " bytes of shared memory could not be allocated";
  if (::ftruncate(made.native(), static_cast<off_t>(size_bytes)) != 0) throw_memory_failure("ftruncate", text);
  if (::fallocate(made.native(), 0, 0, static_cast<off_t>(size_bytes)) != 0) throw_memory_failure("fallocate", text);
  if (::fcntl(made.native(), F_ADD_SEALS, size_seals) != 0)
    throw_memory_failure("fcntl(F_ADD_SEALS)", "the size of shared memory could not be sealed");
  return shared_memory{std::move(made), size_bytes};
}

shared_memory shared_memory::open(file_descriptor from, std::size_t size_bytes, const std::string& what) {
  const int seals = ::fcntl(from.native(), F_GET_SEALS);
  if (seals < 0) refuse_memory(what, "is not shared memory that can be sealed");
  if ((seals & size_seals) != size_seals) refuse_memory(what, "is not sealed: its size could change");
  struct statfs system {};
  if (::fstatfs(from.native(), &system) != 0 || system.f_type != TMPFS_MAGIC)
    refuse_memory(what, "is not memory in ordinary pages");
  struct stat file {};
  if (::fstat(from.native(), &file) != 0 || file.st_size != static_cast<off_t>(size_bytes))
    refuse_memory(what, "has " + std::to_string(file.st_size) + " bytes and must have " + std::to_string(size_bytes));
  return shared_memory{std::move(from), size_bytes};
}

} // namespace troupe
