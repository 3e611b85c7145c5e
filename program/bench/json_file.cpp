#include <troupe/program/bench/json_file.hpp>

#include <troupe/device/error.hpp>

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cstring>

namespace troupe::program {

json_file::json_file(const std::string& path) : standard_output_{path == "-"} {
  if (path.empty() || standard_output_) return;
  file_.emplace(path, "name a file in a folder that you may write to, or - for standard output");
}

void json_file::write(const nlohmann::ordered_json& document) const {
  if (!wanted()) return;
  using handler = nlohmann::ordered_json::error_handler_t; // A host name may contain any bytes.
  const std::string text = document.dump(2, ' ', false, handler::replace) + "\n";
  if (file_) return file_->write(text);
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw exception{errc::invalid_argument, "cannot write standard output: " +
                                                std::string{std::strerror(errno)} + // NOLINT(concurrency-mt-unsafe)
                                                ": name a file instead"};
}

} // namespace troupe::program
