#include <troupe/device/enum_names.hpp>
#include <troupe/device/error.hpp>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <new>
#include <system_error>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_described = 4; // with a thousand ranks, the first few are enough

} // namespace

std::string describe(const undefined_buffer& one) {
  std::array<char, 24> at{};
  std::snprintf(at.data(), at.size(), "0x%jx",
                static_cast<std::uintmax_t>(reinterpret_cast<std::uintptr_t>(one.address)));
  return std::to_string(one.size_bytes) + " bytes at " + at.data() +
         (one.device ? " on device " + to_string(*one.device) : std::string{" in host memory"}) + " (rank " +
         to_string(one.rank) + ")";
}

std::string describe(const undefined_buffers& all) {
  std::string text;
  for (std::size_t i = 0; i < all.size() && i < most_described; ++i) text += (i == 0 ? "" : ", ") + describe(all[i]);
  if (all.size() > most_described) text += " and " + std::to_string(all.size() - most_described) + " more";
  return text;
}

std::string_view to_string(errc code) noexcept {
  const auto index = static_cast<std::size_t>(code);
  return index < enum_names<errc>.size() ? enum_names<errc>[index] : "unknown";
}

std::string describe_reason(const error& reason) {
  std::string line{to_string(reason.code)};
  if (!reason.text.empty()) line += ": " + reason.text;
  if (!reason.call.empty()) {
    line += " [" + reason.call + " returned " + std::to_string(reason.native_code);
    if (!reason.native_text.empty()) line += ", " + reason.native_text;
    line += ']';
  }
  if (reason.rank) line += " (rank " + to_string(*reason.rank) + ")";
  if (reason.ticket) line += " (ticket " + to_string(*reason.ticket) + ")";
  if (reason.epoch) line += " (epoch " + to_string(*reason.epoch) + ")";
  return line;
}

std::string to_string(const error& failure) {
  std::string line = describe_reason(failure);
  if (failure.effect == effect::unknown_outcome)
    line += "; the work may have run: the contents of its output buffers are undefined";
  if (failure.undefined && !failure.undefined->empty()) line += ": " + describe(*failure.undefined);
  return line;
}

error with_unknown_outcome(error failure) {
  failure.effect = effect::unknown_outcome;
  return failure;
}

exception::exception(error why) : why_{std::move(why)}, text_{to_string(why_)} {}

exception::exception(errc code, std::string text) : exception{error{.code = code, .text = std::move(text)}} {}

void throw_system_error(errc code, const char* call, std::string text, int native_code) {
  const int native = native_code == 0 ? errno : native_code;
  throw exception{error{.code = code,
                        .text = std::move(text),
                        .call = call,
                        .native_code = native,
                        .native_text = std::generic_category().message(native)}};
}

error current_error() noexcept {
  try {
    try {
      throw;
    } catch (const exception& known) {
      return known.why();
    } catch (const std::bad_alloc&) {
      return error{.code = errc::out_of_memory, .text = "out of host memory"};
    } catch (const std::exception& other) {
      return error{.code = errc::internal, .text = other.what()};
    } catch (...) {
      return error{.code = errc::internal, .text = "an exception that does not derive from std::exception"};
    }
  } catch (...) { // no memory for the text
    return error{.code = errc::out_of_memory};
  }
}

} // namespace troupe
