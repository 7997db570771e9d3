"""benchmarks/shaped_link: all modes compute the same, the shaped link carries their bytes, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "benchmarks/shaped_link"
COMMAND = os.environ.get("EVENKEEL_COMMAND", "")
sys.path.insert(0, str(ROOT / "tests/tools"))
import hosts_test  # noqa: E402

MBIT = 200.0
PLANNED = ("ep", "level", "auto")


class Options(unittest.TestCase):
    def test_options_are_refused_with_what_would_be_right(self) -> None:
        for words, said in ((["--ranks", "3"], "must be even"), (["--rate", "0"], "--rate must be above 0, got 0")):
            command = [sys.executable, str(FOLDER / "shaped_link.py"), *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)


@unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
class ShapedLink(hosts_test.OnHosts):
    result: dict[str, Any]

    def setUp(self) -> None:
        super().setUp()
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def start(self, *more: str) -> subprocess.Popen[str]:
        words = ["--evenkeel", COMMAND, "--rate", str(MBIT), "--training-steps", "3", "--sequences", "2"]
        return self.start_program(FOLDER / "shaped_link.py", *words, "--work", str(self.folder), *more)

    def test_a_short_run_and_one_that_is_ended(self) -> None:
        file = self.folder / "result.json"
        started = self.start("--rounds", "1", "--steps", "2", "--dtype", "float64", "--json", str(file))
        table, errors = started.communicate(timeout=300)
        self.assertEqual(started.returncode, 0, errors)
        self.assert_nothing_left()
        self.assertIn("placed, level", table)
        self.result = json.loads(file.read_text())
        modes = self.result["modes"]
        self.assertEqual(
            [(mode["placement"], mode["planner"]) for mode in modes[1:]],
            [("contiguous", "ep"), ("contiguous", "stock"), ("contiguous", "level"), ("contiguous", "auto")]
            + [("placed", planner) for planner in PLANNED],
        )
        for mode in modes:
            with self.subTest(placement=mode["placement"], planner=mode["planner"]):
                self.assert_same_model(mode)
                self.assert_link_carries_the_bytes(mode)
        self.assert_modes_do_what_they_are_called(modes)
        self.assert_a_signal_in_the_middle_leaves_nothing()

    def assert_same_model(self, mode: dict[str, Any]) -> None:
        """The oracle's products are in f64; the router's softmax is in f32."""
        self.assertEqual((mode["tokens"], mode["tokens_that_differ"]), (4 * 2 * 128, 0))
        self.assertLess(mode["largest_difference"], 1e-6)

    def assert_link_carries_the_bytes(self, mode: dict[str, Any]) -> None:
        """Bytes between nodes cross the shaped link; bytes between ranks of one node do not."""
        link, payload = mode["link_bytes_a_step"], sum(mode["payload_a_step"].values())
        seconds = self.result["tokens_a_step"] / mode["tokens_per_second"]
        self.assertGreater(link, 1e6)
        self.assertGreater(mode["loopback_bytes_a_step"], 0.3 * link)
        self.assertLess(link / 2 / seconds, 1.05 * MBIT * 1e6 / 8, "faster than the link")
        if mode["planner"] in PLANNED:
            self.assertGreater(link, payload)
            self.assertLess(link, 1.15 * payload + 1e5)
            self.assertGreaterEqual(mode["busiest_direction_a_step"], payload / 2)
            self.assertLess(mode["busiest_direction_a_step"], payload)
            self.assertLess(mode["busiest_direction_a_step"], 1.05 * MBIT * 1e6 / 8 * seconds)
        times = mode["exchange_ms"]
        self.assertTrue(0 < times["median"] <= times["p95"] <= times["max"] < 1e3 * seconds, times)

    def assert_modes_do_what_they_are_called(self, modes: list[dict[str, Any]]) -> None:
        ep, control, stock, level, auto, placed, placed_level, placed_auto = modes
        self.assertEqual(ep["payload_a_step"], control["payload_a_step"])
        self.assertGreater(stock["link_bytes_a_step"], ep["link_bytes_a_step"])  # stock may send a row to a rank twice
        for moves in (level, placed_level):
            self.assertGreater(moves["transfers_a_step"], 0)
            self.assertGreater(moves["payload_a_step"]["weights"], 0)
            self.assertLess(moves["max_over_mean"], moves["max_over_mean_at_home"])
        for nothing_moves in (ep, control, placed):
            self.assertEqual(nothing_moves["transfers_a_step"], 0)
            self.assertNotIn("weights", nothing_moves["payload_a_step"])  # no weight collective on any rank
        self.assertLess(placed["max_over_mean"], ep["max_over_mean"])
        self.assertEqual(placed_auto["max_over_mean_at_home"], placed["max_over_mean_at_home"])
        self.assertLessEqual(auto["transfers_a_step"], level["transfers_a_step"])

    def assert_a_signal_in_the_middle_leaves_nothing(self) -> None:
        """Interrupts a second run in the same folder, which reuses the model there."""
        started = self.start("--rounds", "1000")
        ranks = str(FOLDER / "rank.py")
        self.assertTrue(hosts_test.soon(lambda: any(ranks in line for line in hosts_test.processes_of(self.mark)), 120))
        started.terminate()
        self.assertEqual(started.wait(timeout=30), 128 + signal.SIGTERM)
        self.assert_nothing_left(seconds=10)


if __name__ == "__main__":
    unittest.main()
