"""The time model of place and evaluate: place says of its own data what evaluate says, and where rates come from."""

import json
import unittest

import evaluate_test as shared

EXPERTS, RANKS, VERDICT = shared.EXPERTS, shared.RANKS, shared.VERDICT
HALF_OF_PEAKS = {
    "a100": (156e12, 150e9), "h100": (494.75e12, 225e9), "h200": (494.75e12, 225e9), "b200": (1125e12, 450e9),
    "mi300x": (653.7e12, 224e9),
}  # fmt: skip


class Verdict(shared.PlacedTest):
    def printed(self, *words):
        """The object without its notes, and what is said on stderr, which are these notes."""
        done = self.call(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(done.stderr, "".join(f"note: {note}\n" for note in said["notes"] + said["verdict"]["notes"]))
        said["verdict"]["notes"] = []
        return said, done.stderr

    def cost(self):
        return self.write("c.json", {"format": "evenkeel.cost.v1", "flops_per_second": 2e12,
                                     "weight_bytes_per_second": 1e9, "link_bytes_per_second": 0.5e9,
                                     "chunk_seconds": 1e-5})  # fmt: skip

    def assert_says_what_evaluate_says(self, made_from, judges, place_words, evaluate_words, model):
        """The verdicts of `place` are those of `evaluate` on the same files."""
        words = ["--ranks", RANKS, *place_words, *model, "-o", "p.json"]
        judged = ["--judge", *judges] if judges else []
        said = self.json("place", *made_from, *words, *judged)
        for key, data, files in [
            ("verdict", "the data it was made from", made_from),
            ("judged_verdict", "data it was not made from", judges),
        ]:
            if not files:
                self.assertNotIn(key, said)
                continue
            self.assertEqual(list(said[key]), [*VERDICT, "measured_on"])
            other = self.json("evaluate", *files, "--placement", "p.json", "--ranks", RANKS, *evaluate_words, *model)
            self.assertEqual(said[key], other["verdict"] | {"measured_on": data})
        return said

    def test_place_says_of_its_data_and_of_others_what_evaluate_says(self):
        a, b = self.counts("a.json", shared.drawn_loads(1, 3)), self.counts("b.json", shared.drawn_loads(2, 3))
        c = self.window("c.npz", [shared.drawn_loads(20 + i, 3) for i in range(6)])
        model = self.priced("--horizon", 100)
        self.assert_says_what_evaluate_says([a], [], [], [], model)
        self.assert_says_what_evaluate_says([c], [a, b], ["--redundant-experts", 4], [], model)
        self.assert_says_what_evaluate_says([a, b], [c], [], [], model)
        self.assert_says_what_evaluate_says([c], [a], ["--steps"], [], model)
        self.placed(a, "now.json")
        self.assert_says_what_evaluate_says(
            [b], [c], ["--from", "now.json", "--max-moves", 3], ["--from", "now.json"], model
        )

    def test_windows_of_a_trace_are_steps_and_say_how_many_tokens_one_has(self):
        ids = [expert for t in range(60) for _ in range(3) for expert in (t % 3, 3 + t % 5)]
        (self.folder / "t.npz").write_bytes(shared.npz("topk_ids", [60, 3, 2], ids))
        self.priced()
        words = ["--step-tokens", 20]
        model = ["--model", "config.json", "--tflops", 2]
        said = self.assert_says_what_evaluate_says(["t.npz"], [], ["--steps", *words], words, model)
        self.assertIsNotNone(said["verdict"]["step_ms_before"])

    def test_figures_of_place_are_those_of_its_loads_and_rows(self):
        loads = shared.drawn_loads(3, 3)
        recording = self.counts("r.json", loads)
        words = ["--redundant-experts", 4, *self.priced(), "--ranks", RANKS, "-o", "p.json"]
        verdict = self.json("place", recording, *words)["verdict"]
        rows = self.file("p.json")["physical_to_logical"]
        homes = [shared.by_rank(row) for row in rows]
        before = sum(shared.max_over_mean(shared.CONTIGUOUS, of_layer) for of_layer in loads) / 3
        after = sum(map(shared.max_over_mean, homes, loads)) / 3
        self.assertAlmostEqual(verdict["max_over_mean_before"], before, places=12)
        self.assertAlmostEqual(verdict["max_over_mean_after"], after, places=12)
        self.assert_prices(verdict, 3, [before, after], self.new_homes(rows, [shared.CONTIGUOUS] * 3))
        self.assertEqual((verdict["placement"], verdict["against"]), ("p.json", "contiguous"))

    def test_people_get_the_verdict_of_place_and_read_on_what_it_was_measured(self):
        recording = self.counts("r.json", shared.drawn_loads(4, 3))
        words = [recording, "--ranks", RANKS, *self.priced("--horizon", 1), "--judge", recording]
        out = self.call("place", *words).stdout
        verdict = self.json("place", *words)["verdict"]
        for data in ("the data it was made from", "data it was not made from"):
            self.assertIn(f"  on {data}:\n  the placement against contiguous: {verdict['sentence']}\n", out)
        self.assertIn("1 step is asked about", verdict["sentence"])

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
        rows = self.file("p.json")["physical_to_logical"]
        ratios = [shared.max_over_mean(shared.by_rank(rows[i]), loads[j]) for i, j in ((0, 0), (2, 1))]
        self.assertAlmostEqual(after["max_over_mean_mean"], sum(ratios) / 2, places=12)
        for file, part in [("short.json", "2 layers without numbers"), ("other.json", "layers 2,5")]:
            parts = ["--judge: a.json has layers 3-5", f"{file} has {part}"]
            self.assert_refused([*words, file], 2, "InvalidArgument", *parts)

    def test_a_device_is_half_of_its_peaks_and_says_so(self):
        recording = self.counts("r.json", shared.drawn_loads(6, 3))
        self.placed(recording, "p.json")
        self.priced()
        words = ["evaluate", recording, "--placement", "p.json", "--model", "config.json", "--tokens-per-step", 1000]
        for name, (flops, link) in HALF_OF_PEAKS.items():
            said, notes = self.printed(*words, "--ranks", RANKS, "--device", name)
            plain = ["--tflops", flops / 1e12, "--link", link / 1e9]
            self.assertEqual(said, self.json(*words, "--ranks", RANKS, *plain))
            self.assertIn(f"taken for {flops / 1e12:g} TFLOP/s and {link / 1e9:g} GB/s; that 50 %", notes)
            self.assertIn("assumption", notes)
            self.assertEqual(self.printed(*words, "--ranks", RANKS, "--device", name.upper())[0], said)

    def test_what_is_said_outright_goes_before_a_device(self):
        recording = self.counts("r.json", shared.drawn_loads(7, 3))
        self.placed(recording, "p.json")
        self.priced()
        words = ["evaluate", recording, "--placement", "p.json", "--model", "config.json", "--tokens-per-step", 1000]
        words += ["--ranks", RANKS]
        said, notes = self.printed(*words, "--device", "h100", "--link", 0.5)
        self.assertEqual(said, self.json(*words, "--tflops", 494.75, "--link", 0.5))
        self.assertNotIn("GB/s", notes)
        said, notes = self.printed(*words, "--device", "h100", "--tflops", 2)
        self.assertEqual(said, self.json(*words, "--tflops", 2, "--link", 225))
        self.assertNotIn("TFLOP/s", notes)
        said, notes = self.printed(*words, "--device", "h100", "--nodes", 2)
        self.assertIsNone(said["verdict"]["move_ms"])
        self.assertIn("its link is that within a node", notes)

    def test_a_cost_file_also_says_the_link_of_the_move(self):
        recording = self.counts("r.json", shared.drawn_loads(8, 3))
        self.placed(recording, "p.json")
        self.priced()
        words = ["evaluate", recording, "--placement", "p.json", "--model", "config.json", "--tokens-per-step", 1000]
        words += ["--ranks", RANKS]
        said, notes = self.printed(*words, "--cost", self.cost())
        self.assertEqual(said, self.json(*words, "--tflops", 2, "--link", 0.5))
        self.assertIn("flops_per_second and link_bytes_per_second from it; weight_bytes_per_second, overlap", notes)

    def test_what_has_no_effect_or_lacks_something_is_refused(self):
        recording = self.counts("r.json", shared.drawn_loads(9, 3))
        self.placed(recording, "p.json")
        self.priced()
        self.cost()
        model = ["--model", "config.json"]
        tokens = [*model, "--tokens-per-step", 10]
        for words, parts in [
            (["--device", "h100"], ["--device: needs --model"]),
            (["--link", 1], ["--link: needs --model"]),
            ([*model, "--tflops", 1], ["--tflops: needs --tokens-per-step"]),
            ([*tokens, "--cost", "c.json", "--tflops", 1], ["--tflops: is what --cost says"]),
            ([*tokens, "--cost", "c.json", "--device", "h100"], ["--device: is what --cost says"]),
            ([*tokens, "--device", "h100", "--tflops", 1, "--link", 1], ["--device: has nothing left to say"]),
            ([*tokens, "--device", "v100"], ["no device 'v100'", "a100, h100, h200, b200, mi300x"]),
        ]:
            for command in (["place", recording], ["evaluate", recording, "--placement", "p.json"]):
                with self.subTest(command=command[0], words=words):
                    self.assert_refused([*command, "--ranks", RANKS, *words], 2, "InvalidArgument", *parts)


if __name__ == "__main__":
    unittest.main()
