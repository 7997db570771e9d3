"""--dispatch: the loads that `place` promises and `evaluate` finds are what SGLang's ranks serve from the file.

SGLang's rules are restated here from srt/eplb/expert_location.py of 0.5.23. tests/peers/dispatch_test.py runs its code.
"""

import random
import unittest

from command import CommandTest, npz

RULES = ("even", "static", "nearest")


def drawn_loads(seed, layers, experts):
    draw = random.Random(seed)
    return [[int(draw.lognormvariate(9, 1)) + 1 for _ in range(experts)] for _ in range(layers)]


def nearest_slot(slots, rank, each, ranks_per_node):
    """The slot to which a rank dispatches if it has no choice; None if it chooses among several."""
    if len(slots) == 1:
        return slots[0]
    own = [slot for slot in slots if slot // each == rank]
    if own:
        return own[0]
    node = rank // ranks_per_node
    near = [slot for slot in slots if slot // each // ranks_per_node == node]
    return near[0] if 0 < len(near) < len(slots) else None


def dealt(slots, ranks, draw):
    whole, rest = divmod(ranks, len(slots))
    all_dealt = slots * whole + draw.sample(slots, k=rest)
    draw.shuffle(all_dealt)
    return all_dealt


def parts_of(rows, experts, ranks, nodes, rule):
    """[layers][slots]: the share of its expert's load that each slot computes."""
    each = len(rows[0]) // ranks
    parts = [[0.0] * len(row) for row in rows]
    for rank in range(ranks):
        draw = random.Random(42)
        for row, of_slot in zip(rows, parts, strict=True):
            for expert in range(experts):
                slots = [slot for slot, held in enumerate(row) if held == expert]
                if rule == "even":
                    taken = slots
                else:
                    slot = nearest_slot(slots, rank, each, ranks // nodes)
                    taken = slots if slot is None else [slot]
                if rule == "static" and len(taken) > 1:
                    waiting = [r for r in range(ranks) if nearest_slot(slots, r, each, ranks // nodes) is None]
                    taken = [dealt(slots, len(waiting), draw)[waiting.index(rank)]]
                for slot in taken:
                    of_slot[slot] += 1 / len(taken) / ranks
    return parts


def max_over_mean(rows, parts, loads, ranks):
    """[layers]: max/mean of the ranks' loads."""
    ratios = []
    for row, of_slot, of_expert in zip(rows, parts, loads, strict=True):
        sums = [0.0] * ranks
        for slot, expert in enumerate(row):
            sums[slot // (len(row) // ranks)] += of_slot[slot] * of_expert[expert]
        ratios.append(max(sums) * ranks / sum(sums))
    return ratios


class DispatchTest(CommandTest):
    def write_counts(self, loads):
        """Writes counts as SGLang records them, for a model whose first layer is dense."""
        experts = len(loads[0])
        rows = [[0] * experts, *loads]
        (self.folder / "counts.npz").write_bytes(npz("logical_count", (len(rows), experts), sum(rows, [])))

    def place(self, *options):
        return self.json("place", "counts.npz", "--format", "sglang", "-o", "placed.json", *options)

    def served(self, loads, ranks, nodes, rule):
        """[layers]: max/mean of the ranks' loads with the written file, without the dense layer."""
        rows, experts = self.file("placed.json")["physical_to_logical_map"], len(loads[0])
        return max_over_mean(rows, parts_of(rows, experts, ranks, nodes, rule), [[1] * experts, *loads], ranks)[1:]

    def test_promised_is_served_under_every_rule(self):
        for seed, (ranks, nodes, copies, groups, experts) in enumerate(
            [
                (8, 1, 8, 1, 32),
                (8, 2, 16, 1, 32),
                (16, 4, 32, 1, 32),
                (16, 2, 16, 4, 32),
                (12, 12, 12, 1, 24),
                (8, 2, 0, 1, 32),
            ]
        ):
            loads = drawn_loads(seed, 2, experts)
            self.write_counts(loads)
            machine = ["--ranks", ranks, "--nodes", nodes]
            for rule in RULES:
                with self.subTest(ranks=ranks, nodes=nodes, copies=copies, groups=groups, rule=rule):
                    result = self.place(*machine, "--redundant-experts", copies, "--groups", groups, "--dispatch", rule)
                    served = self.served(loads, ranks, nodes, rule)
                    self.assertEqual(result.get("dispatch", "even"), rule)
                    self.assertAlmostEqual(result["after"]["max_over_mean_mean"], sum(served) / 2, places=9)
                    self.assertAlmostEqual(result["after"]["max_over_mean_worst"], max(served), places=9)
                    for other in RULES:
                        again = sum(self.served(loads, ranks, nodes, other)) / 2
                        self.assertAlmostEqual(self.evaluated(other, *machine), again, places=9)
                        if copies:
                            self.assertAlmostEqual(result["served"][other], again, places=9)

    def evaluated(self, rule, *machine):
        words = ["evaluate", "counts.npz", "--placement", "placed.json", "--dispatch", rule, *machine]
        placed = self.json(*words)["placements"][1]
        self.assertEqual(placed.get("dispatch", "even"), rule)
        return placed["results"][0]["max_over_mean_mean"]

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
        for algorithm in ("static", "dynamic"):  # with other algorithms, SGLang dispatches differently
            self.assertIn(f"--ep-dispatch-algorithm {algorithm}", shown)


if __name__ == "__main__":
    unittest.main()
