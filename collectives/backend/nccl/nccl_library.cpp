#include <troupe/collectives/backend/nccl/nccl_library.hpp>

#include <troupe/collectives/backend/nccl/nccl_api.hpp>
#include <troupe/collectives/backend/nccl/nccl_backend.hpp>
#include <troupe/device/error.hpp>

#include <dlfcn.h>

#include <array>
#include <cstdlib>

namespace troupe {

namespace {

constexpr int oldest_version = 22700;
constexpr const char* soname = "libnccl.so.2";

constexpr const char* remedy =
    "install NCCL 2.27 or newer (package libnccl2, or pip's nvidia-nccl-cu12 or -cu13, whose "
    "library is in site-packages/nvidia/nccl/lib), or give its path in the configuration, "
    "or set the backend to mock";

/// Folders in which packages and images put the library without configuring the dynamic linker.
constexpr std::array usual_folders{
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib",
    "/usr/local/cuda/lib64",     "/usr/local/nccl/lib"};

struct attempt {
  void* handle = nullptr;
  std::string failure; ///< The dynamic linker's message.
};

attempt try_open(const std::string& name) {
  // RTLD_LOCAL: its symbols must not reach other libraries of the program. RTLD_NOW: an incomplete library fails here
  // and not in the middle of a collective.
  attempt result{.handle = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL), .failure = {}};
  if (result.handle == nullptr) {
    const char* words = ::dlerror(); // NOLINT(concurrency-mt-unsafe): the text is thread-local
    result.failure = words != nullptr ? words : name + ": unknown failure";
  }
  return result;
}

void* open_explicit(const std::filesystem::path& path) {
  const attempt tried = try_open(path.string());
  if (tried.handle == nullptr)
    throw exception{errc::missing, "the NCCL library given by the configuration, " + path.string() +
                                       ", cannot be opened (" + tried.failure +
                                       "): correct the path or leave it out, and " + remedy};
  return tried.handle;
}

void* open_found() {
  std::string failures;
  attempt tried = try_open(soname);
  if (tried.handle != nullptr) return tried.handle;
  failures = tried.failure;
  for (const char* folder : usual_folders) {
    tried = try_open(std::string{folder} + '/' + soname);
    if (tried.handle != nullptr) return tried.handle;
    failures += "; " + tried.failure;
  }
  throw exception{errc::missing, "no NCCL library found: " + std::string{remedy} + ". Tried: " + failures};
}

std::filesystem::path file_of(void* function) {
  Dl_info found{};
  if (::dladdr(function, &found) == 0 || found.dli_fname == nullptr) return soname;
  return found.dli_fname;
}

} // namespace

std::shared_ptr<const nccl_library> nccl_library::open(const std::optional<std::filesystem::path>& explicit_path) {
  void* const handle = explicit_path ? open_explicit(*explicit_path) : open_found();

  // Checks the version first: an old library lacks functions too, but its age is the better reason to report.
  void* const version_function = ::dlsym(handle, "ncclGetVersion");
  if (version_function == nullptr)
    throw exception{errc::missing, "the library " + (explicit_path ? explicit_path->string() : std::string{soname}) +
                                       " is not NCCL (it has no ncclGetVersion): " + remedy};
  const std::filesystem::path path = file_of(version_function);
  int number = 0;
  if (reinterpret_cast<decltype(&ncclGetVersion)>(version_function)(&number) != ncclSuccess) number = 0;
  if (number < oldest_version)
    throw exception{errc::too_old, "NCCL " + version_text(number) + " from " + path.string() + " is too old, and " +
                                       version_text(oldest_version) +
                                       " is the oldest version that troupe supports: " + remedy};
  auto functions = std::make_shared<const nccl_functions>(handle);
  // Reads the variables now, before other threads could change the environment. NCCL reads them when it first forms a
  // communicator.
  const char* const enabled = std::getenv("NCCL_RAS_ENABLE"); // NOLINT(concurrency-mt-unsafe)
  const char* const address = std::getenv("NCCL_RAS_ADDR");   // NOLINT(concurrency-mt-unsafe)
  return std::make_shared<const nccl_library>(
      handle, path, number, std::move(functions),
      nccl_ras_command(enabled != nullptr ? enabled : "", address != nullptr ? address : ""));
}

bool nccl_library::is_loaded(const std::optional<std::filesystem::path>& explicit_path) {
  void* const handle = ::dlopen(explicit_path ? explicit_path->c_str() : soname, RTLD_LAZY | RTLD_NOLOAD);
  if (handle == nullptr) return false;
  ::dlclose(handle); // dlopen() increased the reference count
  return true;
}

bool nccl_library::has(std::string_view symbol) const {
  return ::dlsym(handle_, std::string{symbol}.c_str()) != nullptr;
}

} // namespace troupe
