import shutil

from fixture import TOOLS, TreeTest, run


class CheckFormat(TreeTest):
    def setUp(self):
        super().setUp()
        shutil.copy(TOOLS.parent / ".clang-format", self.root)
        if run("check-format", "--root", self.root).returncode == 2:
            self.skipTest("clang-format 14 is not installed (tools/install-dependencies --checks)")
        run("check-format", "--root", self.root, "--fix")

    def test_a_clean_tree_passes(self):
        self.assert_passes("check-format")

    def test_a_bad_format_is_caught_and_mended(self):
        self.plant("device/stream.cpp", "int  answer( )\n{ return 42 ; }\n")
        self.assert_catches("check-format", "device/stream.cpp", "+int answer() {", "1 of ")
        self.assert_passes("check-format", "--fix")
        self.assert_passes("check-format")
