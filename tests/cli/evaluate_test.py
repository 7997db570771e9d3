"""evenkeel evaluate: its keys, what options do to figures and prices, the verdict as it is printed, and refusals.

When a placement pays is proven of the library (tests/placement/evaluate), and steps of every format in
tests/python/steps_test.py.
"""

import random
import unittest

from command import CommandTest, npz, npz_of

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


class PlacedTest(CommandTest):
    """Recordings and placements as files."""

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

    def trace(self, name, tokens):
        """Tokens of three layers, top-2."""
        ids = [expert for t in range(tokens) for _ in range(3) for expert in (t % 3, 3 + t % 5)]
        (self.folder / name).write_bytes(npz("topk_ids", [tokens, 3, 2], ids))
        return name

    def placed(self, recording, name, *words):
        """Rows of slots, from the file that `place` writes."""
        done = self.call("place", recording, "--ranks", RANKS, *words, "-o", name)
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.file(name)["physical_to_logical"]

    def written(self, name, rows, **more):
        """A placement of ours by hand."""
        return self.write(name, {"format": "evenkeel.placement.v1", "num_layers": len(rows), "num_experts": EXPERTS,
                                 "num_ranks": RANKS, "physical_to_logical": rows} | more)  # fmt: skip

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

    def test_rows_are_paired_by_layer_number_whatever_the_placement_s_format(self):
        made_from = self.counts("a.json", drawn_loads(7, 3), [3, 4, 6])
        later = drawn_loads(8, 2)
        recording = self.counts("b.json", later, [4, 6])
        words = ["--redundant-experts", 4, "--dispatch", "even"]
        homes = [by_rank(row) for row in self.placed(made_from, "p.json", *words)[1:]]
        for form in ["evenkeel", "sglang", "trtllm"]:
            with self.subTest(form):
                name = f"{form}.yaml" if form == "trtllm" else f"{form}.json"
                self.json("place", made_from, "--ranks", RANKS, *words[:2], "--format", form, "-o", name,
                          *(words[2:] if form != "trtllm" else []))  # fmt: skip
                said = self.evaluate(recording, name, *(words[2:] if form == "sglang" else []))
                self.assertEqual(self.result(said)["layers"], [4, 6])
                self.assert_level(self.result(said), homes, later)

    def test_a_trace_is_cut_into_steps_of_so_many_tokens_and_a_part_of_one_is_left_out(self):
        draw = random.Random(9)
        tokens = [
            [[int(draw.random() ** 2 * 4), 4 + int(draw.random() ** 3 * 4)] for _ in range(2)] for _ in range(103)
        ]
        ids = [expert for token in tokens for layer in token for expert in layer]
        (self.folder / "t.npz").write_bytes(npz("topk_ids", [103, 2, 2], ids))
        words = ["--num-experts", EXPERTS]
        homes = [by_rank(row) for row in self.placed("t.npz", "p.json", *words)]

        def worst_step(size):
            steps = [tokens[at : at + size] for at in range(0, 103 - size + 1, size)]
            loads = [
                [[sum(t[layer].count(e) for t in step) for e in range(EXPERTS)] for layer in (0, 1)] for step in steps
            ]
            return max(sum(map(max_over_mean, homes, step)) / 2 for step in loads)

        self.assertIsNone(self.result(self.evaluate("t.npz", "p.json", *words))["steps"])
        for size, printed in [(10, 10), (103, 500)]:  # one that is not full stays where it is the only one
            steps = self.result(self.evaluate("t.npz", "p.json", *words, "--step-tokens", printed))["steps"]
            self.assertEqual(list(steps), ["median", "p95", "worst"])
            self.assertAlmostEqual(steps["worst"], worst_step(size), places=12)

    def test_tokens_of_a_step_are_those_that_traces_are_cut_into(self):
        self.placed(self.trace("t.npz", 60), "p.json")
        self.write("config.json", MIXTRAL)
        words = ["--model", "config.json", "--tflops", 2, "--step-tokens", 20]
        said, told, more = (
            self.evaluate("t.npz", "p.json", *words, *tokens)["verdict"]
            for tokens in ([], ["--tokens-per-step", 20], ["--tokens-per-step", 40])
        )
        self.assertIsNotNone(said["step_ms_before"])
        self.assertEqual(said, told)
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
        words = ["evaluate", recording, "--placement"]
        self.assertEqual(self.json(*words, "p.json", "--nodes", 2), self.evaluate(recording, "p.json", "--nodes", 2))
        for more in (["a.json"], ["s.json", "--from", "p.json"], ["s.json", "--placement", "a.json"]):
            self.assertEqual(self.json(*words, *more)["verdict"]["recordings"], 1)
        without = "--ranks: is not given, nor is --topology, and s.json does not"
        self.assert_refused([*words, "s.json"], 2, "InvalidArgument", without)
        self.call("place", recording, "--ranks", 2, "-o", "two.json")
        parts = ["--placement: two.json is for 2 ranks", f"{RANKS} ranks, as p.json"]
        self.assert_refused([*words, "p.json", "--placement", "two.json"], 2, "InvalidArgument", *parts)

    def test_a_move_starts_from_what_runs_now_and_its_prices_are_those_of_the_rates(self):
        loads, later = drawn_loads(13, 3), drawn_loads(14, 3)
        now = self.placed(self.counts("a.json", loads), "now.json", "--redundant-experts", 4)
        recording = self.counts("b.json", later)
        rows = self.placed(recording, "p.json", "--redundant-experts", 4)
        verdict = self.evaluate(recording, "p.json", "--from", "now.json", *self.priced())["verdict"]
        self.assertEqual((verdict["placement"], verdict["against"]), ("p.json", "now.json"))
        homes = [[by_rank(row) for row in each] for each in (now, rows)]
        assignment_us = 2 * EXPERT_WEIGHTS / 2e12 * 1e6
        step_ms = [sum(map(max_over_mean, each, later)) * 1000 * 2 / RANKS * assignment_us / 1e3 for each in homes]
        # On each rank, the experts that it has and did not have.
        new = [sum(len(set(b[rank]) - set(a[rank])) for a, b in zip(*homes, strict=True)) for rank in range(RANKS)]
        move_ms = max(new) * EXPERT_WEIGHTS * 2 / 0.5e9 * 1e3
        for key, expected in [
            ("step_ms_before", step_ms[0]),
            ("step_ms_after", step_ms[1]),
            ("moved_experts", sum(new)),
            ("moved_bytes", sum(new) * EXPERT_WEIGHTS * 2),
            ("move_ms", move_ms),
            ("break_even_steps", move_ms / (step_ms[0] - step_ms[1])),
        ]:
            self.assertAlmostEqual(verdict[key], expected, places=6, msg=key)

    def test_people_get_a_table_for_each_recording_and_the_verdict(self):
        steps = [drawn_loads(300 + i, 3) for i in range(5)]
        self.placed(self.window("w.npz", steps), "p.json")
        words = self.priced("--horizon", 9)
        done = self.call("evaluate", "w.npz", "--placement", "p.json", "--ranks", RANKS, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        said = self.evaluate("w.npz", "p.json", *words)
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
        ranks = ["--ranks", RANKS]
        placement = ["--placement", "p.json"]
        for words, parts in [
            ([recording, *ranks], ["--placement is required"]),
            ([recording, *placement, "--ranks", 2], ["--ranks: 2", "p.json is for 4 ranks", "allowed: 4, or a placement for 2"]),
            ([recording, "--placement", "short_p.json", *ranks], ["--placement", "2 layers", "3 layers", recording]),
            ([recording, "--placement", "wide_p.json", *ranks], ["12 experts", "8 experts"]),
            (["numbered.json", "--placement", "part_p.json", *ranks],
             ["part_p.json has layers 4,7", "numbered.json has layers 3-4,6"]),
            (["numbered.json", "part.json", "--placement", "numbered_p.json", *ranks],
             ["numbered_p.json has layers 3-4,6", "part.json has layers 4,7"]),
            ([recording, *placement, "--from", "short_p.json", *ranks], ["2 layers", "3 layers"]),
            ([recording, *placement, *ranks, "--model", "config.json", "--moe-layers", "30-32"], ["--model", "has layers 30-32"]),
            ([recording, *placement, *ranks, "--horizon", 0], ["--horizon: '0'"]),
            ([recording, *placement, *ranks, "--step-tokens", 0], ["--step-tokens: '0'"]),
        ]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(["evaluate", *words], 2, "InvalidArgument", *parts)
        self.assert_refused(["evaluate", "nowhere", *placement, *ranks], 3, "ParseError", "nowhere")
        self.assert_refused(["evaluate", recording, "--placement", recording, *ranks], 3, "ParseError", recording)


class EnoughData(PlacedTest):
    def test_a_trace_is_judged_by_whole_sequences_and_not_by_windows_of_its_tokens(self):
        draw = random.Random(13)
        ids = [e for _ in range(400) for _ in range(3) for e in (draw.choice([0, 0, 0, 1]), draw.randrange(4, 8))]
        rows = {"topk_ids": ([400, 3, 2], ids)}
        (self.folder / "t.npz").write_bytes(npz_of(rows))
        offsets = {"sequence_offsets": ([41], [10 * i for i in range(41)])}
        (self.folder / "s.npz").write_bytes(npz_of(rows | offsets))
        self.placed(self.counts("other.json", [[30, 10, 1, 1, 10, 10, 10, 10]] * 3), "p.json")
        words = ["--step-tokens", 10, *self.priced("--horizon", 10**9)]
        windows = self.evaluate("t.npz", "p.json", *words)["verdict"]
        self.assertEqual(windows["answer"], "not_enough_data")
        self.assertIn("t.npz says neither its sequences nor its steps", windows["sentence"])
        blocks = self.evaluate("s.npz", "p.json", *words)["verdict"]
        self.assertEqual((blocks["answer"], blocks["gain"]["blocks"]), ("pays", 20))

    def test_the_data_that_a_placement_was_made_from_is_known_again(self):
        steps = drawn_steps(14, 20)
        own = self.window("own.npz", steps)
        self.placed(own, "p.json")
        self.json("place", own, "--ranks", RANKS, "--format", "vllm", "-o", "v.json")
        sums = [[sum(step[layer][e] for step in steps) for e in range(EXPERTS)] for layer in range(3)]
        words = self.priced("--horizon", 10**9)
        for recording, placement, data, part in [
            (own, "p.json", OWN, "made from this data, so it is optimistic that"),
            (self.counts("sum.json", sums), "p.json", OWN, "not enough data"),
            (own, "v.json", None, "if it was not made from this data"),
        ]:
            with self.subTest(recording=recording, placement=placement):
                said = self.evaluate(recording, placement, *words)["verdict"]
                self.assertEqual(said["measured_on"], data)
                self.assertIn(part, said["sentence"])


if __name__ == "__main__":
    unittest.main()
