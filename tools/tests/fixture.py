"""Common parts of the scripts' tests: a small tree in which faults are planted, and functions that run a script."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).resolve().parent.parent


def run(script, *arguments):
    """Runs tools/SCRIPT and captures standard output and standard error together."""
    return subprocess.run([sys.executable, str(TOOLS / script), *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)


class FolderTest(unittest.TestCase):
    """An empty folder; plant() adds a file to it, plant_program() one that can be run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def plant(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def plant_program(self, path, text):
        self.plant(path, text)
        (self.root / path).chmod(0o755)

    def run_program(self, path, *arguments, **variables):
        """Runs a program of the folder, with these variables added to the environment."""
        return subprocess.run([self.root / path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, check=False, env={**os.environ, **variables})


class TreeTest(FolderTest):
    """A correct tree of five layers and one test."""

    def setUp(self):
        super().setUp()
        self.plant("device/stream.hpp", "/// A stream (ONE-1), in UTF-8.\n#include <vector>\n")
        self.plant("device/topology/machine.cpp", "#include <hwloc.h>\n")
        self.plant("device/cuda/cuda_driver.cpp", "#include <cuda_runtime_api.h>\n#include <cuda.h>\n")
        self.plant("completion/poller/poller.cpp", '#include <troupe/device/stream.hpp>\n#include "slot.hpp"\n')
        self.plant("completion/slot.hpp", "")
        self.plant("collectives/backend/nccl/nccl_library.cpp", "#include <cuda_runtime_api.h>\n#include <nccl.h>\n")
        self.plant("actors/world/world_actor.cpp", "#include <caf/actor.hpp>\n#include <troupe/collectives/operation/request.hpp>\n")
        self.plant("runtime/logging.cpp", "#include <spdlog/spdlog.h>\n#include <troupe/device/stream.hpp>\n")
        self.plant("program/main.cpp", "#include <CLI/CLI.hpp>\n#include <nlohmann/json.hpp>\n")
        self.plant("tests/stream_test.cpp", 'TEST_CASE("a stream answers once", "[ONE-1]") {}\n')

    def assert_passes(self, script, *arguments):
        result = run(script, "--root", self.root, *arguments)
        self.assertEqual(result.returncode, 0, result.stdout)

    def assert_catches(self, script, *said):
        result = run(script, "--root", self.root)
        self.assertEqual(result.returncode, 1, result.stdout)
        for words in said:
            self.assertIn(words, result.stdout)


class ProjectTest(TreeTest):
    """A tree with the CMake project of FILES, configured in build/edit. All tests of a class have the same tree, because
    to configure and compile it takes seconds of CPU; each begins with the files as they were, and keeps what is built."""

    FILES = {}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.kept = pathlib.Path(folder.name)

    def setUp(self):
        super().setUp()
        wanted = {**{path.relative_to(self.root): path.read_text(encoding="utf-8") for path in self.root.rglob("*")
                     if path.is_file()}, **{pathlib.Path(path): text for path, text in self.FILES.items()}}
        self.root = self.kept
        for path in [path for path in self.root.rglob("*") if path.is_file() or path.is_symlink()]:
            name = path.relative_to(self.root)
            if name.parts[0] != "build" and name not in wanted:
                path.unlink()
        for name, text in wanted.items():
            path = self.root / name
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                self.plant(name, text)
        if not (self.root / "build").exists():
            made = subprocess.run(["cmake", "-G", "Ninja", "-B", "build/edit"], cwd=self.root, capture_output=True, text=True,
                                  check=False)
            self.assertEqual(made.returncode, 0, made.stderr)
