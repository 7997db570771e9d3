"""The training example: its three modes learn alike, and the budget holds where plain expert parallelism exceeds it.

Runs in f64: training amplifies rounding, which in f64 stays far below the effect of an error.
"""

from __future__ import annotations

import json
import tempfile
import unittest
from pathlib import Path
from typing import Any

from examples_test import EXAMPLES
from processes import run_program

STEPS, BUDGET_MIB = 10, 30


class TrainMoeTest(unittest.TestCase):
    out: Path
    said: dict[str, str]
    curves: dict[str, dict[str, Any]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.out = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        words = ["--steps", STEPS, "--budget", BUDGET_MIB, "--measure-every", 3, "--dtype", "float64", "--out", cls.out]
        program, modes = EXAMPLES / "train_moe.py", ("plain", "spill", "budget")
        cls.said = {mode: run_program(2, program, "--mode", mode, *words) for mode in modes}
        cls.curves = {mode: json.loads((cls.out / f"{mode}.json").read_text()) for mode in cls.said}

    def test_all_modes_have_the_same_loss_curve(self) -> None:
        plain = self.curves["plain"]["loss"]
        self.assertEqual(len(plain), STEPS)
        self.assertLess(plain[-1], plain[0] - 1)
        for mode in ("spill", "budget"):
            for step, (one, other) in enumerate(zip(plain, self.curves[mode]["loss"], strict=True)):
                self.assertAlmostEqual(one, other, delta=1e-10, msg=f"{mode}, step {step}")

    def test_spill_levels_what_plain_leaves_uneven(self) -> None:
        self.assertGreater(max(self.curves["plain"]["imbalance"]), 1.3)
        self.assertEqual(self.curves["plain"]["imbalance"], self.curves["plain"]["imbalance_at_home"])
        for mode in ("spill", "budget"):
            self.assertLess(max(self.curves[mode]["imbalance"]), 1.1)
            self.assertGreater(sum(self.curves[mode]["transfers"]), 0)

    def test_the_budget_holds_where_plain_breaks_it(self) -> None:
        budget = BUDGET_MIB * 2**20
        self.assertLessEqual(max(self.curves["budget"]["peak_bytes"]), budget)
        self.assertGreater(max(self.curves["budget"]["chunks"]), 1)
        self.assertGreater(max(self.curves["plain"]["peak_bytes"]), budget)

    def test_the_run_leaves_a_picture_and_scalars_and_says_how_far_the_curves_differ(self) -> None:
        self.assertGreater((self.out / "train_moe.png").stat().st_size, 10_000)
        self.assertTrue(list((self.out / "budget").glob("events.out.tfevents.*")))
        self.assertIn("largest difference in loss from plain expert parallelism", self.said["budget"])


if __name__ == "__main__":
    unittest.main()
