"""evenkeel plan: its keys, what they say of one step, and its options. Plans are proven of the library (tests/balance)."""

from command import CommandTest

KEYS = [
    "num_experts", "num_ranks", "planner", "spilled", "segments", "rank_loads", "transfers", "max_over_mean",
    "mean_over_max", "relative_excess", "transfer_lower_bound", "plan_us",
]  # fmt: skip


class Plan(CommandTest):
    def test_says_of_one_step_exactly_what_its_keys_promise(self):
        self.write("counts.json", {"counts": [[40, 0, 50, 20], [20, 50, 0, 20]]})
        words = ["plan", "counts.json", "--planner", "level", "--min-segment", 1, "--imbalance-threshold"]
        plan = self.json(*words, 0)
        self.assertEqual(list(plan), KEYS)
        self.assertIs(type(plan.pop("plan_us")), float)
        segments = [[[0, 0, 60]], [[0, 0, 40], [1, 40, 50]], [[1, 0, 50]], [[1, 0, 40]]]
        said = [4, 2, "level", True, segments, [100, 100], [[1, 0, 1]], 1, 1, 0, 1]
        self.assertEqual(list(plan.values()), said)
        self.assertFalse(self.json(*words, "1.3")["spilled"])

    def test_the_planner_is_least_loaded_unless_another_is_asked_for(self):
        words = ["plan", self.write("loads.json", {"loads": [9000, 500, 300, 200]}), "--ranks", 2]
        self.assertEqual(self.json(*words)["planner"], "least-loaded")
        plain = self.json(*words, "--planner", "ep")
        self.assertEqual((plain["planner"], plain["spilled"], plain["rank_loads"]), ("ep", False, [9500, 500]))

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
