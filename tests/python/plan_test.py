"""plan() gives what the command `evenkeel plan --json` prints, if the command is there, and Python's own errors.

Plans are tested in the library (tests/balance).
"""

import json
import unittest
from dataclasses import replace

import numpy as np
from support import COMMAND, REPOSITORY, TRACE, PackageTest, command_output, random_arrays

import evenkeel as ek

MODEL = REPOSITORY / "tests" / "data" / "configs" / "mixtral-8x7b.json"


def random_loads(seed):
    draw = np.random.default_rng(seed)
    experts, ranks = int(draw.integers(1, 24)), int(draw.integers(1, 9))
    return draw.integers(0, [50, 2000, 20000][seed % 3], experts), ranks


class Plan(PackageTest):
    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND does not name the command")
    def test_says_the_same_numbers_as_the_command(self):
        for seed in range(4):
            loads, ranks = random_loads(seed)
            (self.folder / "loads.json").write_text(json.dumps({"loads": loads.tolist()}))
            for planner in ["ep", "least-loaded", "level"]:
                options = ["--min-segment", 16, "--imbalance-threshold", 1.05, "--capacity-factor", 1.125]
                words = ["--ranks", ranks, "--planner", planner, *options]
                printed = command_output("plan", self.folder / "loads.json", *words)
                plan = ek.plan(loads, ranks, planner=planner, min_segment=16, imbalance_threshold=1.05,
                               capacity_factor=1.125)  # fmt: skip
                with self.subTest(seed=seed, planner=planner):
                    for key in set(printed) - {"plan_us", "segments", "transfers", "rank_loads"}:
                        self.assertEqual(getattr(plan, key), printed[key], key)
                    self.assertEqual([[list(s) for s in each] for each in plan.segments], printed["segments"])
                    self.assertEqual([list(t) for t in plan.transfers], printed["transfers"])
                    self.assertEqual(plan.rank_loads.tolist(), printed["rank_loads"])

    def on_links(self, *words, counts, **options):
        """Plans on two nodes of two ranks, joined at a ninth of the inner rate; also runs the command."""
        links, loads = self.folder / "links.json", self.folder / "counts.json"
        links.write_text(json.dumps({"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2,
                                     "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50}}))  # fmt: skip
        loads.write_text(json.dumps({"counts" if isinstance(counts[0], list) else "loads": counts}))
        plan = ek.plan(counts, topology=links, model=MODEL, device="h100", **options)
        return plan, command_output("plan", loads, "--topology", links, "--model", MODEL, "--device", "h100", *words)

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND does not name the command")
    def test_plans_over_links_and_predicts_as_the_command_does(self):
        counts = [[4000, 0] + [250] * 6 for _ in range(4)]  # the example of docs/decisions.md
        plan, printed = self.on_links("--planner", "level", counts=counts)
        self.assertEqual(plan.rank_loads.tolist(), [9000, 9000, 2000, 2000])
        self.assertEqual(f"{plan.predicted.seconds:.6f}", "0.010995")
        for words, named in [
            (["--planner", "level", "--backward", "--expert-bytes", "1000000"],
             {"counts": counts, "backward": True, "expert_bytes": 1_000_000}),
            (["--planner", "least-loaded"], {"counts": counts, "planner": "least-loaded"}),
            (["--planner", "level"], {"counts": [16000] + [1000] * 7}),
            (["--planner", "level"], {"counts": counts}),
        ]:  # fmt: skip
            plan, printed = self.on_links(*words, **named)
            for key in ["predicted", "predicted_under_ep", "predicted_without_links"]:
                predicted = getattr(plan, key)
                self.assertEqual(predicted and predicted._asdict(), printed.get(key), (key, words))
            self.assertEqual([list(t) for t in plan.transfers], printed["transfers"])

    def test_work_that_ranks_have_anyway_takes_time(self):
        options = {"topology": "2x8xh100", "model": MODEL, "device": "h100", "planner": "ep"}
        took = [ek.plan([160] * 8, base_load=[n] * 16, **options).predicted.seconds for n in (0, 1000)]
        self.assertGreater(took[1], 5 * took[0])

    def test_refuses_links_of_which_too_little_or_too_much_is_said(self):
        options = {"topology": "2x8xh100", "model": MODEL, "device": "h100"}
        bare = self.folder / "bare.json"
        bare.write_text('{"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 8}')
        for changed, message in [
            ({"topology": None, "ranks": 2}, "model: needs topology"),
            (
                {"topology": None, "ranks": 2, "model": None, "device": None, "backward": True},
                "backward: needs topology",
            ),
            ({"model": None}, "topology: needs model"),
            ({"device": None}, "topology: needs cost or device"),
            ({"cost": "cost.json"}, "device: is already given by cost"),
            ({"device": "abacus"}, "device: "),
            ({"expert_bytes": 0}, "expert_bytes: 0"),
            ({"backward": 1}, "backward: is a int"),
            ({"topology": bare}, "topology: the topology does not describe its links"),
            ({"ranks": 8}, "ranks: 8, but 2x8xh100 has 16"),
            ({"placement": ek.Placement.contiguous(1, 8, 8)}, "topology: has 16 ranks; allowed: a topology of 8 ranks"),
        ]:
            with self.subTest(message=message):
                self.assert_raises(ek.InvalidArgument, message, ek.plan, [160] * 8, **(options | changed))
        self.assert_raises(ek.InvalidArgument, "model: has 8 experts", ek.plan, [5, 6], **options)

    def test_the_readmes_loads_come_out_level(self):
        plan = ek.plan([49000, 1000, 1000, 1000, 1000, 1000, 1000, 1000], ranks=4)
        self.assertEqual(plan.rank_loads.tolist(), [14000] * 4)
        self.assertEqual(len(plan.transfers), 3)
        self.assertEqual(plan.max_over_mean, 1)

    def test_counts_by_rank_sum_to_the_loads(self):
        counts = np.array([[40, 0, 50, 20], [20, 50, 0, 20]])
        plan = ek.plan(counts, planner="level", min_segment=1, imbalance_threshold=0)
        self.assertEqual((plan.num_ranks, plan.rank_loads.tolist()), (2, [100, 100]))
        self.assertEqual([(s.rank, s.begin, s.end) for s in plan.segments[1]], [(0, 0, 40), (1, 40, 50)])
        self.assertEqual([(t.expert, t.sender, t.receiver) for t in plan.transfers], [(1, 0, 1)])
        self.assert_raises(ek.InvalidArgument, "ranks: 3 ranks, but loads has counts of 2", ek.plan, counts, 3)

    def test_takes_the_layer_of_a_profile_and_of_a_placement(self):
        profile = ek.RoutingProfile(loads=[[10, 20, 30], [7, 8, 9]])
        placement = ek.Placement([[0, 0, 1], [1, 1, 0]])
        plan = ek.plan(profile, planner="ep", placement=placement, layer=1)
        self.assertEqual(plan.rank_loads.tolist(), [9, 15])
        for arguments in [{"placement": placement}, {"ranks": 2}]:
            self.assert_raises(ek.InvalidArgument, "has 2 layers; allowed: 0..1", ek.plan, profile, **arguments)
        self.assert_raises(ek.InvalidArgument, "layer: 2", ek.plan, profile, 2, layer=2)
        self.assertEqual(ek.plan([7, 8, 9], placement=placement, layer=1).num_ranks, 2)
        self.assert_raises(ek.InvalidArgument, "layer: 2, but there is one", ek.plan, [7, 8, 9], 2, layer=2)

    def test_all_layers_at_once_are_planned_as_each_alone(self):
        seed = 3
        numbered = ek.RoutingProfile(loads=random_arrays(seed, 5, 24)[0], layers=[3, 4, 6, 8, 9])
        placement = ek.place(numbered, ranks=6)
        single = ek.RoutingProfile(loads=[[9000, 500, 300, 200]])
        links = {"topology": "8xh100", "model": MODEL, "device": "h100", "min_segment": 64}
        eight = ek.RoutingProfile(loads=random_arrays(seed, 3, 8)[0])
        for given, profile, layers, options in [
            (TRACE, ek.RoutingProfile(TRACE), range(8), {"ranks": 8, "min_segment": 16, "imbalance_threshold": 1.05}),
            (numbered, numbered, numbered.layers, {"placement": placement, "planner": "least-loaded"}),
            (eight.loads, eight, range(3), links),
            (single, single, [0], {"ranks": 2}),
        ]:
            for chosen in [None, [layers[-1], layers[0]]]:
                plans = ek.plan_layers(given, layers=chosen, **options)
                alone = [ek.plan(profile, layer=layer, **options) for layer in chosen or layers]
                self.assertEqual(plans.layers, list(chosen or layers))
                for one, each in zip(alone, plans, strict=True):
                    self.assertEqual(repr(replace(each, plan_us=0)), repr(replace(one, plan_us=0)), f"seed {seed}")
                self.assertEqual(plans.max_over_mean.tolist(), [one.max_over_mean for one in alone])
                self.assertEqual(plans.transfers.tolist(), [len(one.transfers) for one in alone])
                self.assertEqual(plans.plan_us.tolist(), [each.plan_us for each in plans])
                seconds = [one.predicted.seconds for one in alone if one.predicted]
                predicted = plans.predicted_seconds
                self.assertEqual([] if predicted is None else predicted.tolist(), seconds)
        self.assertEqual(repr(plans), "LayerPlans(2 layers, worst rank 1x the mean, 1 transfers a layer)")

    def test_of_all_layers_it_says_which_argument_is_wrong(self):
        profile = ek.RoutingProfile(loads=[[10, 20, 30], [7, 8, 9]], layers=[3, 5])
        several = ek.Placement([[0, 0, 1], [1, 1, 0]])
        for given, named, message in [
            (profile, {"layers": [4]}, "layers: 4, but the profile has no such layer; allowed: 3, 5"),
            (profile, {"layers": []}, "layers: is empty"),
            (profile, {"ranks": None}, "ranks: is missing, and loads by expert"),
            (profile, {"placement": ek.Placement([[0, 1]])}, "placement: is for 2 experts on 2 ranks"),
            (
                ek.RoutingProfile(loads=[[1, 2, 3]]),
                {"placement": several},
                "layers: is not given, and the placement has 2 layers",
            ),
            ([1, 2], {}, "loads: shape [2]; allowed: [layers, experts]"),
        ]:
            self.assert_raises(ek.InvalidArgument, message, ek.plan_layers, given, **{"ranks": 2} | named)
        self.assert_raises(ek.ParseError, "nowhere.npz", ek.plan_layers, "nowhere.npz", 2)

    def test_work_that_ranks_have_anyway_counts(self):
        plan = ek.plan([100, 100], 2, base_load=[100, 0], min_segment=1, imbalance_threshold=0)
        self.assertEqual(plan.rank_loads.tolist(), [50, 150])

    def test_no_rank_borrows_more_than_its_slots(self):
        plan = ek.plan(
            [100, 100, 100, 100, 0, 0], 3, planner="level", min_segment=1, imbalance_threshold=0, borrow_slots=1
        )
        self.assertEqual(plan.rank_loads.tolist(), [150, 150, 100])

    def test_refuses_what_is_out_of_range(self):
        for named, message in [
            ({"planner": "best"}, "planner: 'best'; allowed: ep, least-loaded, level"),
            ({"capacity_factor": 0.5}, "capacity_factor"),
            ({"capacity_factor": 1.0005}, "at most three decimals"),
            ({"imbalance_threshold": float("nan")}, "imbalance_threshold"),
            ({"min_segment": -1}, "min_segment: -1"),
            ({"min_segment": 1.5}, "min_segment: 1.5; allowed: a whole number"),
            ({"ranks": 0}, "ranks: 0"),
            ({"borrow_slots": -1}, "borrow_slots: -1"),
            ({"planner": "least-loaded", "borrow_slots": 1}, "borrow_slots"),
            ({"base_load": [1]}, "base_load"),
            ({"placement": ek.Placement([[0, 1, 1]])}, "placement: is for 3 experts on 2 ranks"),
        ]:
            with self.subTest(message=message):
                self.assert_raises(ek.InvalidArgument, message, ek.plan, [5, 6], **({"ranks": 2} | named))
        self.assert_raises(ek.InvalidArgument, "ranks: is missing, and loads by expert", ek.plan, [5, 6])
        self.assert_raises(ek.InvalidArgument, "-1", ek.plan, [5, -1], 2)
