"""evenkeel bench: LLEP's scenarios in small sizes."""

import json

from command import CommandTest

TINY = ["--ranks", 4, "--tokens", 16, "--hidden", 32, "--intermediate", 32, "--min-segment", 4, "--pairs", 2]
CURVE = ["--ranks", 4, "--tokens", 128, "--experts", 16, "--hidden", 32, "--intermediate", 32, "--min-segment", 4,
         "--pairs", 1, "--backward", "--scenarios", "0.95:1:spread"]  # fmt: skip


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
        for name, option in [("capacity-factor", "--capacity-factor"), ("hidden", "--intermediate")]:
            words = ["bench", "--ablation", name, option, 2]
            self.assert_refused(words, 2, "InvalidArgument", f"{option}: ", "ablation")
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

    def test_a_budget_below_the_least_of_any_point_is_refused_before_anything_is_measured(self):
        table = [*TINY[:-2], "--pairs", 1, "--scenarios", "0.95:1"]
        least = self.json("bench", *table)["least_budget"]
        refused = self.assert_refused(["bench", *table, "--budget", least - 1], 4, "BudgetTooSmall")
        self.assertEqual((refused["given"], refused["least"]), (least - 1, least))
        wider = ["bench", "--ranks", 4, "--tokens", 16, "--hidden", 32, "--ablation", "hidden", "--budget", least]
        refused = self.assert_refused(wider, 4, "BudgetTooSmall")
        self.assertGreater(refused["least"], least)

    def test_a_whole_name_leaves_one_scenario_and_a_part_all_that_contain_it(self):
        for text, scenarios in [("concentrated:0.95:1", ["concentrated:0.95:1"]),
                                ("0.95:1:", ["concentrated:0.95:1:spread"]),
                                ("0.3:16", ["concentrated:0.3:16", "concentrated:0.3:16:spread"])]:  # fmt: skip
            rows = self.json("bench", *TINY, "--scenarios", text)["rows"]
            self.assertEqual([row["scenario"] for row in rows], scenarios)
        (curve,) = self.json("bench", *CURVE[:-2], "--over-budget", "16MiB")["scenarios"]
        self.assertEqual(curve["scenario"], "concentrated:0.95:1")

    def test_scenarios_that_leave_no_expert_for_the_rest_are_left_out(self):
        few = ["--ranks", 2, "--experts", 4, "--tokens", 8, "--hidden", 8, "--intermediate", 8, "--pairs", 1]
        names = {row["scenario"] for row in self.json("bench", *few)["rows"]}
        self.assertEqual(len(names), 1 + 2 * 4)
        self.assertFalse([name for name in names if ":4" in name or ":16" in name])
        for text in ["0.3:4", "concentrated:0.95:16"]:
            words = ["bench", *few, "--scenarios", text]
            self.assert_refused(
                words, 2, "InvalidArgument", "--scenarios: with 4 experts, no scenario name contains", text
            )

    def test_a_curve_has_the_planner_and_ep_in_every_budget(self):
        words = [*CURVE, "--over-budget", "100%,60%,0.5%,16MiB"]
        result = self.json("bench", *words)
        self.assertEqual((result["ranks"], result["tokens_per_rank"], result["pairs"]), (4, 128, 1))
        (curve,) = result["scenarios"]
        self.assertEqual(curve["scenario"], "concentrated:0.95:1:spread")
        whole = max(curve["ep_peak_bytes"])
        self.assertEqual(curve["reference"]["planner"], "level")
        rows = curve["rows"]
        self.assertEqual([(r["planner"], r["recompute"], r["budget"]) for r in rows[:3]],
                         [("ep", "auto", None), ("ep", "whole", None), ("level", "whole", None)])  # fmt: skip
        self.assertEqual([row["recomputed_fraction"] for row in rows[:3]], [0, 1, 1])
        ample = rows[3]
        self.assertEqual((ample["budget"], ample["asked"]), (2 * max(curve["reference"]["peak_bytes"]), False))
        self.assertEqual((ample["chunks"], ample["recomputed_fraction"]), (1, 0))
        asked = [row for row in rows if row["asked"]]
        self.assertEqual([row["planner"] for row in asked], ["level", "ep"] * 4)
        self.assertEqual([row["budget"] for row in asked[::2]],
                         [whole, round(0.6 * whole), round(0.005 * whole), 16 << 20])  # fmt: skip
        for row in asked:
            self.assertAlmostEqual(row["budget_share"], row["budget"] / whole)
            self.assertEqual(row["fits"], row["budget"] >= row["least_budget"])
            if row["fits"]:
                self.assertLessEqual(max(row["peak_bytes"]), row["budget"])
                for what in ("time", "cpu"):
                    low, high = row[f"{what}_interval"]
                    self.assertTrue(0 < low <= row[f"{what}_ratio"] <= high)
                self.assertEqual(row["spilled"], row["transfers"] > 0)
                self.assertEqual(row["spilled"], row["reason"] == "as planned")
        self.assertEqual([row["fits"] for row in asked], [True] * 4 + [False] * 2 + [True] * 2)
        self.assertGreater(asked[3]["recomputed_fraction"], 0)

    def test_people_see_the_curve_as_a_table_and_a_picture(self):
        text = self.shown("bench", *CURVE, "--over-budget", "100%,60%,0.5%")
        self.assertRegex(text, r"\n  level +\S+ [KM]iB +100 % ")
        self.assertIn("too small", text)
        self.assertRegex(text, r"\n +60 %  █+\S* \d\.\d{3}\n")

    def test_a_curve_refuses_what_it_would_ignore(self):
        for words, message in [
            (["x%"], "--over-budget: 'x%'; allowed: a share"),
            (["0%"], "--over-budget: '0%'; allowed: a share"),
            (["9%,many"], '--over-budget: "many" is not a size'),
            (["9%", "--ablation", "tokens"], "--over-budget: cannot be combined with --ablation"),
            (["9%", "--calibrate", "cost.json"], "cannot be combined with --calibrate"),
            (["9%", "--budget", "1MiB"], "--budget: is varied by --over-budget"),
            (["9%", "--recompute", "none"], "--recompute: is varied by --over-budget"),
            (["9%", "--planner", "ep"], "--planner: takes one planner"),
            (["9%", "--planner", "level,least-loaded"], "--planner: takes one planner"),
        ]:
            with self.subTest(words=words):
                self.assert_refused(["bench", "--over-budget", *words], 2, "InvalidArgument", message)

    def test_calibration_writes_what_run_and_bench_take(self):
        shape = ["--experts", 32, "--hidden", 64, "--intermediate", 64, "--ranks", 2]
        shown = self.json("bench", "--calibrate", "cost.json", *shape)
        written = json.loads((self.folder / "cost.json").read_text(encoding="utf-8"))
        self.assertEqual(written["format"], "evenkeel.cost.v2")
        self.assertEqual(written["measured_on"]["layer"], "32 experts, top-4, 64 x 64 swiglu f32")
        for name in set(written) - {"format"}:
            self.assertEqual(written[name], shown[name])
        # Wide limits: from a slow core under a sanitizer to the fastest machine.
        self.assertTrue(1e7 < written["flops_per_second"] < 1e14)
        self.assertTrue(1e7 < written["weight_bytes_per_second"] < 1e13)
        self.assertTrue(0 <= written["overlap"] <= 1)
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
