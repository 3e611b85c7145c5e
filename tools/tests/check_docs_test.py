import shutil
import unittest

from fixture import TreeTest, run

PUBLIC = """set(TROUPE_PUBLIC_HEADERS
  device/cuda/cuda_driver.hpp device/stream.hpp completion/slot.hpp processes/controller.hpp runtime/troupe.hpp)
"""
STREAM = "/// A queue of work.\n#pragma once\nnamespace troupe {{\n{}}}\n"


class DocumentedTree(TreeTest):
    def setUp(self):
        super().setUp()
        self.plant("CMakeLists.txt", "project(troupe VERSION 0.1.0)\n")
        self.plant("cmake/public_headers.cmake", PUBLIC)
        self.plant("docs/site/Doxyfile", "JAVADOC_AUTOBRIEF = YES\nFILE_PATTERNS = *.hpp *.md\nRECURSIVE = YES\n"
                                         "GENERATE_LATEX = NO\nHAVE_DOT = NO\nQUIET = YES\nWARN_IF_UNDOCUMENTED = NO\n")
        for page in ("header.html", "footer.html", "site.css"):
            self.plant(f"docs/site/{page}", "")
        self.plant("completion/slot.hpp", "/// A slot.\n")
        self.plant("runtime/troupe.hpp", "/// All of it.\n#include <troupe/device/stream.hpp>\n")
        self.plant("processes/controller.hpp", "/// A controller.\n")
        self.plant("device/cuda/cuda_driver.hpp", "/// The door to CUDA.\n")
        self.plant("device/stream.hpp", STREAM.format("/// A stream.\nclass stream {\npublic:\n  stream() = default;\n"
                                                      "  /// Whether it is idle.\n  bool idle() const;\n};\n"))
        self.plant("README.md", "# Title\n\nSee [the guide](docs/guide.md#second-part), [here](#title) and `[not](this.md)`.\n")
        self.plant("docs/guide.md", "# Guide\n\n## Second part\n\n[back](../README.md), [out](https://example.org/a).\n")


class CheckDocs(DocumentedTree):
    def test_a_clean_tree_passes(self):
        self.assert_passes("check-docs")

    def test_a_dead_link_is_caught(self):
        self.plant("docs/guide.md", "# Guide\n\n## Second part\n\n[gone](gone.md)\n")
        self.assert_catches("check-docs", "docs/guide.md:5: 'gone.md' leads to docs/gone.md, which does not exist")

    def test_a_dead_anchor_is_caught(self):
        self.plant("docs/guide.md", "# Guide\n")
        self.assert_catches("check-docs", "README.md:3: 'docs/guide.md#second-part': docs/guide.md has no heading")

    def test_an_address_that_is_none_is_caught(self):
        self.plant("docs/guide.md", "# Guide\n\n## Second part\n[out](https:/example.org)\n")
        self.assert_catches("check-docs", "docs/guide.md:4: 'https:/example.org' is not a valid address")

    def test_a_place_of_the_machine_is_caught(self):
        self.plant("docs/guide.md", "# Guide\n\n## Second part\n[out](/etc/passwd)\n")
        self.assert_catches("check-docs", "'/etc/passwd' is an absolute path")

    def test_a_link_in_code_is_none(self):
        self.plant("docs/guide.md", "# Guide\n\n## Second part\n```sh\n[gone](gone.md)\n```\n")
        self.assert_passes("check-docs")

    def test_a_header_that_does_not_say_why_it_is_there_is_caught(self):
        self.plant("completion/slot.hpp", "#pragma once\n")
        self.assert_catches("check-docs", "completion/slot.hpp:1: does not begin with a /// block")

    def test_a_header_that_is_not_installed_may_say_nothing(self):
        self.plant("device/cuda/inner.hpp", "#pragma once\n")
        self.assert_passes("check-docs")

    def test_a_header_that_users_are_told_to_include_and_that_is_not_installed_is_caught(self):
        self.plant("device/cuda/inner.hpp", "#pragma once\n")
        self.plant("docs/guide.md", "# Guide\n\n## Second part\nInclude `<troupe/device/cuda/inner.hpp>` or <troupe/troupe.hpp>.\n")
        self.assert_catches("check-docs", "docs/guide.md:4: <troupe/device/cuda/inner.hpp> is not installed")
        self.plant("docs/guide.md", "# Guide\n\n## Second part\n")
        self.plant("docs/design/0001-inner.md", "Reads `<troupe/device/cuda/inner.hpp>`.\n")
        self.plant("docs/design/README.md", "[0001](0001-inner.md)\n")
        self.assert_passes("check-docs")
        self.plant("docs/snippets/pages.cpp", "#include <troupe/device/cuda/inner.hpp>\n")
        self.assert_catches("check-docs", "docs/snippets/pages.cpp:1: <troupe/device/cuda/inner.hpp> is not installed")

    def test_a_file_that_a_packages_page_names_and_that_does_not_exist_is_caught(self):
        self.plant("device/README.md", "# Devices\n[streams](stream.hpp), `device/stream.hpp`, `cuda/cuda_driver.hpp`, `a/b`, `gone.hpp`\n")
        self.assert_passes("check-docs")
        self.plant("device/README.md", "# Devices\n[streams](gone.hpp), `device/gone.hpp`\n")
        self.assert_catches("check-docs", "device/README.md:2: 'gone.hpp' leads to device/gone.hpp, which does not exist",
                            "device/README.md:2: `device/gone.hpp` does not exist")

    def test_a_record_that_no_index_names_or_that_has_the_number_of_another_is_caught(self):
        self.plant("docs/design/README.md", "[0001](0001-one.md), [the archive](archive/README.md)\n")
        self.plant("docs/design/archive/README.md", "[0002](0002-two.md)\n")
        self.plant("docs/design/0001-one.md", "# One\n")
        self.plant("docs/design/archive/0002-two.md", "# Two\n")
        self.assert_passes("check-docs")
        self.plant("docs/design/archive/0001-other.md", "# Other\n")
        self.assert_catches("check-docs", "docs/design/archive/0001-other.md:1: docs/design/archive/README.md does not link to it",
                            "docs/design/archive/0001-other.md:1: the number 0001 belongs to docs/design/0001-one.md")

    def test_a_package_that_does_not_say_what_is_installed_is_caught(self):
        self.plant("cmake/public_headers.cmake", "install(EXPORT all)\n")
        self.assert_catches("check-docs", "adapt tools/parts/public_headers.py to its new form")


@unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed")
class CheckDocsInsideHeaders(DocumentedTree):
    def test_a_class_without_a_comment_is_caught(self):
        self.plant("completion/slot.hpp", "/// A slot.\nnamespace troupe {\nclass slot {};\n}\n")
        self.assert_catches("check-docs", "completion/slot.hpp:3: class troupe::slot has no comment")

    def test_an_enumeration_without_a_comment_is_caught(self):
        self.plant("completion/slot.hpp", "/// A slot.\nnamespace troupe {\nenum class kind { one };\n}\n")
        self.assert_catches("check-docs", "completion/slot.hpp:3: enum troupe::kind has no comment")

    def test_a_function_without_a_comment_is_caught_where_users_include_it(self):
        body = "/// A stream.\nclass stream {\npublic:\n  bool idle() const;\n};\n"
        self.plant("device/stream.hpp", STREAM.format(body))
        self.assert_catches("check-docs", "device/stream.hpp:7: function troupe::stream::idle() const has no comment")
        self.plant("device/stream.hpp", STREAM.format("/// A stream.\nclass stream {};\n"))
        self.plant("completion/slot.hpp", STREAM.format(body))
        self.assert_passes("check-docs")

    def test_a_warning_of_doxygen_is_caught_in_its_place(self):
        self.plant("completion/slot.hpp", "/// A slot.\nnamespace troupe {\n/// Says \\nosuchcommand.\nclass slot {};\n}\n")
        self.assert_catches("check-docs", "completion/slot.hpp:3: Found unknown command")


class Docs(DocumentedTree):
    def setUp(self):
        super().setUp()
        self.plant("docs/README.md", "# All of it\n\n[The guide](guide.md#second-part), [a header](../device/stream.hpp).\n")

    def test_its_help_says_what_it_does(self):
        result = run("docs", "--help")
        self.assertEqual(result.returncode, 0)
        self.assertIn("build/docs/html/index.html", result.stdout)

    @unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed")
    def test_pages_and_headers_lead_to_each_other(self):
        self.assert_passes("docs")
        index = (self.root / "build/docs/html/index.html").read_text(encoding="utf-8")
        self.assertIn('href="page_guide.html#page_guide__second_part"', index)
        self.assertIn('href="stream_8hpp.html"', index)
        self.assertIn("troupe/device/stream.hpp", (self.root / "build/docs/html/classtroupe_1_1stream.html").read_text(encoding="utf-8"))

    @unittest.skipUnless(shutil.which("doxygen"), "doxygen is not installed")
    def test_a_warning_fails(self):
        self.plant("completion/slot.hpp", "/// A slot.\nnamespace troupe {\n/// Says \\nosuchcommand.\nclass slot {};\n}\n")
        self.assert_catches("docs", "completion/slot.hpp:3: Found unknown command")


if __name__ == "__main__":
    unittest.main()
