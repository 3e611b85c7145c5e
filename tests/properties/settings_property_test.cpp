// What is written of settings reads back as the same.
#include "properties/property.hpp"

#include <troupe/device/topology/locality.hpp>
#include <troupe/runtime/configuration/gathered_settings.hpp>
#include <troupe/runtime/configuration/user_input.hpp>

#include <set>
#include <sstream>

using namespace troupe;
using troupe::tests::check_property;

namespace {

cpu_set drawn_cpus() {
  return cpu_set{*rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 300))};
}

/// Words of a description: the choices of a name are among them.
std::vector<std::string> words_of(std::string_view description) {
  std::vector<std::string> words{""};
  for (const char letter : description)
    if (std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_')
      words.back() += letter;
    else if (!words.back().empty())
      words.emplace_back();
  return words;
}

/// Something that the setting may take; what its form is like is guessed, and what it refuses is left out.
std::string drawn_text(const setting& one) {
  auto number = std::to_string(*rc::gen::inRange<std::uint64_t>(0, 1 << 20));
  if (one.form == "NUMBER") return number;
  if (one.form == "SIZE") return number + *rc::gen::element<std::string>("", "K", "M", "G", "k");
  if (one.form == "DURATION") return number + *rc::gen::element<std::string>("ns", "us", "ms", "s", "min");
  if (one.form == "PATH") return *rc::gen::container<std::string>(rc::gen::inRange<char>(1, 127));
  if (one.form.starts_with("CPUS")) {
    std::string lists;
    for (int i = *rc::gen::inRange(0, 4); i > 0; --i) lists += to_string(drawn_cpus()) + (i > 1 ? ";" : "");
    return lists;
  }
  return *rc::gen::elementOf(words_of(one.description));
}

std::vector<std::string> texts_of(const configuration& settings) {
  std::vector<std::string> texts;
  for (const setting& one : all_settings()) texts.push_back(one.text(settings));
  return texts;
}

} // namespace

TEST_CASE("property: settings that are written to a file read back as the same", "[properties][runtime]") {
  const configuration defaults;
  std::set<std::string_view> changed;
  check_property(
      "settings files",
      [&] {
        configuration drawn;
        for (const setting& one : all_settings()) {
          const std::string text = drawn_text(one);
          try {
            one.set(drawn, text);
          } catch (const exception&) {
            continue;
          }
          if (one.text(drawn) != one.text(defaults)) changed.insert(one.name);
          configuration again;
          one.set(again, one.text(drawn));
          RC_ASSERT(one.text(again) == one.text(drawn));
        }
        gathered_settings read;
        for (const auto& entry : parse_settings_file("written", format_settings_file(drawn)))
          read.take(find_setting(entry.name), entry.value, {setting_source::file, "written"});
        RC_ASSERT(texts_of(read.settings()) == texts_of(drawn));
      },
      5);
  CHECK(changed.size() > all_settings().size() / 2); // the texts drawn were mostly taken
}

TEST_CASE("property: durations, sizes, numbers, CPU lists and PCI addresses read back as they were written",
          "[properties][runtime]") {
  check_property("durations", [] {
    const std::chrono::nanoseconds span{*rc::gen::nonNegative<std::int64_t>()};
    RC_ASSERT(parse_duration(format_duration(span)) == span);
  });
  check_property("round durations", [] {
    const std::chrono::seconds span{*rc::gen::inRange<std::int64_t>(0, 1 << 20)};
    RC_ASSERT(parse_duration(format_duration(span)) == span);
    RC_ASSERT(format_duration(span).find_first_not_of("0123456789s") == std::string::npos);
  });
  check_property("sizes", [] {
    const auto bytes = *rc::gen::arbitrary<std::size_t>() << *rc::gen::inRange(0U, 40U);
    RC_ASSERT(parse_byte_size(format_byte_size(bytes)) == bytes);
  });
  check_property("whole numbers", [] {
    const auto number = *rc::gen::arbitrary<std::uint64_t>();
    RC_ASSERT(parse_whole_number(std::to_string(number)) == std::optional{number});
    RC_ASSERT(!parse_whole_number(std::to_string(number) + *rc::gen::element('-', ' ', '.', 'x')));
  });
  check_property("CPU lists", [] {
    const cpu_set cpus = drawn_cpus();
    RC_ASSERT(parse_cpu_set(to_string(cpus)) == cpus);
  });
  check_property("PCI addresses", [] {
    const pci_address address{.domain = *rc::gen::arbitrary<unsigned>(),
                              .bus = *rc::gen::inRange(0U, 256U),
                              .device = *rc::gen::inRange(0U, 32U),
                              .function = *rc::gen::inRange(0U, 8U)};
    RC_ASSERT(pci_address::parse(to_string(address)) == std::optional{address});
  });
}
