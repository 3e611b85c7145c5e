#include "boundary.hpp"

#include <troupe/device/threads/own_thread.hpp>

#include <limits>

namespace troupe::c {

troupe_code report(error failure, troupe_error** to) noexcept {
  const auto code = static_cast<troupe_code>(failure.code);
  if (to == nullptr) return code;
  try {
    *to = new troupe_error{std::move(failure)};
  } catch (...) {
    *to = nullptr; // no memory for the texts: the code alone is told
  }
  return code;
}

exception invalid(std::string text) {
  return {errc::invalid_argument, std::move(text)};
}

void check_count(std::size_t count, std::string_view what, std::size_t most) {
  if (count > most)
    throw invalid("there are " + std::to_string(count) + " " + std::string{what} + ", and at most " +
                  std::to_string(most) + " are possible");
}

void check_size(std::size_t given, std::size_t first, std::string_view what) {
  if (given < first || given > most_struct_bytes)
    throw invalid("the size of " + std::string{what} + " is " + std::to_string(given) + ", and it has at least " +
                  std::to_string(first) + " bytes: set size to sizeof the struct");
}

void check_tail(const void* struct_start, std::size_t known, std::size_t given, std::string_view what) {
  const auto* const bytes = static_cast<const unsigned char*>(struct_start);
  for (std::size_t i = known; i < given; ++i)
    if (bytes[i] != 0)
      throw exception{errc::unsupported, std::string{what} + " has " + std::to_string(given) +
                                             " bytes, and sets fields beyond the " + std::to_string(known) +
                                             " that this library knows: use a newer libtroupe_c"};
}

void write_text(std::string_view value, char* text, std::size_t bytes, std::size_t* length) {
  if (length != nullptr) *length = value.size();
  if (bytes == 0) return;
  char* const to = &need(text, "text");
  const std::size_t fits = std::min(value.size(), bytes - 1);
  std::memcpy(to, value.data(), fits);
  to[fits] = '\0';
}

nanoseconds span_of(std::int64_t nanoseconds_count, std::string_view what) {
  if (nanoseconds_count < 0)
    throw invalid(std::string{what} + " is " + std::to_string(nanoseconds_count) +
                  " ns, and a time cannot be negative: TROUPE_FOREVER is no limit");
  return nanoseconds{nanoseconds_count};
}

std::vector<std::int32_t> numbers_of(std::span<const rank> ranks) {
  std::vector<std::int32_t> all;
  all.reserve(ranks.size());
  for (const rank one : ranks) all.push_back(one.value());
  return all;
}

void refuse_in_callback(std::string_view what) {
  if (is_own_thread())
    throw invalid(std::string{what} + " waits, and a callback of troupe must not: call it on a thread of your own");
}

client_stream stream_of(const world& where, rank target, void* stream) {
  const bool is_cuda = where.device_of(target)->api().name() == "cuda";
  if (is_cuda || stream == nullptr) return {where, target, static_cast<CUstream_st*>(stream)};
  return {where, target, static_cast<native_stream>(stream)};
}

void write_remote(const remote_buffer& from, troupe_remote_buffer* to) {
  write_struct(to,
               {.size = 0,
                .session = from.session,
                .id = from.id,
                .offset_bytes = from.offset_bytes,
                .size_bytes = from.size_bytes,
                .exporter = from.exporter.value(),
                .on_host = from.on_host ? 1 : 0},
               "handle");
}

remote_buffer read_remote(const troupe_remote_buffer* from) {
  const troupe_remote_buffer read = read_struct(from, "handle");
  return {.exporter = rank{read.exporter},
          .session = read.session,
          .id = read.id,
          .offset_bytes = read.offset_bytes,
          .size_bytes = read.size_bytes,
          .on_host = read.on_host != 0};
}

} // namespace troupe::c
