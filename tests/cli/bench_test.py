"""evenkeel bench: the paper's scenarios, shrunk."""

import json
import random

from command import CommandTest, npz

TINY = ["--ranks", 4, "--tokens", 16, "--hidden", 32, "--intermediate", 32, "--min-segment", 4, "--pairs", 2]
CURVE = ["--ranks", 4, "--tokens", 128, "--experts", 16, "--hidden", 32, "--intermediate", 32, "--min-segment", 4,
         "--pairs", 1, "--backward", "--scenarios", "0.95:1:spread"]  # fmt: skip

TRAINING = ["--ranks", 4, "--hidden", 32, "--intermediate", 32, "--min-segment", 4, "--pairs", 1]


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
            self.assert_refused(words, 2, "InvalidArgument", "--scenarios: no scenario of 4 experts", text)

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
            (["9%", "--ablation", "tokens"], "--over-budget: excludes --ablation"),
            (["9%", "--calibrate", "cost.json"], "excludes --calibrate"),
            (["9%", "--joint", "9%"], "excludes --joint"),
            (["9%", "--budget", "1MiB"], "--budget: is what --over-budget varies"),
            (["9%", "--recompute", "none"], "--recompute: is what --over-budget varies"),
            (["9%", "--planner", "ep"], "--planner: one is looked at"),
            (["9%", "--planner", "level,least-loaded"], "--planner: one is looked at"),
        ]:
            with self.subTest(words=words):
                self.assert_refused(["bench", "--over-budget", *words], 2, "InvalidArgument", message)
        for option in [["--budget", "1MiB"], ["--chunks", 2], ["--planner", "ep"]]:
            self.assert_refused(["bench", "--joint", "9%", *option], 2, "InvalidArgument", f"{option[0]}: ")

    def test_the_joint_choice_stands_beside_spill_kept_and_chunks_alone(self):
        result = self.json("bench", *CURVE, "--joint", "100%,80%,0.5%")
        self.assertEqual((result["ranks"], result["planner"]), (4, "level"))
        rows = result["rows"]
        self.assertEqual([row["budget_share"] > 0.5 for row in rows], [True, True, False])
        for row in rows:
            self.assertEqual(row["fits"], row["budget"] >= row["least_budget"])
            if not row["fits"]:
                continue
            for way in ["joint", "spill", "chunks"]:
                self.assertLessEqual(max(row[way]["peak_bytes"]), row["budget"])
            self.assertEqual(row["chunks"]["transfers"], 0)
            self.assertEqual(row["to_best"], max(row["to_spill"], row["to_chunks"]))
            for way in ["spill", "chunks"]:
                if row[f"is_{way}"]:
                    self.assertEqual((row[way], row[f"to_{way}"]), (row["joint"], 1))
        fit = [row["to_best"] for row in rows if row["fits"]]
        self.assertEqual((len(fit), result["worst_to_best"]), (2, max(fit)))
        text = self.shown("bench", *CURVE, "--joint", "100%,80%,0.5%")
        self.assertRegex(text, r"\n  0\.95:1:spread +\S+ \w+ +100\.0 % ")
        self.assertIn("too small", text)

    def test_spill_is_kept_where_the_joint_choice_gives_it_up(self):
        cost = {"format": "evenkeel.cost.v1", "flops_per_second": 1e11, "weight_bytes_per_second": 1e10,
                "link_bytes_per_second": 1.0, "chunk_seconds": 5e-5}  # fmt: skip
        self.write("cost.json", cost)  # links so slow that borrowing never pays
        (row,) = self.json("bench", *CURVE, "--joint", "20%", "--cost", "cost.json")["rows"]
        self.assertEqual(row["joint"]["transfers"], 0)
        self.assertGreater(row["spill"]["transfers"], 0)
        self.assertTrue(row["spill_fits"])
        self.assertEqual((row["is_spill"], row["is_chunks"], row["to_chunks"]), (False, True, 1))

    def write_loads(self, steps, layers, tokens, top_k=4):
        """Skewed loads of 8 experts, as a run would record them: no expert twice for a token."""
        seeded = random.Random(3)
        loads = []
        for _ in range(steps * layers):
            left = [tokens] * 8
            for _ in range(8 * tokens - tokens * top_k):
                above_zero = [expert for expert in range(8) if left[expert] > 0]
                left[seeded.choice(above_zero) if seeded.random() < 0.3 else above_zero[-1]] -= 1
            loads.append(left)
        (self.folder / "run.npz").write_bytes(npz("counts", [steps, layers, 8], sum(loads, [])))
        return [loads[step * layers : (step + 1) * layers] for step in range(steps)]

    def test_a_training_run_is_measured_under_the_paper_s_methods_and_ours(self):
        loads = self.write_loads(steps=5, layers=3, tokens=96)
        words = ["bench", "--training", "run.npz", "--every", 2, *TRAINING]
        result = self.json(*words)
        names = ["whole", "fixed", "mact", "joint"]
        self.assertEqual([each["method"] for each in result["methods"]], names)
        self.assertEqual([step["step"] for step in result["steps"]], [0, 2, 4])
        for step in result["steps"]:
            of_layer = [[sum(layer[2 * rank : 2 * rank + 2]) for rank in range(4)] for layer in loads[step["step"]]]
            fullest = max(range(3), key=lambda layer: max(of_layer[layer]))
            self.assertEqual((step["layer"], step["tokens"]), (fullest, 96))
            self.assertAlmostEqual(step["max_over_mean"], max(of_layer[fullest]) / 96)
            methods = step["methods"]
            self.assertEqual(list(methods), names)
            self.assertEqual([methods[name]["recomputed_fraction"] for name in names[:3]], [1, 1, 1])
            self.assertEqual((methods["whole"]["chunks"], methods["fixed"]["chunks"]), (1, 8))
            self.assertEqual([methods[name]["transfers"] for name in names[:3]], [0, 0, 0])
            for name in ["mact", "joint"]:
                self.assertLessEqual(max(methods[name]["peak_bytes"]), result["budget"])
        for at, name in enumerate(names):
            peaks = [max(step["methods"][name]["peak_bytes"]) for step in result["steps"]]
            self.assertEqual(result["methods"][at]["peak_bytes"], max(peaks))
            self.assertEqual(result["methods"][at]["steps_beyond_budget"],
                             sum(peak > result["budget"] for peak in peaks))  # fmt: skip
        least = result["least_budget"]
        self.assertEqual(self.json(*words, "--budget", least)["budget"], least)
        error = self.assert_refused([*words, "--budget", least - 1], 4, "BudgetTooSmall")
        self.assertEqual((error["given"], error["least"]), (least - 1, least))

    def test_people_see_the_methods_and_the_steps(self):
        self.write_loads(steps=2, layers=1, tokens=64)
        text = self.shown("bench", "--training", "run.npz", "--every", 1, *TRAINING)
        for line in ["1  ep, whole, unchunked ", "2  ep, 8 chunks ", "3  ep, mact 1,2,4,8 ", "level, joint "]:
            self.assertIn(f"\n  {line}", text)
        self.assertRegex(text, r"\n  1 +0 +\d\.\d\d .*█")

    def test_recorded_loads_are_scaled_to_the_tokens_asked_for(self):
        self.write_loads(steps=1, layers=1, tokens=96)
        (step,) = self.json("bench", "--training", "run.npz", "--tokens", 48, *TRAINING)["steps"]
        self.assertEqual((step["step"], step["tokens"]), (0, 192))

    def test_loads_that_are_none_are_refused(self):
        for shape, values, status, kind, part in [
            ([2, 4], [1] * 8, 3, "ParseError", "run.npz: counts: is not [steps, layers, experts]"),
            ([1, 1, 4], [1, 2, -3, 4], 3, "ParseError", "has -3, which is no load"),
            ([1, 1, 4], [1, 2, 3, 4], 2, "InvalidArgument", "--top-k: 4, but step 0 of run.npz has 10 assignments"),
        ]:
            (self.folder / "run.npz").write_bytes(npz("counts", shape, values))
            self.assert_refused(["bench", "--training", "run.npz", *TRAINING], status, kind, part)
        self.assert_refused(["bench", "--training", "none.npz"], 3, "ParseError", "none.npz")
        for option in [["--scenarios", "balanced"], ["--experts", 8], ["--chunks", 2], ["--recompute", "none"]]:
            self.assert_refused(["bench", "--training", "run.npz", *option], 2, "InvalidArgument", f"{option[0]}: ")
        self.assert_refused(["bench", "--every", 2], 2, "InvalidArgument", "--every: is about --training")

    def test_calibration_writes_what_run_and_bench_take(self):
        shape = ["--experts", 32, "--hidden", 64, "--intermediate", 64, "--ranks", 2]
        shown = self.json("bench", "--calibrate", "cost.json", *shape)
        written = json.loads((self.folder / "cost.json").read_text(encoding="utf-8"))
        self.assertEqual(written["format"], "evenkeel.cost.v2")
        self.assertEqual(written["measured_on"]["layer"], "32 experts, top-4, 64 x 64 swiglu f32")
        for name in set(written) - {"format"}:
            self.assertEqual(written[name], shown[name])
        # Wide limits: between a slow core under a sanitizer and the fastest there is.
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
