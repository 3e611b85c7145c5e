"""Builds the wheel by CMake, with troupe inside the extension module.

By default all of troupe is built. Where it is there already, that is used, and seconds do:
    TROUPE_BUILD=/path/to/build/ci    a configured build of this tree, of which the target troupe_python is built
    TROUPE_ROOT=/opt/troupe           an installed troupe
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
                "-DTROUPE_BUILD_BENCH=OFF", "-DTROUPE_BUILD_PROGRAM=OFF", "-DTROUPE_INSTALL=OFF"]
            if shutil.which("ninja"):
                options.append("-GNinja")
            self.run_step("cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
                          f"-DPython_EXECUTABLE={sys.executable}", *options)
        self.run_step("cmake", "--build", build, "--target", "troupe_python")
        found = sorted(build.rglob(f"troupe/{target.name}"))
        if not found:
            there = ", ".join(str(one) for one in build.rglob("troupe/_troupe.*.so")) or "none"
            raise SystemExit(f"{build} has no {target.name}, for this Python {sys.version.split()[0]} (there: {there}): "
                             f"configure it with -DPython_EXECUTABLE={sys.executable}")
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "--strip-unneeded", "-o", target, found[0]], check=True)

    @staticmethod
    def run_step(*command):
        subprocess.run([str(word) for word in command], check=True)


version = re.search(r"project\(troupe_python VERSION ([\d.]+)", (HERE / "CMakeLists.txt").read_text()).group(1)
setup(version=version, ext_modules=[Extension("troupe._troupe", sources=[])], cmdclass={"build_ext": CMakeBuild})
