#include "support/outcomes.hpp"

#include <troupe/program/bench/frame/report.hpp>

#include <nlohmann/json.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <unistd.h>

#include <fstream>

using namespace troupe;
using Catch::Matchers::ContainsSubstring;
using program::json_file;
using tests::error_of;

namespace {

namespace fs = std::filesystem;

class folder {
public:
  folder() {
    std::string name = (fs::temp_directory_path() / "troupe_json_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() { fs::remove_all(path_); }
  [[nodiscard]] fs::path operator/(const char* name) const { return path_ / name; }
  [[nodiscard]] std::size_t count() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator{path_}, {}));
  }

private:
  fs::path path_;
};

nlohmann::json read(const fs::path& path) {
  return nlohmann::json::parse(std::ifstream{path});
}

} // namespace

TEST_CASE("a document replaces the former one whole and leaves nothing beside it", "[bench]") {
  const folder here;
  const json_file file{(here / "a.json").string()};
  CHECK(here.count() == 0); // trying whether it can be written leaves nothing
  file.write({{"run", 1}});
  file.write({{"run", 2}});
  CHECK(read(here / "a.json") == nlohmann::json{{"run", 2}});
  CHECK(here.count() == 1);
}

TEST_CASE("a document goes where a link leads, and the link stays", "[bench]") {
  const folder here;
  fs::create_symlink(here / "real.json", here / "link.json");
  json_file{(here / "link.json").string()}.write({{"run", 1}});
  CHECK(fs::is_symlink(here / "link.json"));
  CHECK(read(here / "real.json") == nlohmann::json{{"run", 1}});
}

TEST_CASE("a place that cannot be written is found before there is anything to write", "[bench]") {
  const folder here;
  for (const auto& path : {here / "no such folder" / "a.json", here / ".", fs::path{"/dev/null"}}) {
    CAPTURE(path);
    const error why = error_of([&] { static_cast<void>(json_file{path.string()}); });
    CHECK(why.code == errc::invalid_argument);
    CHECK_THAT(why.text, ContainsSubstring("cannot write") && ContainsSubstring("- for standard output"));
  }
}

TEST_CASE("tables leave standard output to a document that is wanted there", "[bench]") {
  CHECK(json_file{"-"}.text_output() == stderr);
  CHECK(json_file{"-"}.wanted());
  CHECK(json_file{""}.text_output() == stdout);
  CHECK_FALSE(json_file{""}.wanted());
}
