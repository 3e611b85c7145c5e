/// Every number among the options of every subcommand has a range, and is refused outside of it before anything is
/// made. The options are those of the program itself: a new one that has no range fails here.

#include <troupe/program/command_line.hpp>
#include <troupe/program/subcommands.hpp>

#include <troupe/runtime/configuration/settings.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <CLI/CLI.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <regex>
#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace troupe::tests::option_ranges_test {

namespace {

using words = std::vector<std::string>;

/// The program as main() makes it. What it would do is not done.
class command_line {
public:
  command_line() {
    program::add_commands(app_, chosen_, {"true"});
    for (const auto add : {program::add_bench, program::add_conform, program::add_simulate, program::add_stress})
      add(app_, chosen_); // programs of their own
  }

  /// Whether the command would be run.
  [[nodiscard]] bool takes(words all) {
    chosen_ = nullptr;
    std::ranges::reverse(all); // as CLI11 wants them
    try {
      app_.parse(all);
    } catch (const CLI::ParseError&) {
      return false;
    }
    return chosen_ != nullptr;
  }
  [[nodiscard]] const CLI::App& app() const noexcept { return app_; }

private:
  CLI::App app_;
  program::action chosen_;
};

/// A subcommand without subcommands of its own, and the words that run it.
struct leaf {
  const CLI::App* command;
  words called;
};

void find_leaves(const CLI::App& at, words path, std::vector<leaf>& all) {
  const auto inner = at.get_subcommands([](const CLI::App*) { return true; });
  for (const CLI::App* one : inner) {
    words longer = path;
    longer.push_back(one->get_name());
    find_leaves(*one, std::move(longer), all);
  }
  if (!inner.empty()) return;
  for (const CLI::Option* one : at.get_options())
    if (one->get_required()) {
      const bool is_number = one->get_type_name().starts_with("PLACE"); // its check is not part of the name
      path.push_back(!one->get_positional() ? "--" + one->get_lnames().front() + "=1" : is_number ? "1" : "file");
    }
  all.push_back({&at, std::move(path)});
}

struct range {
  std::string form, least, most;
};

std::optional<range> range_of(const CLI::Option& option) {
  static const std::regex pattern{R"((INT|UINT|NUMBER|SIZE|DURATION) in \[(\S+) - (\S+)\])"};
  std::smatch found;
  const std::string text = option.get_type_name();
  if (!std::regex_search(text, found, pattern)) return std::nullopt;
  return range{found[1], found[2], found[3]};
}

/// One less than \p text or one more, where a type of 64 bits has that.
words neighbours(const range& of) {
  words all{"-1", "x", "1x", "nan", "99999999999999999999999999"};
  if (of.form == "DURATION") {
    const auto least = parse_duration(of.least), most = parse_duration(of.most);
    if (least.count() > 0) all.push_back(format_duration(least - std::chrono::nanoseconds{1}));
    all.push_back(format_duration(most + std::chrono::nanoseconds{1}));
    all.push_back(of.least.substr(0, of.least.find_first_not_of("0123456789"))); // without a unit
  } else if (of.form == "SIZE") {
    const std::size_t least = parse_byte_size(of.least), most = parse_byte_size(of.most);
    if (least > 0) all.push_back(std::to_string(least - 1));
    all.push_back(std::to_string(most + 1));
  } else {
    all.push_back("-" + of.most);
    all.push_back(of.most + "0");
    const double least = std::stod(of.least), most = std::stod(of.most);
    if (least > 0) all.push_back(std::to_string(least / 2 - 1));
    if (least >= 1) all.push_back(std::to_string(static_cast<long long>(least) - 1));
    if (most < 1e15) all.push_back(std::to_string(static_cast<long long>(most) + 1));
  }
  return all;
}

/// Options whose value is a name, a path, a list of names or a number that is read elsewhere.
const std::set<std::string> free_text{
    "--config",      "--fault",      "--record",    "--faults",    "--rung",
    "--url",         "--out",        "--only",      "--json",      "--hosts",
    "--kinds",       "--bind",       "--certs",     "--policy",    "--log",
    "--events",      "--trace",      "--seeds",     "--ways",      "--memory",
    "--fusions",     "--recordings", "--profiles",  "--cublas",    "--plot",
    "--datatype",    "--op",         "--operation", "--backend",   "--strategies",
    "--member",      "--logs",       "--judge",     "--asked-by",  "--only-requests",
    "--only-faults", "--store",      "--store-ca",  "--store-key", "--store-certificate",
    "--store-token"};

bool is_setting(const CLI::Option& option) {
  return std::ranges::any_of(all_settings(), [&](const setting& one) { return option.check_name(one.option); });
}

} // namespace

