/// What the documents' snippets have in common: each runs in a world of its own, and says whether it did what its page
/// says.
#pragma once

#include <troupe/testing/mock_world.hpp>
#include <troupe/troupe.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace snippets {

/// Ends the run where a document says what is not so.
inline void expect(bool holds, const char* what) {
  if (!holds) throw std::runtime_error{std::string{"not so: "} + what};
}

/// Elements of every buffer here, and their type.
inline constexpr std::size_t count = 256;

/// Whether every element of every buffer is \p value.
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
