// A GPU belongs to one world of processes at a time.
#include "../support/outcomes.hpp"

#include <troupe/runtime/device_claim.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

namespace troupe::tests {

namespace {

using Catch::Matchers::ContainsSubstring;

struct claims_folder {
  std::string path = (std::filesystem::temp_directory_path() / "troupe-claims-XXXXXX").string();
  claims_folder() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  claims_folder(const claims_folder&) = delete;
  claims_folder& operator=(const claims_folder&) = delete;
  ~claims_folder() { std::filesystem::remove_all(path); }
};

} // namespace

TEST_CASE("a world's processes share a GPU's claim, and another world is refused with both holders", "[claims]") {
  const claims_folder folder;
  std::optional<device_claim> rank{std::in_place, folder.path, "0000:3b:00.0", "here:5000", "process 0"};
  std::optional<device_claim> spare{std::in_place, folder.path, "0000:3b:00.0", "here:5000", "process s0"};
  CHECK(rank->is_held());
  CHECK(spare->is_held());
  const auto another = [&] { return device_claim{folder.path, "0000:3b:00.0", "here:6000", "process 7"}; };
  const error why = error_of([&] { static_cast<void>(another()); });
  CHECK(why.code == errc::device_occupied);
  CHECK_THAT(why.text, ContainsSubstring("process 0"));
  CHECK_THAT(why.text, ContainsSubstring("process 7"));
  CHECK(device_claim(folder.path, "0000:5e:00.0", "here:6000", "process 7").is_held()); // another GPU

  rank.reset(); // the spare holds it still
  CHECK(code_of([&] { static_cast<void>(another()); }) == errc::device_occupied);
  spare.reset();
  CHECK(another().is_held());
}

TEST_CASE("a process that is killed leaves no claim behind", "[claims]") {
  const claims_folder folder;
  int told[2];
  REQUIRE(::pipe(told) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const device_claim held{folder.path, "gpu", "here:5000", "process 0"};
    static_cast<void>(::write(told[1], "x", 1));
    ::pause();
    ::_exit(0);
  }
  char seen = 0;
  REQUIRE(::read(told[0], &seen, 1) == 1);
  CHECK(code_of([&] {
          static_cast<void>(device_claim{folder.path, "gpu", "here:6000", "process 7"});
        }) == errc::device_occupied);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int one : told) ::close(one);
  CHECK(device_claim(folder.path, "gpu", "here:6000", "process 7").is_held());
}

TEST_CASE("where no claim can be made a process goes on without", "[claims]") {
  CHECK_FALSE(device_claim("/nowhere/at/all", "gpu", "here:5000", "process 0").is_held());
  CHECK_FALSE(device_claim{}.is_held());
}

} // namespace troupe::tests
