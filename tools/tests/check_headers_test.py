from built_tree import BuiltTreeTest
from fixture import run


class CheckHeaders(BuiltTreeTest):
    def test_a_clean_tree_passes_and_passes_again(self):
        for _ in range(2):
            self.assert_passes("check-headers")

    def test_a_header_that_lacks_an_include_is_caught_though_its_source_compiles(self):
        self.plant("device/event.hpp", "#pragma once\nstruct event { std::string name; };\n")
        self.plant("device/stream.cpp", "#include <string>\n#include <troupe/device/event.hpp>\nevent one;\n")
        self.assert_catches("check-headers", "device/event.hpp: does not compile alone", "device/event.hpp:2:", "1 of ")

    def test_a_header_of_the_tests_is_caught(self):
        self.plant("tests/support/gate.hpp", "#pragma once\nstd::string gate();\n")
        self.assert_catches("check-headers", "tests/support/gate.hpp")

    def test_a_header_has_the_flags_of_a_source_that_includes_it(self):
        self.plant("tests/support/gate.hpp", "#pragma once\n#include <troupe/device/stream.hpp>\nstream gate();\n")
        self.plant("tests/support/plugin.cpp", "")
        self.build("tests/support/plugin.cpp", flags="")
        self.assert_catches("check-headers", "tests/support/gate.hpp")
        self.plant("tests/gate_test.cpp", '#include "support/gate.hpp"\n')
        self.build("tests/gate_test.cpp")
        self.assert_passes("check-headers")

    def test_a_warning_is_an_error(self):
        self.plant("device/event.hpp", "#pragma once\ninline void wait(int timeout) {}\n")
        self.assert_catches("check-headers", "device/event.hpp", "unused parameter")

    def test_a_header_that_was_in_order_is_caught_when_what_it_includes_changes(self):
        self.plant("device/event.hpp", "#pragma once\n#include <troupe/device/stream.hpp>\nstruct event { stream on; };\n")
        self.assert_passes("check-headers")
        self.plant("device/stream.hpp", "#pragma once\n")
        self.assert_catches("check-headers", "device/event.hpp: does not compile alone")

    def test_headers_of_what_the_build_leaves_out_are_left_out_and_named(self):
        self.plant("device/cuda/cuda_call.hpp", "#include <no_such_toolkit.h>\n")
        self.assert_catches("check-headers", "device/cuda/cuda_call.hpp")
        self.plant("device/cuda/cuda_absent.cpp", "")
        self.build("device/cuda/cuda_absent.cpp")
        self.assert_passes("check-headers")
        self.assertIn("1 of device/cuda are left out", run("check-headers", "--root", self.root).stdout)

    def test_headers_of_properties_are_left_out_where_there_is_no_rapidcheck(self):
        self.plant("tests/properties/property.hpp", "#include <no_such_library.h>\n")
        self.assert_catches("check-headers", "tests/properties/property.hpp")
        self.plant("tests/properties/without_rapidcheck_test.cpp", "")
        self.build("tests/properties/without_rapidcheck_test.cpp")
        self.assert_passes("check-headers")

    def test_a_tree_without_headers_is_no_success(self):
        for header in self.root.rglob("*.hpp"):
            header.unlink()
        self.assert_catches("check-headers", "0 of 0 headers")
