"""evenkeel bench: the paper's scenarios, shrunk."""

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

    def test_a_filter_that_leaves_nothing_is_refused(self):
        self.assert_refused(["bench", "--scenarios", "frob"], 2, "InvalidArgument", "'frob'", "concentrated:0.95:1")


if __name__ == "__main__":
    unittest.main()
