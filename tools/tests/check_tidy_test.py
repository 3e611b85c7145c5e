import re
import shutil
import subprocess

from built_tree import BuiltTreeTest
from fixture import TOOLS, run

FINDING = "#include <utility>\nvoid take(stream);\nauto twice(stream one) { take(std::move(one)); return one.name(); }\n"
TEXT = "struct text { [[nodiscard]] unsigned size() const; [[nodiscard]] bool empty() const; };\n"


class CheckTidy(BuiltTreeTest):
    def setUp(self):
        super().setUp()
        shutil.copy(TOOLS.parent / ".clang-tidy", self.root)
        if run("check-tidy", "--root", self.root, "no-such-file").returncode == 2:
            self.skipTest("clang-tidy 14 is not installed (tools/install-dependencies --checks)")

    def test_a_clean_tree_passes_and_passes_again(self):
        for _ in range(2):
            self.assert_passes("check-tidy")

    def test_a_finding_is_caught_and_caught_again(self):
        self.plant("device/stream.hpp", "#pragma once\nstruct stream { stream(stream&&) noexcept; int name() const; };\n")
        self.plant("device/stream.cpp", "#include <troupe/device/stream.hpp>\n" + FINDING)
        for _ in range(2):
            self.assert_catches("check-tidy", "device/stream.cpp:4:", "clang-analyzer-cplusplus.Move")

    def test_a_finding_in_a_header_is_caught_once_under_the_header_s_own_name(self):
        self.plant("device/event.cpp", "#include <troupe/device/stream.hpp>\n")
        self.build("device/event.cpp")
        self.assert_passes("check-tidy")
        self.plant("device/stream.hpp", f"#pragma once\n{TEXT}struct stream {{ text name; }};\n"
                                        "inline bool named(const stream& one) { return one.name.size() > 0; }\n")
        self.assert_catches("check-tidy", f"{self.root.resolve()}/device/stream.hpp:4:", "readability-container-size-empty",
                            "1 findings in 2 sources")

    def test_a_source_that_does_not_compile_is_caught(self):
        self.plant("device/stream.cpp", "int answer() { return question; }\n")
        self.assert_catches("check-tidy", "device/stream.cpp:1:", "question")

    def test_sources_for_nvcc_are_left_out(self):
        self.plant("device/kernel.cu", "__global__ void kernel();\n")
        self.build("device/kernel.cu")
        self.assert_passes("check-tidy")

    def test_fix_mends_what_can_be_mended(self):
        self.plant("device/stream.cpp", TEXT + "bool none(const text& in) { return in.size() == 0; }\n")
        self.assert_catches("check-tidy", "readability-container-size-empty")
        run("check-tidy", "--root", self.root, "--fix")
        self.assert_passes("check-tidy")
        self.assertIn("in.empty()", (self.root / "device/stream.cpp").read_text())

    def test_only_what_includes_a_changed_file_is_looked_at_when_asked(self):
        self.plant("device/event.cpp", "")
        self.build("device/event.cpp")
        for arguments in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a", "commit", "-qm", "a"]):
            subprocess.run(["git", "-C", str(self.root), *arguments], check=True)
        self.plant("device/stream.hpp", "#pragma once\nstruct stream { int name = 1; };\n")
        self.assertIn("tidy: 1 sources", run("check-tidy", "--root", self.root, "--changed").stdout)

    def test_every_exclusion_of_the_rules_has_its_reason(self):
        for rules in (TOOLS.parent / ".clang-tidy", *TOOLS.parent.glob("*/.clang-tidy")):
            text = rules.read_text(encoding="utf-8")
            excluded = set(re.findall(r"^ *-([a-z][\w.*-]+),?$", text, re.MULTILINE))
            reasons = set(re.findall(r"^# ([a-z][\w.*-]+): .", text, re.MULTILINE))
            self.assertEqual(excluded, reasons, rules)
            self.assertTrue(excluded, rules)
