from fixture import TreeTest, run

DOCUMENT = "# Title\n\n<!-- snippet: examples/one.cpp -->\n```cpp\n{}```\n<!-- end -->\n"
MARKED = "void f() {\n  // [sum]\n  int a = 1;\n    a += 2;\n  // [sum]\n}\n"
REGION = DOCUMENT.replace("one.cpp", "two.cpp#sum")


class CheckSnippets(TreeTest):
    def setUp(self):
        super().setUp()
        self.plant("examples/one.cpp", "int main() {}\n")
        self.plant("README.md", DOCUMENT.format("int main() {}\n"))

    def test_a_document_that_shows_the_source_passes(self):
        self.assert_passes("check-snippets")

    def test_a_document_that_shows_something_else_is_caught(self):
        self.plant("docs/guide/start.md", DOCUMENT.format("int main(void) {}\n"))
        self.assert_catches("check-snippets", "docs/guide/start.md: differs from examples/one.cpp")

    def test_fix_copies_the_source(self):
        self.plant("README.md", DOCUMENT.format(""))
        self.assertEqual(run("check-snippets", "--root", self.root, "--fix").returncode, 0)
        self.assert_passes("check-snippets")

    def test_a_region_is_quoted_from_the_left_margin(self):
        self.plant("examples/two.cpp", MARKED)
        self.plant("README.md", REGION.format("int a = 1;\n  a += 2;\n"))
        self.assert_passes("check-snippets")

    def test_a_region_that_has_changed_is_caught_and_mended(self):
        self.plant("examples/two.cpp", MARKED)
        self.plant("README.md", REGION.format("int a = 1;\n"))
        self.assert_catches("check-snippets", "README.md: differs from examples/two.cpp#sum")
        self.assertEqual(run("check-snippets", "--root", self.root, "--fix").returncode, 0)
        self.assert_passes("check-snippets")

    def test_a_region_whose_marks_are_not_a_pair_is_caught(self):
        self.plant("examples/two.cpp", MARKED.replace("// [sum]", "// [total]", 1))
        self.plant("README.md", REGION.format("int a = 1;\n"))
        self.assert_catches("check-snippets", "quotes examples/two.cpp#sum, but the mark // [sum] occurs 1 times")

    def test_a_source_that_is_not_there_is_caught(self):
        self.plant("README.md", REGION.format("int a = 1;\n"))
        self.assert_catches("check-snippets", "quotes examples/two.cpp#sum, but there is no such file")

    def test_cpp_that_quotes_nothing_is_caught(self):
        self.plant("docs/one.md", "# One\n\n```cpp\nint main() {}\n```\n")
        self.assert_catches("check-snippets", "docs/one.md:3: a block of C or C++ quotes no compiled file")

    def test_c_that_quotes_nothing_is_caught(self):
        self.plant("docs/one.md", "# One\n\n```c\nint main(void) { return 0; }\n```\n")
        self.assert_catches("check-snippets", "docs/one.md:3: a block of C or C++ quotes no compiled file")
        self.plant("docs/one.md", "# One\n\n```console\n$ cc one.c\n```\n")
        self.assert_passes("check-snippets")

    def test_text_that_the_shell_writes_to_a_file_is_quoted(self):
        shell = ("<!-- snippet: examples/one.cpp -->\n<!-- newcomer: run -->\n```sh\nmkdir a\ncat >one.cpp <<'END'\n"
                 "{}END\n```\n<!-- end -->\n")
        self.plant("docs/one.md", shell.format("int main() {}\n"))
        self.assert_passes("check-snippets")
        self.plant("docs/one.md", shell.format("int main(void) {}\n"))
        self.assert_catches("check-snippets", "docs/one.md: differs from examples/one.cpp")
