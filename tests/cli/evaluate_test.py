"""evenkeel evaluate: its keys, figures recomputed from the files' own rows and counts, the verdict, and refusals."""

import json
import random
import re
import statistics
import unittest

from command import CommandTest, npz
from tensor_files import Tensor, torch_file

EXPERTS, RANKS = 8, 4
CONTIGUOUS = [[0, 1], [2, 3], [4, 5], [6, 7]]
RESULT = [
    "recording", "layers", "max_over_mean_mean", "max_over_mean_worst", "crossing", "crossing_between_nodes", "steps",
]  # fmt: skip
VERDICT = [
    "placement", "against", "answer", "sentence", "max_over_mean_before", "max_over_mean_after", "better_on",
    "recordings", "step_ms_before", "step_ms_after", "moved_experts", "moved_bytes", "move_ms", "break_even_steps",
    "gain", "tokens_needed", "measured_on", "notes",
]  # fmt: skip
OWN, OTHER = "the data it was made from", "data it was not made from"
MIXTRAL = {
    "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 48, "num_hidden_layers": 3, "vocab_size": 100,
    "num_attention_heads": 4, "num_key_value_heads": 4, "num_local_experts": EXPERTS, "num_experts_per_tok": 2,
    "dtype": "bfloat16",
}  # fmt: skip
EXPERT_WEIGHTS = 3 * 64 * 48


def drawn_loads(seed, layers):
    """[layers][EXPERTS], some experts much hotter than others."""
    draw = random.Random(seed)
    return [[int(draw.lognormvariate(4, 1.2)) + 1 for _ in range(EXPERTS)] for _ in range(layers)]


def drawn_steps(seed, count, layers=3):
    """[count][layers][EXPERTS] of experts whose popularity stays, nearly."""
    draw, hot = random.Random(seed), drawn_loads(seed, layers)
    return [[[int(load * draw.uniform(0.8, 1.2)) + 1 for load in layer] for layer in hot] for _ in range(count)]


def by_rank(row):
    """[RANKS] lists of experts: every rank has as many slots, rank after rank."""
    slots = len(row) // RANKS
    return [row[rank * slots : (rank + 1) * slots] for rank in range(RANKS)]


def max_over_mean(ranks, loads):
    """Of one layer: an expert's load is split evenly over all slots that hold it."""
    copies = [sum(held.count(expert) for held in ranks) for expert in range(EXPERTS)]
    sums = [sum(loads[expert] / copies[expert] for expert in held) for held in ranks]
    return max(sums) * len(ranks) / sum(loads)


def step_ratios(layers_of_ranks, steps):
    """Of each step with load, the mean over its layers with load."""
    ratios = []
    for step in steps:
        layers = [max_over_mean(r, loads) for r, loads in zip(layers_of_ranks, step, strict=True) if sum(loads)]
        if layers:
            ratios.append(sum(layers) / len(layers))
    return ratios


