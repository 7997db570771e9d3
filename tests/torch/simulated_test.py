"""The simulator predicts what processes do in a step: loads, transfers, chunks, reasons and rows."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from budget_test import Shape, Step, experts
from processes import run_ranks

import evenkeel as ek
from evenkeel.torch._exchange import Exchange

STEPS = 12


def routing(shape: Shape) -> torch.Tensor:
    """Ids `[steps, ranks, tokens, k]`, less even with every step."""
    random = torch.Generator().manual_seed(shape.experts)
    ids = torch.randint(shape.experts, (STEPS, shape.ranks, shape.tokens, shape.k), generator=random)
    for step in range(STEPS):
        ids[step][torch.rand(ids[step].shape, generator=random) < step / STEPS] = 0
    return ids


def steps_of(rank: int, _: int, shape: Shape, options: dict[str, Any]) -> list[dict[str, Any]]:
    """The layer's report of each step, and the rows this rank sent."""
    sent = []
    start = Exchange.start

    def counting(self: Exchange, phase: str, rows: torch.Tensor, to: Any, *rest: Any) -> Any:
        if phase == "dispatch":
            sent.append(sum(to) - to[rank])
        return start(self, phase, rows, to, *rest)

    Exchange.start = counting  # type: ignore[method-assign]
    step = Step(rank, shape)
    layer = step.layer(**options)
    said = []
    for ids in routing(shape):
        sent.clear()
        layer(step.hidden, ids[rank], step.top_k, experts, step.weights)
        said.append({**layer.last, "rows": sum(sent)})
    return said


class Simulated(unittest.TestCase):
    def test_steps_of_processes(self) -> None:
        for shape in (
            Shape(ranks=2, experts=16, k=2, hidden=32, width=64, tokens=96, hot=0),
            Shape(ranks=4, experts=8, k=3, hidden=16, width=96, tokens=80, hot=0),
        ):
            for planner, options in (("level", {}), ("llep", {"planner": "least-loaded"}), ("ep", {"planner": "ep"})):
                with self.subTest(ranks=shape.ranks, planner=planner):
                    self.compare(shape, planner, options)

    def compare(self, shape: Shape, method: str, options: dict[str, Any]) -> None:
        ranks = run_ranks(shape.ranks, steps_of, shape, options)
        with tempfile.TemporaryDirectory() as folder:
            trace, model = Path(folder, "trace.npz"), Path(folder, "config.json")
            ids = routing(shape).reshape(-1, 1, shape.k).numpy()
            np.savez(trace, topk_ids=ids)
            model.write_text(
                f'{{"model_type": "mixtral", "hidden_size": {shape.hidden}, "intermediate_size": {shape.width}, '
                f'"num_hidden_layers": 1, "vocab_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2, '
                f'"num_local_experts": {shape.experts}, "num_experts_per_tok": {shape.k}, "dtype": "float32"}}'
            )
            # Places from the same trace, so that all steps are judged.
            compared = ek.compare(
                [trace],
                ranks=shape.ranks,
                model=model,
                methods=[method, "moetuner"],
                place_from=[trace],
                step_tokens=shape.ranks * shape.tokens,
                num_experts=shape.experts,
                min_segment=4,
                imbalance_threshold=1.1,
            ).steps[method]
        for step in range(STEPS):
            last = [said[step] for said in ranks]
            loads = last[0]["rank_loads"]
            self.assertAlmostEqual(compared["max_over_mean"][step], max(loads) / np.mean(loads))
            self.assertEqual(compared["transfers"][step], last[0]["transfers"])
            self.assertEqual(compared["chunks"][step], last[0]["chunks"])
            self.assertEqual(compared["layers_as_planned"][step], last[0]["reason"] == "as planned")
            self.assertEqual(compared["rows"][step], sum(said["rows"] for said in last))


if __name__ == "__main__":
    unittest.main()
