"""What a layer takes a step to cost: measured, or by a machine's numbers, which a file of costs holds."""

from __future__ import annotations

import copy
import json
import tempfile
import time
import unittest
from dataclasses import astuple
from pathlib import Path
from typing import Any

import torch
from layer_test import HIDDEN, WIDTH, all_weights, experts, inputs, routing
from processes import run_ranks

import evenkeel as ek
from evenkeel.torch import ExpertParallel, Machine
from evenkeel.torch._options import LayerOptions

E, K = 8, 3
ELEMENTS = 3 * HIDDEN * WIDTH
SLOW = 50e-6  # of a row

NUMBERS = {
    "flops_per_second": 1e9,
    "inner_half": 6,
    "weight_bytes_per_second": 1e8,
    "overlap": 0.5,
    "products_seconds": 1e-6,
    "link_bytes_per_second": 1e7,
    "link_seconds": 1e-5,
    "nic_bytes_per_second": 1e7,
    "nic_seconds": 0,
    "ranks_per_nic": 1,
    "ramp_bytes": 0,
    "chunk_seconds": 1e-4,
}


def slow_experts(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    time.sleep(SLOW * len(rows))
    return experts(rows, slots, weights)


def steps(rank: int, ranks: int, costs: Any, training: list[bool]) -> list[Any]:
    """After each step, the layer's costs and machine."""
    layer = ExpertParallel(E, min_segment=1, costs=costs)
    ids = routing(2, ranks, E, K)[rank]
    hidden, top_k, _ = inputs(2, rank, ids)
    own = {name: weight[rank * E // ranks : (rank + 1) * E // ranks] for name, weight in all_weights(2, E).items()}
    seen = []
    for wants in training:
        with torch.set_grad_enabled(wants):
            layer(hidden.requires_grad_(wants), ids, top_k, slow_experts if rank == 1 else experts, own)
        numbers = {name: getattr(layer.machine, name) for name in NUMBERS}
        seen.append((astuple(layer.costs), numbers))
    if rank == 0 and costs is None:
        with tempfile.TemporaryDirectory() as folder:
            layer.machine.save(f"{folder}/cost.json")
            again = ExpertParallel(E, costs=f"{folder}/cost.json").machine
            assert repr(again) == repr(layer.machine), again
            seen.append(json.loads(Path(folder, "cost.json").read_text()))
    return seen


def predicted(training: bool) -> tuple[float, float, float]:
    """By NUMBERS, as docs/formats.md and docs/algorithms.md say it."""
    row, products = 4 * HIDDEN, 2 * (ELEMENTS + 6 * (2 * WIDTH + HIDDEN)) / 1e9
    sent, read = 1e-5 + 4 * ELEMENTS / 1e7, 4 * ELEMENTS / 1e8  # gradients are f32 as well
    if training:
        return 3 * products + 4 * row / 1e7, 2 * (2 * sent + 9 * read), 4e-4
    return products + 2 * row / 1e7, 2 * (sent + 3 * read), 2e-4


class CostsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.file = Path(self.enterContext(tempfile.TemporaryDirectory()), "cost.json")
        self.file.write_text(json.dumps({"format": "evenkeel.cost.v2", **NUMBERS}))

    def test_the_slowest_ranks_numbers_are_measured_alike_and_saved(self) -> None:
        first, second = run_ranks(2, steps, None, [True])
        saved = first.pop()
        self.assertEqual(first, second)
        _, numbers = first[0]
        self.assertLess(numbers["flops_per_second"], 1.5 * 2 * ELEMENTS / SLOW)
        self.assertGreater(numbers["link_seconds"], 0)
        self.assertEqual(saved, {"format": "evenkeel.cost.v2", **numbers, "measured_on": saved["measured_on"]})
        self.assertEqual((saved["measured_on"]["ranks"], saved["measured_on"]["cores"]), (2, 1))

    def test_costs_are_predicted_by_a_given_machine(self) -> None:
        for made in run_ranks(2, steps, self.file, [False, True, False]):
            for (seconds, numbers), training in zip(made, [False, True, True], strict=True):
                self.assertEqual(numbers, NUMBERS)
                for one, expected in zip(seconds, predicted(training), strict=True):
                    self.assertAlmostEqual(one, expected, delta=1e-12 * expected)

    def test_a_file_and_its_machine_are_the_same_option(self) -> None:
        machine = Machine(self.file)
        self.assertEqual(repr(LayerOptions(costs=machine)), repr(LayerOptions(costs=str(self.file))))
        self.assertIs(copy.deepcopy(machine), machine)

    def test_what_is_no_machine_is_refused(self) -> None:
        with self.assertRaisesRegex(ek.errors.InvalidArgument, "costs: is a tuple; allowed: a path"):
            LayerOptions(costs=(1, 2, 3))  # type: ignore[arg-type]
        self.file.write_text(json.dumps({"format": "evenkeel.cost.v2", **NUMBERS, "overlap": 2}))
        with self.assertRaisesRegex(ek.errors.ParseError, "overlap: is 2"):
            LayerOptions(costs=self.file)


if __name__ == "__main__":
    unittest.main()
