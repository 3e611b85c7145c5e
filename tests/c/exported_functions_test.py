#!/usr/bin/env -S python3 -B
"""Compares <troupe/troupe.h> with what libtroupe_c exports, and with the header of the first version.

usage: exported_functions_test.py LIBRARY HEADER MAP FIRST_HEADER
"""
import ctypes
import pathlib
import re
import subprocess
import sys
import unittest

from header import Header

LIBRARY, HEADER, MAP, FIRST = map(pathlib.Path, sys.argv[1:5])


def run(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


class ExportedFunctions(unittest.TestCase):
    def setUp(self):
        self.header, self.first = Header(HEADER), Header(FIRST)

    def test_the_header_is_read(self):
        self.assertGreater(len(self.header.functions), 90)
        declared = re.findall(r"^TROUPE_API\b", HEADER.read_text(encoding="utf-8"), re.M)
        self.assertEqual(len(declared), len(self.header.functions))
        self.assertGreater(len(self.header.structs), 10)

    def test_the_library_exports_the_functions_of_the_header_and_nothing_else(self):
        lines = [line.split() for line in run("nm", "-D", "--defined-only", str(LIBRARY)).splitlines()]
        exported = {line[-1].split("@")[0] for line in lines if line[-2] != "A"}  # A: the names of the versions
        self.assertEqual(exported, set(self.header.functions))

    def test_each_function_has_a_version(self):
        mapped = re.findall(r"^ +(troupe_\w+);", MAP.read_text(encoding="utf-8"), re.M)
        self.assertEqual(sorted(mapped), sorted(self.header.functions))

    def test_the_soname_is_of_the_interface(self):
        self.assertIn("[libtroupe_c.so.1]", run("readelf", "-d", str(LIBRARY)))

    def test_functions_of_the_first_version_are_as_they_were(self):
        for name, declared in self.first.functions.items():
            self.assertEqual(self.header.functions.get(name), declared, name)
        first_node = re.search(r"TROUPE_C_1 \{(.*?)^\}", MAP.read_text(encoding="utf-8"), re.M | re.S)[1]
        self.assertEqual(sorted(re.findall(r"^ +(troupe_\w+);", first_node, re.M)), sorted(self.first.functions))

    def test_numbers_of_the_first_version_are_as_they_were(self):
        for name, value in self.first.numbers.items():
            if name != "TROUPE_C_VERSION":
                self.assertEqual(self.header.numbers.get(name), value, name)

    def test_structs_of_the_first_version_have_grown_at_their_end_alone(self):
        for name, fields in self.first.structs.items():
            self.assertEqual(self.header.structs[name][:len(fields)], fields, name)
            now, then = self.header.layout(name), ctypes.sizeof(self.first.layout(name))
            for _, added in self.header.structs[name][len(fields):]:
                self.assertGreaterEqual(getattr(now, added).offset, then, f"{name}.{added} is where older programs have padding")
            if fields[0] != ("size_t", "size"):
                self.assertEqual(self.header.structs[name], fields, f"{name} has no size, so it cannot grow")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
