from fixture import TreeTest, run

DOCUMENT = "# Title\n\n<!-- snippet: examples/one.cpp -->\n```cpp\n{}```\n<!-- end -->\n"


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
