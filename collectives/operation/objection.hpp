/// What a check has to say against a request.
#pragma once

#include <troupe/device/error.hpp>

#include <memory>
#include <string>
#include <utility>

namespace troupe {

/// None: nothing is wrong. Every request passes through many checks, and an error is large.
using objection = std::unique_ptr<error>;

[[nodiscard]] inline objection refuse(errc code, std::string text) {
  return std::make_unique<error>(error{.code = code, .text = std::move(text)});
}

[[nodiscard]] inline error as_error(objection found) {
  return found ? std::move(*found) : error{};
}

} // namespace troupe
