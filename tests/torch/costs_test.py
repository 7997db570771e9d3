"""How long a layer expects a step to take: from measured costs, or from a machine's numbers in a file of costs."""

from __future__ import annotations

import copy
import json
import tempfile
import time
import unittest
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import Any

import torch
from layer_test import HIDDEN, WIDTH, all_weights, at_home, experts, inputs, one_process, routing
from processes import error_message, run_ranks
from slots_test import dispatcher

import evenkeel as ek
from evenkeel.torch import ExpertParallel, ExpertSlots, Machine, SpillCosts, weights_fixed
from evenkeel.torch._options import LayerOptions

E, K = 8, 3
ELEMENTS = 3 * HIDDEN * WIDTH
SLOW = 50e-6  # seconds a row

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
    own = at_home(all_weights(2, E), rank, ranks)
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


TOKENS = 20


def over_links(rank: int, ranks: int, layers: list[dict[str, Any]]) -> list[tuple[list[int], str]]:
    """For each layer: the ranks' loads and the step's reason, if all tokens choose expert 0, at home on rank 0."""
    ids = torch.zeros((TOKENS, 1), dtype=torch.int64)
    hidden, top_k, grad = inputs(3, rank, ids)
    weights, right = all_weights(3, E), {}
    own = at_home(weights, rank, ranks)
    made = []
    for options in layers:
        layer = (ExpertSlots if "slots" in options else ExpertParallel)(E, min_segment=1, **options)
        carry = [partial(dispatcher, here=layer.places_here)] if isinstance(layer, ExpertSlots) else []
        output = layer(hidden, ids, top_k, experts, own, *carry)
        assert torch.equal(output, one_process(hidden, ids, top_k, weights)), options
        for name, gradient in zip(own, torch.autograd.grad(output, [*own.values()], grad), strict=True):
            torch.testing.assert_close(gradient, right.setdefault(name, gradient))
        made.append((layer.last["rank_loads"], layer.last["reason"]))
        if carry:
            with torch.no_grad(), weights_fixed(layer):
                assert torch.equal(layer(hidden, ids, top_k, experts, own, *carry), output)
                assert layer.last["rank_loads"] == made[-1][0], layer.last
    return made


def unlike_links(rank: int, ranks: int, files: list[Path]) -> list[str]:
    kinds = (ek.errors.InvalidArgument,)
    ids = torch.zeros((TOKENS, 1), dtype=torch.int64)
    hidden, top_k, _ = inputs(3, rank, ids)
    layer = ExpertParallel(2, topology=files[rank])
    unlike = error_message(lambda: layer(hidden, ids, top_k, experts, all_weights(3, 1)), *kinds)
    return [unlike, error_message(lambda: ExpertParallel(2, topology="8xh100"), *kinds)]


def predicted(training: bool) -> tuple[float, float, float]:
    """Predicts costs from NUMBERS, as docs/formats.md and docs/algorithms.md describe."""
    row, products = 4 * HIDDEN, 2 * (ELEMENTS + 6 * (2 * WIDTH + HIDDEN)) / 1e9
    sent, read = 1e-5 + 4 * ELEMENTS / 1e7, 4 * ELEMENTS / 1e8  # gradients are f32 too
    if training:
        return 3 * products + 4 * row / 1e7, 2 * (2 * sent + 9 * read), 4e-4
    return products + 2 * row / 1e7, 2 * (sent + 3 * read), 2e-4


class CostsTest(unittest.TestCase):
    def setUp(self) -> None:
        self.file = Path(self.enterContext(tempfile.TemporaryDirectory()), "cost.json")
        self.file.write_text(json.dumps({"format": "evenkeel.cost.v2", **NUMBERS}))

    def links(self, path: str, ranks_per_node: int = 2, **more: Any) -> Path:
        """Two nodes; ranks reach the other node at a tenth of the rate inside their own node."""
        file = self.file.with_name(path)
        levels = {"within": {"gigabytes_per_s": 1e-4}, "across": {"gigabytes_per_s": 1e-5}}
        file.write_text(json.dumps({"format": "evenkeel.topology.v1", "num_nodes": 2, "ranks_per_node": ranks_per_node,
                                    **levels, **more}))  # fmt: skip
        return file

    def test_a_hot_expert_is_borrowed_inside_the_node_where_the_link_across_is_slow(self) -> None:
        links, alike = self.links("links.json"), self.links("alike.json", across={"gigabytes_per_s": 1e-4})
        self.file.write_text(json.dumps({"format": "evenkeel.cost.v2", **NUMBERS, "flops_per_second": 1e6}))
        machine = {"costs": self.file}
        every, node = [TOKENS] * 4, [2 * TOKENS] * 2 + [0] * 2
        expected = [
            (machine, every),
            (machine | {"topology": alike}, every),
            (machine | {"topology": links}, node),
            (machine | {"topology": links, "imbalance_threshold": 1.3}, node),
            (machine | {"topology": links, "imbalance_threshold": 5.0}, [4 * TOKENS, 0, 0, 0]),
            (machine | {"topology": links, "budget": "64MiB"}, node),
            (machine | {"topology": links, "slots": 2}, node),
            ({"topology": links, "imbalance_threshold": 0.0}, None),  # loads depend on what is measured
        ]
        first, *others = run_ranks(4, over_links, [options for options, _ in expected])
        for made in others:
            self.assertEqual(made, first)
        for (loads, reason), (options, right) in zip(first, expected, strict=True):
            self.assertEqual(right or loads, loads, options)
            self.assertEqual(reason, "as planned" if any(loads[1:]) else "nothing moves", options)

    def test_ranks_have_one_topology_for_as_many_ranks(self) -> None:
        files = [self.links(f"{name}.json", ranks_per_node=1, name=name) for name in "AB"]
        for unlike, ranks in run_ranks(2, unlike_links, files):
            self.assertIn("topology: is not the same on ranks 0 and 1: rank 0 has Topology({", unlike)
            self.assertIn("topology: has 8 ranks; allowed: one of 2 ranks, as in the group", ranks)

    def test_links_beside_which_options_decide_otherwise_are_refused(self) -> None:
        links = self.links("links.json")
        for options, message in [
            ({"planner": "ep"}, "topology: planner ep does not use links; allowed: planner level, or no topology"),
            ({"planner": "least-loaded"}, "topology: planner least-loaded does not use links"),
            ({"costs": SpillCosts(1, 1, 1)}, "costs: are SpillCosts, which have one rate for all links"),
            ({"topology": self.links("rooms.json", rooms=[2] * 4)}, "topology: the topology limits experts per rank"),
            ({"topology": 3}, "topology: is a int; allowed: a path"),
            ({"topology": self.links("alike.json", across={"gigabytes_per_s": 1e-4}), "costs": self.file,
              "imbalance_threshold": 1.3}, "costs: have no effect if imbalance_threshold"),
        ]:  # fmt: skip
            with self.subTest(message=message), self.assertRaisesRegex(ek.errors.InvalidArgument, message):
                LayerOptions(**({"topology": links} | options))
        options = LayerOptions(topology="2x8xh100")
        self.assertIs(copy.deepcopy(options).topology, options.topology)

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
