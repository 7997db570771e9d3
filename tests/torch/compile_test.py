"""A transformers block compiles as one graph around our layer, and gives the results of the uncompiled block."""

from __future__ import annotations

import os
import tempfile
import unittest

import torch
import torch.distributed as dist
from processes import run_ranks
from tiny_models import make
from transformers.distributed import DistributedConfig

import evenkeel.transformers


def compare(rank: int, ranks: int, folder: str) -> None:
    model, _ = make("qwen3_moe")
    path = os.path.join(folder, "model")
    if rank == 0:
        model.save_pretrained(path)
    dist.barrier()
    # FSDP's hooks would break the graph under any implementation.
    config = DistributedConfig(tp_size=ranks, ep_size=ranks, ep_implementation="evenkeel")
    for options in ({}, {"mode": "slots", "slots": 2}):
        evenkeel.transformers.register(min_segment=1, imbalance_threshold=0.0, **options)
        spread = type(model).from_pretrained(path, dtype=torch.float32, distributed_config=config)
        batches = [torch.randint(1, 64, (1, length), generator=torch.Generator().manual_seed(3)) for length in (24, 9)]
        right = [step(spread, ids) for ids in batches]
        for layer in spread.model.layers:
            layer.mlp.compile(fullgraph=True, backend="aot_eager")
        for ids, (output, grads) in zip(batches, right, strict=True):
            made, found = step(spread, ids)
            assert torch.equal(made, output), options
            assert all(torch.equal(found[name], grads[name]) for name in grads), options
        in_flight(spread, batches, [grads for _, grads in right])
        assert all(layer.last["transfers"] > 0 for layer in evenkeel.transformers.layers(spread))
        with torch.no_grad():
            assert torch.equal(spread(batches[0]).logits, right[0][0])
    graphs = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    assert graphs <= 6, f"{graphs}: in each mode at most one for a length, one for any, and one without gradients"


def step(model: torch.nn.Module, ids: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.zero_grad()
    logits = model(ids).logits
    logits.square().mean().backward()
    return logits.detach(), gradients(model)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: each.grad.clone() for name, each in model.named_parameters() if "experts" in name}


def in_flight(model: torch.nn.Module, batches: list[torch.Tensor], right: list[dict[str, torch.Tensor]]) -> None:
    """Runs the second forward before the first backward."""
    losses = [model(ids).logits.square().mean() for ids in batches]
    for loss, grads in zip(losses, right, strict=True):
        model.zero_grad()
        loss.backward()
        assert all(torch.equal(found, grads[name]) for name, found in gradients(model).items())


class CompileTest(unittest.TestCase):
    def test_a_block_is_one_graph(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            run_ranks(2, compare, folder)


if __name__ == "__main__":
    unittest.main()
