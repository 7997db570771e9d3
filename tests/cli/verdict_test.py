"""The time model of place and evaluate: place says of its own data what evaluate says, and where rates come from."""

import json
import statistics
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
        steps = shared.drawn_steps(4, 40)
        recordings = [self.window("a.npz", steps[:20]), "--judge", self.window("b.npz", steps[20:])]
        words = [*recordings, "--ranks", RANKS, *self.priced("--horizon", 1)]
        out = self.call("place", *words).stdout
        said = self.json("place", *words)
        for key, data in (("verdict", shared.OWN), ("judged_verdict", shared.OTHER)):
            sentence = said[key]["sentence"]
            self.assertIn(f"  the placement against contiguous: {sentence}\n  measured on {data}\n", out)
            self.assertIn("1 step is asked about", sentence)

    def test_what_is_held_out_decides_on_the_data_that_a_placement_is_made_from(self):
        steps = shared.drawn_steps(40, 23)
        recording = self.window("r.npz", steps)
        words = ["--redundant-experts", 4, "--ranks", RANKS]
        said = self.json("place", recording, *words, *self.priced("--horizon", 10**9), "-o", "p.json")
        blocks = shared.blocks_of(steps)
        before, after = [], []
        for fold in range(10):
            rest = [step for b, block in enumerate(blocks) if b // 2 != fold for step in block]
            rows = self.placed(self.window("rest.npz", rest), "rest.json", "--redundant-experts", 4)
            for block in blocks[2 * fold : 2 * fold + 2]:
                before.append(statistics.mean(shared.step_ratios([shared.CONTIGUOUS] * 3, block)))
                after.append(statistics.mean(shared.step_ratios([shared.by_rank(row) for row in rows], block)))
        held_out = said["held_out"]
        self.assertEqual(list(held_out), ["max_over_mean_before", "max_over_mean_after", "blocks", "folds"])
        self.assertEqual((held_out["blocks"], held_out["folds"]), (20, 10))
        self.assertAlmostEqual(held_out["max_over_mean_before"], sum(before) / 20, places=12)
        self.assertAlmostEqual(held_out["max_over_mean_after"], sum(after) / 20, places=12)
        verdict = said["verdict"]
        self.assertAlmostEqual(verdict["max_over_mean_before"], sum(before) / 20, places=12)
        self.assertAlmostEqual(verdict["max_over_mean_after"], sum(after) / 20, places=12)
        self.assertAlmostEqual(verdict["gain"]["mean"], (sum(before) - sum(after)) / 20, places=12)
        self.assertEqual((verdict["answer"], verdict["measured_on"]), ("pays", shared.OWN))
        self.assertIn("it pays: held out, ", verdict["sentence"])
        provenance = self.file("p.json")["provenance"]
        self.assertAlmostEqual(float(provenance["held_out_max_over_mean"]), sum(after) / 20, places=5)
        self.assertAlmostEqual(float(provenance["held_out_max_over_mean_before"]), sum(before) / 20, places=5)
        self.assertRegex(provenance["recordings_digest"], "^[0-9a-f]{16}$")
        text = self.call("place", recording, *words).stdout
        figures = [held_out[key] for key in ("max_over_mean_before", "max_over_mean_after")]
        self.assertIn("held out, 10 folds of 20 blocks: max/mean load {:.3f} -> {:.3f}".format(*figures), text)

    def test_nothing_is_held_out_where_there_are_no_blocks(self):
        few = self.window("few.npz", shared.drawn_steps(41, 19))
        said = self.json("place", few, "--ranks", RANKS, *self.priced("--horizon", 10**9), "-o", "p.json")
        self.assertNotIn("held_out", said)
        self.assertEqual(said["verdict"]["answer"], "not_enough_data")
        self.assertNotIn("held_out_max_over_mean", self.file("p.json")["provenance"])

    def test_a_judge_that_the_placement_was_made_from_is_told(self):
        recording = self.counts("r.json", shared.drawn_loads(42, 3))
        words = ["--ranks", RANKS, *self.priced("--horizon", 9), "--judge", recording]
        self.assertEqual(self.json("place", recording, *words)["judged_verdict"]["measured_on"], shared.OWN)

    def test_one_recording_alone_says_what_it_cannot_know(self):
        a, b = self.counts("a.json", shared.drawn_loads(43, 3)), self.counts("b.json", shared.drawn_loads(44, 3))
        for words, notes in [([a], 1), ([a, b], 0), ([a, "--judge", b], 0)]:
            said = self.json("place", *words, "--ranks", RANKS)["after"]["notes"]
            self.assertEqual(sum("made from one recording: how it holds on" in note for note in said), notes)

    def test_the_first_line_says_the_median_step_where_there_are_steps(self):
        steps = self.window("s.npz", shared.drawn_steps(45, 5))
        for words in ([steps], [steps, "--steps"]):
            said = self.json("place", *words, "--ranks", RANKS)["steps"][0]
            first = self.call("place", *words, "--ranks", RANKS).stdout.splitlines()[0]
            self.assertIn(
                f", of the median step {said['before']['median']:.3f} -> {said['after']['median']:.3f}", first
            )

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
        self.assertIn("takes the rates of products and links from it; weight_bytes_per_second, overlap", notes)

    def test_a_cost_file_of_the_new_form_counts_short_inner_dimensions_and_interfaces(self):
        recording = self.counts("r.json", shared.drawn_loads(8, 3))
        self.placed(recording, "p.json")
        self.priced()
        outputs = 2 * shared.MIXTRAL["intermediate_size"] + shared.MIXTRAL["hidden_size"]
        numbers = {"flops_per_second": 2e12, "inner_half": shared.EXPERT_WEIGHTS / outputs, "overlap": 0.5,
                   "weight_bytes_per_second": 1e9, "products_seconds": 1, "link_bytes_per_second": 0.5e9,
                   "link_seconds": 1, "nic_bytes_per_second": 0.25e9, "nic_seconds": 1, "ranks_per_nic": 2,
                   "ramp_bytes": 1e9, "chunk_seconds": 1}  # fmt: skip
        self.write("m.json", {"format": "evenkeel.cost.v2", **numbers})
        words = ["evaluate", recording, "--placement", "p.json", "--model", "config.json", "--tokens-per-step", 1000]
        for nodes, link in [(1, 0.5), (2, 0.25)]:
            here = [*words, "--ranks", RANKS, "--nodes", nodes]
            said, _ = self.printed(*here, "--cost", "m.json")
            wanted = self.json(*here, "--tflops", 1, "--link", link)["verdict"]
            for key in ["step_ms_before", "step_ms_after", "move_ms"]:
                self.assertAlmostEqual(said["verdict"][key], wanted[key], delta=1e-9 * wanted[key])

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
