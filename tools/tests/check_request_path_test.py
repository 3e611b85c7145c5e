from fixture import TreeTest

OTHER = "docs/request-over-processes.md"

PAGE = """# The life of a request
| step | thread | files |
| --- | --- | --- |
| [1. Ask](#1-ask) | the asking thread | [runtime/world](../runtime/world.cpp) |
| [2. Order](#2-order) | any | [collectives/order](../collectives/order.hpp) |

## 1. Ask
In [runtime/world](../runtime/world.cpp).

`world::ask()` makes a `reply`, as `--help` and `x = 1` say.

## 2. Order
In [collectives/order](../collectives/order.hpp): `submit()` orders a `reply`.

## Where other requests differ
`nothing()` here is looked for in [runtime/world](../runtime/world.cpp).
"""


class CheckRequestPath(TreeTest):
    def setUp(self):
        super().setUp()
        self.plant("runtime/world.hpp", "class world { reply ask(); };\n")
        self.plant("runtime/world.cpp", "reply world::ask() { return {}; }\n")
        self.plant("collectives/order.hpp", "void submit(reply one);\n")
        self.plant("docs/request.md", PAGE)
        self.plant(OTHER, PAGE)

    def edit(self, before, after):
        self.assertIn(before, PAGE)
        self.plant("docs/request.md", PAGE.replace(before, after))

    def test_a_true_page_passes(self):
        self.assert_passes("check-request-path")

    def test_a_name_that_does_not_occur_in_its_file_is_caught(self):
        self.edit("`submit()`", "`submit()` and `order::enqueue()`")
        self.assert_catches("check-request-path", "docs/request.md:12:", "`order::enqueue()` does not occur in collectives/order")

    def test_a_part_of_a_word_is_not_the_name(self):
        self.plant("collectives/order.hpp", "void submit_all(reply one);\n")
        self.assert_catches("check-request-path", "`submit()` does not occur")

    def test_a_file_that_does_not_exist_is_caught(self):
        (self.root / "collectives/order.hpp").unlink()
        self.assert_catches("check-request-path", "collectives/order.hpp and collectives/order.cpp do not exist")

    def test_a_return_to_a_file_is_caught(self):
        back = "\n## 3. Answer\nIn [runtime/world](../runtime/world.hpp).\n\n## Where"
        row = "order.hpp) |\n| [3. Answer](#3-answer) | any | [runtime/world](../runtime/world.hpp) |\n"
        self.plant("docs/request.md", PAGE.replace("\n## Where", back).replace("order.hpp) |\n", row))
        self.assert_catches("check-request-path", "docs/request.md:16: step '3. Answer' returns to runtime/world")

    def test_over_processes_one_return_is_allowed(self):
        def visit(number, place):
            return (f"\n## {number}. S\nIn [a](../{place}.hpp).\n",
                    f"| [{number}. S](#{number}-s) | any | [a](../{place}.hpp) |\n")

        def page(*more):
            sections, rows = "".join(one for one, _ in more), "".join(one for _, one in more)
            return PAGE.replace("\n## Where", sections + "\n## Where").replace("order.hpp) |\n", "order.hpp) |\n" + rows)

        self.plant(OTHER, page(visit(3, "runtime/world")))
        self.assert_passes("check-request-path")
        self.plant(OTHER, page(visit(3, "runtime/world"), visit(4, "collectives/order")))
        self.assert_catches("check-request-path", f"{OTHER}:20: step '4. S' returns to collectives/order")

    def test_a_step_that_no_name_connects_with_an_earlier_one_is_caught(self):
        self.plant("collectives/order.hpp", "void submit();\n")
        self.edit("orders a `reply`", "orders it")
        self.assert_catches("check-request-path", "docs/request.md:12: step '2. Order' has no name in common with an earlier step")

    def test_two_steps_in_one_file_after_each_other_are_one_visit(self):
        more = "\n## 3. Release\nIn [collectives/order](../collectives/order.hpp).\n\n## Where"
        row = "order.hpp) |\n| [3. Release](#3-release) | any | [collectives/order](../collectives/order.hpp) |\n"
        self.plant("docs/request.md", PAGE.replace("\n## Where", more).replace("order.hpp) |\n", row))
        self.assert_passes("check-request-path")

    def test_a_step_with_two_files_or_none_is_caught(self):
        self.edit("`submit()`", "`submit()`, then [the world](../runtime/world.hpp)")
        self.assert_catches("check-request-path", "step '2. Order' names 2 pairs of files")
        self.edit("In [collectives/order](../collectives/order.hpp): `submit()` orders a `reply`.", "Somewhere.")
        self.assert_catches("check-request-path", "step '2. Order' names 0 pairs of files")

    def test_a_table_that_differs_from_the_sections_is_caught(self):
        self.edit("| [2. Order](#2-order) | any | [collectives/order](../collectives/order.hpp) |\n", "")
        self.assert_catches("check-request-path", "step '2. Order' with collectives/order is not in the table")
        self.edit("## Where", "## 3. Where")
        self.assert_catches("check-request-path", "step '3. Where")

    def test_more_files_than_allowed_are_caught(self):
        sections, rows = "", ""
        for i in range(3, 16):
            self.plant(f"actors/a{i}.hpp", "\n")
            rows += f"| [{i}. S](#{i}-s) | any | [a](../actors/a{i}.hpp) |\n"
            sections += f"\n## {i}. S\nIn [a](../actors/a{i}.hpp).\n"
        page = PAGE.replace("\n## Where", sections + "\n## Where").replace("order.hpp) |\n", "order.hpp) |\n" + rows)
        self.plant("docs/request.md", page)
        self.assert_catches("check-request-path", "the page visits 15 pairs of files, more than the limit of 13")

    def test_a_page_without_steps_is_caught(self):
        self.plant("docs/request.md", "# The life of a request\n")
        self.assert_catches("check-request-path", "no section")
