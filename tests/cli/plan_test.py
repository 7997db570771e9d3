"""evenkeel plan: its keys, and plans that add up."""

import random
import unittest

from command import CommandTest

KEYS = [
    "num_experts", "num_ranks", "planner", "spilled", "segments", "rank_loads", "transfers", "max_over_mean",
    "mean_over_max", "relative_excess", "transfer_lower_bound", "plan_us",
]  # fmt: skip


class Plan(CommandTest):
    def check(self, plan, loads, ranks):
        """Recomputes what a plan claims from its segments."""
        rank_loads, foreign = [0] * ranks, set()
        experts = len(loads)
        for expert, (segments, load) in enumerate(zip(plan["segments"], loads, strict=True)):
            end = 0
            home = max(r for r in range(ranks) if r * experts // ranks <= expert)
            for rank, begin, stop in segments:
                self.assertEqual(begin, end)
                self.assertGreater(stop, begin)
                rank_loads[rank] += stop - begin
                end = stop
                if rank != home:
                    foreign.add((expert, home, rank))
            self.assertEqual(end, load)
        self.assertEqual(plan["rank_loads"], rank_loads)
        self.assertEqual(sorted(map(tuple, plan["transfers"])), sorted(foreign))
        self.assertEqual(plan["spilled"], bool(foreign))
        mean = sum(loads) / ranks
        self.assertAlmostEqual(plan["max_over_mean"], max(rank_loads) / mean if mean else 1)
        self.assertAlmostEqual(plan["mean_over_max"], 1 / plan["max_over_mean"])
        self.assertAlmostEqual(plan["relative_excess"], plan["max_over_mean"] - 1)
        self.assertLessEqual(plan["transfer_lower_bound"], len(plan["transfers"]))
        self.assertGreater(plan["plan_us"], 0)

    def test_prints_exactly_the_promised_keys(self):
        self.write("loads.json", {"loads": [9000, 500, 300, 200]})
        plan = self.json("plan", "loads.json", "--ranks", 2)
        self.assertEqual(list(plan), KEYS)
        self.assertEqual(plan["planner"], "least-loaded")
        self.assertIs(type(plan["plan_us"]), float)

    def test_plans_of_random_loads_add_up_for_every_planner(self):
        for seed in range(4):  # of the library in tests/balance for many more
            draw = random.Random(seed)
            experts, ranks = draw.randint(1, 24), draw.randint(1, 9)
            loads = [draw.choice([0, draw.randint(0, 50), draw.randint(0, 20000)]) for _ in range(experts)]
            self.write("loads.json", {"loads": loads})
            for planner in ["ep", "least-loaded", "level"]:
                with self.subTest(seed=seed, planner=planner):
                    plan = self.json("plan", "loads.json", "--ranks", ranks, "--planner", planner, "--min-segment", 16,
                                     "--imbalance-threshold", 0)  # fmt: skip
                    self.assertEqual(plan["planner"], planner)
                    self.check(plan, loads, ranks)
                    if planner == "ep":
                        self.assertFalse(plan["spilled"])

    def test_counts_by_rank_say_how_many_ranks_there_are(self):
        self.write("counts.json", {"counts": [[10, 20, 30], [1, 2, 3]]})
        plan = self.json("plan", "counts.json", "--planner", "level", "--min-segment", 1, "--imbalance-threshold", 0)
        self.assertEqual(plan["num_ranks"], 2)
        self.check(plan, [11, 22, 33], 2)
        self.assert_refused(["plan", "counts.json", "--ranks", 3], 2, "InvalidArgument", "--ranks: 3 ranks")

    def test_a_threshold_of_zero_always_plans_and_a_high_one_never(self):
        self.write("loads.json", {"loads": [60, 50, 50, 40]})
        words = ["plan", "loads.json", "--ranks", 2, "--min-segment", 1, "--imbalance-threshold"]
        self.assertTrue(self.json(*words, 0)["spilled"])
        self.assertFalse(self.json(*words, "1.3")["spilled"])

    def test_no_rank_borrows_more_than_its_slots(self):
        self.write("loads.json", {"loads": [100, 100, 100, 100, 0, 0]})
        words = ["plan", "loads.json", "--ranks", 3, "--min-segment", 1, "--imbalance-threshold", 0, "--borrow-slots"]
        for slots, rank_loads in [(0, [200, 200, 0]), (1, [150, 150, 100]), (2, [134, 134, 132])]:
            self.assertEqual(self.json(*words, slots, "--planner", "level")["rank_loads"], rank_loads)
        self.assert_refused([*words, 1], 2, "InvalidArgument", "--borrow-slots: least-loaded borrows without a limit")
        self.assert_refused([*words, -1, "--planner", "level"], 2, "InvalidArgument", "--borrow-slots")

    def test_people_get_a_table_of_at_most_100_columns(self):
        self.write("loads.json", {"loads": [9000, 500, 300, 200]})
        text = self.shown("plan", "loads.json", "--ranks", 2, "--min-segment", 64)
        self.assertIn("worst rank 1.000x the mean (plain ep: 1.900x)", text)


if __name__ == "__main__":
    unittest.main()