def blocks_of(steps):
    return [steps[b * len(steps) // 20 : (b + 1) * len(steps) // 20] for b in range(20)]


def exceeded_by_one_in_twenty(values):
    """The smallest value that 95 % of all do not exceed."""
    return next(v for v in sorted(values) if 100 * sum(other <= v for other in values) >= 95 * len(values))


class PlacedTest(CommandTest):
    """Recordings and placements as files."""

    def file(self, name):
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def counts(self, name, loads, numbers=None):
        """SGLang's counts: a row for every hidden layer, dense ones without load."""
        rows = loads
        if numbers:
            rows = [loads[numbers.index(n)] if n in numbers else [0] * EXPERTS for n in range(numbers[-1] + 1)]
        return self.write(name, {"logical_count": rows})

    def window(self, name, steps):
        """An npz of counts by step."""
        values = [load for step in steps for layer in step for load in layer]
        (self.folder / name).write_bytes(npz("counts", [len(steps), len(steps[0]), EXPERTS], values))
        return name

    def placed(self, recording, name, *words):
        """Rows of slots, from the file that `place` writes."""
        done = self.call("place", recording, "--ranks", RANKS, *words, "-o", name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.file(name)["physical_to_logical"]

    def written(self, name, rows):
        """A placement of ours by hand."""
        return self.write(name, {"format": "evenkeel.placement.v1", "num_layers": len(rows), "num_experts": EXPERTS,
                                 "num_ranks": RANKS, "physical_to_logical": rows})  # fmt: skip

    def evaluate(self, recording, placement, *words):
        return self.json("evaluate", recording, "--placement", placement, "--ranks", RANKS, *words)

    def result(self, said, placement=1, recording=0):
        return said["placements"][placement]["results"][recording]

    def assert_level(self, result, layers_of_ranks, loads):
        ratios = [max_over_mean(ranks, of_layer) for ranks, of_layer in zip(layers_of_ranks, loads, strict=True)]
        self.assertAlmostEqual(result["max_over_mean_mean"], sum(ratios) / len(ratios), places=12)
        self.assertAlmostEqual(result["max_over_mean_worst"], max(ratios), places=12)

    def priced(self, *more):
        """Options that say what a step and the move take."""
        self.write("config.json", MIXTRAL)
        return ["--model", "config.json", "--tokens-per-step", 1000, "--tflops", 2, "--link", 0.5, *more]

    def new_homes(self, rows, before):
        """On each rank, the experts that it has and did not have."""
        return [
            sum(len(set(by_rank(row)[rank]) - set(old[rank])) for row, old in zip(rows, before, strict=True))
            for rank in range(RANKS)
        ]

    def assert_prices(self, verdict, layers, ratios, new_homes):
        before, after = ratios
        assignment_us = 2 * EXPERT_WEIGHTS / 2e12 * 1e6
        step_ms = [layers * each * 1000 * 2 / RANKS * assignment_us / 1e3 for each in (before, after)]
        self.assertAlmostEqual(verdict["step_ms_before"], step_ms[0], places=12)
        self.assertAlmostEqual(verdict["step_ms_after"], step_ms[1], places=12)
        self.assertEqual(verdict["moved_experts"], sum(new_homes))
        self.assertEqual(verdict["moved_bytes"], sum(new_homes) * EXPERT_WEIGHTS * 2)
        move_ms = max(new_homes) * EXPERT_WEIGHTS * 2 / 0.5e9 * 1e3
        self.assertAlmostEqual(verdict["move_ms"], move_ms, places=12)
        self.assertAlmostEqual(verdict["break_even_steps"], move_ms / (step_ms[0] - step_ms[1]), places=6)


class Evaluate(PlacedTest):
    def test_prints_exactly_the_promised_keys_and_contiguous_homes_first(self):
        first, second = self.counts("a.json", drawn_loads(1, 3)), self.counts("b.json", drawn_loads(2, 3))
        self.placed(first, "p.json")
        self.placed(second, "q.json")
        said = self.json("evaluate", first, second, "--placement", "p.json", "--placement", "q.json", "--ranks", RANKS)
        self.assertEqual(list(said), ["placements", "verdict", "notes"])
        self.assertEqual((said["notes"], said["verdict"]["notes"]), ([], []))
        self.assertEqual([each["file"] for each in said["placements"]], ["contiguous", "p.json", "q.json"])
        for each in said["placements"]:
            self.assertEqual(list(each), ["file", "results"])
            self.assertEqual([result["recording"] for result in each["results"]], [first, second])
            for result in each["results"]:
                self.assertEqual(list(result), RESULT)
                self.assertEqual(result["layers"], [0, 1, 2])
                self.assertEqual([result[key] for key in RESULT[4:]], [None, None, None])
        self.assertEqual(list(said["verdict"]), VERDICT)
        self.assertEqual(said["verdict"]["recordings"], 2)
        for i, loads in enumerate([drawn_loads(1, 3), drawn_loads(2, 3)]):
            self.assert_level(self.result(said, 0, i), [CONTIGUOUS] * 3, loads)

    def test_traffic_is_what_crosses_ranks_where_the_recording_has_transitions(self):
        transitions = [[[(7 * a + 3 * b) % 11 for b in range(EXPERTS)] for a in range(EXPERTS)]]
        self.write("t.json", {"loads": drawn_loads(3, 2), "transitions": transitions})
        rows = [[0, 2, 1, 3, 4, 6, 5, 7], [7, 6, 5, 4, 3, 2, 1, 0]]
        said = self.evaluate("t.json", self.written("p.json", rows), "--nodes", 2)
        homes = [{expert: slot // 2 for slot, expert in enumerate(row)} for row in rows]
        pairs = [(homes[0][a], homes[1][b], transitions[0][a][b]) for a in range(EXPERTS) for b in range(EXPERTS)]
        self.assertEqual(self.result(said)["crossing"], sum(count for a, b, count in pairs if a != b))
        between = sum(count for a, b, count in pairs if a // 2 != b // 2)
        self.assertEqual(self.result(said)["crossing_between_nodes"], between)

    def rows_of(self, form, name):
        """A server's file, read here: its rows by layer, dense ones included where the format has them."""
        if form == "sglang":
            return self.file(name)["physical_to_logical_map"]
        if form == "vllm":
            return self.file(name)["initial_global_assignments"]
        if form == "vllm-ascend":
            return [
                [expert for device in layer["device_list"] for expert in device["device_expert"]]
                for layer in self.file(name)["layer_list"]
            ]
        if form == "trtllm":
            text = (self.folder / name).read_text(encoding="utf-8")
            return {int(n): json.loads(row) for n, row in re.findall(r"^ +(\d+): (\[[0-9, ]*\])", text, re.MULTILINE)}
        return self.file(name)["physical_to_logical"]

    def test_a_placement_of_any_format_is_measured_by_its_rows_on_traffic_that_it_was_not_made_from(self):
        numbers = [3, 4, 6]
        made_from = self.counts("a.json", drawn_loads(4, 3), numbers)
        later = drawn_loads(5, 3)
        recording = self.counts("b.json", later, numbers)
        for form, name in [("evenkeel", "e.json"), ("sglang", "s.json"), ("vllm", "v.json"),
                           ("vllm-ascend", "va.json"), ("trtllm", "t.yaml")]:  # fmt: skip
            with self.subTest(format=form):
                self.json("place", made_from, "--ranks", RANKS, "--redundant-experts", 4, "--format", form, "-o", name)
                rows = self.rows_of(form, name)
                if form in ("sglang", "trtllm"):
                    rows = [rows[number] for number in numbers]
                elif form == "vllm":
                    rows = list(rows.values()) if isinstance(rows, dict) else rows
                self.assertEqual({len(row) for row in rows}, {12})
                self.assertGreater(len({tuple(row) for row in rows}), 1)
                said = self.evaluate(recording, name)
                self.assertEqual(self.result(said)["layers"], numbers)
                self.assert_level(self.result(said), [by_rank(row) for row in rows], later)

    def test_a_map_that_torch_saved_is_measured_by_its_rows(self):
        numbers, loads = [3, 4], drawn_loads(6, 2)
        draw = random.Random(6)
        rows = []
        for _ in range(5):
            row = list(range(EXPERTS))
            draw.shuffle(row)
            rows.append([e for r in range(RANKS) for e in [*row[2 * r : 2 * r + 2], row[2 * r - 1]]])
        (self.folder / "m.pt").write_bytes(torch_file({"physical_to_logical_map": Tensor.of_rows(rows)}))
        said = self.evaluate(self.counts("r.json", loads, numbers), "m.pt")
        self.assert_level(self.result(said), [by_rank(rows[number]) for number in numbers], loads)

    def test_rows_are_paired_by_layer_number_where_a_recording_has_part_of_the_layers(self):
        numbers = [3, 4, 6]
        rows = self.placed(self.counts("a.json", drawn_loads(7, 3), numbers), "p.json")
        later = drawn_loads(8, 2)
        said = self.evaluate(self.counts("b.json", later, [4, 6]), "p.json")
        self.assertEqual(self.result(said)["layers"], [4, 6])
        self.assert_level(self.result(said), [by_rank(row) for row in rows[1:]], later)

    def assert_steps(self, printed, layers_of_ranks, steps):
        ratios = step_ratios(layers_of_ranks, steps)
        self.assertEqual(list(printed), ["median", "p95", "worst"])
        self.assertAlmostEqual(printed["median"], statistics.median(ratios), places=12)
        self.assertAlmostEqual(printed["p95"], exceeded_by_one_in_twenty(ratios), places=12)
        self.assertAlmostEqual(printed["worst"], max(ratios), places=12)

    def test_counts_by_step_are_judged_step_by_step_without_what_has_no_load(self):
        for count in (41, 40, 39, 1):
            with self.subTest(steps=count):
                steps = [drawn_loads(100 + i, 3) for i in range(count)]
                rows = self.placed(self.window("w.npz", steps), "p.json", "--redundant-experts", 4)
                if count > 1:
                    steps[3][1] = [0] * EXPERTS  # a layer that this step leaves out
                    steps.insert(5, [[0] * EXPERTS] * 3)  # a step in which nothing happened
                said = self.evaluate(self.window("w.npz", steps), "p.json")
                placed = [by_rank(row) for row in rows]
                whole = [[sum(step[layer][e] for step in steps) for e in range(EXPERTS)] for layer in range(3)]
                for result, homes in [(self.result(said), placed), (self.result(said, 0), [CONTIGUOUS] * 3)]:
                    self.assert_steps(result["steps"], homes, steps)
                    self.assert_level(result, homes, whole)
                blocks = blocks_of(steps) if len(steps) >= 20 else [steps]
                for key, homes in [("max_over_mean_before", [CONTIGUOUS] * 3), ("max_over_mean_after", placed)]:
                    means = [statistics.mean(step_ratios(homes, block)) for block in blocks]
                    self.assertAlmostEqual(said["verdict"][key], statistics.mean(means), places=12)

    def test_steps_of_counts_with_dense_rows_are_of_the_layers_with_experts(self):
        steps = [drawn_loads(200 + i, 2) for i in range(7)]
        dense = [[[0] * EXPERTS, *step] for step in steps]
        rows = self.placed(self.window("w.npz", dense), "p.json")
        done = self.call("evaluate", "w.npz", "--placement", "p.json", "--ranks", RANKS, "--json")
        self.assertIn("note: w.npz: layers 0 have no assignment", done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(self.result(said)["layers"], [1, 2])
        self.assert_steps(self.result(said)["steps"], [by_rank(row) for row in rows], steps)

    def test_texts_that_say_their_steps_are_judged_by_step(self):
        steps = [drawn_loads(400 + i, 3) for i in range(9)]
        cells = [(s, l, e, steps[s][l][e]) for s in range(9) for l in range(3) for e in range(EXPERTS)]
        (self.folder / "r.csv").write_text(
            "step,layer,expert,count\n" + "".join(",".join(map(str, cell)) + "\n" for cell in cells)
        )
        for name, records in [
            ("r.jsonl", [{"iteration": s, "layer": l, "counts": steps[s][l]} for s in range(9) for l in range(3)]),
            ("w.jsonl", [{"step": s, "expert_load": steps[s]} for s in range(9)]),
            ("v.jsonl", [{"record_type": "eplb_load_stats", "step": s % 4, "expert_load": steps[s],
                          "p2l_map": [list(range(EXPERTS))] * 3} for s in range(9)]),
        ]:  # fmt: skip
            (self.folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
        for name in ["r.csv", "r.jsonl", "w.jsonl", "v.jsonl"]:
            with self.subTest(name):
                rows = self.placed(name, "p.json", "--redundant-experts", 4)
                said = self.evaluate(name, "p.json")
                self.assert_steps(self.result(said)["steps"], [by_rank(row) for row in rows], steps)
                placed = self.json("place", name, "--ranks", RANKS, "--steps")
                self.assertEqual(len(placed["per_recording"]), 9)
                self.assertEqual(placed["per_recording"][8]["recording"], f"{name}: step 8")
        (self.folder / "once.jsonl").write_text((json.dumps({"expert_load": steps}) + "\n") * 2)
        words = ["evaluate", "once.jsonl", "--placement", "p.json", "--ranks", RANKS]
        self.assert_refused(
            words, 3, "ParseError", "once.jsonl: line 2: has a step that a line before has too", "'rank'"
        )

    def test_a_trace_is_cut_into_steps_of_so_many_tokens_and_a_part_of_one_is_left_out(self):
        draw = random.Random(9)
        tokens = [
            [[int(draw.random() ** 2 * 4), 4 + int(draw.random() ** 3 * 4)] for _ in range(2)] for _ in range(103)
        ]
        ids = [expert for token in tokens for layer in token for expert in layer]
        (self.folder / "t.npz").write_bytes(npz("topk_ids", [103, 2, 2], ids))

        def loads(some):
            return [[sum(token[layer].count(e) for token in some) for e in range(EXPERTS)] for layer in range(2)]

        words = ["--num-experts", EXPERTS]
        homes = [by_rank(row) for row in self.placed("t.npz", "p.json", *words)]
        self.assertIsNone(self.result(self.evaluate("t.npz", "p.json", *words))["steps"])
        said = self.evaluate("t.npz", "p.json", *words, "--step-tokens", 10)
        self.assert_steps(self.result(said)["steps"], homes, [loads(tokens[at : at + 10]) for at in range(0, 100, 10)])
        self.assert_level(self.result(said), homes, loads(tokens))
        said = self.evaluate("t.npz", "p.json", *words, "--step-tokens", 500)
        self.assert_steps(self.result(said)["steps"], homes, [loads(tokens)])

    def test_the_slowest_link_of_a_topology_and_the_rate_of_a_cost_file_say_the_same(self):
        loads = drawn_loads(11, 3)
        recording = self.counts("r.json", loads)
        self.placed(recording, "p.json")
        self.write("t.json", {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2,
                              "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 0.5}})  # fmt: skip
        self.write("c.json", {"format": "evenkeel.cost.v1", "flops_per_second": 2e12, "weight_bytes_per_second": 1e9,
                              "link_bytes_per_second": 1e9, "chunk_seconds": 1e-5})  # fmt: skip
        said = self.evaluate(recording, "p.json", *self.priced())
        words = ["--model", "config.json", "--tokens-per-step", 1000, "--topology", "t.json", "--cost", "c.json"]
        done = self.call("evaluate", recording, "--placement", "p.json", *words, "--json")
        note = (
            "c.json: the time model takes the rates of products from it; weight_bytes_per_second, overlap, "
            "latencies and overheads have no part in that model"
        )
        self.assertEqual(json.loads(done.stdout)["verdict"], said["verdict"] | {"notes": [note]})
        self.assertEqual(done.stderr, f"note: {note}\n")

    def test_tokens_of_a_step_are_those_that_traces_are_cut_into(self):
        ids = [expert for t in range(60) for _ in range(3) for expert in (t % 3, 3 + t % 5)]
        (self.folder / "t.npz").write_bytes(npz("topk_ids", [60, 3, 2], ids))
        self.placed("t.npz", "p.json")
        self.write("config.json", MIXTRAL)
        words = ["--model", "config.json", "--tflops", 2]
        said = self.evaluate("t.npz", "p.json", *words, "--step-tokens", 20)["verdict"]
        told = self.evaluate("t.npz", "p.json", *words, "--step-tokens", 20, "--tokens-per-step", 20)["verdict"]
        self.assertIsNotNone(said["step_ms_before"])
        self.assertEqual(said, told)
        more = self.evaluate("t.npz", "p.json", *words, "--step-tokens", 20, "--tokens-per-step", 40)["verdict"]
        self.assertAlmostEqual(more["step_ms_before"], 2 * said["step_ms_before"], places=12)

    def test_each_thing_that_is_missing_is_named_and_no_other(self):
        recording = self.counts("r.json", drawn_loads(12, 3))
        self.placed(recording, "p.json")
        self.priced()
        self.write("untyped.json", {key: value for key, value in MIXTRAL.items() if key != "dtype"})
        tokens = ["--tokens-per-step", 1000]
        rates = "--tflops, --device or --cost say it"
        links = "--link, --topology, --device or --cost say it"
        dtype = "--expert-bytes (the model's config has no dtype)"
        for words, step, move in [
            ([], f"--model, and --tokens-per-step, and {rates}", f"--model, and {links}"),
            (["--model", "config.json"], f"--tokens-per-step, and {rates}", links),
            (["--model", "untyped.json"], f"--tokens-per-step, and {rates}", f"{dtype}, and {links}"),
            (["--model", "untyped.json", "--link", 1], f"--tokens-per-step, and {rates}", f"{dtype} says it"),
            (["--model", "untyped.json", *tokens, "--tflops", 2, "--link", 1], None, f"{dtype} says it"),
            (["--model", "config.json", *tokens, "--link", 1], rates, None),
        ]:
            with self.subTest(words=words):
                said = self.call("evaluate", recording, "--placement", "p.json", "--ranks", RANKS, *words).stdout
                for what, missing in [("what a step takes: ", step), ("what the move takes: ", move)]:
                    lines = [line.strip() for line in said.splitlines() if line.startswith("  " + what)]
                    self.assertEqual(lines, [] if missing is None else [what + missing])

    def test_ranks_are_those_of_the_placements(self):
        recording = self.counts("r.json", drawn_loads(13, 3))
        self.placed(recording, "p.json")
        self.call("place", recording, "--ranks", RANKS, "--format", "sglang", "--moe-layers", "0-2", "-o", "s.json")
        self.call("place", recording, "--ranks", RANKS, "--format", "vllm-ascend", "-o", "a.json")
        whole = self.json("evaluate", recording, "--placement", "p.json", "--ranks", RANKS, "--nodes", 2)
        self.assertEqual(self.json("evaluate", recording, "--placement", "p.json", "--nodes", 2), whole)
        for words in (["a.json"], ["s.json", "--from", "p.json"], ["s.json", "--placement", "a.json"]):
            said = self.json("evaluate", recording, "--placement", *words)["verdict"]
            self.assertEqual(said["recordings"], 1)
        words = ["evaluate", recording, "--placement", "s.json"]
        self.assert_refused(
            words, 2, "InvalidArgument", "--ranks: is not given, nor is --topology, and s.json does not"
        )
        self.call("place", recording, "--ranks", 2, "-o", "two.json")
        self.assert_refused(["evaluate", recording, "--placement", "p.json", "--placement", "two.json"], 2,
                            "InvalidArgument", "--placement: two.json is for 2 ranks", f"{RANKS} ranks, as p.json")  # fmt: skip

    def test_a_placement_that_is_less_level_does_not_pay_however_long_it_serves(self):
        loads = [[10] * EXPERTS] * 3
        self.written("p.json", [[0, 1, 2, 3, 4, 5, 6, 0, 7, 1, 0, 2]] * 3)
        words = self.priced("--horizon", 10**9)
        verdict = self.evaluate(self.window("w.npz", [loads] * 20), "p.json", *words)["verdict"]
        self.assertEqual((verdict["answer"], verdict["better_on"]), ("does not pay", 0))
        self.assertGreater(verdict["max_over_mean_after"], verdict["max_over_mean_before"])
        self.assertRegex(verdict["sentence"], "it does not pay: .* a step are lost")

    def test_where_only_copies_go_nothing_has_to_move_and_it_pays(self):
        # Ranks 0 and 1 have expert 0; rank 1, which also has the hot ones, gives it up.
        before = [[0, 1, 6], [0, 2, 3], [4, 5, 6], [5, 7, 6]]
        after = [[0, 1, 6], [2, 3], [4, 5, 6], [5, 7, 6]]
        self.written("now.json", [[e for rank in before for e in rank]])
        file = self.written("then.json", [[e for rank in after for e in rank]])
        self.write(file, self.file(file) | {"rank_offsets": [[0, 3, 5, 8, 11]]})
        loads = [[40, 1, 200, 200, 10, 10, 10, 10]]
        self.window("w.npz", [loads] * 20)
        verdict = self.evaluate("w.npz", file, "--from", "now.json")["verdict"]
        self.assertAlmostEqual(verdict["max_over_mean_before"], max_over_mean(before, loads[0]), places=12)
        self.assertAlmostEqual(verdict["max_over_mean_after"], max_over_mean(after, loads[0]), places=12)
        self.assertEqual((verdict["moved_experts"], verdict["answer"]), (0, "pays"))
        self.assertIn("it pays: nothing has to move, and max/mean falls by", verdict["sentence"])

    def test_a_move_starts_from_what_runs_now(self):
        loads, later = drawn_loads(13, 3), drawn_loads(14, 3)
        now = self.placed(self.counts("a.json", loads), "now.json", "--redundant-experts", 4)
        recording = self.counts("b.json", later)
        rows = self.placed(recording, "p.json", "--redundant-experts", 4)
        verdict = self.evaluate(recording, "p.json", "--from", "now.json", *self.priced())["verdict"]
        self.assertEqual((verdict["placement"], verdict["against"]), ("p.json", "now.json"))
        homes = [[by_rank(row) for row in each] for each in (now, rows)]
        level = [sum(map(max_over_mean, each, later)) / 3 for each in homes]
        self.assert_prices(verdict, 3, level, self.new_homes(rows, homes[0]))

    def test_the_verdict_is_on_the_placement_that_is_most_level_over_all_recordings(self):
        loads = [drawn_loads(seed, 3) for seed in (15, 16, 17)]
        files = [self.counts(f"r{i}.json", each) for i, each in enumerate(loads)]
        rows = [self.placed(file, f"p{i}.json") for i, file in enumerate(files)]
        words = [word for i in range(3) for word in ("--placement", f"p{i}.json")]
        verdict = self.json("evaluate", *files, *words, "--ranks", RANKS)["verdict"]
        level = [
            [sum(max_over_mean(by_rank(row), of_layer) for row, of_layer in zip(placed, each, strict=True)) / 3
             for each in loads] for placed in rows
        ]  # fmt: skip
        best = min(range(3), key=lambda i: sum(level[i]))
        contiguous = [sum(max_over_mean(CONTIGUOUS, of_layer) for of_layer in each) / 3 for each in loads]
        self.assertEqual((verdict["placement"], verdict["recordings"]), (f"p{best}.json", 3))
        self.assertEqual(verdict["better_on"], sum(a < b for a, b in zip(level[best], contiguous, strict=True)))
        self.assertAlmostEqual(verdict["max_over_mean_before"], sum(contiguous) / 3, places=12)
        self.assertAlmostEqual(verdict["max_over_mean_after"], sum(level[best]) / 3, places=12)

    def test_people_get_a_table_for_each_recording_and_the_verdict(self):
        steps = [drawn_loads(300 + i, 3) for i in range(5)]
        self.placed(self.window("w.npz", steps), "p.json")
        done = self.call("evaluate", "w.npz", "--placement", "p.json", "--ranks", RANKS, *self.priced("--horizon", 9))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = self.evaluate("w.npz", "p.json", *self.priced("--horizon", 9))
        for placement in (0, 1):
            result = self.result(said, placement)
            figures = [result["max_over_mean_mean"], result["max_over_mean_worst"], *result["steps"].values()]
            line = rf"  {said['placements'][placement]['file']} +" + " +".join(f"{x:.3f}" for x in figures)
            self.assertRegex(done.stdout, line)
        self.assertIn(f"p.json against contiguous: {said['verdict']['sentence']}\n", done.stdout)
        self.assertIn("waiting for weights and sending left out", done.stdout)

    def test_what_does_not_fit_is_refused_and_both_sides_are_named(self):
        recording = self.counts("r.json", drawn_loads(18, 3))
        self.placed(recording, "p.json")
        self.placed(self.counts("short.json", drawn_loads(18, 2)), "short_p.json")
        self.placed(self.counts("numbered.json", drawn_loads(18, 3), [3, 4, 6]), "numbered_p.json")
        self.placed(self.counts("part.json", drawn_loads(18, 2), [4, 7]), "part_p.json")
        self.write("wide.json", {"logical_count": [[1 + e for e in range(12)]] * 3})
        self.placed("wide.json", "wide_p.json")
        self.write("config.json", MIXTRAL)
        self.write("c.json", {"format": "evenkeel.cost.v1", "flops_per_second": 2e12, "weight_bytes_per_second": 1e9,
                              "link_bytes_per_second": 1e9, "chunk_seconds": 1e-5})  # fmt: skip
        ranks = ["--ranks", RANKS]
        placement = ["--placement", "p.json"]
        for words, status, parts in [
            ([recording, *ranks], 2, ["--placement is required"]),
            ([recording, *placement, "--ranks", 2], 2, ["--ranks: 2", "p.json is for 4 ranks", "allowed: 4, or a placement for 2"]),
            ([recording, "--placement", "short_p.json", *ranks], 2, ["--placement", "2 layers", "3 layers", recording]),
            ([recording, "--placement", "wide_p.json", *ranks], 2, ["12 experts", "8 experts"]),
            (["numbered.json", "--placement", "part_p.json", *ranks], 2,
             ["part_p.json has layers 4,7", "numbered.json has layers 3-4,6"]),
            (["numbered.json", "part.json", "--placement", "numbered_p.json", *ranks], 2,
             ["numbered_p.json has layers 3-4,6", "part.json has layers 4,7"]),
            ([recording, *placement, "--from", "short_p.json", *ranks], 2, ["2 layers", "3 layers"]),
            ([recording, *placement, *ranks, "--tflops", 1], 2, ["--tflops: needs --model"]),
            ([recording, *placement, *ranks, "--cost", "c.json"], 2, ["--cost: needs --model"]),
            ([recording, *placement, *ranks, "--model", "config.json", "--cost", "c.json", "--tflops", 1], 2,
             ["--tflops: is what --cost says"]),
            ([recording, *placement, *ranks, "--model", "config.json", "--moe-layers", "30-32"], 2,
             ["--model", "has layers 30-32"]),
            ([recording, *placement, *ranks, "--horizon", 0], 2, ["--horizon: '0'"]),
            ([recording, *placement, *ranks, "--step-tokens", 0], 2, ["--step-tokens: '0'"]),
        ]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(["evaluate", *words], status, "InvalidArgument", *parts)
        self.assert_refused(["evaluate", "nowhere", *placement, *ranks], 3, "ParseError", "nowhere")
        self.assert_refused(["evaluate", recording, "--placement", recording, *ranks], 3, "ParseError", recording)


if __name__ == "__main__":
    unittest.main()
