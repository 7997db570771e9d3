"""evenkeel evaluate: its keys, the effect of options on figures and costs, the printed verdict, and refusals.

What figures mean and when a placement pays is tested in the library (tests/placement: quality_test.cpp and evaluate).
"""

import random

from command import REPOSITORY, CommandTest, npz

EXPERTS, RANKS = 8, 4
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
SEQUENCES = REPOSITORY / "data" / "tiny-moe" / "routing_step50.npz"


def drawn_loads(seed, layers):
    """[layers][EXPERTS], some experts much hotter than others."""
    draw = random.Random(seed)
    return [[int(draw.lognormvariate(4, 1.2)) + 1 for _ in range(EXPERTS)] for _ in range(layers)]


def drawn_steps(seed, count, layers=3):
    """[count][layers][EXPERTS]: steps in which each expert's popularity hardly changes."""
    draw, hot = random.Random(seed), drawn_loads(seed, layers)
    return [[[int(load * draw.uniform(0.8, 1.2)) + 1 for load in layer] for layer in hot] for _ in range(count)]


class PlacedTest(CommandTest):
    """Writes recordings and placements as files."""

    def counts(self, name, loads, numbers=None):
        """Counts in SGLang's format: a row for every hidden layer; dense layers have no load."""
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
        """A trace of three layers, top-2."""
        ids = [expert for t in range(tokens) for _ in range(3) for expert in (t % 3, 3 + t % 5)]
        (self.folder / name).write_bytes(npz("topk_ids", [tokens, 3, 2], ids))
        return name

    def placed(self, recording, name, *words):
        done = self.call("place", recording, "--ranks", RANKS, *words, "-o", name)
        self.assertEqual(done.returncode, 0, done.stderr)

    def written(self, name, rows, **more):
        """A placement in our format, written by hand."""
        return self.write(name, {"format": "evenkeel.placement.v1", "num_layers": len(rows), "num_experts": EXPERTS,
                                 "num_ranks": RANKS, "physical_to_logical": rows} | more)  # fmt: skip

    def evaluate(self, recording, placement, *words):
        return self.json("evaluate", recording, "--placement", placement, "--ranks", RANKS, *words)

    def result(self, report, placement=1, recording=0):
        return report["placements"][placement]["results"][recording]

    def priced(self, *more):
        """Options that give the cost of a step and of the move."""
        self.write("config.json", MIXTRAL)
        return ["--model", "config.json", "--tokens-per-step", 1000, "--tflops", 2, "--link", 0.5, *more]


