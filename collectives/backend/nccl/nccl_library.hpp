/// NCCL as it is found on this machine: opened at run time, so that one program serves machines with and without
/// it. Needs no NCCL header, so that a doctor or a version line can ask.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace troupe {

struct nccl_functions; // nccl_functions.hpp, for collectives/backend/nccl only

/// An opened libnccl, usable for as long as the process lives: it is never closed, for NCCL leaves threads behind.
/// Threads: safe from any.
class nccl_library {
public:
  /// Opens \p explicit_path if given, and nothing else; otherwise `libnccl.so.2` as the dynamic linker finds it
  /// (which is the one that is loaded already, if any), and then in the usual folders.
  /// Errors: missing (every place tried is named), too_old (before NCCL 2.27), unsupported (incomplete).
  [[nodiscard]] static std::shared_ptr<const nccl_library>
  open(const std::optional<std::filesystem::path>& explicit_path = {});

  /// Whether what open() would open is in this process already: a library that was linked, or that another library has
  /// loaded, may have read its environment.
  [[nodiscard]] static bool is_loaded(const std::optional<std::filesystem::path>& explicit_path = {});

  nccl_library(void* handle, std::filesystem::path path, int version_number,
               std::shared_ptr<const nccl_functions> functions, std::string ras_command = {})
    : handle_{handle},
      path_{std::move(path)},
      version_number_{version_number},
      functions_{std::move(functions)},
      ras_command_{std::move(ras_command)} {}

  /// NCCL's own code, e.g. 22809.
  [[nodiscard]] int version_number() const noexcept { return version_number_; }
  /// E.g. "2.28.9".
  [[nodiscard]] std::string version() const { return version_text(version_number_); }
  /// The file that was loaded.
  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  /// Whether the library has a function called \p symbol, e.g. "ncclCommShrink".
  [[nodiscard]] bool has(std::string_view symbol) const;

  /// What asks this process's NCCL how its communicators are (nccl_ras.hpp).
  [[nodiscard]] const std::string& ras_command() const noexcept { return ras_command_; }
  [[nodiscard]] const nccl_functions& functions() const noexcept { return *functions_; }

  /// \p number as NCCL's code for a version.
  [[nodiscard]] static std::string version_text(int number);

private:
  void* handle_;
  std::filesystem::path path_;
  int version_number_;
  std::shared_ptr<const nccl_functions> functions_;
  std::string ras_command_;
};

} // namespace troupe
