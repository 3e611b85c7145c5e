"""A small configured tree for tests of checks that need a build."""
import json

from fixture import TreeTest


class BuiltTreeTest(TreeTest):
    """A layer with a correct header and a correct source. build() adds a source to the build, by default with the
    flags of the layer."""

    def setUp(self):
        super().setUp()
        links = self.root / "build/edit/include/device/troupe"
        links.mkdir(parents=True)
        (links / "device").symlink_to(self.root / "device")
        (links / "completion").symlink_to(self.root / "completion")
        # No header of the standard library: <string> alone takes clang-tidy more than a second, in each run.
        self.plant("device/stream.hpp", "#pragma once\nstruct stream { int name = 0; };\n")
        self.plant("device/stream.cpp", "#include <troupe/device/stream.hpp>\n"
                                        "const stream* pass(const stream* one) { return one; }\n")
        self.sources = []
        self.build("device/stream.cpp")

    def build(self, source, flags=None):
        folder = self.root / "build/edit"
        if flags is None:
            flags = f"-Wall -Wextra -I{folder}/include/device"
        self.sources.append({"directory": str(folder), "file": str(self.root / source),
                             "command": f"c++ -std=c++20 {flags} -o x.o -c {self.root / source}"})
        self.plant("build/edit/compile_commands.json", json.dumps(self.sources))
