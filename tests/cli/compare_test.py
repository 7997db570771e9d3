"""evenkeel compare: its keys, the effect of each option, the tables and the CSV, and refusals.

Planners, placements and memory are tested in the library; these tests cover options and output of a comparison.
"""

import csv
import json
import random
import unittest
import zipfile

from command import REPOSITORY, CommandTest, npy, npz

EXPERTS, LAYERS, TOP_K, RANKS = 8, 3, 2, 4
RESULT = [
    "ranks", "nodes", "ep_ranks", "groups", "layers", "num_experts", "top_k", "steps", "tokens_per_step",
    "assignments_per_step", "backward", "budget", "placed_on", "judged_on", "same_data", "independent_parts",
    "methods", "notes",
]  # fmt: skip
METHOD = [
    "name", "what", "max_over_mean", "step_ms", "parts_ms", "speedup", "share_of_ideal", "rows",
    "bytes_within_nodes", "bytes_between_nodes", "worst_pair", "transfers", "weight_bytes", "copy_bytes", "moved_bytes",
    "peak_bytes", "steps_over_budget", "chunks", "recomputed_fraction", "verdict",
]  # fmt: skip
SPREAD = ["mean", "median", "p95", "p99", "worst"]
COLUMNS = [
    "step", "method", "max_over_mean", "seconds", "rows", "bytes_within_nodes", "bytes_between_nodes", "weight_bytes",
    "moved_bytes", "transfers", "peak_bytes", "chunks", "recomputed_fraction", "layers_as_planned",
    "layers_given_up", "load_least", "load_median", "load_p95", "load_most",
]  # fmt: skip
OF_A_MODEL = [
    "rows",
    "bytes_within_nodes",
    "bytes_between_nodes",
    "worst_pair",
    "weight_bytes",
    "moved_bytes",
    "peak_bytes",
]
USUAL = ["ep", "eplb", "moetuner", "robust", "llep", "level", "slots", "all"]
MODEL = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": LAYERS,
    "vocab_size": 100, "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": EXPERTS,
    "num_experts_per_tok": TOP_K, "dtype": "bfloat16",
}  # fmt: skip
COST = {
    "format": "evenkeel.cost.v2", "flops_per_second": 1e12, "inner_half": 0, "weight_bytes_per_second": 1e11,
    "overlap": 0.5, "products_seconds": 0, "link_bytes_per_second": 4e9, "link_seconds": 0,
    "nic_bytes_per_second": 1e9, "nic_seconds": 0, "ranks_per_nic": 1, "ramp_bytes": 0, "chunk_seconds": 1e-6,
}  # fmt: skip
TOPOLOGY = {
    "format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2,
    "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 50},
}  # fmt: skip
SEQUENCES = REPOSITORY / "data" / "tiny-moe" / "routing_step1563.npz"
TRAINED = REPOSITORY / "data" / "tiny-moe" / "train_counts.npz"


def drawn_ids(seed, tokens, layers=LAYERS, top_k=TOP_K, experts=EXPERTS):
    """[tokens, layers, top_k]: distinct experts, of which the first are hotter."""
    draw, hot = random.Random(seed), [1 / (1 + expert) for expert in range(experts)]
    ids = []
    for _ in range(tokens * layers):
        chosen = []
        while len(chosen) < top_k:
            [expert] = draw.choices(range(experts), hot)
            if expert not in chosen:
                chosen.append(expert)
        ids += chosen
    return ids


