/// The result of a check of a request: empty, or an error.
#pragma once

#include <troupe/device/error.hpp>

#include <memory>
#include <string>
#include <utility>

namespace troupe {

/// Empty if nothing is wrong. A pointer, because every request passes many checks and an error object is large.
using objection = std::unique_ptr<error>;

[[nodiscard]] inline objection refuse(errc code, std::string text) {
  return std::make_unique<error>(error{.code = code, .text = std::move(text)});
}

[[nodiscard]] inline error as_error(objection found) {
  return found ? std::move(*found) : error{};
}

} // namespace troupe
