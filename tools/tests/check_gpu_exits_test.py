from fixture import TOOLS, FolderTest


class CheckGpuExits(FolderTest):
    def setUp(self):
        super().setUp()
        self.plant_program("check-exits", (TOOLS / "check-gpu-exits").read_text())

    def check(self, *arguments):
        return self.run_program("check-exits", *arguments, CUDA_HOME=f"{self.root}/cuda", TROUPE_NCCL_DIR="/nccl/lib")

    def watched(self):
        self.plant_program("cuda/lib64/libcupti.so", "")
        self.plant_program("bin/cuda_after_exit.so", "")

    def test_every_way_is_tried_as_often_as_asked(self):
        self.plant_program("bin/troupe_exits", "#!/bin/sh\nexit 0\n")
        told = self.check("--runs", "2")
        self.assertEqual(told.returncode, 0)
        self.assertIn("CUDA calls are not traced", told.stdout)
        self.assertIn("10 passed, 0 failed", told.stdout)

    def test_a_way_that_ends_badly_fails(self):
        self.plant_program("bin/troupe_exits",
                           "#!/bin/sh\n[ \"$1\" != static ] || { echo 'free(): corrupted'; exit 134; }\n")
        told = self.check("--runs", "1")
        self.assertEqual(told.returncode, 1)
        self.assertIn("FAILED: static (status 134)\nfree(): corrupted", told.stdout)
        self.assertIn("4 passed, 1 failed", told.stdout)

    def test_a_call_of_cuda_after_exit_fails_where_it_is_watched(self):
        self.watched()
        self.plant_program("bin/troupe_exits", "#!/bin/sh\n[ -z \"$CUDA_INJECTION64_PATH\" ] || "
                           "{ [ $1 = exit ] && n=1 || n=0; echo \"calls of CUDA after exit: $n\"; }\n")
        told = self.check("--runs", "1")
        self.assertEqual(told.returncode, 1)
        self.assertIn("FAILED: exit, watched (calls of CUDA after exit)\ncalls of CUDA after exit: 1", told.stdout)
        self.assertIn("9 passed, 1 failed", told.stdout)

    def test_a_folder_without_the_program_is_refused(self):
        told = self.check()
        self.assertEqual(told.returncode, 2)
        self.assertIn("is missing", told.stdout)
