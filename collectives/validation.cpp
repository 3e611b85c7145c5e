#include <troupe/collectives/validation.hpp>

#include <cstdint>
#include <limits>
#include <string>

namespace troupe {

namespace {

error refuse(errc code, std::string text) {
  return error{.code = code, .text = std::move(text)};
}

/// Both ranges as addresses; a range of length 0 overlaps nothing.
bool overlap(const std::byte* a, const std::byte* b, std::size_t length_bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(a);
  const auto second = reinterpret_cast<std::uintptr_t>(b);
  return length_bytes > 0 && first < second + length_bytes && second < first + length_bytes;
}

error check_residence(const buffer& memory, const char* role, const device& where) {
  const device* home = memory.where();
  if (home == nullptr) return {};
  if (home->shared_api() != where.shared_api())
    return refuse(errc::wrong_device, std::string{"the "} + role + " buffer was made by another runtime's " +
                                          std::string{home->api().name()} + " driver: allocate it from this world");
  if (memory.kind() == memory_kind::device && home->id() != where.id())
    return refuse(errc::wrong_device, std::string{"the "} + role + " buffer lives on device " + to_string(home->id()) +
                                          ", but this rank's device is " + to_string(where.id()) +
                                          ": pass a buffer of the rank's own device");
  if (memory.stale())
    return refuse(errc::stale_buffer, std::string{"the "} + role + " buffer was made before device " +
                                          to_string(home->id()) + " lost its memory: allocate it again");
  return {};
}

error check_ready_event(const operand& argument, const char* role, const device& where) {
  if (!argument.ready || argument.ready->where().shared_api() == where.shared_api()) return {};
  return refuse(errc::wrong_device, std::string{"the "} + role +
                                        " buffer's ready event belongs to another runtime's driver: record it with "
                                        "this one's");
}

error check_elements(const operand& argument, const char* role, std::size_t count, dtype type, const device& where) {
  if (error failure = check_residence(argument.memory, role, where)) return failure;
  if (error failure = check_ready_event(argument, role, where)) return failure;
  if (count == 0) return {};
  const buffer& memory = argument.memory;
  if (!memory)
    return refuse(errc::invalid_argument,
                  std::string{"the "} + role + " buffer is empty and count is " + std::to_string(count));
  if (memory.kind() != memory_kind::device)
    return refuse(errc::invalid_argument, std::string{"the "} + role + " buffer is " +
                                              std::string{to_string(memory.kind())} +
                                              " host memory: collectives need device memory, copy it there first");
  const std::size_t capacity = memory.size_bytes() / size_bytes(type);
  if (count > capacity)
    return refuse(errc::invalid_argument, "count " + std::to_string(count) + " is more than the " + role +
                                              " buffer holds: " + std::to_string(memory.size_bytes()) + " bytes are " +
                                              std::to_string(capacity) + " elements of " +
                                              std::string{to_string(type)});
  if (reinterpret_cast<std::uintptr_t>(memory.data()) % size_bytes(type) != 0)
    return refuse(errc::invalid_argument, std::string{"the "} + role + " buffer is not aligned to the " +
                                              std::to_string(size_bytes(type)) + " bytes of " +
                                              std::string{to_string(type)} + ": slice at a multiple of that");
  return {};
}

class validator {
public:
  explicit validator(const device& where) : where_{where} {}

  error operator()(const all_reduce& what) const {
    if (size_bytes(what.type) == 0)
      return refuse(errc::invalid_argument, "dtype " + std::to_string(static_cast<int>(what.type)) +
                                                " is unknown: choose one of u8, i32, i64, f32, f64, bf16");
    if (to_string(what.op).empty())
      return refuse(errc::invalid_argument, "reduction " + std::to_string(static_cast<int>(what.op)) +
                                                " is unknown: choose one of sum, min, max");
    if (error failure = check_elements(what.send, "send", what.count, what.type, where_)) return failure;
    if (error failure = check_elements(what.recv, "recv", what.count, what.type, where_)) return failure;
    const std::byte* from = what.send.memory.data();
    const std::byte* to = what.recv.memory.data();
    if (from != to && overlap(from, to, what.count * size_bytes(what.type)))
      return refuse(errc::invalid_argument,
                    "the send and recv ranges overlap without being the same: use one range for both (in place) or "
                    "two that do not touch");
    return {};
  }

  error operator()(const barrier&) const { return {}; }

  error operator()(const copy& what) const {
    if (error failure = check_residence(what.from.memory, "source", where_)) return failure;
    if (error failure = check_residence(what.to.memory, "destination", where_)) return failure;
    if (error failure = check_ready_event(what.from, "source", where_)) return failure;
    if (error failure = check_ready_event(what.to, "destination", where_)) return failure;
    const std::size_t length = what.from.memory.size_bytes();
    if (length > what.to.memory.size_bytes())
      return refuse(errc::invalid_argument, "the source's " + std::to_string(length) +
                                                " bytes do not fit the destination's " +
                                                std::to_string(what.to.memory.size_bytes()) + ": slice the source");
    if (overlap(what.from.memory.data(), what.to.memory.data(), length))
      return refuse(errc::invalid_argument, "the source and destination of a copy overlap within " +
                                                std::to_string(length) +
                                                " bytes: copy between ranges that do not touch");
    return {};
  }

private:
  const device& where_;
};

} // namespace

error validate(const operation& what, const device& where) {
  return std::visit(validator{where}, what);
}

error check_agreement(std::span<const operation> parts) {
  if (parts.empty())
    return refuse(errc::invalid_argument, "a request to a world needs one part for each rank, and has none");
  for (std::size_t i = 1; i < parts.size(); ++i)
    if (!agree(parts.front(), parts[i]))
      return refuse(errc::mismatch, "the ranks disagree: rank 0 asks for " + describe(parts.front()) + ", rank " +
                                        std::to_string(i) + " for " + describe(parts[i]) +
                                        ": give every rank the same operation");
  return {};
}

} // namespace troupe
