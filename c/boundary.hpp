/// The boundary between C and C++: no exception passes it, structs of other versions are read and written by their
/// size, and NULL is refused.
#pragma once

#include "handles.hpp"

#include <troupe/device/error.hpp>
#include <troupe/device/identity.hpp>
#include <troupe/device/time.hpp>
#include <troupe/runtime/interop/client_stream.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::c {

/// Returns the code of \p failure, and stores it in \p to, if that is not null. Without memory for it, it stores null.
troupe_code report(error failure, troupe_error** to) noexcept;

/// Calls \p action, which returns a troupe_code. An exception becomes its code, and the error in \p to.
template <class Action>
troupe_code guarded(troupe_error** to, const Action& action) noexcept {
  if (to != nullptr) *to = nullptr;
  try {
    return action();
  } catch (...) {
    return report(current_error(), to);
  }
}
/// Calls \p action, which returns nothing.
template <class Action>
troupe_code attempt(troupe_error** to, const Action& action) noexcept {
  return guarded(to, [&] {
    action();
    return troupe_code{TROUPE_OK};
  });
}

[[nodiscard]] exception invalid(std::string text);

/// The most elements of an array of the caller.
inline constexpr std::size_t most_elements = std::size_t{1} << 24U;
/// Refuses an array of more elements than \p most. \p what: "operations".
void check_count(std::size_t count, std::string_view what, std::size_t most = most_elements);

/// Returns *\p pointer. Errors: invalid_argument, if it is null; \p what: "world".
template <class T>
[[nodiscard]] T& need(T* pointer, std::string_view what) {
  if (pointer == nullptr) throw invalid(std::string{what} + " is NULL: it must not be");
  return *pointer;
}
/// Returns \p text. Errors: invalid_argument, if it is null.
[[nodiscard]] inline std::string need_text(const char* text, std::string_view what) {
  return &need(text, what);
}

/// Stores a new handle in \p made, after \p make has returned what it holds.
template <class Handle, class Make>
troupe_code make_handle(Handle** made, std::string_view what, troupe_error** to, const Make& make) noexcept {
  if (made != nullptr) *made = nullptr;
  return attempt(to, [&] {
    Handle*& stored = need(made, what);
    stored = new Handle{make()};
  });
}

// Structs with a size -------------------------------------------------------------------------------------------------

/// The size that a struct had in the first version of the interface; callers never pass less.
template <class T>
inline constexpr std::size_t first_size_bytes = 0;
template <>
inline constexpr std::size_t first_size_bytes<troupe_error_info> = 144;
template <>
inline constexpr std::size_t first_size_bytes<troupe_undefined_buffer> = 32;
template <>
inline constexpr std::size_t first_size_bytes<troupe_standing> = 48;
template <>
inline constexpr std::size_t first_size_bytes<troupe_world_options> = 16;
template <>
inline constexpr std::size_t first_size_bytes<troupe_status_info> = 160;
template <>
inline constexpr std::size_t first_size_bytes<troupe_resume_point> = 72;
template <>
inline constexpr std::size_t first_size_bytes<troupe_incomplete_operation> = 48;
template <>
inline constexpr std::size_t first_size_bytes<troupe_agreed_value> = 56;
template <>
inline constexpr std::size_t first_size_bytes<troupe_rank_group> = 32;
template <>
inline constexpr std::size_t first_size_bytes<troupe_remote_buffer> = 48;
template <>
inline constexpr std::size_t first_size_bytes<troupe_tensor_info> = 24;
template <>
inline constexpr std::size_t first_size_bytes<troupe_operation> = 224;
template <>
inline constexpr std::size_t first_size_bytes<troupe_completion> = 96;
template <>
inline constexpr std::size_t first_size_bytes<troupe_request_options> = 64;
template <>
inline constexpr std::size_t first_size_bytes<troupe_plan_options> = 24;
template <>
inline constexpr std::size_t first_size_bytes<troupe_controller_options> = 64;
template <>
inline constexpr std::size_t first_size_bytes<troupe_rank_change> = 32;
template <>
inline constexpr std::size_t first_size_bytes<troupe_process_info> = 48;

/// A size beyond this is one that was not set.
inline constexpr std::size_t most_struct_bytes = 4096;

/// Refuses the size \p given of a T called \p what.
void check_size(std::size_t given, std::size_t first, std::string_view what);
/// Refuses a struct of a newer version that uses what this version does not know: bytes from \p known to \p given.
void check_tail(const void* struct_start, std::size_t known, std::size_t given, std::string_view what);