TEST_CASE("every number among the options of every subcommand is taken in its range and refused outside of it",
          "[program]") {
  command_line program;
  std::vector<leaf> leaves;
  find_leaves(program.app(), {}, leaves);
  CHECK(leaves.size() > 30);
  std::size_t numbers = 0;
  for (const leaf& one : leaves) {
    INFO("troupe " << CLI::detail::join(one.called, " "));
    CHECK((program.takes(one.called) || one.command->get_group().empty()));
    for (const CLI::Option* option : one.command->get_options()) {
      const bool is_flag = option->get_items_expected_max() == 0;
      if (is_flag || option->get_positional() || option->get_lnames().empty()) continue;
      const std::string name = "--" + option->get_lnames().back();
      INFO(name << " is " << option->get_type_name());
      const auto limits = range_of(*option);
      if (!limits) {
        INFO("give it a range (option_ranges.hpp, CLI::Range), or name it in free_text if it is no number");
        CHECK((is_setting(*option) || std::ranges::any_of(option->get_lnames(), [](const std::string& known) {
                 return free_text.contains("--" + known);
               })));
        continue;
      }
      ++numbers;
      const auto with = [&](const std::string& value) {
        words all = one.called;
        std::erase_if(all, [&](const std::string& word) { return word.starts_with(name + "="); });
        all.push_back(name + "=" + value);
        return all;
      };
      CHECK(program.takes(with(limits->least)));
      CHECK(program.takes(with(limits->most)));
      for (const std::string& value : neighbours(*limits)) {
        INFO("value '" << value << "'");
        CHECK_FALSE(program.takes(with(value)));
      }
    }
  }
  CHECK(numbers > 80);
}

TEST_CASE("a controller's log level is that of TROUPE_LOG, unless it has an option, and must be a level", "[program]") {
  const words called{"controller", "-n", "1"};
  const auto level_with = [&](const char* variable, words all) -> std::string {
    ::setenv("TROUPE_LOG", variable, 1);
    command_line program;
    const bool is_taken = program.takes(std::move(all));
    ::unsetenv("TROUPE_LOG");
    return is_taken ? program.app().get_subcommand("controller")->get_option("--log")->as<std::string>() : "refused";
  };
  CHECK(level_with("", called) == "info");
  CHECK(level_with("warn", called) == "warn");
  CHECK(level_with("loud", called) == "refused");
  words chosen = called;
  chosen.push_back("--log=off");
  CHECK(level_with("warn", chosen) == "off");
  chosen.back() = "--log=loud";
  CHECK(level_with("warn", chosen) == "refused");
}

TEST_CASE("a mistyped subcommand or option is told with the nearest one", "[program]") {
  command_line program;
  const auto suggested = [&](words all) {
    const bool is_taken = program.takes(std::move(all));
    CHECK_FALSE(is_taken);
    return program::suggestions(program.app());
  };
  CHECK(suggested({"dmeo"}) == "Did you mean 'demo' in place of 'dmeo'?\n");
  CHECK(suggested({"bench", "latncy"}) == "Did you mean 'latency' in place of 'latncy'?\n");
  CHECK(suggested({"demo", "--rnaks", "3"}) == "Did you mean '--ranks' in place of '--rnaks'?\n");
  CHECK(suggested({"demo", "--limits-hagn=3s"}) == "Did you mean '--limits-hang' in place of '--limits-hagn'?\n");
  CHECK(suggested({"something-else"}).empty());
  CHECK(suggested({"demo", "--clients", "0"}).empty());
}

TEST_CASE("the error that ended the program is printed with its remedy", "[program]") {
  const auto told = [](auto problem) {
    std::FILE* const file = std::tmpfile();
    program::print_failure(::fileno(file), std::make_exception_ptr(problem));
    std::rewind(file);
    char line[256] = {};
    const bool is_there = std::fgets(line, sizeof line, file) != nullptr;
    std::fclose(file);
    return is_there ? std::string{line} : std::string{};
  };
  CHECK(told(std::bad_alloc{}).starts_with("troupe: out of memory: raise the limit"));
  CHECK(told(std::system_error{EAGAIN, std::generic_category()}).find("a thread could not be created") !=
        std::string::npos);
  CHECK(told(exception{errc::busy, "too many"}).find("too many") != std::string::npos);
  CHECK(told(3) == "troupe: an exception of unknown type\n");
}

} // namespace troupe::tests::option_ranges_test
