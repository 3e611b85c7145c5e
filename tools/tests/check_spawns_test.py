from fixture import TreeTest


class CheckSpawns(TreeTest):
    def test_actors_with_arguments_or_of_a_class_pass(self):
        self.plant("tests/actor_test.cpp", "auto a = sys.spawn(first, [&](int x, int y) { return x; });\n"
                   "auto b = self->spawn<counting_actor>();\nauto c = sys.spawn<caf::detached>(\n    first, 1);\n")
        self.assert_passes("check-spawns")

    def test_a_function_without_an_argument_is_caught(self):
        for call in ("sys.spawn(first)", "sys.spawn<caf::detached>(first)", "self->spawn([a, b](caf::event_based_actor*, int) {})",
                     "sys.spawn([] { say(\"a), b\"); /* , */ })"):
            with self.subTest(call):
                self.plant("tests/actor_test.cpp", f"\nauto one = {call};\n")
                self.assert_catches("check-spawns", "tests/actor_test.cpp:2: an actor is spawned from a function without an argument")

    def test_an_example_of_a_page_is_checked(self):
        self.plant("docs/actors.md", "```cpp\nsys.spawn(first);\n```\n")
        self.assert_catches("check-spawns", "docs/actors.md:2:")
