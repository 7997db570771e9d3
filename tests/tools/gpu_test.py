"""tools/gpu.sh runs the built programs, records each result, and writes figures, here with simulated programs and GPU."""

import json
import os
import shutil
import subprocess
import tarfile
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

GOOD_TEST = """#!/bin/sh
for each; do case $each in --gtest_output=json:*) echo '{"tests": 2}' >"${each#--gtest_output=json:}" ;; esac; done
echo '[  SKIPPED ] Some.Test (0 ms)'
"""
BAD_TEST = "#!/bin/sh\necho 'the wrong bits'\nexit 1\n"
BENCHMARK = """#!/bin/sh
echo '{"tflops": 1}' >"$1"
"""
GPU = "#!/bin/sh\necho 'GPU 0: made up'\n"
SANITIZER = """#!/bin/sh
case "$*" in *"--tool memcheck"*) ;; *report-api-errors*) echo "an option of memcheck alone" >&2; exit 2 ;; esac
while [ "${1#--}" != "$1" ]; do shift; case $1 in memcheck|racecheck|synccheck|99|20|no) shift ;; esac; done
"$@"
"""


class Gpu(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        (self.root / "tools").mkdir()
        shutil.copy(ROOT / "tools/gpu.sh", self.root / "tools/gpu.sh")
        self.write("benchmarks/cuda/programs.txt", "# what is run\nspeed.json {bin}/speed {out}/speed.json\n")
        self.write("build/gpu/tests.txt", "good_test\n")
        self.write("build/gpu/commit.txt", "0123abc\n")
        self.program("build/gpu/bin/good_test", GOOD_TEST)
        self.program("build/gpu/bin/bad_test", BAD_TEST)
        self.program("build/gpu/bin/speed", BENCHMARK)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def program(self, name, text):
        self.write(name, text).chmod(0o755)

    def with_gpu(self):
        self.program("bin/nvidia-smi", GPU)

    def run_script(self, *arguments):
        # bin/ comes first, so that the machine's own GPU tools are not used.
        path = f"{self.root / 'bin'}:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", str(self.root / "tools/gpu.sh"), "run", "--out", str(self.root / "out"), *arguments],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )

    def summary(self):
        return json.loads((self.root / "out/summary.json").read_text())

    def steps(self):
        return [(step["kind"], step["name"], step["status"]) for step in self.summary()["steps"]]

    def test_says_that_there_is_no_gpu(self):
        self.program("bin/nvidia-smi", "#!/bin/sh\nexit 9\n")
        done = self.run_script()
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("no NVIDIA GPU is here", done.stderr)

    def test_runs_tests_and_benchmarks_and_leaves_their_figures(self):
        self.with_gpu()
        done = self.run_script("--quick")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.steps(), [("test", "good_test", 0), ("benchmark", "speed.json", 0)])
        self.assertEqual(self.summary()["commit"], "0123abc")
        self.assertEqual(self.summary()["steps"][0]["skipped"], 1)
        figures = json.loads((self.root / "out/figures.json").read_text())
        self.assertEqual(figures, {"good_test.test": {"tests": 2}, "speed": {"tflops": 1}})
        with tarfile.open(self.root / "out/logs.tar.gz") as logs:
            self.assertIn("logs/good_test.log", logs.getnames())

    def test_runs_each_test_under_each_tool_of_the_sanitizer(self):
        self.with_gpu()
        self.program("bin/compute-sanitizer", SANITIZER)
        done = self.run_script("--tests")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual([kind for kind, _, _ in self.steps()], ["test", "memcheck", "racecheck", "synccheck"])

    def test_goes_on_after_a_failure_and_says_so_in_the_end(self):
        self.with_gpu()
        self.write("build/gpu/tests.txt", "bad_test\ngood_test\n")
        done = self.run_script("--quick")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the wrong bits", done.stdout)
        self.assertEqual(self.summary()["failed"], 1)
        self.assertEqual(len(self.steps()), 3)

    def test_unpacks_an_archive_that_was_carried_here(self):
        self.with_gpu()
        subprocess.run(["tar", "-C", "build", "-czf", "build/gpu.tar.gz", "gpu"], cwd=self.root, check=True)
        shutil.rmtree(self.root / "build/gpu")
        done = self.run_script("--quick", "--tests")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.steps(), [("test", "good_test", 0)])
