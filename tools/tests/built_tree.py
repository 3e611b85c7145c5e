"""A small tree that has been configured: what a check that works on a build needs."""
import json

from fixture import TreeTest


class BuiltTreeTest(TreeTest):
    """One layer of a header and a source that are in order. build() tells the build of a source."""

    def setUp(self):
        super().setUp()
        links = self.root / "build/dev/include/device/troupe"
        links.mkdir(parents=True)
        (links / "device").symlink_to(self.root / "device")
        (links / "completion").symlink_to(self.root / "completion")
        self.plant("device/stream.hpp", "#pragma once\n#include <string>\nstruct stream { std::string name; };\n")
        self.plant("device/stream.cpp", "#include <troupe/device/stream.hpp>\n"
                                        "const stream* pass(const stream* one) { return one; }\n")
        self.sources = []
        self.build("device/stream.cpp")

    def build(self, source):
        folder = self.root / "build/dev"
        flags = f"c++ -std=c++20 -Wall -Wextra -I{folder}/include/device"
        self.sources.append({"directory": str(folder), "file": str(self.root / source),
                             "command": f"{flags} -o x.o -c {self.root / source}"})
        self.plant("build/dev/compile_commands.json", json.dumps(self.sources))
