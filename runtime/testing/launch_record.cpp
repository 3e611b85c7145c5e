#include <troupe/testing/launch_record.hpp>

#include <variant>

namespace troupe::testing {

namespace {

/// Records the memory of a single operation, or of the first part of a group.
void note_memory(launch_record& into, const operation& what) {
  std::visit(
      [&]<class Operation>(const Operation& one) {
        if constexpr (requires { one.send, one.recv; }) {
          into.send = one.send.memory.data();
          into.recv = one.recv.memory.data();
        } else if constexpr (std::is_same_v<Operation, send>) {
          into.send = one.memory.memory.data();
        } else if constexpr (std::is_same_v<Operation, recv>) {
          into.recv = one.memory.memory.data();
        } else if constexpr (std::is_same_v<Operation, group>) {
          if (!one.parts.empty()) note_memory(into, one.parts.front());
        }
      },
      what);
}

std::size_t count_of(const operation& what) {
  return std::visit(
      []<class Operation>(const Operation& one) -> std::size_t {
        if constexpr (requires { one.count; })
          return one.count;
        else if constexpr (std::is_same_v<Operation, group>)
          return one.parts.size();
        else
          return 0;
      },
      what);
}

} // namespace

std::string_view to_string(launch_fate fate) noexcept {
  switch (fate) {
    case launch_fate::launched: return "launched";
    case launch_fate::withheld: return "withheld";
    case launch_fate::refused: return "refused";
  }
  return {};
}

std::string describe(const launch_record& one) {
  std::string text = one.text;
  if (!one.by)
    text += "; for a plan";
  else if (one.by->of_world)
    text += "; of the world (request " + to_string(one.by->request) + ")";
  else
    text += "; in lane " + one.by->in.name() + " (request " + std::to_string(one.by->position) + ")";
  if (one.by && one.by->client != 0) text += ", by client " + std::to_string(one.by->client);
  return text + "; epoch " + to_string(one.epoch) + ", " + std::string{to_string(one.fate)};
}

launch_record record_of(const operation& what) {
  launch_record made;
  made.operation = name_of(what);
  made.count = count_of(what);
  made.text = describe(what);
  note_memory(made, what);
  return made;
}

std::vector<std::string_view> names_of(const std::vector<launch_record>& all) {
  std::vector<std::string_view> names;
  names.reserve(all.size());
  for (const launch_record& one : all) names.push_back(one.operation);
  return names;
}

} // namespace troupe::testing
