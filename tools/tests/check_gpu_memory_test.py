import os
import pathlib
import subprocess
import tempfile
import unittest

from fixture import TOOLS

SANITIZER = "#!/bin/sh\necho \"$@ libraries=$LD_LIBRARY_PATH gpu=$TROUPE_REQUIRE_GPU\"\nexit 86\n"


class CheckGpuMemory(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.bundle = pathlib.Path(folder.name)
        self.executable("bin/troupe_tests", "#!/bin/sh\n")
        self.executable("check-memory", (TOOLS / "check-gpu-memory").read_text())

    def executable(self, name, text):
        file = self.bundle / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)

    def check(self, *arguments):
        return subprocess.run([str(self.bundle / "check-memory"), *arguments], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False,
                              env={**os.environ, "PATH": f"{self.bundle}/tools:/usr/bin:/bin", "CUDA_HOME": "/nowhere",
                                   "TROUPE_NCCL_DIR": "/nccl/lib"})

    def test_a_bundle_s_tests_run_under_memcheck_and_a_finding_fails(self):
        self.executable("tools/compute-sanitizer", SANITIZER)
        told = self.check("[gpu]~[nccl]", "--order", "rand")
        self.assertEqual(told.returncode, 86)
        self.assertIn(f"--tool memcheck --report-api-errors no --error-exitcode 86 {self.bundle}/bin/troupe_tests "
                      f"[gpu]~[nccl] --order rand libraries=/nccl/lib:{self.bundle}/lib", told.stdout)
        self.assertIn("gpu=1", told.stdout)
        self.assertIn("troupe_tests [gpu]~[not-under-memcheck] libraries", self.check().stdout)

    def test_a_machine_without_the_sanitizer_is_told_what_to_install(self):
        told = self.check()
        self.assertEqual(told.returncode, 2)
        self.assertIn("nvidia-cuda-sanitizer-api", told.stdout)

    def test_a_folder_without_the_tests_is_refused(self):
        (self.bundle / "bin/troupe_tests").unlink()
        self.assertIn("is missing", self.check().stdout)
