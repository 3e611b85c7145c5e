// A GPU belongs to one world of processes at a time.
#include "support/outcomes.hpp"
#include "support/runtimes.hpp"

#include <troupe/runtime/placement/device_claim.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
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
    if (::write(told[1], "x", 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  ::close(told[1]); // so that the end of a child without a claim ends the read
  char seen = 0;
  REQUIRE(::read(told[0], &seen, 1) == 1);
  CHECK(code_of([&] {
          static_cast<void>(device_claim{folder.path, "gpu", "here:6000", "process 7"});
        }) == errc::device_occupied);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(told[0]);
  CHECK(device_claim(folder.path, "gpu", "here:6000", "process 7").is_held());
}

TEST_CASE("a claim follows no link, and is not made where others may write", "[claims]") {
  const claims_folder folder;
  const claims_folder elsewhere;
  const std::string victim = elsewhere.path + "/victim";
  std::ofstream{victim} << "as it was";
  std::filesystem::create_symlink(victim, folder.path + "/gpu-0000-3b-00-0");
  CHECK_FALSE(device_claim(folder.path, "0000:3b:00.0", "here:5000", "process 0").is_held());
  std::string kept;
  std::getline(std::ifstream{victim}, kept);
  CHECK(kept == "as it was");

  std::filesystem::create_directory_symlink(folder.path, elsewhere.path + "/linked");
  CHECK_FALSE(device_claim(elsewhere.path + "/linked", "gpu", "here:5000", "process 0").is_held());
  REQUIRE(::chmod(elsewhere.path.c_str(), 0777) == 0);
  CHECK_FALSE(device_claim(elsewhere.path, "gpu", "here:5000", "process 0").is_held());
}

TEST_CASE("the files of a claim are accessible to their owner alone", "[claims]") {
  const claims_folder base;
  const std::string folder = base.path + "/made";
  const device_claim held{folder, "gpu", "here:5000", "process 0"};
  REQUIRE(held.is_held());
  struct stat found {};
  REQUIRE(::stat(folder.c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0700);
  REQUIRE(::stat((folder + "/gpu-gpu").c_str(), &found) == 0);
  CHECK((found.st_mode & 0777) == 0600);
  CHECK(device_claims_folder().filename() == "troupe-" + std::to_string(::geteuid()));
}

TEST_CASE("a process that stops while it looks holds others up until a deadline, and they are told who it is",
          "[claims][TIM-1]") {
  const claims_folder folder;
  static_cast<void>(device_claim{folder.path, "gpu", "here:5000", "process 3"});
  const int file = ::open((folder.path + "/gpu-gpu").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(file >= 0);
  struct flock looking {};
  looking.l_type = F_WRLCK;
  looking.l_start = 1;
  looking.l_len = 1;
  REQUIRE(::fcntl(file, F_OFD_SETLK, &looking) == 0);
  const error why = error_of([&] {
    static_cast<void>(device_claim{folder.path, "gpu", "here:6000", "process 7", std::chrono::milliseconds{20}});
  });
  ::close(file);
  CHECK(why.code == errc::deadline_exceeded);
  CHECK_THAT(why.text, ContainsSubstring("process 3 (pid " + std::to_string(::getpid()) + ")"));
  CHECK(device_claim(folder.path, "gpu", "here:6000", "process 7").is_held());
}

TEST_CASE("a GPU belongs to one runtime of a process at a time", "[claims][ORD-3]") {
  auto first = claim_in_process("0000:3b:00.0");
  const auto other = claim_in_process("0000:5e:00.0");
  const error why = error_of([] { static_cast<void>(claim_in_process("0000:3b:00.0")); });
  CHECK(why.code == errc::device_occupied);
  CHECK_THAT(why.text, ContainsSubstring("0000:3b:00.0"));
  first.reset();
  CHECK(claim_in_process("0000:3b:00.0") != nullptr);
}

TEST_CASE("runtimes of one process have mock devices of their own", "[claims]") {
  runtime first{mock_settings(2)};
  runtime second{mock_settings(2)};
  const world one = first.form_world();
  CHECK(second.form_world().status().phase == world_phase::ready);
}

TEST_CASE("nccl: a second runtime of a process is refused a GPU that another has, until that ends", "[claims][gpu]") {
  const configuration settings = gpu_settings(1);
  std::optional<runtime> first{std::in_place, settings};
  static_cast<void>(first->form_world());
  runtime second{settings};
  CHECK(code_of([&] { static_cast<void>(second.form_world()); }) == errc::device_occupied);
  first.reset();
  CHECK(second.form_world().status().phase == world_phase::ready);
}

TEST_CASE("where no claim can be made a process goes on without", "[claims]") {
  CHECK_FALSE(device_claim("/nowhere/at/all", "gpu", "here:5000", "process 0").is_held());
  CHECK_FALSE(device_claim{}.is_held());
}

} // namespace troupe::tests
