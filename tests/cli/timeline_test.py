"""evenkeel run --timeline: what the fullest rank's arena held adds up to its peak, as numbers and as a picture."""

import re
import unittest

from command import CommandTest

SMALL = ["--hidden", 48, "--intermediate", 40, "--min-segment", 4, "--repeat", 1, "--imbalance-threshold", 1.3]
SKEWED = ["run", "--scenario", "concentrated:0.95:1", "--ranks", 4, "--tokens", 192, "--experts", 16, *SMALL]
CASES = [
    [],
    ["--backward"],
    ["--chunks", 3],
    ["--backward", "--chunks", "mact", "--bins", "1,5", "--budget", "1.5MiB"],
    ["--budget", "650KiB"],
    ["--backward", "--budget", "1.2MiB"],
    ["--backward", "--recompute", "whole"],
]
PHASES = {"plan", "dispatch", "transfer", "compute", "combine"}


class Timeline(CommandTest):
    def timelines(self, *words):
        for planner in self.json(*SKEWED, *words, "--timeline")["planners"]:
            yield planner, planner["timeline"]

    def test_the_buffers_alive_add_up_at_every_point_and_reach_the_peak_of_the_fullest_rank(self):
        for words in CASES:
            for planner, timeline in self.timelines(*words):
                in_use = timeline["in_use"]
                sums = [0] * len(in_use)
                for buffer in timeline["buffers"]:
                    for point in range(buffer["begin"], buffer["end"]):
                        sums[point] += buffer["bytes"]
                self.assertGreater(len(in_use), 10)
                self.assertEqual(sums, in_use)
                self.assertEqual(max(in_use), max(planner["peak_bytes"]))
                self.assertEqual(max(in_use), planner["peak_bytes"][timeline["rank"]])

    def test_what_was_not_there_before_comes_in_a_phase_and_goes_again(self):
        for words in CASES:
            for _, timeline in self.timelines(*words):
                self.assertEqual(timeline["in_use"][0], timeline["in_use"][-1])
                for buffer in timeline["buffers"]:
                    before = buffer["begin"] == 0
                    self.assertEqual(buffer["end"] == len(timeline["in_use"]), before)
                    self.assertEqual((buffer["pass"] is None, buffer["phase"] is None), (before, before))
                    if not before:
                        self.assertIn(buffer["phase"], PHASES)
                        at = [phase for phase in timeline["phases"] if phase["begin"] <= buffer["begin"]][-1]
                        for key in ["pass", "phase", "chunk"]:
                            self.assertEqual(buffer[key], at[key])

    def test_phases_are_of_the_passes_and_chunks_that_there_were(self):
        for words in CASES:
            for planner, timeline in self.timelines(*words):
                phases = timeline["phases"]
                begins = [phase["begin"] for phase in phases]
                self.assertEqual(begins, sorted(set(begins)))
                self.assertEqual(begins[0], 1)
                passes = [phase["pass"] for phase in phases]
                self.assertEqual(passes, sorted(passes, reverse=True))
                self.assertEqual("backward" in passes, "--backward" in words)
                chunks = {phase["chunk"] for phase in phases if phase["pass"] == "forward"} - {None}
                self.assertEqual(chunks, set(range(planner["chunks"])))

    def test_it_changes_no_figure_of_the_steps_it_looks_at(self):
        for words in CASES:
            plain = self.json(*SKEWED, *words)["planners"]
            for before, (planner, _) in zip(plain, list(self.timelines(*words)), strict=True):
                self.assertNotIn("timeline", before)
                for key in ["peak_bytes", "chunks", "recomputed_fraction", "transfers", "rank_loads", "bitwise_equal"]:
                    self.assertEqual(planner[key], before[key])

    def pictures(self, *words):
        done = self.call(*SKEWED, *words, "--timeline")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        return re.split(r"\n\n(?=  memory of rank )", done.stdout)[1:]

    def test_the_picture_keeps_within_100_columns_and_its_legend_adds_up_to_the_peak(self):
        for words in CASES:
            timelines = list(self.timelines(*words))
            pictures = self.pictures(*words)
            self.assertEqual(len(pictures), len(timelines))
            for picture, (planner, timeline) in zip(pictures, timelines, strict=True):
                peak = max(timeline["in_use"])
                self.assertIn(f"memory of rank {timeline['rank']} under {planner['planner']} in one step", picture)
                self.assertEqual(re.findall(r"together .*  (\d+) bytes$", picture, re.M), [str(peak)])
                shares = re.findall(r" (\d+) %  ", picture)
                self.assertLessEqual(len(shares), 9)
                self.assertAlmostEqual(sum(map(int, shares)), 100, delta=5)
                self.assertIn("█", picture)
                marks = re.search(r"^ +phase  ?([pdtxc ]+)$", picture, re.M).group(1)
                self.assertGreaterEqual(set(marks), set("pdxc") if "table of blocks" in str(timeline) else set("dxc"))
                drawn = dict(re.findall(r"^ +(chunk|pass) +(.+)$", picture, re.M))
                self.assertEqual(
                    drawn["pass"].split(), ["forward", "backward"] if "--backward" in words else ["forward"]
                )
                several = any((phase["chunk"] or 0) > 0 for phase in timeline["phases"])
                self.assertEqual("chunk" in drawn, several)

    def test_the_largest_columns_are_as_high_as_the_largest_bytes(self):
        for picture in self.pictures("--backward"):
            rows = re.findall(r"[┤│](.*)$", picture, re.M)
            self.assertEqual(len(rows), 10)
            self.assertIn("█", rows[0])
            self.assertRegex(picture, r"\n +[\d.]+ [KM]iB ┤.*\n")

    def test_the_budget_is_a_line_where_it_is_near_and_a_number_always(self):
        least_peak = min(max(planner["peak_bytes"]) for planner, _ in self.timelines("--backward"))
        for budget, near in [(least_peak, True), (1 << 30, False)]:
            for picture in self.pictures("--backward", "--budget", budget):
                number = re.search(r" of a budget of ([\d.]+ [KMG]iB)\n", picture)[1]
                self.assertEqual(bool(re.search(rf"\n +{number} ┄+\n", picture)), near)
        for picture in self.pictures("--backward"):
            self.assertNotIn("budget", picture)
            self.assertNotIn("┄", picture)

    def test_a_step_without_tokens_holds_little_and_is_drawn_all_the_same(self):
        words = ["run", "--scenario", "balanced", "--ranks", 2, "--tokens", 0, "--experts", 4, *SMALL, "--timeline"]
        for planner in self.json(*words)["planners"]:
            self.assertEqual(max(planner["timeline"]["in_use"]), max(planner["peak_bytes"]))
        self.assertEqual(self.call(*words).returncode, 0)

    def test_it_is_refused_where_no_step_is_looked_at_or_a_value_is_given(self):
        loads = self.write("loads.json", {"loads": [3, 1]})
        for words in [["bench"], ["demo"], ["plan", loads, "--ranks", 2], ["memory", "--model", "config.json"]]:
            self.assert_refused([*words, "--timeline"], 2, "InvalidArgument", "--timeline")
        self.assert_refused([*SKEWED, "--timeline=level"], 2, "InvalidArgument", "--timeline")


if __name__ == "__main__":
    unittest.main()
