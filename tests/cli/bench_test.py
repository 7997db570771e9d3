"""evenkeel bench: the paper's scenarios, shrunk."""

import json
import unittest

from command import CommandTest

TINY = ["--ranks", 4, "--tokens", 16, "--hidden", 32, "--intermediate", 32, "--min-segment", 4, "--pairs", 2]


class Bench(CommandTest):
    def test_has_the_paper_s_twenty_five_rows(self):
        rows = self.json("bench", *TINY)["rows"]
        self.assertEqual(rows[0]["scenario"], "balanced")
        expected = {f"concentrated:{share}:{n}{layout}" for share in ["0.3", "0.5", "0.8", "0.95"]
                    for n in [1, 4, 16] for layout in ["", ":spread"]}  # fmt: skip
        self.assertEqual({row["scenario"] for row in rows[1:]}, expected)
        self.assertEqual(len(rows), 25)
        for row in rows:
            self.assertEqual([p["planner"] for p in row["planners"]], ["least-loaded", "level"])
            self.assertGreater(row["planners"][1]["peak_ratio"], 0)
        self.assertEqual(rows[0]["planners"][0]["peak_ratio"], 1)

    def test_an_ablation_varies_its_parameter(self):
        rows = self.json("bench", *TINY, "--ablation", "capacity-factor")["rows"]
        self.assertEqual(sorted({row["capacity-factor"] for row in rows}), ["1.0", "1.1", "1.25", "1.5", "2.0"])

    def test_runs_the_scenarios_within_a_budget(self):
        words = [*TINY[:-2], "--pairs", 1, "--scenarios", "0.95:1", "--backward"]
        least = self.json("bench", *words)["least_budget"]
        result = self.json("bench", *words, "--budget", least)
        self.assertEqual((result["budget"], result["chunks"], result["recompute"]), (least, "exact", "auto"))
        for row in result["rows"]:
            for planner in [row["ep"], *row["planners"]]:
                self.assertLessEqual(max(planner["peak_bytes"]), least)
                self.assertGreaterEqual(planner["chunks"], 1)
        done = self.call("bench", *words, "--budget", least)
        self.assertIn("(least budget ", done.stdout)

    def test_calibration_writes_what_run_and_bench_take(self):
        shape = ["--experts", 32, "--hidden", 64, "--intermediate", 64, "--ranks", 2]
        shown = self.json("bench", "--calibrate", "cost.json", *shape)
        written = json.loads((self.folder / "cost.json").read_text(encoding="utf-8"))
        self.assertEqual(written["format"], "evenkeel.cost.v1")
        self.assertEqual(written["measured_on"]["layer"], "32 experts, top-4, 64 x 64 swiglu f32")
        numbers = ["flops_per_second", "weight_bytes_per_second", "link_bytes_per_second", "chunk_seconds"]
        for name in numbers:
            self.assertEqual(written[name], shown[name])
        # Wide limits: between a slow core under a sanitizer and the fastest there is.
        self.assertTrue(1e7 < written["flops_per_second"] < 1e14)
        self.assertTrue(1e7 < written["weight_bytes_per_second"] < 1e13)
        self.assertTrue(1e7 < written["link_bytes_per_second"] < 1e13)
        self.assertTrue(1e-8 < written["chunk_seconds"] < 1e-1)
        budget = ["--budget", "16MiB", "--cost", "cost.json", "--tokens", 64, *shape]
        self.json("run", "--scenario", "zipf:1", *budget)
        self.json("bench", "--scenarios", "0.95:1", "--pairs", 1, *budget)

    def test_calibration_refuses_what_it_would_ignore(self):
        words = ["bench", "--calibrate", "cost.json"]
        for option in [["--scenarios", "balanced"], ["--budget", "1GiB"], ["--backward"], ["--cost", "c.json"]]:
            self.assert_refused([*words, *option], 2, "InvalidArgument", f"{option[0]}: ", "--calibrate")
        self.assert_refused(["bench", "--calibrate", "nowhere/cost.json"], 4, "InvalidArgument", "nowhere/cost.json")

    def test_a_filter_that_leaves_nothing_is_refused(self):
        self.assert_refused(["bench", "--scenarios", "frob"], 2, "InvalidArgument", "'frob'", "concentrated:0.95:1")


if __name__ == "__main__":
    unittest.main()
