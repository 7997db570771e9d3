"""--dispatch: what `place` promises under each rule and `evaluate` finds in the written file is the same.

What the rules are is proven in tests/plan/dispatch_test.cpp, and by SGLang's own code in tests/peers/dispatch_test.py.
"""

import random

from command import CommandTest, npz

RULES = ("even", "static", "nearest")


def drawn_loads(seed, layers, experts):
    draw = random.Random(seed)
    return [[int(draw.lognormvariate(9, 1)) + 1 for _ in range(experts)] for _ in range(layers)]


class DispatchTest(CommandTest):
    def write_counts(self, loads):
        """Counts of a model whose first layer is dense, as SGLang records them."""
        experts = len(loads[0])
        rows = [[0] * experts, *loads]
        (self.folder / "counts.npz").write_bytes(npz("logical_count", (len(rows), experts), sum(rows, [])))

    def place(self, *options):
        return self.json("place", "counts.npz", "--format", "sglang", "-o", "placed.json", *options)

    def test_promised_under_each_rule_is_what_evaluate_finds_under_it(self):
        self.write_counts(drawn_loads(1, 2, 32))
        machine = ["--ranks", 8, "--nodes", 2]
        for rule in RULES:
            with self.subTest(rule=rule):
                said = self.place(*machine, "--redundant-experts", 16, "--dispatch", rule)
                self.assertEqual(said.get("dispatch", "even"), rule)
                self.assertAlmostEqual(said["after"]["max_over_mean_mean"], said["served"][rule], places=9)
                for other in RULES:
                    words = ["evaluate", "counts.npz", "--placement", "placed.json", "--dispatch", other, *machine]
                    placed = self.json(*words)["placements"][1]
                    self.assertEqual(placed.get("dispatch", "even"), other)
                    found = placed["results"][0]["max_over_mean_mean"]
                    self.assertAlmostEqual(said["served"][other], found, places=9)

    def test_a_file_for_sglang_is_judged_by_its_default_and_others_evenly(self):
        self.write_counts(drawn_loads(7, 2, 32))
        machine = ["--ranks", 8, "--redundant-experts", 8]
        self.assertEqual(self.place(*machine)["dispatch"], "static")
        self.call("place", "counts.npz", *machine, "-o", "ours.json")
        words = ["evaluate", "counts.npz", "--placement", "placed.json"]
        placements = self.json(*words, "--placement", "ours.json")["placements"]
        self.assertEqual([each.get("dispatch", "even") for each in placements], ["even", "static", "even"])
        self.assertIn("placed.json (static, 1 node)", self.call(*words, "--ranks", 8).stdout)
        shown = self.call("place", "counts.npz", *machine, "--format", "sglang", "-o", "placed.json").stdout
        for algorithm in ("static", "dynamic"):  # under another, SGLang serves otherwise
            self.assertIn(f"--ep-dispatch-algorithm {algorithm}", shown)
