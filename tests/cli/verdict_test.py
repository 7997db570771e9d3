"""The time model of place and evaluate: both give the same verdict on the same data, and the sources of rates."""

import json

import evaluate_test as shared

RANKS, VERDICT = shared.RANKS, shared.VERDICT
HALF_OF_PEAKS = {
    "a100": (156e12, 150e9), "h100": (494.75e12, 225e9), "h200": (494.75e12, 225e9), "b200": (1125e12, 450e9),
    "mi300x": (653.7e12, 224e9),
}  # fmt: skip


class OfPlace(shared.PlacedTest):
    def assert_says_what_evaluate_says(self, made_from, judges, place_words, evaluate_words, model):
        """The verdicts of `place` equal those of `evaluate` on the same files."""
        words = ["--ranks", RANKS, *place_words, *model, "-o", "p.json"]
        judged = ["--judge", *judges] if judges else []
        said = self.json("place", *made_from, *words, *judged)
        for key, data, files in [
            ("verdict", shared.OWN, made_from),
            ("judged_verdict", shared.OTHER, judges),
        ]:
            if not files:
                self.assertNotIn(key, said)
                continue
            self.assertEqual(list(said[key]), VERDICT)
            other = self.json("evaluate", *files, "--placement", "p.json", "--ranks", RANKS, *evaluate_words, *model)
            self.assertEqual(said[key], other["verdict"])
            self.assertEqual(said[key]["measured_on"], data)

    def test_place_says_of_its_data_and_of_others_what_evaluate_says(self):
        a, b = self.counts("a.json", shared.drawn_loads(1, 3)), self.counts("b.json", shared.drawn_loads(2, 3))
        c = self.window("c.npz", [shared.drawn_loads(20 + i, 3) for i in range(6)])
        t = self.trace("t.npz", 60)
        self.placed(a, "now.json")
        model = self.priced("--horizon", 100)
        now, tokens = ["--from", "now.json"], ["--step-tokens", 20]
        for made_from, judges, place_words, evaluate_words in [
            ([a], [], [], []),
            ([c], [a, b], ["--redundant-experts", 4], []),
            ([a, b], [c], [], []),
            ([c], [a], ["--steps"], []),
            ([b], [c], [*now, "--max-moves", 3], now),
            ([t], [], ["--steps", *tokens], tokens),
        ]:
            with self.subTest(made_from=made_from, judges=judges, words=place_words):
                self.assert_says_what_evaluate_says(made_from, judges, place_words, evaluate_words, model)

    def test_people_get_the_verdict_of_place_and_read_on_what_it_was_measured(self):
        steps = shared.drawn_steps(4, 40)
        recordings = [self.window("a.npz", steps[:20]), "--judge", self.window("b.npz", steps[20:])]
        words = [*recordings, "--ranks", RANKS, *self.priced("--horizon", 1)]
        out = self.call("place", *words).stdout
        said = self.json("place", *words)
        for key, data in (("verdict", shared.OWN), ("judged_verdict", shared.OTHER)):
            sentence = said[key]["sentence"]
            self.assertIn(f"  the placement against contiguous: {sentence}\n  measured on {data}\n", out)
            self.assertIn("the horizon is 1 step", sentence)

    def test_what_is_held_out_decides_on_the_data_that_a_placement_is_made_from(self):
        recording = self.window("r.npz", shared.drawn_steps(40, 23))
        words = ["place", recording, "--redundant-experts", 4, "--ranks", RANKS]
        said = self.json(*words, *self.priced("--horizon", 10**9), "-o", "p.json")
        held_out, verdict = said["held_out"], said["verdict"]
        self.assertEqual(list(held_out), ["max_over_mean_before", "max_over_mean_after", "blocks", "folds"])
        self.assertEqual((held_out["blocks"], held_out["folds"]), (20, 10))
        self.assertEqual(list(verdict["gain"]), ["mean", "low", "high", "blocks"])
        before, after = (held_out[key] for key in ("max_over_mean_before", "max_over_mean_after"))
        self.assertEqual((verdict["max_over_mean_before"], verdict["max_over_mean_after"]), (before, after))
        self.assertEqual(verdict["answer"], "pays")
        self.assertIn("held_out_max_over_mean", self.file("p.json")["provenance"])
        line = f"held out, 10 folds of 20 blocks: max/mean load {before:.3f} -> {after:.3f}"
        self.assertIn(line, self.call(*words).stdout)
        few = self.window("few.npz", shared.drawn_steps(41, 19))  # too few steps for blocks
        self.assertNotIn("held_out", self.json("place", few, *words[2:], "-o", "p.json"))
        self.assertNotIn("held_out_max_over_mean", self.file("p.json")["provenance"])

    def test_the_first_line_says_the_median_step_where_there_are_steps(self):
        steps = self.window("s.npz", shared.drawn_steps(45, 5))
        for words in ([steps], [steps, "--steps"]):
            said = self.json("place", *words, "--ranks", RANKS)["steps"][0]
            first = self.call("place", *words, "--ranks", RANKS).stdout.splitlines()[0]
            medians = f"{said['before']['median']:.3f} -> {said['after']['median']:.3f}"
            self.assertIn(f", of the median step {medians}", first)

    def test_without_a_time_model_place_gives_no_verdict(self):
        recording = self.counts("r.json", shared.drawn_loads(5, 3))
        self.priced()
        said = self.json("place", recording, "--ranks", RANKS, "--model", "config.json", "--judge", recording)
        self.assertFalse({"verdict", "judged_verdict"} & set(said))

    def test_layers_that_are_named_for_what_is_placed_are_not_asked_of_a_judge_that_says_its_own(self):
        self.write("a.json", {"expert_counts": shared.drawn_loads(30, 3)})
        loads = shared.drawn_loads(31, 2)
        self.counts("part.json", loads, [3, 5])
        self.write("short.json", {"expert_counts": loads})
        self.counts("other.json", loads, [2, 5])
        words = ["place", "a.json", "--ranks", RANKS, "--moe-layers", "3-5", "-o", "p.json", "--judge"]
        after = self.json(*words, "part.json")["judged"][0]["after"]
        found = self.result(self.evaluate("part.json", "p.json"))
        self.assertEqual(after["max_over_mean_mean"], found["max_over_mean_mean"])
        for file, part in [("short.json", "2 layers without numbers"), ("other.json", "layers 2,5")]:
            parts = ["--judge: a.json has layers 3-5", f"{file} has {part}"]
            self.assert_refused([*words, file], 2, "InvalidArgument", *parts)


