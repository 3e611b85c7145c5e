from fixture import TreeTest, run

FINE = "#!/bin/sh\necho 'stat::number_of_executed_units: 1234'\n"


class Fuzz(TreeTest):
    def setUp(self):
        super().setUp()
        for target in ("duration", "names"):
            self.plant(f"fuzz/corpus/{target}/seed", "5s")
            self.plant_program(f"build/fuzz/bin/fuzz_{target}", FINE)

    def fuzz(self, *arguments):
        return run("fuzz", "--root", self.root, "--no-build", *arguments)

    def test_targets_that_find_nothing_pass_with_how_much_they_ran(self):
        result = self.fuzz("--time", 1)
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("duration: 1,234 inputs", result.stdout)
        self.assertTrue(result.stdout.endswith("2 passed, 0 failed, 0 skipped\n"))

    def test_a_finding_fails_and_is_shown(self):
        self.plant_program("build/fuzz/bin/fuzz_names", "#!/bin/sh\necho 'does not hold: names'; exit 77\n")
        result = self.fuzz()
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("names: a finding", result.stdout)
        self.assertIn("does not hold: names", result.stdout)
        self.assertTrue(result.stdout.endswith("1 passed, 1 failed, 0 skipped\n"))

    def test_targets_run_with_their_seeds_and_for_as_long_as_asked(self):
        self.plant_program("build/fuzz/bin/fuzz_names", "#!/bin/sh\necho \"$@\" >\"$0.said\"\n")
        self.assertEqual(self.fuzz("--time", 7, "names").returncode, 0)
        said = (self.root / "build/fuzz/bin/fuzz_names.said").read_text(encoding="utf-8")
        for words in ("-max_total_time=7", "fuzz/corpus/names", "build/fuzz/corpus/names", "findings/names-"):
            self.assertIn(words, said)

    def test_a_target_that_does_not_exist_is_refused_with_the_choices(self):
        result = self.fuzz("messages")
        self.assertEqual(result.returncode, 2)
        self.assertIn("unknown target messages: choose from duration, names", result.stdout)
