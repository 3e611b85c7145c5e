"""Packs the wheel. tools/wheel calls it in a copy of this folder, to which it has added what is compiled:

    troupe/_troupe.cpython-311-x86_64-linux-gnu.so   the extension module, one for each version of CPython
    troupe/_bin/                                     the program troupe and its tools

TROUPE_PROJECT_URL=https://…: the address of the sources, for the links in the metadata.
"""
import os
import pathlib
import re

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel

HERE = pathlib.Path(__file__).resolve().parent
MODULE = re.compile(r"_troupe\.cpython-3(\d+)-[\w-]+\.so")
minors = sorted(int(match[1]) for one in HERE.glob("troupe/_troupe.*") if (match := MODULE.fullmatch(one.name)))
if not minors or not (HERE / "troupe/_bin/troupe").is_file():
    raise SystemExit("setup.py packs what tools/wheel has built: run tools/wheel in a checkout of troupe")


class CompiledDistribution(Distribution):
    def has_ext_modules(self):
        return True


class TaggedWheel(bdist_wheel):
    def get_tag(self):
        """One file for all versions whose extension modules are in it."""
        tags = ".".join(f"cp3{minor}" for minor in minors)
        return tags, tags, super().get_tag()[2]


version = re.search(r"project\(troupe_python VERSION ([\d.]+)", (HERE / "CMakeLists.txt").read_text()).group(1)
url = os.environ.get("TROUPE_PROJECT_URL", "").rstrip("/")
setup(version=version, distclass=CompiledDistribution, cmdclass={"bdist_wheel": TaggedWheel},
      project_urls={"Source": url, "Changelog": f"{url}/blob/main/CHANGELOG.md"} if url else {})