class Rates(shared.PlacedTest):
    def setUp(self):
        super().setUp()
        self.recording = self.counts("r.json", shared.drawn_loads(6, 3))
        self.placed(self.recording, "p.json")
        self.priced()
        self.write("c.json", {"format": "evenkeel.cost.v1", "flops_per_second": 2e12, "weight_bytes_per_second": 1e9,
                              "link_bytes_per_second": 0.5e9, "chunk_seconds": 1e-5})  # fmt: skip

    def verdict(self, *words):
        """The verdict without its notes, and stderr, which has the notes."""
        priced = ["--placement", "p.json", "--model", "config.json", "--tokens-per-step", 1000, *words]
        done = self.call("evaluate", self.recording, *priced, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        notes = said["notes"] + said["verdict"].pop("notes")
        self.assertEqual(done.stderr, "".join(f"note: {note}\n" for note in notes))
        return said["verdict"], done.stderr

    def test_a_device_is_half_of_its_peaks_and_says_so(self):
        for name, (flops, link) in HALF_OF_PEAKS.items():
            said, notes = self.verdict("--device", name)
            self.assertEqual(said, self.verdict("--tflops", flops / 1e12, "--link", link / 1e9)[0])
            self.assertIn(f"used for {flops / 1e12:g} TFLOP/s and {link / 1e9:g} GB/s; this assumes that 50 %", notes)
            self.assertIn("this assumes", notes)
        self.assertEqual(self.verdict("--device", "MI300X")[0], said)

    def test_what_is_said_outright_goes_before_a_device(self):
        said, notes = self.verdict("--device", "h100", "--link", 0.5)
        self.assertEqual(said, self.verdict("--tflops", 494.75, "--link", 0.5)[0])
        self.assertNotIn("GB/s", notes)
        said, notes = self.verdict("--device", "h100", "--tflops", 2)
        self.assertEqual(said, self.verdict("--tflops", 2, "--link", 225)[0])
        self.assertNotIn("TFLOP/s", notes)
        said, notes = self.verdict("--device", "h100", "--nodes", 2)
        self.assertIsNone(said["move_ms"])
        self.assertIn("its link speed is for links within a node", notes)

    def test_a_cost_file_says_the_rate_and_the_link_unless_a_topology_does(self):
        said, notes = self.verdict("--cost", "c.json")
        self.assertEqual(said, self.verdict("--tflops", 2, "--link", 0.5)[0])
        self.assertIn("takes the rates of products and links from it; weight_bytes_per_second, overlap", notes)
        self.write("t.json", {"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": 2,
                              "within": {"gigabytes_per_s": 450}, "across": {"gigabytes_per_s": 0.25}})  # fmt: skip
        said, notes = self.verdict("--cost", "c.json", "--topology", "t.json")  # the slowest link counts
        self.assertEqual(said, self.verdict("--tflops", 2, "--link", 0.25, "--nodes", 2)[0])
        self.assertIn("takes the rates of products from it; weight_bytes_per_second, overlap, latencies and", notes)

    def test_a_cost_file_of_the_new_form_counts_short_inner_dimensions_and_interfaces(self):
        outputs = 2 * shared.MIXTRAL["intermediate_size"] + shared.MIXTRAL["hidden_size"]
        numbers = {"flops_per_second": 2e12, "inner_half": shared.EXPERT_WEIGHTS / outputs, "overlap": 0.5,
                   "weight_bytes_per_second": 1e9, "products_seconds": 1, "link_bytes_per_second": 0.5e9,
                   "link_seconds": 1, "nic_bytes_per_second": 0.25e9, "nic_seconds": 1, "ranks_per_nic": 2,
                   "ramp_bytes": 1e9, "chunk_seconds": 1}  # fmt: skip
        self.write("m.json", {"format": "evenkeel.cost.v2", **numbers})
        for nodes, link in [(1, 0.5), (2, 0.25)]:
            here = ["--ranks", RANKS, "--nodes", nodes]
            said, wanted = (
                self.verdict(*here, *rates)[0] for rates in (["--cost", "m.json"], ["--tflops", 1, "--link", link])
            )
            for key in ["step_ms_before", "step_ms_after", "move_ms"]:
                self.assertAlmostEqual(said[key], wanted[key], delta=1e-9 * wanted[key])

    def test_what_has_no_effect_or_lacks_something_is_refused(self):
        model = ["--model", "config.json"]
        tokens = [*model, "--tokens-per-step", 10]
        for words, parts in [
            (["--device", "h100"], ["--device: needs --model"]),
            (["--link", 1], ["--link: needs --model"]),
            (["--tflops", 1], ["--tflops: needs --model"]),
            (["--cost", "c.json"], ["--cost: needs --model"]),
            ([*model, "--tflops", 1], ["--tflops: needs --tokens-per-step"]),
            ([*tokens, "--cost", "c.json", "--tflops", 1], ["--tflops: is already given by --cost"]),
            ([*tokens, "--cost", "c.json", "--device", "h100"], ["--device: is already given by --cost"]),
            ([*tokens, "--device", "h100", "--tflops", 1, "--link", 1], ["--device: has no effect when"]),
            ([*tokens, "--device", "v100"], ["no device 'v100'", "a100, h100, h200, b200, mi300x"]),
        ]:
            for command in (["place"], ["evaluate", "--placement", "p.json"]):
                with self.subTest(command=command[0], words=words):
                    refused = [command[0], self.recording, *command[1:], "--ranks", RANKS, *words]
                    self.assert_refused(refused, 2, "InvalidArgument", *parts)
