"""evenkeel plan: its keys, what they say of one step, and its options. For plans see tests/balance."""

import random

from command import REPOSITORY, CommandTest

KEYS = [
    "num_experts", "num_ranks", "planner", "spilled", "segments", "rank_loads", "transfers", "max_over_mean",
    "mean_over_max", "relative_excess", "transfer_lower_bound", "plan_us",
]  # fmt: skip
FIGURES = [
    "max_over_mean", "max_over_mean_under_ep", "transfers", "spilled_assignments", "plan_us", "weight_bytes",
    "predicted_seconds", "predicted_seconds_under_ep",
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

    def test_all_layers_at_once_are_planned_as_each_alone(self):
        draw = random.Random(seed := 5)
        rows = [[int(draw.lognormvariate(6, 1)) for _ in range(24)] for _ in range(4)]
        self.write("rows.json", {"loads": rows, "layers": [3, 4, 6, 9]})
        self.json("place", "rows.json", "--ranks", 6, "-o", "placement.json")
        trace = REPOSITORY / "data" / "tiny-moe" / "routing_step1563.npz"
        for numbers, *words in [
            (range(8), trace, "--ranks", 8),
            ([0, 1, 5], trace, "--ranks", 8, "--layers", "0-1,5"),
            ([3, 4, 6, 9], "rows.json", "--placement", "placement.json"),
        ]:
            words += ["--min-segment", 16, "--imbalance-threshold", "1.05"]
            all_layers = self.json("plan", *words, "--planner", "level,ep")
            one_by_one, layers = [], all_layers.pop("layers")
            alone = [word for word in words if word not in ("--layers", "0-1,5")]
            for planner in ["level", "ep"]:
                for number in numbers:
                    one = self.json("plan", *alone, "--layer", number, "--planner", planner)
                    self.assertEqual(list(one), KEYS)
                    one_by_one.append({"layer": number} | one | {"plan_us": 0})
            self.assertEqual([layer | {"plan_us": 0} for layer in layers], one_by_one, f"seed {seed}")
            level, ep = ([layer for layer in layers if layer["planner"] == planner] for planner in ["level", "ep"])
            said = all_layers["planners"][0]
            self.assertEqual((said["planner"], list(said["mean"])), ("level", FIGURES[:5]))
            for figure, figures in {
                "max_over_mean": [layer["max_over_mean"] for layer in level],
                "max_over_mean_under_ep": [layer["max_over_mean"] for layer in ep],
                "transfers": [len(layer["transfers"]) for layer in level],
                "plan_us": [layer["plan_us"] for layer in level],
            }.items():
                self.assertAlmostEqual(said["mean"][figure], sum(figures) / len(figures), msg=figure)
                self.assertEqual(said["worst"][figure], max(figures), figure)

    def test_spilled_assignments_are_those_computed_away_from_home(self):
        self.write("rows.json", {"loads": [[90, 10, 20, 0], [25, 25, 25, 25]]})
        words = ["plan", "rows.json", "--ranks", 2, "--planner", "level", "--min-segment", 1]
        said = self.json(*words)["planners"][0]
        self.assertEqual((said["mean"]["spilled_assignments"], said["worst"]["spilled_assignments"]), (20, 40))
        table = [line.split() for line in self.shown(*words).splitlines()]
        self.assertEqual(table[3][:5], ["0", "1.000", "1.667", "1", "40"])
        self.assertEqual(table[5][:5], ["mean", "1.000", "1.333", "0.5", "20"])

    def test_what_has_no_meaning_for_one_layer_or_several_is_refused(self):
        self.write("one.json", {"loads": [9000, 500, 300, 200]})
        self.write("two.json", {"loads": [[9000, 500], [300, 200]]})
        for words, message in [
            (["one.json", "--layers", "0"], "--layers: needs several layers, but the loads have one"),
            (["one.json", "--planner", "ep,level"], "--planner: 'ep,level'; allowed: one planner"),
            (["two.json", "--layer", 0, "--planner", "ep,level"], "--planner: 'ep,level'; allowed: one planner"),
            (["two.json", "--layer", 0, "--layers", "1"], "--layers: is already given by --layer"),
            (["two.json", "--layers", "1-2"], "--layers: no layer 2; allowed: 0..1"),
            (["two.json", "--layers", "1,0"], "--layers: '0' does not ascend"),
            (["two.json", "--layer", 2], "--layer: no layer 2; allowed: 0..1"),
        ]:
            self.assert_refused(["plan", *words, "--ranks", 2], 2, "InvalidArgument", message)

    def test_people_get_a_table_of_at_most_100_columns(self):
        self.write("loads.json", {"loads": [9000, 500, 300, 200]})
        text = self.shown("plan", "loads.json", "--ranks", 2, "--min-segment", 64)
        self.assertIn("worst rank 1.000x the mean (plain ep: 1.900x)", text)

    def test_a_step_on_links_is_predicted_and_level_plans_for_the_least_time(self):
        self.write("counts.json", {"counts": [[4000, 0] + [250] * 6 for _ in range(4)]})
        self.write("links.json", {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2,
                                  "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 1}})  # fmt: skip
        model = REPOSITORY / "tests" / "data" / "configs" / "mixtral-8x7b.json"
        words = ["plan", "counts.json", "--topology", "links.json", "--model", model, "--imbalance-threshold", 0,
                 "--device", "h100"]  # fmt: skip
        plan = self.json(*words, "--planner", "level")
        self.assertEqual(list(plan)[:-3], KEYS)
        level, ep, alike = (plan[f"predicted{which}"] for which in ["", "_under_ep", "_without_links"])
        self.assertLess(level["seconds"], min(ep["seconds"], alike["seconds"]))
        self.assertGreater(alike["weight_bytes_across"], level["weight_bytes_across"])
        self.assertGreater(level["row_bytes_across"], 0)
        self.assertIn("between nodes", self.shown(*words, "--planner", "level"))
        self.assertNotIn("predicted_without_links", self.json(*words))
        self.write("loads.json", {"loads": [16000] + [1000] * 7})
        self.assertIsNone(self.json(words[0], "loads.json", *words[2:])["predicted"]["row_bytes_across"])
        sized = self.json(*words, "--planner", "level", "--expert-bytes", "1MiB")["predicted"]
        self.assertEqual(sized["weight_bytes_across"] % 2**20, 0)
        self.write("bare.json", {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2})
        self.write("rooms.json", {"format": "evenkeel.topology.v1", "num_nodes": 1, "ranks_per_node": 4,
                                  "within": {"gigabytes_per_s": 450}, "rooms": [2, 2, 2, 2]})  # fmt: skip
        self.write("rows.json", {"loads": [[16000] + [1000] * 7, [900, 700] * 4]})
        layers = self.json(words[0], "rows.json", *words[2:], "--planner", "level")
        mean, predicted = layers["planners"][0]["mean"], [layer["predicted"]["seconds"] for layer in layers["layers"]]
        self.assertEqual(list(mean), FIGURES)
        self.assertAlmostEqual(mean["predicted_seconds"], sum(predicted) / 2)
        self.assertEqual(mean["weight_bytes"], mean["transfers"] * 3 * 4096 * 14336 * 2)
        self.assertIn("MiB", self.shown(words[0], "rows.json", *words[2:], "--planner", "level"))
        for changed, message in [
            (["plan", "counts.json", "--device", "h100"], "--device: needs --topology"),
            ([*words[:3], "bare.json", *words[4:]], "--topology: the topology does not describe its links"),
            ([*words[:3], "rooms.json", *words[4:]], "--topology: the topology limits experts per rank"),
            ([*words, "--cost", "c.json"], "--device: is already given by --cost"),
            ([*words, "--expert-bytes", "0"], "--expert-bytes: an expert has 0 bytes; allowed: 1..1e15 bytes"),
            ([*words, "--expert-bytes", "8000TB"], "--expert-bytes: an expert has 8e+15 bytes"),
            (words[:4] + words[6:], "--topology: needs --model"),
            (words[:-2], "--topology: needs --cost or --device"),
            ([*words[:2], "--topology", "8xh100", *words[4:]], "--topology: 8 ranks, but counts.json has counts of 4"),
        ]:
            self.assert_refused(changed, 2, "InvalidArgument", message)
