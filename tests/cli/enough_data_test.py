"""Whether recordings are enough for a verdict: bounds of the gain recomputed here, blocks, and a placement's own data."""

import math
import random
import statistics
import unittest

import evaluate_test as shared
from command import npz_of

T_19 = 2.860935  # Student's t of 19 degrees of freedom, exceeded by 0.5 %


class EnoughData(shared.PlacedTest):
    def stepped(self, seed, count=20):
        """A placement of some steps, and a recording of others of the same popularity."""
        steps = shared.drawn_steps(seed, 2 * count)
        rows = self.placed(self.window("early.npz", steps[:count]), "p.json", "--redundant-experts", 4)
        return rows, self.window("late.npz", steps[count:]), steps[count:]

    def gain(self, rows, steps):
        """Mean and half width of what the placement gains on these steps, of which each is a block."""
        before, after = (
            shared.step_ratios(homes, steps)
            for homes in ([shared.CONTIGUOUS] * 3, [shared.by_rank(row) for row in rows])
        )
        gains = [a - b for a, b in zip(before, after, strict=True)]
        self.assertEqual(len(gains), 20)
        return sum(gains) / 20, T_19 * statistics.stdev(gains) / math.sqrt(20)

    def test_the_verdict_turns_where_a_bound_of_the_gain_has_paid_for_the_move(self):
        rows, recording, steps = self.stepped(10)
        words = self.priced()
        verdict = self.evaluate(recording, "p.json", *words)["verdict"]
        mean, half = self.gain(rows, steps)
        ratios = [
            statistics.mean(shared.step_ratios(homes, steps))
            for homes in ([shared.CONTIGUOUS] * 3, [shared.by_rank(row) for row in rows])
        ]
        self.assert_prices(verdict, 3, ratios, self.new_homes(rows, [shared.CONTIGUOUS] * 3))
        self.assertEqual(list(verdict["gain"]), ["mean", "low", "high", "blocks"])
        for key, value in [("mean", mean), ("low", mean - half), ("high", mean + half)]:
            self.assertAlmostEqual(verdict["gain"][key], value, places=6)
        self.assertEqual((verdict["answer"], verdict["measured_on"]), ("depends", shared.OTHER))
        turn = math.ceil(verdict["break_even_steps"])
        self.assertIn(f"how many steps it will serve: it pays after {turn} step", verdict["sentence"])
        sure = math.ceil(verdict["break_even_steps"] * mean / (mean - half))
        never = math.floor(verdict["break_even_steps"] * mean / (mean + half))
        self.assertLess(never + 1, sure - 1)
        for horizon, answer in [(sure + 1, "pays"), (sure - 1, "not_enough_data"), (never + 1, "not_enough_data"),
                                (never - 1, "does not pay")]:  # fmt: skip
            said = self.evaluate(recording, "p.json", *words, "--horizon", horizon)["verdict"]
            self.assertEqual(said["answer"], answer, said)
            self.assertEqual(said["tokens_needed"] is None, answer != "not_enough_data")
            if answer != "not_enough_data":
                self.assertIn(f"pays after {turn} step", said["sentence"])

    def test_tokens_that_would_do_are_of_the_variance_seen_and_rounded_up_to_two_digits(self):
        rows, recording, steps = self.stepped(11)
        words = self.priced()
        first = self.evaluate(recording, "p.json", *words)["verdict"]
        mean, half = self.gain(rows, steps)
        horizon = math.ceil(first["break_even_steps"] * mean / (mean - half)) - 1
        said = self.evaluate(recording, "p.json", *words, "--horizon", horizon)["verdict"]
        tokens = sum(load for step in steps for layer in step for load in layer) / 3 / 2  # of top-2
        price = first["move_ms"] / horizon * mean / (first["step_ms_before"] - first["step_ms_after"])
        exact = tokens * ((half + 1.65 * half / T_19) / max(mean - price, half / T_19)) ** 2
        unit = 10 ** (len(str(int(exact))) - 2)
        self.assertAlmostEqual(said["tokens_needed"], exact, delta=1.01 * unit)
        self.assertGreaterEqual(said["tokens_needed"], exact * 0.999)
        self.assertEqual(said["tokens_needed"] % unit, 0)
        self.assertIn(f"about {said['tokens_needed']:,} tokens would do", said["sentence"])

    def test_without_enough_sequences_or_steps_nothing_pays_and_it_is_said_what_is_missing(self):
        steps = shared.drawn_steps(12, 40)
        self.placed(self.window("early.npz", steps[:20]), "p.json")
        sums = [[sum(step[layer][e] for step in steps[20:]) for e in range(shared.EXPERTS)] for layer in range(3)]
        words = self.priced("--horizon", 10**9)
        for name, missing in [
            (self.window("few.npz", steps[20:39]), "few.npz has 19 steps, and 20 are needed"),
            (self.counts("sum.json", sums), "sum.json says neither its sequences nor its steps"),
        ]:
            said = self.evaluate(name, "p.json", *words)["verdict"]
            self.assertEqual((said["answer"], said["gain"]), ("not_enough_data", None))
            self.assertIn(f"not enough data: {missing}", said["sentence"])
            self.assertIn(f"about {said['tokens_needed']:,} tokens would do", said["sentence"])
        parts = [self.counts(f"{i}.json", step) for i, step in enumerate(steps[20:])]
        for count, answer in [(19, "not_enough_data"), (20, "pays")]:
            files = self.json("evaluate", *parts[:count], "--placement", "p.json", "--ranks", shared.RANKS, *words)
            self.assertEqual(files["verdict"]["answer"], answer)

    def test_a_trace_is_judged_by_whole_sequences_and_not_by_windows_of_its_tokens(self):
        draw = random.Random(13)
        ids = [
            expert for _ in range(400) for _ in range(3) for expert in (draw.choice([0, 0, 0, 1]), draw.randrange(4, 8))
        ]
        offsets = [10 * i for i in range(41)]
        for name, more in [("t.npz", {}), ("s.npz", {"sequence_offsets": offsets})]:
            rows = {"topk_ids": ([400, 3, 2], ids)} | {key: ([41], value) for key, value in more.items()}
            (self.folder / name).write_bytes(npz_of(rows))
        self.placed(self.counts("other.json", [[30, 10, 1, 1, 10, 10, 10, 10]] * 3), "p.json")
        words = ["--step-tokens", 10, *self.priced("--horizon", 10**9)]
        windows = self.evaluate("t.npz", "p.json", *words)["verdict"]
        self.assertEqual(windows["answer"], "not_enough_data")
        self.assertIn("t.npz says neither its sequences nor its steps", windows["sentence"])
        blocks = self.evaluate("s.npz", "p.json", *words)["verdict"]
        self.assertEqual(blocks["answer"], "pays")
        homes = [shared.by_rank(row) for row in self.file("p.json")["physical_to_logical"]]
        loads = [[[ids[(token * 3 + layer) * 2 + k] for token in range(20 * b, 20 * b + 20) for k in (0, 1)]
                  for layer in range(3)] for b in range(20)]  # fmt: skip
        counts = [[[layer.count(e) for e in range(shared.EXPERTS)] for layer in block] for block in loads]
        gains = [
            a - b
            for a, b in zip(
                shared.step_ratios([shared.CONTIGUOUS] * 3, counts), shared.step_ratios(homes, counts), strict=True
            )
        ]
        self.assertAlmostEqual(blocks["gain"]["mean"], sum(gains) / 20, places=12)

    def test_the_data_that_a_placement_was_made_from_is_known_again_and_never_pays(self):
        steps = shared.drawn_steps(14, 20)
        own = self.window("own.npz", steps)
        self.placed(own, "p.json")
        words = self.priced("--horizon", 10**9)
        said = self.evaluate(own, "p.json", *words)["verdict"]
        self.assertEqual((said["answer"], said["measured_on"]), ("not_enough_data", shared.OWN))
        self.assertIn("made from this data, so it is optimistic that", said["sentence"])
        self.assertIn(f"about {said['tokens_needed']:,} tokens of other traffic would do", said["sentence"])
        sums = [[sum(step[layer][e] for step in steps) for e in range(shared.EXPERTS)] for layer in range(3)]
        self.assertEqual(self.evaluate(self.counts("sum.json", sums), "p.json")["verdict"]["measured_on"], shared.OWN)
        self.json("place", own, "--ranks", shared.RANKS, "--format", "vllm", "-o", "v.json")
        self.assertIsNone(self.evaluate(own, "v.json", *words)["verdict"]["measured_on"])
        self.assertIn("if it was not made from this data", self.evaluate(own, "v.json", *words)["verdict"]["sentence"])

    def test_a_window_that_gains_little_on_itself_and_moves_many_experts_does_not_pay(self):
        draw = random.Random(15)
        window = [[draw.randint(950, 1050) for _ in range(shared.EXPERTS)] for _ in range(3)]
        self.placed(self.counts("window.json", window), "p.json")
        said = self.evaluate("window.json", "p.json", *self.priced("--horizon", 5))["verdict"]
        self.assertEqual(said["answer"], "does not pay")
        self.assertRegex(said["sentence"], "are saved, the move takes .*, and 5 steps are asked about, and that is opt")

    def test_what_is_not_known_leaves_the_answer_open_and_is_named(self):
        _, recording, _ = self.stepped(16)
        for words, parts in [
            ([], ["what a step takes, what the move takes and how many steps it will serve"]),
            (["--horizon", 100], ["what a step takes and what the move takes:"]),
            (self.priced()[:6], ["what the move takes and how many steps it will serve"]),
            (self.priced()[:4], ["what a step takes"]),
        ]:
            with self.subTest(words=words):
                verdict = self.evaluate(recording, "p.json", *words)["verdict"]
                self.assertEqual(verdict["answer"], "depends")
                self.assertIsNone(verdict["break_even_steps"])
                for part in parts:
                    self.assertIn(part, verdict["sentence"])


if __name__ == "__main__":
    unittest.main()
