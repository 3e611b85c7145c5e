// Numbers and texts as bytes and back; what is not as it should be is refused, wherever it ends.
#include <troupe/collectives/operation/wire.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <limits>
#include <string>

using namespace troupe;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr auto most = std::numeric_limits<std::uint64_t>::max();

std::string a_record() {
  wire_writer out;
  out.u8(7);
  out.flag(true);
  out.varint(300);
  out.signed_varint(-2);
  out.bytes("lane");
  return out.take();
}

bool read_record(wire_reader& in) {
  const bool right =
      in.u8() == 7 && in.flag() && in.varint() == 300 && in.signed_varint() == -2 && in.bytes(8) == "lane";
  return right && in.at_end();
}

} // namespace

TEST_CASE("numbers and texts come back as they were written", "[collectives][wire]") {
  wire_writer out;
  for (unsigned bits = 0; bits < 64; ++bits)
    for (const std::uint64_t value : {std::uint64_t{1} << bits, (std::uint64_t{1} << bits) - 1}) {
      out.varint(value);
      out.signed_varint(static_cast<std::int64_t>(value));
      out.signed_varint(static_cast<std::int64_t>(~value));
    }
  out.varint(most);
  const std::string bytes = out.take();
  CHECK(out.empty());
  wire_reader in{bytes};
  for (unsigned bits = 0; bits < 64; ++bits)
    for (const std::uint64_t value : {std::uint64_t{1} << bits, (std::uint64_t{1} << bits) - 1}) {
      CHECK(in.varint() == value);
      CHECK(in.signed_varint() == static_cast<std::int64_t>(value));
      CHECK(in.signed_varint() == static_cast<std::int64_t>(~value));
    }
  CHECK(in.varint() == most);
  CHECK(in.ok());
  CHECK(in.at_end());
  const std::string record = a_record();
  wire_reader whole{record};
  CHECK(read_record(whole));
  CHECK_FALSE(whole.failure("a record"));
}

TEST_CASE("bytes that end too early are refused wherever they end", "[collectives][wire]") {
  const std::string record = a_record();
  for (std::size_t size = 0; size < record.size(); ++size) {
    const std::string part = record.substr(0, size);
    wire_reader in{part};
    CHECK_FALSE(read_record(in));
    CHECK_FALSE(in.ok());
    CHECK(in.at_end());
    const error why = in.failure("a record");
    CHECK(why.code == errc::internal);
    CHECK_THAT(why.text, ContainsSubstring("a record cannot be read: at byte ") && ContainsSubstring("it ends"));
  }
}

TEST_CASE("a field that exceeds its limit is refused, and nothing behind it is read", "[collectives][wire]") {
  const auto refused = [](const std::string& bytes, auto read) {
    wire_reader in{bytes};
    read(in);
    return !in.ok() && in.u8() == 0 && in.varint() == 0 && in.bytes(9).empty() && !in.failure("it").text.empty();
  };
  wire_writer out;
  out.varint(9);
  out.raw("123456789");
  const std::string nine = out.take();
  CHECK(refused(nine, [](wire_reader& in) { (void)in.varint(8); }));
  CHECK(refused(nine, [](wire_reader& in) { (void)in.bytes(8); }));
  CHECK(refused(nine, [](wire_reader& in) { (void)in.count(8); }));
  CHECK(refused(nine, [](wire_reader& in) { (void)in.count(9, 2); }));
  CHECK(refused(nine, [](wire_reader& in) { (void)in.count(most, most); }));
  CHECK(refused(nine, [](wire_reader& in) { (void)in.flag(); }));
  CHECK(refused(nine, [](wire_reader& in) { (void)in.signed_varint(0, 9); })); // it is -5
  CHECK(refused(nine, [](wire_reader& in) { (void)in.one_of(errc::mismatch); }));
  CHECK(refused(nine, [](wire_reader& in) { in.refuse("a reason"); }));
  CHECK(refused(std::string(10, '\xff'), [](wire_reader& in) { (void)in.varint(); }));
  CHECK(refused(std::string(9, '\xff') + '\x02', [](wire_reader& in) { (void)in.varint(); }));
  wire_reader in{nine};
  CHECK(in.bytes(9) == "123456789");
  CHECK(in.at_end());
}

TEST_CASE("the first thing that was wrong is told", "[collectives][wire]") {
  const std::string bytes{"\x02\x00", 2};
  wire_reader in{bytes};
  CHECK_FALSE(in.flag());
  (void)in.varint();
  in.refuse("another reason");
  CHECK(in.failure("a batch of rank 2").text ==
        "a batch of rank 2 cannot be read: at byte 1 of 2, a flag is neither 0 nor 1");
}