class CompareTest(CommandTest):
    def trace(self, name="t.npz", tokens=400, layers=LAYERS, top_k=TOP_K, seed=1, length=10, mirrored=False):
        """An npz of sequences of `length` tokens, or without sequences. If mirrored, the last experts are hotter."""
        ids = [EXPERTS - 1 - expert if mirrored else expert for expert in drawn_ids(seed, tokens, layers, top_k)]
        with zipfile.ZipFile(self.folder / name, "w") as archive:
            archive.writestr("topk_ids.npy", npy([tokens, layers, top_k], ids))
            if length:
                starts = list(range(0, tokens + 1, length))
                archive.writestr("sequence_offsets.npy", npy([len(starts)], starts))
        return name

    def loads(self, name="c.npz", steps=40, layers=LAYERS, experts=EXPERTS, seed=2):
        draw = random.Random(seed)
        values = [draw.randrange(1, 100) for _ in range(steps * layers * experts)]
        (self.folder / name).write_bytes(npz("counts", [steps, layers, experts], values))
        return name

    def machine(self, *more):
        """Options that make seconds and bytes known."""
        self.write("config.json", MODEL)
        self.write("cost.json", COST)
        return ["--model", "config.json", "--cost", "cost.json", *more]

    def compare(self, *words):
        """Returns the object on stdout; checks that stderr has the same notes."""
        done = self.call("compare", *words, "--num-experts", EXPERTS, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(done.stderr.splitlines(), [f"note: {note}" for note in result["notes"]])
        return result

    def refused(self, words, message, status=2, kind="InvalidArgument"):
        words = [*words, *([] if "--num-experts" in words else ["--num-experts", EXPERTS])]
        error = self.assert_refused(["compare", *words], status, kind)
        self.assertEqual(error["message"], message)

    def methods(self, result):
        return {each["name"]: each for each in result["methods"]}

    def rows(self, name):
        with (self.folder / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


class Told(CompareTest):
    def test_prints_exactly_the_promised_keys_and_null_for_what_nothing_says(self):
        result = self.compare(self.trace(), "--ranks", RANKS)
        self.assertEqual(list(result), RESULT)
        self.assertEqual({key: result[key] for key in RESULT[:12]}, {
            "ranks": RANKS, "nodes": 1, "ep_ranks": RANKS, "groups": 1, "layers": [0, 1, 2], "num_experts": EXPERTS,
            "top_k": TOP_K, "steps": 20, "tokens_per_step": 10, "assignments_per_step": 20, "backward": False,
            "budget": None,
        })  # fmt: skip
        self.assertEqual(list(self.methods(result)), USUAL)
        for method in result["methods"]:
            self.assertEqual(list(method), METHOD)
            self.assertEqual(list(method["max_over_mean"]), SPREAD)
            self.assertEqual(list(method["verdict"]), ["answer", "sentence", "break_even_tokens"])
            for key in [*OF_A_MODEL, "step_ms", "steps_over_budget"]:
                self.assertIsNone(method[key], key)
            self.assertIsNone(method["verdict"]["break_even_tokens"])
            self.assertIsInstance(method["verdict"]["sentence"], str)
        self.assertEqual(result["methods"][0]["verdict"]["answer"], "is_reference")
        self.assertEqual(result["methods"][0]["speedup"], 1)

    def test_a_model_says_bytes_a_machine_seconds_and_a_budget_what_does_not_fit(self):
        self.trace()
        bytes_known = self.compare("t.npz", "--ranks", RANKS, *self.machine()[:2])
        for method in bytes_known["methods"]:
            self.assertIsNone(method["step_ms"])
            self.assertIsNone(method["parts_ms"])
            for key in OF_A_MODEL:
                self.assertIsNotNone(method[key], key)
            self.assertEqual(list(method["worst_pair"]), ["from", "to", "bytes"])
        timed = self.compare("t.npz", "--ranks", RANKS, *self.machine("--budget", "64KiB"))
        self.assertEqual(timed["budget"], 65536)
        self.assertEqual(list(self.methods(timed)), ["ep", "fsdp", *USUAL[1:-1], "memfine", "all"])
        for method in timed["methods"]:
            self.assertEqual(list(method["step_ms"]), SPREAD)
            beside = sum(ms for phase, ms in method["parts_ms"].items() if phase != "weights")
            self.assertAlmostEqual(beside, method["step_ms"]["mean"], delta=1e-6 * beside)
            self.assertIsInstance(method["steps_over_budget"], int)

    def test_plain_ep_is_as_counted_from_the_ids_alone(self):
        self.trace(length=0)
        result = self.compare("t.npz", "--ranks", RANKS, "--step-tokens", 40, "--methods", "ep", "--csv", "s.csv")
        ids, level = drawn_ids(1, 400), []
        for step in range(5, 10):
            layers = []
            for layer in range(LAYERS):
                loads = [0] * RANKS
                for token in range(40 * step, 40 * step + 40):
                    for i in range(TOP_K):
                        loads[ids[(token * LAYERS + layer) * TOP_K + i] * RANKS // EXPERTS] += 1
                layers.append(max(loads) * RANKS / sum(loads))
            level.append(sum(layers) / LAYERS)
        for row, expected in zip(self.rows("s.csv"), level, strict=True):
            self.assertAlmostEqual(float(row["max_over_mean"]), expected, places=12)
        spread = result["methods"][0]["max_over_mean"]
        self.assertAlmostEqual(spread["mean"], sum(level) / 5, places=12)
        self.assertAlmostEqual(spread["median"], sorted(level)[2], places=12)
        self.assertAlmostEqual(spread["worst"], max(level), places=12)

    def test_the_csv_has_a_row_for_every_step_and_method_whose_means_are_the_figures(self):
        self.trace()
        words = ["--ranks", RANKS, "--nodes", 2, *self.machine("--budget", "64KiB", "--backward")]
        result = self.compare("t.npz", *words, "--csv", "s.csv")
        rows = self.rows("s.csv")
        self.assertEqual(list(rows[0]), COLUMNS)
        names = list(self.methods(result))
        self.assertEqual([(row["step"], row["method"]) for row in rows],
                         [(str(step), name) for step in range(20, 40) for name in names])  # fmt: skip
        for name, method in self.methods(result).items():
            column = {key: [float(row[key]) for row in rows if row["method"] == name] for key in COLUMNS[2:]}
            mean = {key: sum(values) / len(values) for key, values in column.items()}
            for key, expected in [
                ("max_over_mean", method["max_over_mean"]["mean"]), ("seconds", method["step_ms"]["mean"] / 1e3),
                *[(key, method[key]) for key in ("bytes_within_nodes", "bytes_between_nodes", "weight_bytes",
                                                 "moved_bytes", "transfers", "recomputed_fraction")],
            ]:  # fmt: skip
                self.assertAlmostEqual(mean[key], expected, delta=1e-9 * max(1, abs(expected)), msg=f"{name} {key}")
            self.assertEqual(max(column["peak_bytes"]), method["peak_bytes"])
            self.assertEqual(max(column["chunks"]), method["chunks"])
            self.assertEqual(sum(peak > 65536 for peak in column["peak_bytes"]), method["steps_over_budget"])
        for row in rows:
            loads = [float(row[key]) for key in COLUMNS[-4:]]
            self.assertEqual(loads, sorted(loads))

    def test_the_csv_leaves_empty_what_is_not_known(self):
        self.compare(self.trace(), "--ranks", RANKS, "--csv", "s.csv")
        empty = [
            "seconds",
            "rows",
            "bytes_within_nodes",
            "bytes_between_nodes",
            "weight_bytes",
            "moved_bytes",
            "peak_bytes",
        ]
        for row in self.rows("s.csv"):
            self.assertEqual([key for key in COLUMNS if row[key] == ""], empty)

    def test_tables_are_at_most_100_columns_wide_also_of_long_names_and_large_sizes(self):
        self.write("large.json", MODEL | {"hidden_size": 1 << 20, "intermediate_size": 1 << 20})
        self.write("cost.json", COST)
        self.trace()
        long = "moetuner+level+budget,contiguous+llep+memfine,robust+best+budget"
        for words in [
            [], ["--methods", long, "--budget", "900TiB"], ["--methods", long, "--budget", "900TiB", "--backward"],
        ]:  # fmt: skip
            done = self.call("compare", "t.npz", "--ranks", RANKS, "--nodes", 2, "--model", "large.json", "--cost",
                             "cost.json", "--num-experts", EXPERTS, *words)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            tables = [line for line in done.stdout.split("\n\n", 1)[1].splitlines() if line[:2] == "  " != line[2:4]]
            self.assertGreater(len(tables), 8)
            self.assertLessEqual(max(map(len, tables)), 100, done.stdout)

    def test_names_that_tables_cut_stand_in_full_below_them(self):
        self.trace()
        self.write("topology.json", TOPOLOGY)
        done = self.call("compare", "t.npz", "--topology", "topology.json", *self.machine(), "--methods",
                         "contiguous+level-links")  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\n  contiguous+level-…  ", done.stdout)
        self.assertIn("\ncontiguous+level-links: experts in order; each step's excess moves where", done.stdout)


class Split(CompareTest):
    def judged(self, *words):
        result = self.compare(*words)
        return {key: result[key] for key in ("placed_on", "judged_on", "same_data", "steps")}

    def test_the_first_half_places_and_the_second_is_judged(self):
        self.assertEqual(self.judged(self.trace(), "--ranks", RANKS), {
            "placed_on": "steps 0-19 of t.npz", "judged_on": "steps 20-39 of t.npz", "same_data": False, "steps": 20,
        })  # fmt: skip

    def test_of_one_step_alone_both_are_that_one_and_it_is_said(self):
        self.assertEqual(self.judged(self.trace(), "--ranks", RANKS, "--step-tokens", 400), {
            "placed_on": "the same data, so placements look better than they are", "judged_on": "step 0 of t.npz",
            "same_data": True, "steps": 1,
        })  # fmt: skip

    def test_with_a_recording_to_place_from_all_steps_are_judged(self):
        self.trace(), self.trace("other.npz", mirrored=True)
        self.assertEqual(self.judged("t.npz", "--ranks", RANKS, "--place-from", "other.npz"), {
            "placed_on": "other.npz", "judged_on": "steps 0-39 of t.npz", "same_data": False, "steps": 40,
        })  # fmt: skip
        placed = self.methods(self.compare("t.npz", "--ranks", RANKS, "--place-from", "t.npz"))
        other = self.methods(self.compare("t.npz", "--ranks", RANKS, "--place-from", "other.npz"))
        self.assertLess(placed["eplb"]["max_over_mean"]["mean"], other["eplb"]["max_over_mean"]["mean"])
        self.assertEqual(placed["level"], other["level"])

    def test_experts_may_be_placed_anew_and_what_moves_is_counted(self):
        self.trace()
        words = ["t.npz", "--ranks", RANKS, *self.machine(), "--methods", "eplb:4,level"]
        result = self.compare(*words, "--place-every", 5, "--csv", "s.csv")
        self.assertEqual(result["placed_on"], "steps 0-19 of t.npz; with @5 made anew after every 5 steps, from these")
        moved = [float(row["moved_bytes"]) for row in self.rows("s.csv") if row["method"] == "eplb:4@5"]
        for step, each in enumerate(moved):
            (self.assertGreater if step in (5, 10, 15) else self.assertEqual)(each, 0, step)
        self.assertEqual(list(self.methods(result)), ["ep", "eplb:4", "eplb:4@5", "level"])
        for name in ["eplb:4", "level"]:
            self.assertEqual(self.methods(result)[name]["moved_bytes"], 0)
        self.trace("other.npz", seed=7)
        both = self.compare(*words, "--place-every", 5, "--place-from", "other.npz")
        self.assertEqual(both["placed_on"], "other.npz; with @5 made anew after every 5 steps, from these")

    def test_several_traces_are_one_behind_the_other(self):
        self.trace(), self.trace("u.npz", seed=9)
        self.assertEqual(self.judged("t.npz", "u.npz", "--ranks", RANKS), {
            "placed_on": "steps 0-39 of 2 recordings", "judged_on": "steps 40-79 of 2 recordings", "same_data": False,
            "steps": 40,
        })  # fmt: skip
        second = self.methods(self.compare("u.npz", "--ranks", RANKS, "--place-from", "t.npz"))
        self.assertEqual(self.methods(self.compare("t.npz", "u.npz", "--ranks", RANKS)), second)

    def test_steps_of_a_trace_are_forty_batches_of_whole_sequences_or_windows_of_so_many_tokens(self):
        self.trace(tokens=1000, length=5)
        result = self.compare("t.npz", "--ranks", RANKS)
        self.assertEqual((result["steps"], result["tokens_per_step"], result["independent_parts"]), (20, 25, 100))
        result = self.compare("t.npz", "--ranks", RANKS, "--step-tokens", 300)
        self.assertEqual((result["judged_on"], result["tokens_per_step"]), ("steps 1-2 of t.npz", 300))
        result = self.compare(self.trace("flat.npz", length=0), "--ranks", RANKS)
        self.assertEqual((result["steps"], result["independent_parts"]), (20, 1))
        self.assertEqual(self.methods(result)["level"]["verdict"]["answer"], "not_enough_data")

    def test_the_first_experts_of_a_token_are_asked_for_by_top_k(self):
        self.trace()
        ids = drawn_ids(1, 400)
        (self.folder / "first.npz").write_bytes(npz("topk_ids", [400, LAYERS, 1], ids[::TOP_K]))
        first = self.compare("first.npz", "--ranks", RANKS)
        cut = self.compare("t.npz", "--ranks", RANKS, "--top-k", 1, "--step-tokens", 10)
        self.assertEqual(cut["top_k"], 1)
        self.assertEqual(self.methods(first)["level"]["max_over_mean"], self.methods(cut)["level"]["max_over_mean"])


class Loads(CompareTest):
    def test_loads_have_steps_of_their_own_and_tokens_once_top_k_is_said(self):
        result = self.compare(self.loads(), "--ranks", RANKS)
        self.assertEqual((result["judged_on"], result["independent_parts"]), ("steps 20-39 of c.npz", 20))
        self.assertEqual((result["top_k"], result["tokens_per_step"]), (None, None))
        with_top_k = self.compare("c.npz", "--ranks", RANKS, "--top-k", 2)
        self.assertEqual((with_top_k["top_k"], with_top_k["assignments_per_step"]), (2, result["assignments_per_step"]))
        self.assertEqual(with_top_k["tokens_per_step"], with_top_k["assignments_per_step"] / 2)

    def test_of_an_array_whose_axes_are_told_as_of_one_with_a_name(self):
        result = self.compare(self.loads(), "--ranks", RANKS)
        draw = random.Random(2)
        values = [draw.randrange(1, 100) for _ in range(40 * LAYERS * EXPERTS)]
        (self.folder / "bare.npy").write_bytes(npy([40, LAYERS, EXPERTS], values))
        with_axes = self.json("compare", "bare.npy", "--axes", "steps,layers,experts", "--ranks", RANKS)
        self.assertEqual(with_axes["methods"], result["methods"])

    def test_of_a_training_run_s_counts(self):
        result = self.json("compare", TRAINED, "--ranks", 8, "--methods", "eplb,level")
        self.assertEqual((result["steps"], len(result["layers"]), result["num_experts"]), (782, 8, 32))
        self.assertEqual([each["verdict"]["answer"] for each in result["methods"]], ["is_reference", "pays", "pays"])

    def test_of_one_file_of_counts_alone_one_step_is_judged_on_itself(self):
        self.write("s.json", {"logical_count": [[1, 2, 3, 4, 5, 6, 7, 8]] * LAYERS})
        result = self.compare("s.json", "--ranks", RANKS)
        self.assertEqual((result["steps"], result["same_data"]), (1, True))


class Machines(CompareTest):
    def test_more_ranks_than_experts_are_groups_side_by_side(self):
        result = self.json("compare", SEQUENCES, "--ranks", 64)
        self.assertEqual((result["ranks"], result["ep_ranks"], result["groups"]), (64, 32, 2))
        done = self.call("compare", SEQUENCES, "--ranks", 64)
        self.assertIn("\n2 groups of expert parallelism, of 32 ranks each\n", done.stdout)

    def test_one_rank_and_one_expert_are_compared_as_others(self):
        result = self.compare(self.trace(), "--ranks", 1)
        self.assertEqual({each["max_over_mean"]["worst"] for each in result["methods"]}, {1})
        (self.folder / "one.npz").write_bytes(npz("topk_ids", [40, 1, 1], [0] * 40))
        result = self.json("compare", "one.npz", "--ranks", 2)
        self.assertEqual((result["ep_ranks"], result["groups"]), (1, 2))

    def test_links_of_nodes_are_planned_by_where_they_differ(self):
        self.write("topology.json", TOPOLOGY)
        result = self.compare(self.trace(), "--topology", "topology.json", *self.machine())
        self.assertIn("level-links", self.methods(result))
        self.write("groups.json", TOPOLOGY | {"devices_per_rank": 2})
        result = self.compare("t.npz", "--topology", "groups.json", *self.machine())
        self.assertNotIn("level-links", self.methods(result))

    def test_links_that_a_topology_does_not_say_are_those_of_the_file_of_costs(self):
        self.write("topology.json", {key: TOPOLOGY[key] for key in ("format", "num_nodes", "ranks_per_node")})
        result = self.compare(self.trace(), "--topology", "topology.json", *self.machine())
        self.assertEqual(result, self.compare("t.npz", "--ranks", RANKS, "--nodes", 2, *self.machine()))

    def test_a_device_s_rates_are_assumed_and_said(self):
        self.trace()
        result = self.compare("t.npz", "--ranks", RANKS, *self.machine()[:2], "--device", "h100")
        self.assertTrue(result["notes"][0].startswith("h100 (H100 SXM): assumes 50 % of the datasheet's compute"))
        preset = self.compare("t.npz", "--topology", "4xh100", *self.machine()[:2])
        self.assertEqual(preset["notes"][0], result["notes"][0])

    def test_backward_takes_longer_and_has_no_slots(self):
        self.trace()
        forward, both = (self.compare("t.npz", "--ranks", RANKS, *self.machine(*more)) for more in ([], ["--backward"]))
        self.assertTrue(both["backward"])
        self.assertNotIn("slots", self.methods(both))
        for name, method in self.methods(both).items():
            self.assertGreater(method["step_ms"]["mean"], 1.9 * self.methods(forward)[name]["step_ms"]["mean"], name)

    def test_a_budget_is_kept_by_the_methods_that_are_about_it(self):
        self.trace()
        words = ["t.npz", "--ranks", RANKS, "--step-tokens", 40, *self.machine("--budget", "9KiB")]
        result = self.methods(self.compare(*words, "--methods", "memfine,level+budget,level"))
        self.assertEqual(result["level+budget"]["steps_over_budget"], 0)
        self.assertGreater(result["level"]["steps_over_budget"], 0)


class Methods(CompareTest):
    def test_usual_names_and_combinations_stand_in_the_order_asked_for_behind_plain_ep(self):
        result = self.compare(self.trace(), "--ranks", RANKS, "--methods", "slots,eplb:8+level,ep,all,joint+llep")
        self.assertEqual(list(self.methods(result)), ["ep", "slots", "eplb:8+level", "all", "joint+llep"])
        what = {name: method["what"] for name, method in self.methods(result).items()}
        self.assertEqual(
            what["eplb:8+level"], "8 copies of popular experts; each step's excess moves until ranks are level"
        )
        self.assertEqual(what["slots"], "experts in order; 2 borrowed experts a rank stay from step to step")

    def test_parts_may_be_in_any_order(self):
        self.trace()
        one, other = (
            self.compare("t.npz", "--ranks", RANKS, "--methods", name)["methods"][1]
            for name in ("eplb:4+level", "level+eplb:4")
        )
        self.assertEqual({**one, "name": ""}, {**other, "name": ""})

    def test_planners_are_given_their_parameters(self):
        self.trace()
        words = ["t.npz", "--ranks", RANKS, "--methods", "llep", "--min-segment", 1]
        always = self.compare(*words, "--imbalance-threshold", 0)["methods"][1]
        never = self.compare(*words, "--imbalance-threshold", 1000)["methods"][1]
        self.assertGreater(always["transfers"], 0)
        self.assertEqual(never["transfers"], 0)
        self.assertEqual(never["verdict"]["sentence"], "changes nothing here")


class Refusals(CompareTest):
    def setUp(self):
        super().setUp()
        self.here = [self.trace(), "--ranks", RANKS]

    def test_methods_that_are_none(self):
        parts = ("homes (contiguous, eplb:R, moetuner, joint or joint:R, robust or robust:R), a step (ep, llep, level, "
                 "level-links, slots:S, best), memory (memfine, budget), two-levels and node-sums joined by +, or fsdp, or all")  # fmt: skip
        for given, why in [
            ("nothing", "'nothing' is no part of a method"),
            ("ep,", "'' is no part of a method"),
            ("nothing+ep", "'nothing+ep': 'nothing' is no part of a method"),
            ("ep+llep", "'ep+llep': 'llep' does not go with an earlier part of the same kind"),
            ("ep+ep", "'ep+ep': 'ep' does not go with an earlier part of the same kind"),
            ("joint+robust", "'joint+robust': 'robust' does not go with an earlier part of the same kind"),
            ("eplb+ep", "'eplb+ep': 'eplb' needs a number, as in eplb:8"),
            ("fsdp+ep", "'fsdp+ep': 'fsdp' cannot be combined with other parts"),
            ("slots:70000", "'slots:70000' needs a whole number in 1..65536"),
            ("eplb:0", "'eplb:0' needs a whole number in 1..65536"),
            ("eplb:-4", "'eplb:-4' needs a whole number in 1..65536"),
            ("memfine:2", "'memfine:2' takes no number"),
        ]:
            with self.subTest(given):
                error = self.assert_refused(["compare", *self.here, "--methods", given], 2, "InvalidArgument")
                self.assertEqual((error["argument"], error["why"], error["allowed"]), ("--methods", why, parts))

    def test_methods_that_the_set_up_cannot_carry_out(self):
        for given, message in [
            ("ep,ep", "'ep' twice; allowed: each method once"),
            ("fsdp", "fsdp needs sizes and rates; allowed: fsdp with a model and a machine, or other methods"),
            ("best", "best needs sizes and rates to predict times; allowed: level, or best with a model and a machine"),
            ("memfine", "memfine needs a budget, and a model that gives the sizes of rows; allowed: a budget and a model, "
             "or a method without memfine and budget"),
            ("llep+budget",
             "llep+budget needs a budget, and a model that gives the sizes of rows; allowed: a budget and a model, or a "
             "method without memfine and budget"),
            ("level-links", "level-links, but links are unknown or all alike; allowed: level, or a "
                            "topology whose links within nodes and across differ"),
            ("slots:9", "slots:9, but there are 8 experts; allowed: 1..8 slots"),
            ("eplb:4+slots:2", "eplb:4+slots:2, but slots need one home for each expert; allowed: slots with a "
                               "placement that makes no copies"),
        ]:  # fmt: skip
            with self.subTest(given):
                self.refused([*self.here, "--methods", given], f"--methods: {message}")
        self.refused([*self.here, "--backward", "--methods", "slots:2"], "--methods: slots:2, but weights change in "
                     "training; allowed: level, or steps without backward")  # fmt: skip
        self.refused([*self.here, "--methods", "eplb:28"], "28 redundant experts: a rank would hold an expert twice, "
                     "which a placement cannot express; at most 24 fit with 8 experts on 4 ranks", 4, "Infeasible")  # fmt: skip

    def test_recordings_without_assignments(self):
        (self.folder / "empty.npz").write_bytes(npz("topk_ids", [0, LAYERS, TOP_K], []))
        self.refused(["empty.npz", "--ranks", RANKS], "empty.npz: has no assignments", 3, "ParseError")
        self.refused([*self.here, "--place-from", "empty.npz"], "empty.npz: has no assignments", 3, "ParseError")
        (self.folder / "padding.npz").write_bytes(npz("topk_ids", [40, 1, 1], [-1] * 40))
        self.refused(["padding.npz", "--ranks", RANKS, "--methods", "level"], "recordings: have no assignments in the "
                     "steps that are judged; allowed: a recording with tokens in these steps", 4)  # fmt: skip
        self.refused(["padding.npz", "--ranks", RANKS], "recordings: have no assignments in the steps that placements "
                     "are made from; allowed: other recordings to place from, or methods without placements", 4)  # fmt: skip
        (self.folder / "zero.npz").write_bytes(npz("counts", [2, 1, EXPERTS], [0] * 16))
        self.refused(
            ["zero.npz", "--ranks", RANKS], "zero.npz: counts: has no assignment in any layer", 3, "ParseError"
        )
        self.refused(["none.npz", "--ranks", RANKS], "none.npz: cannot be opened: No such file or directory", 3,
                     "ParseError")  # fmt: skip

    def test_recordings_of_unlike_models(self):
        self.trace("two.npz", layers=2), self.trace("one.npz", top_k=1), self.loads("wide.npz", experts=16)
        like = "recordings of the same layers and experts"
        rows = "layers without numbers of 8 experts"
        self.refused([*self.here, "two.npz"], f"TRACE: two.npz has 2 {rows}, but t.npz has 3 {rows}; allowed: {like}")
        self.refused([*self.here, "one.npz"], "recordings: one.npz has 3 layers of 8 experts, 1 a token, but t.npz has "
                     "3 layers of 8 experts, 2 a token; allowed: recordings with equal numbers of layers, "
                     "experts and experts a token", 4)  # fmt: skip
        self.refused([*self.here, "--place-from", "two.npz"],
                     f"--place-from: two.npz has 2 {rows}; allowed: 3 {rows}, as t.npz has")  # fmt: skip
        error = self.assert_refused(["compare", *self.here, "--place-from", "wide.npz"], 2, "InvalidArgument")
        self.assertEqual(error["why"], "wide.npz has 3 layers without numbers of 16 experts")

    def test_models_of_other_experts_and_what_needs_one(self):
        for option, value in [("--budget", "1GiB"), ("--device", "h100"), ("--cost", "x"), ("--expert-bytes", "1MiB")]:
            self.refused([*self.here, option, value], f"{option}: needs --model, which says how large experts and rows "
                         "are; allowed: to leave it out")  # fmt: skip
        self.write("wide.json", MODEL | {"num_local_experts": 16})
        error = self.assert_refused(["compare", *self.here, "--num-experts", EXPERTS, "--model", "wide.json"], 2,
                                    "InvalidArgument", "has 16 experts, but the file has 8 experts")  # fmt: skip
        self.assertEqual(error["argument"], "--model")

    def test_a_budget_that_cannot_carry_out_every_routing(self):
        words = [*self.here, "--num-experts", EXPERTS, *self.machine("--budget", "1KiB")]
        error = self.assert_refused(["compare", *words], 4, "BudgetTooSmall", "budget 1.0 KiB is below the least")
        self.assertEqual(error["given"], 1024)
        least = error["least"]
        self.assertEqual(self.call("compare", *words[:-1], least).returncode, 0)
        self.assertEqual(self.call("compare", *words[:-1], least - 1).returncode, 4)

    def test_costs_that_no_machine_has(self):
        self.machine()
        words = [*self.here, "--model", "config.json", "--cost", "bad.json"]
        for key, value, why in [
            ("link_bytes_per_second", -1, "is -1; allowed: 1..1e+30"),
            ("nic_bytes_per_second", 0, "is 0; allowed: 1..1e+30"),
            ("flops_per_second", 1e300, "is 1e+300; allowed: 1..1e+30"),
            ("overlap", "half", "is a JSON string, not a number"),
        ]:
            self.write("bad.json", COST | {key: value})
            self.refused(words, f"bad.json: {key}: {why}", 3, "ParseError")
        self.write("bad.json", COST | {"flops_per_second": float("nan")})
        self.assert_refused(["compare", *words, "--num-experts", EXPERTS], 3, "ParseError", "bad.json: byte")
        self.write("bad.json", COST | {"nic_bytes_per_second": 1})
        message = "--cost: has a link of 1e-09 GB/s and 0 us; allowed: 1e-06..1e+09 GB/s and 0..1e+09 us"
        self.refused(words, message)
        self.refused([*words, "--device", "h100"], "--device: is already given by --cost; allowed: to leave it out")

    def test_machines_that_there_are_none_of(self):
        trace = self.here[0]
        for value in [0, -4, 10**9, "many"]:
            self.refused([trace, "--ranks", value], f"--ranks: '{value}'; allowed: a whole number in 1..65536")
        self.refused(
            [trace], "--ranks: is missing, and so is --topology; allowed: the number of ranks, or --topology instead"
        )
        for link, value in [("within", 0), ("within", 1e300), ("across", -1)]:
            self.write("bad.json", TOPOLOGY | {link: {"gigabytes_per_s": value}})
            self.refused([trace, "--topology", "bad.json"],
                         f"bad.json: {link}.gigabytes_per_s: is {value:g}; allowed: 1e-06..1e+09", 3, "ParseError")  # fmt: skip
        self.write("bad.json", TOPOLOGY | {"speeds": [1, 1, 1, 0.5]})
        self.refused([trace, "--topology", "bad.json"], "--topology: gives speeds, but steps are planned and timed for "
                     "ranks that are alike; allowed: a topology without speeds")  # fmt: skip
        self.write("bad.json", {"format": "evenkeel.topology.v1", "node_of_rank": [0] * 9 + [1] * 7})
        self.refused([trace, "--topology", "bad.json"], "--topology: 16 ranks make 2 groups of expert parallelism of 8 "
                     "ranks, and these groups differ; allowed: the same nodes in each group, and no links, speeds or "
                     "capacities by rank")  # fmt: skip

    def test_options_that_would_have_no_effect(self):
        self.loads()
        no_homes = ("none of the compared methods places experts; allowed: to leave it out, or a method with eplb:R, "
                    "moetuner, joint or robust")  # fmt: skip
        for words, message in [
            (["--place-every", 20], "--place-every: 20, but the number of steps judged is 20; allowed: 1..19"),
            (["--place-every", 1, "--step-tokens", 200], "--place-every: 1, but the number of steps judged is 1; allowed: to leave it out"),
            (["--place-every", 5, "--methods", "level"], f"--place-every: {no_homes}"),
            (["--place-from", "c.npz", "--methods", "level"], f"--place-from: {no_homes}"),
            (["--step-tokens", 401], "--step-tokens: 401, but t.npz has 400 tokens; allowed: 1..400"),
            (["--top-k", 3], "--top-k: 3, but t.npz has 2 experts a token; allowed: 1..2"),
        ]:  # fmt: skip
            self.refused([*self.here, *words], message)
        self.refused(["c.npz", "--ranks", RANKS, "--step-tokens", 10], "--step-tokens: c.npz has loads, already "
                     "divided into steps; allowed: a trace, or to leave it out")  # fmt: skip
        self.refused(["c.npz", "--ranks", RANKS, "--top-k", 9], "--top-k: 9, but c.npz has 8 experts; allowed: 1..8")

    def test_a_csv_that_cannot_be_written_or_is_read(self):
        self.refused([*self.here, "--csv", "none/s.csv"], "none/s.csv: cannot be written: No such file or directory", 4)
        self.refused([*self.here, "--csv", "t.npz"], "--csv: t.npz is a file that is read; allowed: another file")
        self.trace("other.npz")
        self.refused([*self.here, "--place-from", "other.npz", "--csv", "other.npz"],
                     "--csv: other.npz is a file that is read; allowed: another file")  # fmt: skip

    def test_a_timeline_or_sweep_that_says_nothing(self):
        self.refused([*self.here, "--timeline", "t.json"],
                     "--timeline: needs to know how long steps take; allowed: --model, and --cost or --device")  # fmt: skip
        self.refused([*self.here, "--over", "ranks=2,4", "--csv", "s.csv"], "--csv: is for one comparison, not for --over; "
                     "allowed: to leave it out")  # fmt: skip
        self.refused([*self.here, "--over", "size=2"], "--over: 'size=2'; allowed: NAME=VALUE,VALUE,... with one NAME "
                     "of ranks, step-tokens, top-k, budget, link, slots, imbalance-threshold, min-segment")  # fmt: skip
        self.refused([*self.here, "--over", "ranks=2,3.5"], "--over: '3.5'; allowed: a whole number in 1..65536")


if __name__ == "__main__":
    unittest.main()
