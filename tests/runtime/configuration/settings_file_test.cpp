/// Settings files: what they may hold, and how their faults are told.

#include "support/settings_sources.hpp"

#include <troupe/device/file_descriptor.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>

#include <sys/inotify.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include <utility>

namespace troupe::tests {

namespace {

using namespace std::chrono_literals;

/// What is refused of a file with this text; the path, which no test can know, is cut off.
std::string refusal(const std::string& text) {
  const settings_on_disk file{text};
  const std::string path = file.path().string();
  const std::string why =
      refusal_of([&] { static_cast<void>(gather_settings(variables({}), file.path()).settings()); });
  if (why.empty()) return "nothing";
  REQUIRE(why.starts_with(path));
  return why.substr(path.size());
}

} // namespace

TEST_CASE("a settings file is JSON with comments, and says each setting by its whole name", "[runtime]") {
  const settings_on_disk file{R"(// of the training cluster
{
  "backend": "mock", /* no GPU there */
  "ranks": 2,
  "mock.memory_bytes": "256M",
  "deadlines.form": "250ms"
}
)"};
  const auto settings = gather_settings(variables({}), file.path()).settings();
  CHECK(settings.backend == backend_choice::mock);
  CHECK(settings.ranks == 2);
  CHECK(settings.mock.memory_bytes == 256U << 20U);
  CHECK(settings.deadlines.form == 250ms);
  CHECK(settings.deadlines.drain == configuration{}.deadlines.drain);
}

TEST_CASE("a settings file may say nothing", "[runtime]") {
  CHECK(refusal("{}") == "nothing");
  CHECK(refusal("\n{ }\n// that was all") == "nothing");
}

TEST_CASE("a fault in a settings file is told with its line, key, value and what it may be", "[runtime]") {
  CHECK(refusal("{\n  \"ranks\": 1,\n  \"backend\": \"cuda\"\n}") ==
        ":3: backend: unknown backend 'cuda': choose one of auto, mock, nccl, gloo");
  CHECK(refusal("{\n\"deadlines.form\": 30}") == ":2: deadlines.form: '30' has no unit: write 30s, 30ms, 30us or 30ns");
  CHECK(refusal("{\"deadlines.form\":\n\n \"0s\"}") == ":1: deadlines.form: '0s' must be from 1ms to 31536000s");
  CHECK(refusal("{\"ranks\": -1}") == ":1: ranks: '-1' must be a whole number from 0 to 1024");
  CHECK(refusal("{\"ranks\": 2.5}") == ":1: ranks: '2.5' must be a whole number from 0 to 1024");
  CHECK(refusal("{\"ranks\": 4294967296}") == ":1: ranks: '4294967296' must be a whole number from 0 to 1024");
  CHECK(refusal("{\"ranks\": true}") == ":1: ranks: 'true' must be a whole number from 0 to 1024");
  CHECK(refusal("{\"mock.devices\": 0}") == ":1: mock.devices: '0' must be a whole number from 1 to 1024");
  CHECK(refusal("{\"mock.memory_bytes\": \"0G\"}") == ":1: mock.memory_bytes: '0G' must be from 1 to 1024G");
  CHECK(says(refusal("{\"log_level\": \"loud\"}"), ":1: log_level: unknown log level 'loud': choose one of trace"));
}

TEST_CASE("an unknown setting is refused with the nearest known one", "[runtime]") {
  CHECK(says(refusal("{\n\n\"deadlines.from\": \"30s\"}"),
             ":3: unknown setting 'deadlines.from'; the nearest is 'deadlines.form'"));
  CHECK(says(refusal("{\"bakend\": \"mock\"}"), "the nearest is 'backend'"));
  CHECK(says(refusal("{\"mock.memory\": \"1G\"}"), "the nearest is 'mock.memory_bytes'"));
  CHECK(says(refusal("{\"check_interval\": \"1ms\"}"), "the nearest is 'limits.check_interval'"));
  CHECK(says(refusal("{\"\": 1}"), "unknown setting ''"));
}

TEST_CASE("a settings file of another shape is refused", "[runtime]") {
  CHECK(says(refusal("{\n\"deadlines\": {\"form\": \"30s\"}}"), ":2: deadlines is an object (write full names"));
  CHECK(refusal("{\"ranks\": [1]}") == ":1: ranks is a list: write a number or a string");
  CHECK(refusal("{\"ranks\": null}") == ":1: ranks is null: write a number or a string");
  CHECK(says(refusal("[]"), ":1: a settings file is one JSON object, and this is a list"));
  CHECK(says(refusal("3"), ":1: a settings file is one JSON object, and this is '3'"));
  CHECK(says(refusal("{\"ranks\": 1,\n\"ranks\": 2}"), ":2: ranks is set twice, first in line 1"));
}

TEST_CASE("a file that is not JSON is refused with the line of the error", "[runtime]") {
  CHECK(says(refusal("{\n  \"ranks\": 1\n  \"backend\": \"mock\"\n}"), ":3: "));
  CHECK(refusal("{\n  \"ranks\": 1,\n}") ==
        ":3: syntax error while parsing object key - unexpected '}'; expected string literal");
  CHECK(refusal("{\"ranks\": 1e999}") == ":1: number overflow parsing '1e999'");
  CHECK(says(refusal("{\"ranks\": 1} {\"ranks\": 2}"), ":1: "));
  CHECK(says(refusal("{\"ranks\": 1"), ":1: "));
  CHECK(refusal("") == ":1: the file is empty: write {} for no settings");
  CHECK(refusal(" \n") == ":1: the file is empty: write {} for no settings");
}

TEST_CASE("a settings file that cannot be read is refused by its name", "[runtime]") {
  const settings_on_disk file{"{}"};
  const auto refused = [](const std::filesystem::path& path) {
    return refusal_of([&] { static_cast<void>(gather_settings(variables({{"TROUPE_CONFIG", path.string()}}))); });
  };
  const auto absent = file.path().parent_path() / "absent.json";
  CHECK(refused(absent).starts_with("the settings file " + absent.string() +
                                    " cannot be read (No such file or directory)"));
  CHECK(says(refused(file.path().parent_path()), "cannot be read (Is a directory)"));
}

TEST_CASE("a file that never ends, or never begins, is refused as a settings file", "[runtime]") {
  const auto refused = [](const std::filesystem::path& path) {
    return refusal_of([&] { static_cast<void>(read_settings_file(path)); });
  };
  const settings_on_disk file{std::string(std::size_t{1} << 20U, ' ') + "{}"};
  CHECK(says(refused(file.path()), "cannot be read (it is larger than 1M)"));
  CHECK(says(refused("/dev/zero"), "not a regular file"));
  const auto pipe = file.path().parent_path() / "pipe"; // without a writer: to open it would block
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  CHECK(says(refused(pipe), "not a regular file"));
  const settings_on_disk longest{"{}" + std::string((std::size_t{1} << 20U) - 2, ' ')};
  CHECK(refused(longest.path()).empty());
}

TEST_CASE("the kind of a settings file is judged by the open file and not by its path", "[runtime]") {
  const settings_on_disk file{"{}"};
  const auto pipe = file.path().parent_path() / "judged_pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const file_descriptor events{::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)};
  REQUIRE(::inotify_add_watch(events.native(), pipe.c_str(), IN_OPEN) >= 0);
  CHECK(says(refusal_of([&] { static_cast<void>(read_settings_file(pipe)); }), "not a regular file"));
  inotify_event seen{};
  REQUIRE(::read(events.native(), &seen, sizeof seen) == static_cast<ssize_t>(sizeof seen));
  CHECK((seen.mask & IN_OPEN) != 0);
}

TEST_CASE("a path that JSON cannot hold is refused by the setting's name, not written in another encoding",
          "[runtime]") {
  configuration settings;
  settings.nccl.library = "/opt/\xe9t\xe9/libnccl.so.2"; // Latin-1
  CHECK(says(refusal_of([&] { static_cast<void>(format_settings_file(settings)); }),
             "nccl_library is '/opt/\xe9t\xe9/libnccl.so.2', which is not UTF-8"));
}

TEST_CASE("a path with a byte of 0 in it is refused, as the system would cut it there", "[runtime]") {
  CHECK(says(refusal(R"({"nccl_library": "/opt/libnccl.so\u0000.2"})"), "contains a null byte"));
}

TEST_CASE("empty lists of CPUs at the end say as much as none, and are not written", "[runtime]") {
  const setting& cpus = find_setting("mock.cpus");
  for (const auto& [given, written] : {std::pair{";", ""}, {";;", ""}, {"0-3;;", "0-3"}, {";4;", ";4"}}) {
    configuration settings;
    cpus.set(settings, given);
    CHECK(cpus.text(settings) == written);
  }
  configuration settings;
  settings.mock.cpus = {cpu_set{}, cpu_set{}};
  CHECK(cpus.text(settings).empty());
}

} // namespace troupe::tests
