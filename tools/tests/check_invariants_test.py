from fixture import TreeTest


class CheckInvariants(TreeTest):
    def test_a_clean_tree_passes(self):
        self.assert_passes("check-invariants")

    def test_a_label_without_a_test_is_caught(self):
        self.plant("collectives/operation/request.hpp", "\n// ORD-2: validated first.\n")
        self.assert_catches("check-invariants", "collectives/operation/request.hpp:2: ORD-2")

    def test_another_number_of_the_same_label_does_not_count(self):
        self.plant("runtime/world.hpp", "// ONE-" "11\n")
        self.assert_catches("check-invariants", "ONE-" "11")

    def test_a_label_cited_outside_tests_does_not_count(self):
        self.plant("actors/world/world_state.cpp", "// EPO-1\n")
        self.plant("docs/invariants.md", "EPO-1\n")
        self.plant("examples/hello.cpp", "// EPO-1\n")
        self.assert_catches("check-invariants", "EPO-1")
