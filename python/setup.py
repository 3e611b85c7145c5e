"""Builds the wheel by CMake: troupe inside the extension module, and the program troupe.

By default all of troupe is built. With one of these variables an existing build is used, which takes seconds:
    TROUPE_BUILD=/path/to/build/ci    a configured build of this tree; its targets troupe_python and troupe are built
    TROUPE_ROOT=/opt/troupe           an installed troupe
TROUPE_PROJECT_URL=https://…         the address of the sources, for the links in the wheel's metadata

The wheel is tagged linux_x86_64: it needs the shared libraries of the system that it was built on, so it is no manylinux
wheel.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = pathlib.Path(__file__).resolve().parent


class CMakeBuild(build_ext):
    def build_extension(self, extension):
        target = pathlib.Path(self.get_ext_fullpath(extension.name)).resolve()
        built, made = os.environ.get("TROUPE_BUILD"), os.environ.get("TROUPE_ROOT")
        if built:
            build = pathlib.Path(built)
        else:
            build = pathlib.Path(self.build_temp).resolve()
            build.mkdir(parents=True, exist_ok=True)
            source = HERE if made else HERE.parent
            options = [f"-Dtroupe_ROOT={made}"] if made else [
                "-DTROUPE_PYTHON=ON", "-DTROUPE_BUILD_TESTS=OFF", "-DTROUPE_BUILD_EXAMPLES=OFF",
                "-DTROUPE_BUILD_PROGRAM=ON", "-DTROUPE_BUILD_C=OFF", "-DTROUPE_INSTALL=OFF",
                "-DTROUPE_PRECOMPILE=ON", "-DTROUPE_UNITY=ON"]
            if shutil.which("ninja"):
                options.append("-GNinja")
            self.run_step("cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
                          f"-DPython_EXECUTABLE={sys.executable}", *options)
        self.run_step("cmake", "--build", build, "--target", "troupe_python", *([] if made else ["troupe"]))
        found = sorted(build.rglob(f"troupe/{target.name}"))
        if not found:
            there = ", ".join(str(one) for one in build.rglob("troupe/_troupe.*.so")) or "none"
            raise SystemExit(f"{build} has no {target.name} for this Python {sys.version.split()[0]} (found: {there}): "
                             f"configure it with -DPython_EXECUTABLE={sys.executable}")
        self.put(found[0], target)
        program = found[0].parent / "_bin" / "troupe"
        if not program.is_file():
            raise SystemExit(f"{program} does not exist: build with -DTROUPE_BUILD_PROGRAM=ON, or set a TROUPE_ROOT "
                             f"with its program")
        self.put(program, target.parent / "_bin" / "troupe")
        trace = program.resolve().parent / "troupe-trace"  # a link to a program in Python
        shutil.copy(trace, target.parent / "_bin")
        shutil.copy(trace.resolve().with_name("troupe_tool.py"), target.parent / "_bin")

    @staticmethod
    def put(built, where):
        where.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "--strip-unneeded", "-o", where, built], check=True)

    @staticmethod
    def run_step(*command):
        subprocess.run([str(word) for word in command], check=True)


version = re.search(r"project\(troupe_python VERSION ([\d.]+)", (HERE / "CMakeLists.txt").read_text()).group(1)
url = os.environ.get("TROUPE_PROJECT_URL", "").rstrip("/")
setup(version=version, ext_modules=[Extension("troupe._troupe", sources=[])], cmdclass={"build_ext": CMakeBuild},
      project_urls={"Source": url, "Changelog": f"{url}/blob/main/CHANGELOG.md"} if url else {})
