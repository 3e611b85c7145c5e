/// Defines what the driver and the ranks' processes share: the model, and the functions that the driver calls at ranks.
#pragma once

#include "../command_line.hpp"
#include "../tensor_parallel_serving/block.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

/// The values of "load". The floats that follow are written to the driver's memory from element `first` on.
struct load_values {
  std::uint64_t first = 0;
};

/// The values of "stage": see run_stage().
struct stage_values {
  std::uint64_t stage = 0;
};

/// The values of "store": rank 0's process sends the driver's memory to this address, with the same secret and step.
struct store_values {
  std::uint64_t secret = 0, step = 0;
  std::uint16_t port = 0;
  char address[16] = {}; ///< IPv4, ends with 0.
};

template <class Values>
std::vector<std::byte> bytes_of(const Values& values, std::span<const float> more = {}) {
  static_assert(std::is_trivially_copyable_v<Values>);
  std::vector<std::byte> made(sizeof values + more.size_bytes());
  std::memcpy(made.data(), &values, sizeof values);
  if (!more.empty()) std::memcpy(&made[sizeof values], more.data(), more.size_bytes());
  return made;
}

/// Errors: invalid_argument.
template <class Values>
Values values_in(std::span<const std::byte> bytes) {
  Values values;
  if (bytes.size() < sizeof values)
    throw troupe::exception{troupe::errc::invalid_argument, "a driver's call has too few values"};
  std::memcpy(&values, bytes.data(), sizeof values);
  return values;
}

/// The name under which each rank exports its weights when it serves in \p now. A driver that has found it may call.
inline std::string name_of_model(troupe::epoch now) {
  return "model of epoch " + to_string(now);
}

/// Returns the tokens of the user with this number.
inline std::vector<float> tokens_of(std::uint64_t number, const shard& model) {
  std::vector<float> made(tokens * model.width);
  for (std::size_t i = 0; i < made.size(); ++i) made[i] = drawn(~(number * made.size() + i));
  return made;
}

/// Returns the whole model as --width, --layers and --batch say.
inline shard model_of(const command_line& line) {
  const auto size = [&](const char* name, std::size_t otherwise) {
    return std::max(line.number(name, otherwise), std::size_t{1});
  };
  const std::size_t width = (size("--width", 96) + heads - 1) / heads * heads;
  return {width, size("--layers", 2), size("--batch", 8), 0, width};
}

/// The exit status of a process that must be restarted (EX_TEMPFAIL): its world has ended, or continues without it.
constexpr int out_of_its_world = 75;

/// The modes of the program. They return its exit status.
int run_rank(const command_line& line);
int run_driver(const command_line& line);
/// Prints the right answers for users 0 to --count - 1, one per line, computed without troupe.
int run_answers(const command_line& line);

/// Returns the signal that asked the program to end, or 0.
int told_by() noexcept;