class Evaluate(PlacedTest):
    def test_prints_exactly_the_promised_keys_and_contiguous_homes_first(self):
        first, second = self.counts("a.json", drawn_loads(1, 3)), self.counts("b.json", drawn_loads(2, 3))
        self.placed(first, "p.json")
        self.placed(second, "q.json")
        report = self.json(
            "evaluate", first, second, "--placement", "p.json", "--placement", "q.json", "--ranks", RANKS
        )
        self.assertEqual(list(report), ["placements", "verdict", "notes"])
        self.assertEqual((report["notes"], report["verdict"]["notes"]), ([], []))
        self.assertEqual([each["file"] for each in report["placements"]], ["contiguous", "p.json", "q.json"])
        for each in report["placements"]:
            self.assertEqual(list(each), ["file", "results"])
            self.assertEqual([result["recording"] for result in each["results"]], [first, second])
            for result in each["results"]:
                self.assertEqual(list(result), RESULT)
                self.assertEqual(result["layers"], [0, 1, 2])
                self.assertEqual([result[key] for key in RESULT[4:]], [None, None, None])
        self.assertEqual(list(report["verdict"]), VERDICT)
        self.assertEqual(report["verdict"]["recordings"], 2)

    def test_traffic_is_what_crosses_ranks_where_the_recording_has_transitions(self):
        self.write("t.json", {"loads": [[EXPERTS] * EXPERTS] * 2, "transitions": [[[1] * EXPERTS] * EXPERTS]})
        report = self.evaluate("t.json", self.written("p.json", [list(range(EXPERTS))] * 2), "--nodes", 2)
        result = self.result(report)  # of the 64 pairs, three quarters join two ranks, and half join two nodes
        self.assertEqual((result["crossing"], result["crossing_between_nodes"]), (48, 32))

    def test_rows_are_paired_by_layer_number_whatever_the_placement_s_format(self):
        made_from = self.counts("a.json", drawn_loads(7, 3), [3, 4, 6])
        recording = self.counts("b.json", drawn_loads(8, 2), [4, 6])
        results = []
        for form, name in [("evenkeel", "e.json"), ("sglang", "s.json"), ("trtllm", "t.yaml")]:
            dispatch = ["--dispatch", "even"] if form == "sglang" else []
            self.placed(made_from, name, "--redundant-experts", 4, "--format", form, *dispatch)
            results.append(self.result(self.evaluate(recording, name, *dispatch)))
        self.assertEqual(results[0]["layers"], [4, 6])
        self.assertEqual(results, results[:1] * 3)

    def test_a_trace_is_cut_into_steps_of_so_many_tokens_and_a_part_of_one_is_left_out(self):
        ids = [0] * 7 + [6] * 3 + [2, 4] * 5 + [0] * 3  # one layer; the last three tokens fill no step
        (self.folder / "t.npz").write_bytes(npz("topk_ids", [23, 1, 1], ids))
        self.written("p.json", [list(range(EXPERTS))])
        words = ["--num-experts", EXPERTS]
        self.assertIsNone(self.result(self.evaluate("t.npz", "p.json", *words))["steps"])
        # A step that is not full is kept if it is the only one.
        for size, spread in [(10, [2.4, 2.8, 2.8]), (500, [10 * RANKS / 23] * 3)]:
            steps = self.result(self.evaluate("t.npz", "p.json", *words, "--step-tokens", size))["steps"]
            self.assertEqual(list(steps), ["median", "p95", "worst"])
            for figure, expected in zip(steps.values(), spread, strict=True):
                self.assertAlmostEqual(figure, expected, places=12)

    def test_tokens_of_a_step_are_those_that_traces_are_cut_into(self):
        self.placed(self.trace("t.npz", 60), "p.json")
        self.write("config.json", MIXTRAL)
        words = ["--model", "config.json", "--tflops", 2, "--step-tokens", 20]
        report, again, more = (
            self.evaluate("t.npz", "p.json", *words, *tokens)["verdict"]
            for tokens in ([], ["--tokens-per-step", 20], ["--tokens-per-step", 40])
        )
        self.assertIsNotNone(report["step_ms_before"])
        self.assertEqual(report, again)
        self.assertAlmostEqual(more["step_ms_before"], 2 * report["step_ms_before"], places=12)

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
                report = self.call("evaluate", recording, "--placement", "p.json", "--ranks", RANKS, *words).stdout
                for what, missing in [("what a step takes: ", step), ("what the move takes: ", move)]:
                    lines = [line.strip() for line in report.splitlines() if line.startswith("  " + what)]
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
        without = "--ranks: is missing, and neither --topology nor s.json gives it"
        self.assert_refused([*words, "s.json"], 2, "InvalidArgument", without)
        self.call("place", recording, "--ranks", 2, "-o", "two.json")
        parts = ["--placement: two.json is for 2 ranks", f"{RANKS} ranks, like p.json"]
        self.assert_refused([*words, "p.json", "--placement", "two.json"], 2, "InvalidArgument", *parts)

    def test_a_move_starts_from_what_runs_now_and_its_prices_are_those_of_the_rates(self):
        recording = self.counts("r.json", [[5, 3, 2, 2, 1, 1, 1, 1]] * 3)
        self.written("now.json", [[0, 1, 2, 3, 4, 5, 6, 7]] * 3)  # the ranks' loads are 8, 4, 2 and 2
        self.written("p.json", [[0, 4, 1, 5, 2, 6, 3, 7]] * 3)  # here 6, 4, 3 and 3
        verdict = self.evaluate(recording, "p.json", "--from", "now.json", *self.priced())["verdict"]
        self.assertEqual((verdict["placement"], verdict["against"]), ("p.json", "now.json"))
        step_ms = 3 * (1000 * 2 / RANKS) * 2 * EXPERT_WEIGHTS / 2e12 * 1e3  # with balanced ranks
        # Each layer moves expert 4 to rank 0, two experts each to ranks 1 and 2, and expert 3 to rank 3.
        move_ms = 3 * 2 * EXPERT_WEIGHTS * 2 / 0.5e9 * 1e3
        for key, expected in [
            ("step_ms_before", 2 * step_ms),
            ("step_ms_after", 1.5 * step_ms),
            ("moved_experts", 18),
            ("moved_bytes", 18 * EXPERT_WEIGHTS * 2),
            ("move_ms", move_ms),
            ("break_even_steps", move_ms / (0.5 * step_ms)),
        ]:
            self.assertAlmostEqual(verdict[key], expected, places=6, msg=key)

    def test_people_get_a_table_for_each_recording_and_the_verdict(self):
        steps = [drawn_loads(300 + i, 3) for i in range(5)]
        self.placed(self.window("w.npz", steps), "p.json")
        words = self.priced("--horizon", 9)
        done = self.call("evaluate", "w.npz", "--placement", "p.json", "--ranks", RANKS, *words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        report = self.evaluate("w.npz", "p.json", *words)
        for placement in (0, 1):
            result = self.result(report, placement)
            figures = [result["max_over_mean_mean"], result["max_over_mean_worst"], *result["steps"].values()]
            line = rf"  {report['placements'][placement]['file']} +" + " +".join(f"{x:.3f}" for x in figures)
            self.assertRegex(done.stdout, line)
        self.assertIn(f"p.json against contiguous: {report['verdict']['sentence']}\n", done.stdout)
        self.assertIn("waiting for weights and sending left out", done.stdout)

    def test_what_does_not_fit_is_refused_and_both_sides_are_named(self):
        recording = self.counts("r.json", drawn_loads(18, 3))
        self.placed(recording, "p.json")
        self.placed(self.counts("short.json", drawn_loads(18, 2)), "short_p.json")
        self.placed(self.counts("numbered.json", drawn_loads(18, 3), [3, 4, 6]), "numbered_p.json")
        self.placed(self.counts("part.json", drawn_loads(18, 2), [4, 7]), "part_p.json")
        self.write("config.json", MIXTRAL)
        ranks = ["--ranks", RANKS]
        placement = ["--placement", "p.json"]
        for words, parts in [
            ([recording, *ranks], ["--placement is required"]),
            ([recording, *placement, "--ranks", 2], ["--ranks: 2", "p.json is for 4 ranks", "allowed: 4, or a placement for 2"]),
            ([recording, "--placement", "short_p.json", *ranks], ["--placement", "2 layers", "3 layers", recording]),
            (["numbered.json", "--placement", "part_p.json", *ranks],
             ["part_p.json has layers 4,7", "numbered.json has layers 3-4,6"]),
            (["numbered.json", "part.json", "--placement", "numbered_p.json", *ranks],
             ["numbered_p.json has layers 3-4,6", "part.json has layers 4,7"]),
            ([recording, *placement, *ranks, "--model", "config.json", "--moe-layers", "30-32"], ["--model", "has layers 30-32"]),
            ([recording, *placement, *ranks, "--horizon", 0], ["--horizon: '0'"]),
            ([recording, *placement, *ranks, "--step-tokens", 0], ["--step-tokens: '0'"]),
        ]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(["evaluate", *words], 2, "InvalidArgument", *parts)
        self.assert_refused(["evaluate", "nowhere", *placement, *ranks], 3, "ParseError", "nowhere")
        self.assert_refused(["evaluate", recording, "--placement", recording, *ranks], 3, "ParseError", recording)

    def test_a_trace_is_judged_by_whole_sequences_and_not_by_windows_of_its_tokens(self):
        self.placed(SEQUENCES, "p.json")
        self.placed(self.trace("t.npz", 400), "t.json")
        for trace, placement, gains in [(SEQUENCES, "p.json", True), ("t.npz", "t.json", False)]:
            gain = self.evaluate(trace, placement, "--step-tokens", 10)["verdict"]["gain"]
            self.assertEqual(gain and gain["blocks"], 20 if gains else None)

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
            (own, "v.json", None, "if the placement was not made from this data"),
        ]:
            with self.subTest(recording=recording, placement=placement):
                report = self.evaluate(recording, placement, *words)["verdict"]
                self.assertEqual(report["measured_on"], data)
                self.assertIn(part, report["sentence"])
