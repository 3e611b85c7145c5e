// NCCL's own words, as they come from its one array for the whole process.
#include <troupe/collectives/backend/nccl/nccl_api.hpp>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstring>
#include <string>

using namespace troupe;

namespace {

std::array<char, 1024 + 8> words; // longer than NCCL's, to see what is read

const char* last_diagnostics(ncclComm_t) {
  return words.data();
}

nccl_functions saying(const std::string& text) {
  words.fill('\0');
  std::memcpy(words.data(), text.data(), text.size());
  nccl_functions made;
  made.get_last_error = last_diagnostics;
  return made;
}

} // namespace

TEST_CASE("NCCL's last error is read without its line's end, and never beyond its array", "[collectives][nccl]") {
  CHECK(last_error_of({}).empty()); // a library without the function
  CHECK(last_error_of(saying("")).empty());
  CHECK(last_error_of(saying("Broadcast : invalid root 7\n")) == "Broadcast : invalid root 7");
  CHECK(last_error_of(saying(std::string(1030, 'x'))) == std::string(1024, 'x'));
}
