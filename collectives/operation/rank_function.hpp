/// User functions that requests call on a rank's launcher thread, in the order of the rank's requests.
#pragma once

#include <troupe/device/identity.hpp>
#include <troupe/device/memory/buffer.hpp>
#include <troupe/device/stream.hpp>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

namespace troupe {

/// The arguments of a call of a rank_function. They are valid only during the call.
struct rank_call {
  rank self{};
  int world_size = 1;
  troupe::epoch epoch{};
  /// The rank's stream, whose device is current on the calling thread. In a capture: the stream in capture.
  stream_ref stream;
  std::span<const buffer> memory{};    ///< The arguments of the request, in its order.
  std::span<const std::byte> values{}; ///< call::values of the request.
};

/// A function that the process of a rank has registered (world::register_function()). It enqueues work in the rank's
/// stream: kernels, and copies. It runs on the launcher thread of the rank's GPU, so it must neither wait for the GPU
/// nor block. An exception from it ends the epoch, as a failed launch does. It may be called in any epoch, and again
/// when a plan that contains it is captured again. Threads: the calls for one rank come one after another.
class rank_function {
public:
  using work = std::function<void(const rank_call& with)>;

  rank_function(std::string name, work what) : name_{std::move(name)}, work_{std::move(what)} {}
  /// Creates a placeholder, for a request to all ranks of a world over processes. Each rank's process calls its own
  /// function with this name.
  explicit rank_function(std::string name) : name_{std::move(name)} {}

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] bool is_placeholder() const noexcept { return work_ == nullptr; }
  void operator()(const rank_call& with) const { work_(with); }

private:
  const std::string name_;
  const work work_;
};

inline constexpr std::size_t longest_function_name_bytes = 128;
/// Limit of call::values.
inline constexpr std::size_t most_call_bytes = std::size_t{256} << 10U;
/// Limit of call::arguments.
inline constexpr std::size_t most_call_arguments = 256;

/// The functions of one process in a world and its sub-worlds, by name. Threads: all functions may be called from any
/// thread.
class function_directory {
public:
  /// Adds a function. Replaces an earlier function with the same name. Errors: invalid_argument (no name, too long a
  /// name, or no function).
  std::shared_ptr<const rank_function> add(std::string name, rank_function::work what);
  /// Returns the function called \p name; null if there is none.
  [[nodiscard]] std::shared_ptr<const rank_function> find(const std::string& name) const;

private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const rank_function>, std::less<>> all_;
};

} // namespace troupe
