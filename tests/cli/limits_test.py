"""evenkeel run with scarce resources: memory, addresses, threads, open files."""

import json
import math
import os
import resource
import subprocess
import time

from command import COMMAND, CommandTest, npz
from tensor_files import Tensor, safetensors

MIB = 1 << 20
SMALL = ["run", "--scenario", "balanced", "--ranks", 2, "--tokens", 8, "--experts", 4, "--hidden", 16,
         "--intermediate", 16, "--repeat", 1]  # fmt: skip


class Limits(CommandTest):
    def call_under(self, words, limits, user=None):
        def set_limits():
            for name, value in limits.items():
                resource.setrlimit(name, (value, value))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)

        return subprocess.run(
            [COMMAND, *map(str, words)], cwd=self.folder, capture_output=True, text=True, check=False,
            preexec_fn=set_limits,
        )  # fmt: skip

    def assert_runs_or_refuses(self, done):
        self.assertIn(done.returncode, [0, 4], done.stderr)
        if done.returncode == 4:
            self.assertRegex(done.stderr, r"\Aevenkeel: [^\n]*memory[^\n]*\n\Z")

    def test_little_memory_is_a_refusal_and_no_crash(self):
        words = ["run", "--scenario", "balanced", "--ranks", 4, "--experts", 16, "--tokens", 128, "--hidden", 512,
                 "--intermediate", 512, "--repeat", 1, "--backward", "--planner", "ep"]  # fmt: skip
        for mib in [64, 80, 96, 112, 128, 160, 200, 260]:
            with self.subTest(addresses=mib):
                self.assert_runs_or_refuses(self.call_under(words, {resource.RLIMIT_AS: mib * MIB}))
        for mib in [4, 16, 32, 48, 64, 96, 128, 152]:
            with self.subTest(data=mib):
                self.assert_runs_or_refuses(self.call_under(words, {resource.RLIMIT_DATA: mib * MIB}))

    def test_addresses_are_taken_as_they_are_needed(self):
        for words in [SMALL, [*SMALL, "--budget", "1MiB", "--planner", "level"], [*SMALL, "--backward"]]:
            done = self.call_under(words, {resource.RLIMIT_AS: 1500 * MIB})
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_what_cannot_fit_is_refused_before_anything_is_measured(self):
        wide = ["--hidden", 1 << 20, "--intermediate", 1 << 20, "--experts", 4, "--top-k", 1, "--ranks", 2]
        for words in [["run", "--scenario", "balanced", "--tokens", 1, *wide], ["bench", "--tokens", 1, *wide]]:
            start = time.monotonic()
            self.assert_refused(words, 4, "Unsupported", "takes at least", "weights", "the machine's free memory is")
            self.assertLess(time.monotonic() - start, 10)
        done = self.call_under(
            ["run", "--scenario", "balanced", "--ranks", 1, "--experts", 1, "--top-k", 1, "--tokens", 1,
             "--hidden", 16384, "--intermediate", 16384],
            {resource.RLIMIT_AS: 2048 * MIB},
        )  # fmt: skip
        self.assertEqual(done.returncode, 4)
        self.assertIn("`ulimit -v` leaves", done.stderr)

    def test_threads_that_cannot_be_made_are_counted(self):
        user = None
        if os.geteuid() == 0:
            user = 65534
            try:
                if self.call_under(["--version"], {}, user).returncode != 0:
                    self.skipTest("an ordinary user cannot run the command")
            except (PermissionError, subprocess.SubprocessError):
                self.skipTest("an ordinary user cannot run the command")
            self.folder.chmod(0o755)
        done = self.call_under([*SMALL, "--json"], {resource.RLIMIT_NPROC: 1}, user)
        self.assertEqual(done.returncode, 4, done.stderr)
        for part in ["threads are needed", "one for each rank", "ulimit -u", "pids.max"]:
            self.assertIn(part, done.stderr)
        self.assertEqual(json.loads(done.stdout)["error"]["type"], "Unsupported")

    def test_too_many_open_files_are_said_with_the_limit(self):
        (self.folder / "t.npz").write_bytes(npz("topk_ids", [4, 1, 2], [0, 1, 2, 3, 1, 0, 3, 2]))
        done = self.call_under(["convert", "t.npz", "t.safetensors"], {resource.RLIMIT_NOFILE: 4})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("ulimit -n", done.stderr)


class Numbers(CommandTest):
    def trained(self, value, dtype="float32"):
        """A trained layer of 4 experts, 8 x 6, whose first weight and first input are `value`."""

        def floats(shape, first=0.5):
            return Tensor(shape, [first] + [0.5 - i % 7 / 10 for i in range(1, math.prod(shape))], dtype)

        tensors = {
            "experts.gate_up.weight": floats([4, 12, 8], value),
            "experts.down.weight": floats([4, 8, 6]),
            "router.weight": floats([4, 8]),
            "input": floats([16, 8], value),
            "output": floats([16, 8]),
            "topk_ids": Tensor([16, 2], [(t + k) % 4 for t in range(16) for k in range(2)], "int32"),
            "topk_weights": floats([16, 2]),
        }
        (self.folder / "layer.safetensors").write_bytes(safetensors(tensors))
        return ["run", "--scenario", "balanced", "--top-k", 2, "--tokens", 8, "--ranks", 2, "--weights",
                "layer.safetensors", "--repeat", 1]  # fmt: skip

    def test_results_that_overflow_are_an_error_and_no_accuracy(self):
        self.assert_refused(self.trained(3e38), 4, "Unsupported", "of the output is", "dense evaluation")