/// Returns a T with the fields of *\p given, and 0 for those that its caller does not know. Errors: invalid_argument
/// (null, or an impossible size), unsupported (fields that this library does not know are not 0).
template <class T>
[[nodiscard]] T read_struct(const T* given, std::string_view what) {
  static_assert(first_size_bytes<T> != 0 && sizeof(T) >= first_size_bytes<T>);
  const std::size_t size = need(given, what).size;
  check_size(size, first_size_bytes<T>, what);
  check_tail(given, sizeof(T), size, what);
  T read{};
  std::memcpy(&read, given, std::min(size, sizeof(T)));
  return read;
}
/// Returns the default for null.
template <class T>
[[nodiscard]] T read_optional(const T* given, std::string_view what) {
  return given == nullptr ? T{} : read_struct(given, what);
}
/// Returns the elements of an array whose elements have the size of the first as their distance.
template <class T>
[[nodiscard]] std::vector<T> read_structs(const T* first, std::size_t count, std::string_view what) {
  std::vector<T> all;
  if (count == 0) return all;
  check_count(count, std::string{what} + "s");
  const std::size_t distance = need(first, what).size;
  all.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto* const at = reinterpret_cast<const T*>(reinterpret_cast<const std::byte*>(first) + i * distance);
    all.push_back(read_struct(at, what));
    if (all.back().size != distance)
      throw invalid(std::string{what} + " number " + std::to_string(i) + " has size " +
                    std::to_string(all.back().size) + ", and the first has " + std::to_string(distance) +
                    ": give all elements of an array the same size");
  }
  return all;
}
/// Writes \p value to *\p to, as much as its caller knows, and 0 to what this library does not know. Errors:
/// invalid_argument (null, or an impossible size).
template <class T>
void write_struct(T* to, T value, std::string_view what) {
  static_assert(first_size_bytes<T> != 0 && sizeof(T) >= first_size_bytes<T>);
  const std::size_t size = need(to, what).size;
  check_size(size, first_size_bytes<T>, what);
  value.size = size;
  std::memset(to, 0, size);
  std::memcpy(to, &value, std::min(size, sizeof(T)));
}

// Values --------------------------------------------------------------------------------------------------------------

/// Writes \p value to an array of \p bytes, and its length to *\p length, which may be null.
void write_text(std::string_view value, char* text, std::size_t bytes, std::size_t* length);
/// Returns a time of the interface: TROUPE_FOREVER is no limit. Errors: invalid_argument (negative).
[[nodiscard]] nanoseconds span_of(std::int64_t nanoseconds_count, std::string_view what);
/// Returns the numbers of \p ranks.
[[nodiscard]] std::vector<std::int32_t> numbers_of(std::span<const rank> ranks);
/// Returns a value of an enumeration whose values count from 0 to \p last. Errors: invalid_argument.
template <class Enum>
[[nodiscard]] Enum enum_of(std::int32_t value, Enum last, std::string_view what) {
  if (value < 0 || value > static_cast<std::int32_t>(last))
    throw invalid(std::to_string(value) + " is not a " + std::string{what} + ": it must be from 0 to " +
                  std::to_string(static_cast<int>(last)));
  return static_cast<Enum>(value);
}

/// Refuses to wait in a callback of troupe, which would wait for its own thread. \p what: the function.
void refuse_in_callback(std::string_view what);

/// A pointer of the client that is given back once, when nothing uses it any more; but not by a function that fails.
class client_pointer {
public:
  client_pointer(void* user, void (*forget)(void*)) : held_{std::make_shared<content>(user, forget)} {}

  /// Returns what is to be held as long as the pointer is used.
  [[nodiscard]] std::shared_ptr<void> owner() const { return held_; }
  /// Called when the function has succeeded.
  void accept() noexcept { held_->is_accepted = true; }

private:
  struct content {
    content(void* what, void (*how)(void*)) noexcept : user{what}, forget{how} {}
    content(const content&) = delete;
    content& operator=(const content&) = delete;
    ~content() {
      if (is_accepted && forget != nullptr) forget(user);
    }
    void* user;
    void (*forget)(void*);
    std::atomic<bool> is_accepted{false};
  };
  std::shared_ptr<content> held_;
};

/// Returns a stream of the client on the device of \p target. Errors: invalid_argument (the rank), unsupported (NULL
/// with the mock).
[[nodiscard]] client_stream stream_of(const world& where, rank target, void* stream);

/// Writes \p from to *\p to, whose size the caller has set.
void write_remote(const remote_buffer& from, troupe_remote_buffer* to);
[[nodiscard]] remote_buffer read_remote(const troupe_remote_buffer* from);

} // namespace troupe::c
