"""evenkeel run --timeline: what the fullest rank's arena held adds up to its peak, as numbers and as a picture.

Phases, passes, chunks and the sum of buffers are proven of the layer (tests/layer/timeline_test.cpp).
"""

import re

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

BUFFER = ("name", "bytes", "pass", "phase", "chunk", "begin", "end")


class Timeline(CommandTest):
    def timelines(self, *words):
        for planner in self.json(*SKEWED, *words, "--timeline")["planners"]:
            yield planner, planner["timeline"]

    def pictures(self, *words):
        return re.split(r"\n\n(?=  memory of rank )", self.shown(*SKEWED, *words, "--timeline"))[1:]

    def test_numbers_and_pictures_of_every_way_to_run_a_step(self):
        for words in CASES:
            with self.subTest(words=words):
                pictures = self.pictures(*words)
                for (planner, timeline), picture in zip(self.timelines(*words), pictures, strict=True):
                    self.assert_its_most_bytes_are_the_peak_of_the_fullest_rank(planner, timeline)
                    self.assert_the_legend_adds_up_to_the_peak(picture, planner, timeline, words)

    def assert_its_most_bytes_are_the_peak_of_the_fullest_rank(self, planner, timeline):
        self.assertEqual(list(timeline), ["rank", "in_use", "phases", "buffers"])
        self.assertEqual({tuple(phase) for phase in timeline["phases"]}, {("begin", "pass", "phase", "chunk")})
        self.assertEqual({tuple(buffer) for buffer in timeline["buffers"]}, {BUFFER})
        self.assertEqual(max(timeline["in_use"]), planner["peak_bytes"][timeline["rank"]])
        self.assertEqual(max(timeline["in_use"]), max(planner["peak_bytes"]))

    def assert_the_legend_adds_up_to_the_peak(self, picture, planner, timeline, words):
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
        self.assertEqual(drawn["pass"].split(), ["forward", "backward"] if "--backward" in words else ["forward"])
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
