/// Opens the machine's NCCL library at run time, so that one program runs on machines with and without NCCL.
/// Needs no NCCL header, so that diagnosis and version output can use it.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

struct nccl_functions; // defined in nccl_api.hpp; for collectives/backend/nccl only

/// An opened libnccl. It is never closed, because NCCL's threads may still run, so it is usable until the process ends.
/// Threads: safe from any.
class nccl_library {
public:
  /// Opens \p explicit_path if given, and no other file. Otherwise opens `libnccl.so.2` as the dynamic linker finds it
  /// (an already loaded one comes first), and then tries the usual folders.
  /// Errors: missing (the text names every place tried), too_old (before NCCL 2.27), unsupported (incomplete).
  [[nodiscard]] static std::shared_ptr<const nccl_library>
  open(const std::optional<std::filesystem::path>& explicit_path = {});

  /// Returns whether the library that open() would open is already in this process, because the program is linked to it
  /// or another library loaded it. NCCL may then have read its environment variables already.
  [[nodiscard]] static bool is_loaded(const std::optional<std::filesystem::path>& explicit_path = {});

  nccl_library(void* handle, std::filesystem::path path, int version_number,
               std::shared_ptr<const nccl_functions> functions, std::string ras_command = {})
    : handle_{handle},
      path_{std::move(path)},
      version_number_{version_number},
      functions_{std::move(functions)},
      ras_command_{std::move(ras_command)} {}

  /// Returns NCCL's version code, e.g. 22809.
  [[nodiscard]] int version_number() const noexcept { return version_number_; }
  /// Returns the version as text, e.g. "2.28.9".
  [[nodiscard]] std::string version() const { return version_text(version_number_); }
  /// Returns the path of the loaded file.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Returns whether the library has a function called \p symbol, e.g. "ncclCommShrink".
  [[nodiscard]] bool has(std::string_view symbol) const;

  /// Returns a shell command that queries this process's NCCL for the state of its communicators (nccl_ras_command()).
  [[nodiscard]] const std::string& ras_command() const noexcept { return ras_command_; }
  [[nodiscard]] const nccl_functions& functions() const noexcept { return *functions_; }

  /// Formats NCCL's version code \p number: major·1000 + minor·100 + patch up to 2.8, major·10000 + minor·100 + patch
  /// since. Also available in builds without CUDA.
  [[nodiscard]] static std::string version_text(int number) {
    const int unit = number < 10000 ? 1000 : 10000;
    return std::to_string(number / unit) + '.' + std::to_string(number % unit / 100) + '.' +
           std::to_string(number % 100);
  }

private:
  void* handle_;
  std::filesystem::path path_;
  int version_number_;
  std::shared_ptr<const nccl_functions> functions_;
  std::string ras_command_;
};

} // namespace troupe
