/// Hears what troupe logs.
#pragma once

#include <troupe/runtime/logging.hpp>

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace troupe::tests {

/// Troupe's log while this exists.
class heard_log {
public:
  heard_log() {
    spdlog::drop("troupe");
    spdlog::register_logger(std::make_shared<spdlog::logger>("troupe", sink_));
  }
  /// Opens the log at \p level, which a runtime does by itself.
  explicit heard_log(const std::string& level) : heard_log{} { open_log(level); }
  heard_log(const heard_log&) = delete;
  heard_log& operator=(const heard_log&) = delete;
  ~heard_log() {
    flush_log(std::chrono::seconds{10});
    spdlog::drop("troupe");
  }

  /// Returns whether a line with \p part comes within 20 s.
  [[nodiscard]] bool await(const std::string& part) const {
    std::unique_lock lock{sink_->guard};
    return sink_->changed.wait_for(lock, std::chrono::seconds{20}, [&] { return sink_->count(part) > 0; });
  }
  /// Returns the number of lines with \p part of those that have been logged before this call.
  [[nodiscard]] std::size_t count(const std::string& part) const {
    flush_log(std::chrono::seconds{10});
    const std::lock_guard lock{sink_->guard};
    return sink_->count(part);
  }

private:
  struct noting_sink final : spdlog::sinks::base_sink<std::mutex> {
    void sink_it_(const spdlog::details::log_msg& line) override {
      const std::lock_guard lock{guard};
      lines.emplace_back(line.payload.data(), line.payload.size());
      changed.notify_all();
    }
    void flush_() override {}
    [[nodiscard]] std::size_t count(const std::string& part) const {
      return static_cast<std::size_t>(
          std::ranges::count_if(lines, [&](const std::string& one) { return one.find(part) != std::string::npos; }));
    }

    std::mutex guard;
    std::condition_variable changed;
    std::vector<std::string> lines;
  };
  std::shared_ptr<noting_sink> sink_ = std::make_shared<noting_sink>();
};

} // namespace troupe::tests
