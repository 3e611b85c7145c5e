from fixture import TreeTest


class CheckTestNames(TreeTest):
    def test_a_clean_tree_passes(self):
        self.assert_passes("check-test-names")

    def test_a_name_that_hides_its_subject_is_caught_in_each_language(self):
        self.plant("tests/slot_test.cpp", '\nTEST_CASE("what waits is answered") {}\n')
        self.assert_catches("check-test-names", "tests/slot_test.cpp:2: the test's name 'what waits is answered' begins with 'what'")
        self.plant("tests/slot_test.cpp", 'TEST_CASE_METHOD(scene, "SEC-2: whoever asks is told") {}\n')
        self.assert_catches("check-test-names", "begins with 'whoever'")
        self.plant("tests/slot_test.cpp", 'TEST_CASE("a slot tells who waits") {}\n')
        self.plant("tests/CMakeLists.txt", 'troupe_program_test("of two reports one is read" 0 "")\n')
        self.assert_catches("check-test-names", "tests/CMakeLists.txt:1: the test's name 'of two reports one is read' begins with 'of'")
        self.plant("tests/CMakeLists.txt", 'troupe_program_test("a report is read" 0 "")\n')
        self.plant("python/tests/test_world.py", "def test_" "who_asks_is_told():\n  pass\n")
        self.assert_catches("check-test-names", "python/tests/test_world.py:1: the test's name 'who_asks_is_told' begins with 'who'")

    def test_a_tree_without_tests_is_caught(self):
        (self.root / "tests/stream_test.cpp").unlink()
        self.assert_catches("check-test-names", "no test was found")
