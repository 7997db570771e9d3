"""evenkeel run: its keys, and results that are correct under every planner and in every edge case."""

from command import REPOSITORY, CommandTest

KEYS = [
    "ranks", "backend", "tokens_per_rank", "tokens", "layer_number", "placement", "budget", "least_budget", "chunks", "recompute",
    "imbalance_threshold", "spill_costs", "batch", "layer", "repeat", "control_ratio", "control_spread", "planners",
]  # fmt: skip
PLANNER_KEYS = [
    "planner", "critical_ms", "wall_ms", "wait_ms", "least_wait_ms", "phases_ms", "plan_us", "max_over_mean",
    "mean_over_max", "relative_excess", "ideal_speedup", "speedup", "share_of_ideal", "rank_loads", "peak_bytes",
    "dispatch_bytes", "combine_bytes", "transfer_bytes", "transfers", "reason", "chunks", "recomputed_fraction",
    "max_abs_error", "max_rel_error", "bitwise_equal", "checksum",
]  # fmt: skip

LAYER = ["--hidden", 48, "--intermediate", 40, "--min-segment", 4, "--repeat", 2]
SMALL = [*LAYER, "--imbalance-threshold", 1.3]  # moves the same work on every machine


class Run(CommandTest):
    def run_small(self, scenario, *words, most_error=1e-5):
        result = self.json("run", "--scenario", scenario, *SMALL, *words)
        for planner in result["planners"]:
            with self.subTest(scenario=scenario, words=words, planner=planner["planner"]):
                self.assertLessEqual(planner["max_rel_error"], most_error)
                self.assertIn(planner["bitwise_equal"], [True, None])
                self.assertEqual(len(planner["rank_loads"]), result["ranks"])
                self.assertEqual(len(planner["peak_bytes"]), result["ranks"])
        self.assertEqual(len({sum(planner["rank_loads"]) for planner in result["planners"]}), 1)
        return result

    def test_refuses_nodes_that_cannot_be(self):
        words = ["run", "--scenario", "balanced", *SMALL, "--ranks", 4, "--tokens", 16]
        for more, parts in [
            (["--nodes", "host"], ["--nodes: 'host'; allowed: a whole number in 1..4, or hosts"]),
            (["--deadline", 3], ["--deadline: applies only to --backend mpi"]),
            (["--nodes", "hosts"], ["--nodes: hosts, but all ranks are threads on this host"]),
            (["--topology", "2x8xh100"], ["--topology: has 16 ranks, but the run has 4"]),
            (["--topology", "2x8xh100", "--nodes", 2], ["--nodes: is already given by --topology"]),
        ]:
            self.assert_refused([*words, *more], 2, "InvalidArgument", *parts)
        more = ["--nodes", 2, "--two-levels", "--budget", "1MiB"]
        self.assert_refused([*words, *more], 2, "InvalidArgument", "--budget: does not work with --two-levels")
        more = ["--nodes", 2, "--sum-in-nodes"]
        self.assert_refused([*words, *more], 2, "InvalidArgument", "--sum-in-nodes: needs --two-levels")
        more = ["--nodes", 1, "--two-levels"]
        self.assert_refused([*words, *more], 2, "InvalidArgument", "--two-levels: needs several nodes")

    def test_outputs_replace_neither_each_other_nor_what_is_read(self):
        two = {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2}
        words = [
            "run",
            "--scenario",
            "balanced",
            *SMALL,
            "--ranks",
            4,
            "--tokens",
            16,
            "--topology",
            self.write("t.json", two),
        ]
        for more, message in [
            (["--html", "t.json"], "--html: t.json is a file that is read"),
            (["--timeline", "t.json"], "--timeline: t.json is a file that is read"),
            (["--html", "a", "--timeline", "a"], "--html: a is written by --timeline"),
        ]:
            self.assert_refused([*words, *more], 2, "InvalidArgument", message)
        self.assertEqual(self.file("t.json"), two)

    def test_prints_exactly_the_promised_keys(self):
        result = self.run_small("zipf:1", "--ranks", 4, "--tokens", 32, "--experts", 10, "--top-k", 2)
        self.assertEqual(list(result), KEYS)
        self.assertEqual((result["ranks"], result["tokens_per_rank"], result["tokens"]), (4, 32, 128))
        self.assertEqual((result["layer_number"], result["placement"]), (None, None))
        self.assertEqual([p["planner"] for p in result["planners"]], ["ep", "least-loaded", "level"])
        for planner in result["planners"]:
            self.assertEqual(list(planner), PLANNER_KEYS)
            self.assertEqual(list(planner["phases_ms"]), ["plan", "dispatch", "transfer", "compute", "combine"])
            self.assertIs(type(planner["transfers"]), int)

    def test_balancing_moves_weights_and_levels_the_ranks(self):
        result = self.run_small("concentrated:0.9:1", "--ranks", 4, "--tokens", 64, "--experts", 8)
        ep, level = result["planners"][0], result["planners"][2]
        self.assertEqual((ep["speedup"], ep["transfers"], ep["transfer_bytes"]), (1, 0, 0))
        self.assertEqual(ep["max_over_mean"], ep["ideal_speedup"])
        self.assertLess(level["max_over_mean"], 1.1)
        # gate_up and down of one expert in f32, for each transfer
        self.assertEqual(level["transfer_bytes"], level["transfers"] * 3 * 48 * 40 * 4)

    def test_predicted_seconds_decide_unless_a_threshold_is_given(self):
        words = ["run", "--scenario", "concentrated:0.9:1", "--ranks", 4, "--tokens", 64, "--experts", 8, *LAYER]
        cost = {"format": "evenkeel.cost.v1", "flops_per_second": 1e9, "link_bytes_per_second": 1e10, "overlap": 0,
                "chunk_seconds": 1e-6}  # fmt: skip
        for weights, moves in ((1e10, True), (1e3, False)):
            self.write("cost.json", {**cost, "weight_bytes_per_second": weights})
            made = self.json(*words, "--cost", "cost.json", "--planner", "ep,level")
            self.assertEqual(made["imbalance_threshold"], "auto")
            self.assertEqual(made["planners"][1]["transfers"] > 0, moves)
            elements = 3 * 48 * 40
            self.assertAlmostEqual(
                made["spill_costs"]["seconds_per_assignment"], 2 * elements / 1e9 + 2 * 48 * 4 / 1e10, delta=1e-9
            )
        given = self.json(*words, "--imbalance-threshold", "1.25", "--planner", "level")
        self.assertEqual((given["imbalance_threshold"], given["spill_costs"]), (1.25, None))
        measured = self.json(*words, "--planner", "level")
        self.assertGreater(measured["spill_costs"]["seconds_per_transfer"], 0)
        self.assert_refused(
            [*words, "--imbalance-threshold", "often"], 2, "InvalidArgument", "--imbalance-threshold: 'often'"
        )

    def placement(self, name, layers, experts, ranks):
        return self.write(name, {"format": "evenkeel.placement.v1", "num_layers": layers, "num_experts": experts,
                                 "num_ranks": ranks, "physical_to_logical": [list(range(experts))] * layers})  # fmt: skip

    def test_a_placement_has_the_layer_that_is_asked_for(self):
        small = ["--scenario", "balanced", "--ranks", 4, "--tokens", 4, "--experts", 12, *SMALL]
        several = self.placement("several.json", 3, 12, 4)
        self.assert_refused(["run", *small, "--placement", several], 2, "InvalidArgument", "--layer", "3 layers")
        self.assert_refused(["run", *small, "--placement", several, "--layer", 3], 2, "InvalidArgument", "layer")
        other = self.placement("other.json", 1, 8, 4)
        self.assert_refused(["run", *small, "--placement", other], 2, "InvalidArgument", "--placement", "8 experts")

    def test_the_homes_of_a_trace_are_those_of_its_layer(self):
        trace = REPOSITORY / "data/tiny-moe/routing_step50.npz"
        place = self.json("place", trace, "--ranks", 4, "-o", "p.json")
        self.assertGreater(place["before"]["max_over_mean_mean"], place["after"]["max_over_mean_mean"])
        words = ["run", "--trace", trace, "--layer", 5, "--ranks", 4, *SMALL, "--planner", "ep"]
        before = self.json(*words)["planners"][0]
        after = self.json(*words, "--placement", "p.json")["planners"][0]
        self.assertLess(after["max_over_mean"], before["max_over_mean"])
        self.assertIn(after["bitwise_equal"], [True, None])

    def test_the_planners_asked_for_come_in_the_order_asked(self):
        result = self.run_small("zipf:1", "--ranks", 2, "--tokens", 16, "--experts", 8, "--planner", "level,ep")
        self.assertEqual([p["planner"] for p in result["planners"]], ["level", "ep"])

    def test_people_get_tables_of_at_most_100_columns(self):
        text = self.shown("run", "--scenario", "zipf:1", "--ranks", 4, "--tokens", 32, "--experts", 8, *SMALL)
        self.assertIn("homes in the order of the experts, 128 tokens", text)
        self.assertIn("critical path: the largest CPU time of any rank in each phase", text)
