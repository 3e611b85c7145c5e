/// Defines what the documents' snippets share. Each snippet runs in a world of its own and checks the statements of its
/// page.
#pragma once

#include <troupe/testing/mock_world.hpp>
#include <troupe/troupe.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace snippets {

/// Throws if a statement of a document does not hold.
inline void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error{std::string{"not so: "} + what};
}

/// The number of elements of every buffer in the snippets.
inline constexpr std::size_t count = 256;

/// Returns whether every element of every buffer is \p value.
inline bool all_are(const std::vector<troupe::buffer>& values, float value) {
  for (const troupe::buffer& one : values)
    for (const float seen : troupe::testing::elements_of<float>(one))
      if (seen != value) return false;
  return true;
}

void run_asking();
void run_guides();
void run_pages();

} // namespace snippets
