import os
import shutil
import subprocess
import unittest

from fixture import TOOLS

SCRIPTS = sorted(path for path in (*TOOLS.iterdir(), *(TOOLS.parent / ".ci").iterdir()) if path.is_file())


def is_shell(path):
    return "bash" in path.read_text(encoding="utf-8").split("\n", 1)[0]


class Scripts(unittest.TestCase):
    def test_every_script_can_be_run_and_explains_itself(self):
        for script in SCRIPTS:
            with self.subTest(script.name):
                self.assertTrue(os.access(script, os.X_OK))
                told = subprocess.run([str(script), "--help"], capture_output=True, text=True, check=False, cwd="/")
                self.assertEqual(told.returncode, 0, told.stderr)
                self.assertIn("usage", told.stdout.lower())

    def test_every_script_in_python_ends_quietly_if_nobody_reads_its_output(self):
        buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        for script in SCRIPTS:
            if is_shell(script):
                continue
            with self.subTest(script.name):
                reader, writer = os.pipe()
                os.close(reader)
                with open(writer, "wb") as output:
                    told = subprocess.run([str(script), "--help"], stdout=output, stderr=subprocess.PIPE, text=True,
                                          check=False, env=buffered)
                self.assertEqual((told.returncode, told.stderr), (1, ""))

    def test_shell_scripts_pass_shellcheck(self):
        if not shutil.which("shellcheck"):
            self.skipTest("shellcheck is not installed (tools/install-dependencies --checks)")
        scripts = [script for script in SCRIPTS if is_shell(script)] + sorted((TOOLS / "parts").glob("*.bash"))
        told = subprocess.run(["shellcheck", "-x", "-s", "bash", *map(str, scripts)], cwd=TOOLS.parent,
                              capture_output=True, text=True, check=False)
        self.assertEqual(told.returncode, 0, told.stdout)
