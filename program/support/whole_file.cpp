#include <troupe/program/support/whole_file.hpp>

#include <troupe/device/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace troupe::program {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& why, const std::string& remedy) {
  throw exception{errc::invalid_argument, "cannot write " + path.string() + ": " + why + ": " + remedy};
}

/// A temporary file beside \p path. The destructor removes it unless it was renamed to \p path.
class temporary {
public:
  temporary(std::filesystem::path path, std::string remedy)
    : path_{std::move(path)},
      remedy_{std::move(remedy)},
      name_{path_.string() + "." + std::to_string(::getpid()) + ".part"} {
    const int file = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (file < 0) refuse(path_, std::generic_category().message(errno), remedy_);
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
      refuse(path_, std::generic_category().message(errno), remedy_);
  }
  void keep() {
    std::error_code problem;
    std::filesystem::rename(name_, path_, problem);
    if (problem) refuse(path_, problem.message(), remedy_);
    kept_ = true;
  }

private:
  struct closer {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };

  std::filesystem::path path_;
  std::string remedy_;
  std::string name_;
  std::unique_ptr<std::FILE, closer> file_;
  bool kept_ = false;
};

} // namespace

whole_file::whole_file(const std::string& path, std::string remedy) : remedy_{std::move(remedy)} {
  std::error_code problem;
  path_ = std::filesystem::weakly_canonical(path, problem); // A link is kept; its target is replaced.
  while (!problem && std::filesystem::is_symlink(path_))    // The link's target does not exist yet.
    path_ = std::filesystem::weakly_canonical(path_.parent_path() / std::filesystem::read_symlink(path_), problem);
  if (problem) refuse(path, problem.message(), remedy_);
  const auto status = std::filesystem::status(path_, problem);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status))
    refuse(path_, "it exists and is not a regular file", remedy_);
  static_cast<void>(temporary{path_, remedy_});
}

void whole_file::write(std::string_view text) const {
  temporary beside{path_, remedy_};
  beside.write(text);
  beside.keep();
}

} // namespace troupe::program
