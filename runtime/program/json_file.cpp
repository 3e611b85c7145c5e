#include "json_file.hpp"

#include <troupe/device/error.hpp>

#include <nlohmann/json.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>

namespace troupe::program {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why) {
  throw exception{errc::invalid_argument, "cannot write " + path.string() + ": " + why +
                                              ": name a file in a folder that you may write to, or - for standard "
                                              "output"};
}

/// A file beside \p path; gone with this object unless it has taken the other's place.
class temporary {
public:
  explicit temporary(std::filesystem::path path)
    : path_{std::move(path)}, name_{path_.string() + "." + std::to_string(::getpid()) + ".part"} {
    const int file = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) refuse(path_, std::strerror(errno)); // NOLINT(concurrency-mt-unsafe): one thread writes files
    file_.reset(::fdopen(file, "w"));
  }
  temporary(const temporary&) = delete;
  temporary& operator=(const temporary&) = delete;
  ~temporary() {
    if (!kept_) ::unlink(name_.c_str());
  }

  void write(std::string_view text) {
    if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() || std::fflush(file_.get()) != 0 ||
        ::fsync(::fileno(file_.get())) != 0)
      refuse(path_, std::strerror(errno)); // NOLINT(concurrency-mt-unsafe)
  }
  void keep() {
    std::error_code problem;
    std::filesystem::rename(name_, path_, problem);
    if (problem) refuse(path_, problem.message());
    kept_ = true;
  }

private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  std::filesystem::path path_;
  std::string name_;
  std::unique_ptr<std::FILE, closer> file_;
  bool kept_ = false;
};

} // namespace

json_file::json_file(const std::string& path) : standard_output_{path == "-"} {
  if (path.empty() || standard_output_) return;
  std::error_code problem;
  path_ = std::filesystem::weakly_canonical(path, problem); // a link stays one: what it leads to is replaced
  while (!problem && std::filesystem::is_symlink(path_))    // it leads to nothing yet
    path_ = std::filesystem::weakly_canonical(path_.parent_path() / std::filesystem::read_symlink(path_), problem);
  if (problem) refuse(path, problem.message());
  const auto status = std::filesystem::status(path_, problem);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    refuse(path_, "it is there and is no ordinary file");
  static_cast<void>(temporary{path_});
}

void json_file::write(const nlohmann::ordered_json& document) const {
  if (!wanted()) return;
  using handler = nlohmann::ordered_json::error_handler_t; // a host may have any bytes for a name
  const std::string text = document.dump(2, ' ', false, handler::replace) + "\n";
  if (standard_output_) {
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
      refuse("-", std::strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    return;
  }
  temporary beside{path_};
  beside.write(text);
  beside.keep();
}

} // namespace troupe::program
