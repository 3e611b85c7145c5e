from fixture import TOOLS, FolderTest

SANITIZER = "#!/bin/sh\necho \"$@ libraries=$LD_LIBRARY_PATH gpu=$TROUPE_REQUIRE_GPU\"\nexit 86\n"


class CheckGpuMemory(FolderTest):
    def setUp(self):
        super().setUp()
        self.plant_program("bin/troupe_tests", "#!/bin/sh\n")
        self.plant_program("check-memory", (TOOLS / "check-gpu-memory").read_text())

    def check(self, *arguments):
        return self.run_program("check-memory", *arguments, PATH=f"{self.root}/tools:/usr/bin:/bin",
                                CUDA_HOME="/nowhere", TROUPE_NCCL_DIR="/nccl/lib")

    def test_a_bundle_s_tests_run_under_memcheck_and_a_finding_fails(self):
        self.plant_program("tools/compute-sanitizer", SANITIZER)
        told = self.check("[gpu]~[nccl]", "--order", "rand")
        self.assertEqual(told.returncode, 86)
        self.assertIn(f"--tool memcheck --report-api-errors no --error-exitcode 86 {self.root}/bin/troupe_tests "
                      f"[gpu]~[nccl] --order rand libraries=/nccl/lib:{self.root}/lib", told.stdout)
        self.assertIn("gpu=1", told.stdout)
        self.assertIn("troupe_tests [gpu]~[not-under-memcheck] libraries", self.check().stdout)

    def test_a_machine_without_the_sanitizer_is_told_what_to_install(self):
        told = self.check()
        self.assertEqual(told.returncode, 2)
        self.assertIn("nvidia-cuda-sanitizer-api", told.stdout)

    def test_a_folder_without_the_tests_is_refused(self):
        (self.root / "bin/troupe_tests").unlink()
        self.assertIn("is missing", self.check().stdout)
