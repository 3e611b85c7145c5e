/// Runs the code that the documents quote.

#include "snippets.hpp"

#include <cstdio>
#include <exception>

int main() try {
  snippets::run_asking();
  snippets::run_guides();
  snippets::run_pages();
  std::puts("all snippets did what their pages say");
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "%s\n", failure.what());
  return 1;
}
