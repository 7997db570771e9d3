"""compare() gives what the command gives, for files and objects, with arrays over the steps.

The figures themselves are tested for the command and the library.
"""

import csv
import importlib.util
import json
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
from support import COMMAND, TRACE, PackageTest, write_sparse_trace

import evenkeel as ek

EARLY = TRACE.with_name("routing_step50.npz")
COUNTS = TRACE.with_name("train_counts.npz")
CONFIG = TRACE.with_name("config.json")
USUAL = ["ep", "eplb", "moetuner", "robust", "llep", "level", "slots", "all"]


class CompareTest(PackageTest):
    def cost(self):
        path = self.folder / "cost.json"
        rates = {"flops_per_second": 3e11, "weight_bytes_per_second": 1e10, "link_bytes_per_second": 2e9}
        path.write_text(json.dumps({"format": "evenkeel.cost.v1", **rates, "chunk_seconds": 1e-5}))
        return path


class Compare(CompareTest):
    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_says_the_same_as_the_command(self):
        model, bare, cost = {"model": CONFIG}, self.folder / "bare.npy", self.cost()
        np.save(bare, np.random.default_rng(2).integers(0, 40, (30, 8, 32)))
        for files, words, named in [
            ([TRACE], ["--ranks", 8], {"ranks": 8}),
            ([EARLY, TRACE], ["--ranks", 64, "--nodes", 2], {"ranks": 64, "nodes": 2}),
            ([TRACE], ["--ranks", 8, "--model", CONFIG, "--device", "h200", "--backward", "--expert-bytes", 9999],
             {"ranks": 8, "device": "h200", "backward": True, "expert_bytes": 9999, **model}),
            ([TRACE], ["--topology", "2x4xh100", "--model", CONFIG, "--budget", "1MiB", "--methods", "level-links,all"],
             {"topology": "2x4xh100", "budget": "1MiB", "methods": ["level-links", "all"], **model}),
            ([TRACE], ["--ranks", 8, "--nodes", 2, "--model", CONFIG, "--cost", cost, "--step-tokens", 2048],
             {"ranks": 8, "nodes": 2, "cost": cost, "step_tokens": 2048, **model}),
            ([TRACE], ["--ranks", 8, "--place-from", EARLY, "--place-every", 7, "--methods", "eplb:16+level", "--model", CONFIG],
             {"ranks": 8, "place_from": EARLY, "place_every": 7, "methods": "eplb:16+level", **model}),
            ([COUNTS], ["--ranks", 8, "--top-k", 4, "--methods", "llep", "--min-segment", 64, "--capacity-factor", 1.1,
                        "--imbalance-threshold", 1.05],
             {"ranks": 8, "top_k": 4, "methods": "llep", "min_segment": 64, "capacity_factor": 1.1,
              "imbalance_threshold": 1.05}),
            ([bare], ["--ranks", 8, "--axes", "steps,layers,experts", "--moe-layers", "2-9"],
             {"ranks": 8, "axes": "steps,layers,experts", "layers": range(2, 10)}),
        ]:  # fmt: skip
            with self.subTest(words=words):
                table = self.folder / "steps.csv"
                command = [COMMAND, "compare", *map(str, [*files, *words, "--json", "--csv", table])]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                said = ek.compare(files, **named)
                self.assertEqual(json.loads(said.to_json()), json.loads(done.stdout))
                self.assertEqual(said.figures, json.loads(done.stdout))
                self.assert_has_columns(said, table)

    def assert_has_columns(self, said, table):
        with table.open(newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(list(said.steps), list(dict.fromkeys(row["method"] for row in rows)))
        for method, columns in said.steps.items():
            mine = [row for row in rows if row["method"] == method]
            self.assertEqual([*columns, "method"], [*(key for key in rows[0] if key != "method"), "method"])
            for name, values in columns.items():
                np.testing.assert_array_equal(values, [float(row[name] or "nan") for row in mine], name)

    @unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
    def test_as_a_text_is_what_the_command_prints(self):
        done = subprocess.run([COMMAND, "compare", TRACE, "--ranks", "8"], capture_output=True, text=True, check=True)
        self.assertEqual(str(ek.compare(TRACE, 8)), done.stdout)

    def test_has_an_array_over_the_steps_for_every_method_and_column(self):
        said = ek.compare(TRACE, 8, model=CONFIG)
        self.assertEqual([method["name"] for method in said.methods], USUAL)
        self.assertEqual(said.notes, said.figures["notes"])
        for method in said.methods:
            columns = said.steps[method["name"]]
            np.testing.assert_array_equal(columns["step"], np.arange(20, 40))
            self.assertEqual(
                {columns[name].dtype for name in ("step", "transfers", "peak_bytes", "chunks")}, {np.dtype("int64")}
            )
            self.assertAlmostEqual(columns["max_over_mean"].mean(), method["max_over_mean"]["mean"], places=12)
            self.assertEqual(columns["peak_bytes"].max(), method["peak_bytes"])
            self.assertTrue(np.isnan(columns["seconds"]).all())

    def test_profiles_are_steps(self):
        counts = np.load(COUNTS)["counts"][:60]
        np.savez(self.folder / "c.npz", counts=counts)
        of_file = ek.compare(self.folder / "c.npz", 8, methods="eplb,level")
        of_profiles = ek.compare([ek.RoutingProfile(loads=step) for step in counts], 8, methods="eplb,level")
        self.assertEqual(of_profiles.methods, of_file.methods)
        self.assertEqual(of_profiles.figures["placed_on"], "steps 0-29 of 60 recordings")
        one = ek.compare(ek.RoutingProfile(TRACE), 8)
        self.assertTrue(one.figures["same_data"])
        self.assertEqual(one.figures["judged_on"], "step 0 of recording 0")
        placed = ek.compare(TRACE, 8, place_from=ek.RoutingProfile(EARLY))
        self.assertEqual(placed.figures["placed_on"], "place_from 0")

    def test_refuses_what_cannot_be_and_names_the_argument(self):
        profile = ek.RoutingProfile(loads=[[1, 2, 3, 4]])
        for named, error, message in [
            ({"recordings": []}, ek.InvalidArgument, "recordings: is an empty list"),
            ({"recordings": [profile, 3]}, ek.InvalidArgument, "recordings: is a int"),
            ({"recordings": [profile, ek.RoutingProfile(loads=[[1, 2]])]}, ek.InvalidArgument,
             "recordings: recording 1 has 1 layers of 2 experts, but recording 0 has 1 layers of 4 experts"),
            ({"recordings": profile, "num_experts": 4}, ek.InvalidArgument, "num_experts: applies only to files"),
            ({"recordings": self.folder / "none.npz"}, ek.ParseError, "none.npz: cannot be opened"),
            ({"ranks": None}, ek.InvalidArgument, "ranks: is missing, and so is topology"),
            ({"ranks": 0}, ek.InvalidArgument, "ranks: 0; allowed: 1..65536"),
            ({"ranks": 8, "nodes": 3}, ek.InvalidArgument, "nodes: 8 ranks do not divide evenly"),
            ({"topology": "4xh100"}, ek.InvalidArgument, "ranks: 8, but 4xh100 has 4"),
            ({"methods": "nothing"}, ek.InvalidArgument, "methods: 'nothing' is no part of a method"),
            ({"methods": []}, ek.InvalidArgument, "methods: is empty"),
            ({"methods": ["ep", 3]}, ek.InvalidArgument, "methods: is a int"),
            ({"methods": "fsdp"}, ek.InvalidArgument, "methods: fsdp needs sizes and rates"),
            ({"budget": "1GiB"}, ek.InvalidArgument, "budget: needs model"),
            ({"budget": "many", "model": CONFIG}, ek.InvalidArgument, "budget: \"many\" is not a size"),
            ({"budget": 1000, "model": CONFIG}, ek.BudgetTooSmall, "budget 1000 B is below the least"),
            ({"device": "h100"}, ek.InvalidArgument, "device: needs model"),
            ({"device": "toaster", "model": CONFIG}, ek.InvalidArgument, "device: there is no device 'toaster'"),
            ({"device": "h100", "cost": "c.json", "model": CONFIG}, ek.InvalidArgument, "device: is already given by"),
            ({"expert_bytes": 0, "model": CONFIG}, ek.InvalidArgument, "expert_bytes: 0; allowed: 1.."),
            ({"backward": "yes"}, ek.InvalidArgument, "backward: is a str; allowed: a bool"),
            ({"place_from": profile}, ek.InvalidArgument, "place_from: place_from 0 has 1 layer"),
            ({"place_every": 20}, ek.InvalidArgument, "place_every: 20, but the number of steps judged is 20"),
            ({"place_every": 0}, ek.InvalidArgument, "place_every: 0; allowed: 1.."),
            ({"step_tokens": 10**9}, ek.InvalidArgument, "step_tokens: 1000000000, but "),
            ({"top_k": 5}, ek.InvalidArgument, "top_k: 5, but "),
            ({"capacity_factor": 0.5}, ek.InvalidArgument, "capacity_factor: "),
            ({"methods": "eplb:4096"}, ek.Infeasible, "4096 redundant experts: a rank would hold an expert twice"),
            ({"as_": "profile"}, ek.InvalidArgument, "as_: 'profile'"),
        ]:  # fmt: skip
            with self.subTest(message=message):
                self.assert_raises(error, message, ek.compare, **{"recordings": TRACE, "ranks": 8} | named)

    def test_ctrl_c_ends_it(self):
        write_sparse_trace(self.folder / "long.npy", 30_000_000)
        named = {"axes": "tokens,layers,k", "num_experts": 64}
        self.assert_interrupted(ek.compare, self.folder / "long.npy", 8, **named)


class Frame(CompareTest):
    def test_without_pandas_it_is_said_how_to_get_it(self):
        said = ek.compare(TRACE, 8, methods="level")
        with mock.patch.dict(sys.modules, {"pandas": None}):
            self.assert_raises(
                ek.Unsupported, "to_frame() needs pandas, which is not installed: pip install pandas", said.to_frame
            )

    @unittest.skipUnless(importlib.util.find_spec("pandas"), "pandas is not installed")
    def test_has_a_row_for_each_step_and_method(self):
        said = ek.compare(TRACE, 8, methods="slots,level")
        frame = said.to_frame()
        self.assertEqual(frame.index.names, ["step", "method"])
        self.assertEqual(list(frame.index[:4]), [(20, "ep"), (20, "slots"), (20, "level"), (21, "ep")])
        for method, columns in said.steps.items():
            part = frame.xs(method, level="method")
            for name in frame.columns:
                np.testing.assert_array_equal(part[name], columns[name], name)


if __name__ == "__main__":
    unittest.main()
