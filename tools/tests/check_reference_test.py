from fixture import TreeTest, run

HEADER = """/// Operations.
#pragma once

namespace troupe {

/// A buffer argument.
struct operand {
  buffer memory;
  friend bool operator==(const operand&, const operand&) = default;
};

/// Parts of \\p memory | of a buffer.
struct partition {
  std::vector<std::size_t> counts; ///< One for each rank,
                                   ///< in elements.

  [[nodiscard]] static partition packed(std::vector<std::size_t> counts);
};

/// Adds up what ranks have. All
/// of it.
///
/// Twice.
/// Shapes: \\p count elements.
/// In place: always.
/// Errors: none
/// at all.
struct sum_up {
  operand memory;
  /// In elements.
  std::size_t count = 0;
  dtype type = dtype::f32;
};

struct group;
class operation;

/// Several.
struct group {
  std::vector<operation> parts;
};

/// One of these.
/// Units: elements.
class operation
  : public std::variant<sum_up,
                        group> {
public:
  using variant::variant;
  ~operation();
};

} // namespace troupe
"""
OTHERS = {
    "collectives/operation/dtype.hpp": "/// Elements.\nenum class dtype : std::uint8_t { u8, f32 };\n",
    "collectives/operation/reduction.hpp": "/// How.\nenum class reduction : std::uint8_t { sum };\n/// By what.\nstruct factor {};\n",
    "collectives/operation/request.hpp": "/// How.\nstruct request_options {};\n/// One.\nstruct rank_request {};\n/// All.\nstruct world_request {};\n",
    "device/error.hpp": "/// What.\nenum class errc : std::uint8_t {\n  none = 0, ///< Good.\n  bad, ///< Mend it.\n};\n"
                        "/// Ran?\nenum class effect : std::uint8_t { rejected };\n",
}
EXAMPLE = "".join(f"// [{name}]\nrun({name});\n// [{name}]\n" for name in ("helpers", "sum_up", "group"))


class CheckReference(TreeTest):
    def setUp(self):
        super().setUp()
        self.plant("collectives/operation/operation.hpp", HEADER)
        for path, text in OTHERS.items():
            self.plant(path, text)
        self.plant("examples/02_every_operation.cpp", EXAMPLE)
        self.make()

    def make(self):
        result = run("check-reference", "--fix", "--root", self.root)
        self.assertEqual(result.returncode, 0, result.stdout)

    def page(self, name):
        return (self.root / "docs/reference" / name).read_text(encoding="utf-8")

    def test_pages_that_were_just_made_pass(self):
        self.assert_passes("check-reference")
        self.assert_passes("check-snippets")

    def test_a_page_has_what_the_header_and_the_example_say(self):
        page = self.page("sum_up.md")
        for words in ("Adds up what ranks have. All of it.\n\nTwice.", "**Shapes:** `count` elements.", "**In place:** always.",
                      "**Errors:** none at all.", "| `count` | `std::size_t` | `0` | In elements. |",
                      "| `memory` | [operand](types.md#operand) |", "run(sum_up);"):
            self.assertIn(words, page)
        types = self.page("types.md")
        self.assertIn("One for each rank, in elements.", types)
        self.assertIn("Values: `u8`, `f32`.", types)
        self.assertIn("| `bad` | Mend it. |", types)
        self.assertNotIn("operator", types)
        self.assertNotIn("packed", types)
        index = self.page("README.md")
        self.assertIn("| [sum_up](sum_up.md) | Adds up what ranks have. |", index)
        self.assertIn("| [group](group.md) | Several. |", index)

    def test_a_page_is_stale_when_the_header_has_changed(self):
        self.plant("collectives/operation/operation.hpp", HEADER.replace("count = 0", "count = 1"))
        self.assert_catches("check-reference", "docs/reference/sum_up.md is stale: run tools/check-reference --fix")
        self.make()
        self.assert_passes("check-reference")

    def test_a_page_is_stale_when_the_example_has_changed(self):
        self.plant("examples/02_every_operation.cpp", EXAMPLE.replace("run(group)", "run(mix)"))
        self.assert_catches("check-reference", "docs/reference/group.md is stale")

    def test_a_page_changed_by_hand_is_caught(self):
        self.plant("docs/reference/types.md", self.page("types.md") + "\nMore.\n")
        self.assert_catches("check-reference", "docs/reference/types.md is stale")

    def test_a_missing_page_and_one_too_many_are_caught(self):
        (self.root / "docs/reference/sum_up.md").rename(self.root / "docs/reference/add_up.md")
        self.assert_catches("check-reference", "docs/reference/sum_up.md is missing",
                            "docs/reference/add_up.md is not the page of an operation")
        self.make()
        self.assert_passes("check-reference")

    def test_an_operation_without_an_example_is_caught(self):
        self.plant("examples/02_every_operation.cpp", EXAMPLE.replace("[group]", "[mix]"))
        self.assert_catches("check-reference", "has no example of group")

    def test_an_operation_without_a_comment_is_caught(self):
        self.plant("collectives/operation/operation.hpp", HEADER.replace("/// Several.\n", ""))
        self.assert_catches("check-reference", "does not document the operation group")
