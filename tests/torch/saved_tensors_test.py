"""Outputs and gradients match one process under every saved-tensor hook, however often a backward pass runs.

The oracle computes all ranks' tokens densely in f64, and sums the losses. Hooks may differ between ranks.
"""

from __future__ import annotations

import random
import tempfile
import unittest
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from layer_test import all_weights, at_home, experts, inputs, one_process, routing
from processes import run_ranks
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import offload_wrapper
from torch.utils.checkpoint import checkpoint
from whole_plan_test import cutting, whole

from evenkeel.torch import ExpertParallel

E, K = 8, 3
HOT_SEEDS = (5, 7)  # seeds of routings in which weights move


def to_disk(folder: str) -> AbstractContextManager[Any]:
    def pack(tensor: torch.Tensor) -> str:
        with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
            torch.save(tensor, file)
        return file.name

    return saved_tensors_hooks(pack, torch.load)


@contextmanager
def nested(folder: str) -> Iterator[None]:
    with saved_tensors_hooks(torch.clone, lambda x: x), save_on_cpu():
        yield


HOOKS: dict[str, Callable[[str], AbstractContextManager[Any]]] = {
    "none": lambda folder: nullcontext(),
    "identity": lambda folder: saved_tensors_hooks(lambda x: x, lambda x: x),
    "clone": lambda folder: saved_tensors_hooks(torch.clone, torch.clone),
    "numpy": lambda folder: saved_tensors_hooks(lambda x: x.detach().numpy().copy(), torch.from_numpy),
    "disk": to_disk,
    "cpu": lambda folder: save_on_cpu(),
    "nested": nested,
}
REGIONS = ["plain", "reentrant", "checkpoint", "checkpoint in checkpoint", "offload_wrapper"]
LOSSES = ["once", "twice", "two losses", "three losses", "a tensor at a time"]


class Region(torch.nn.Module):
    def __init__(self, run: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.run = run

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.run(hidden)


def in_region(kind: str, run: Callable[[torch.Tensor], torch.Tensor], hidden: torch.Tensor) -> torch.Tensor:
    made: Any
    if kind == "plain":
        made = run(hidden)
    elif kind == "offload_wrapper":
        made = offload_wrapper(Region(run))(hidden)
    elif kind == "checkpoint in checkpoint":
        inner: Callable[[torch.Tensor], Any] = lambda x: checkpoint(run, x.exp().log(), use_reentrant=False)  # noqa: E731
        made = checkpoint(lambda x: inner(x) * 1.0, hidden, use_reentrant=False)
    else:
        made = checkpoint(lambda x: run(x) * 1.0, hidden, use_reentrant=kind == "reentrant")
    return made  # type: ignore[no-any-return]


def losses_of(kind: str, made: torch.Tensor, grad: torch.Tensor) -> list[torch.Tensor]:
    """Losses linear in the output, so that the order of adding gradients does not matter."""
    parts = {"two losses": 2, "three losses": 3, "twice": 2}.get(kind, 1)
    return [(made * grad * (1 + part)).sum() for part in range(parts)]


def run_backward(kind: str, losses: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[torch.Tensor]:
    if kind == "a tensor at a time":
        return [torch.autograd.grad(losses[0], [leaf], retain_graph=True)[0] for leaf in leaves]
    for leaf in leaves:
        leaf.grad = None
    for i, loss in enumerate(losses):
        loss.backward(retain_graph=i + 1 < len(losses))
    return [leaf.grad for leaf in leaves if leaf.grad is not None]


def storm(rank: int, ranks: int, seed: int, budget: int | None, folder: str) -> str:
    """Returns a description of the case; fails if a gradient differs from the oracle's."""
    alike, own_choice = random.Random(seed), random.Random(1000 * seed + rank)
    hot, region, kind = alike.choice(HOT_SEEDS), REGIONS[seed % len(REGIONS)], LOSSES[seed // len(REGIONS)]
    if region == "reentrant":  # torch runs it backward only once, and not by autograd.grad
        kind = "once"
    hook = own_choice.choice(list(HOOKS))
    case = f"seed {seed}, rank {rank}: {region}, {kind}, {hook}, budget {budget}"

    ids = routing(hot, ranks, E, K)
    whole = {name: weight.double().requires_grad_() for name, weight in all_weights(hot, E).items()}
    every = [[each.double() for each in inputs(hot, other, ids[other])] for other in range(ranks)]
    for (hidden, top_k, grad), chosen in zip(every, ids, strict=True):
        hidden.requires_grad_(), top_k.requires_grad_()
        sum(losses_of(kind, one_process(hidden, chosen, top_k, whole), grad)).backward()  # type: ignore[union-attr]

    mine = slice(rank * E // ranks, (rank + 1) * E // ranks)
    hidden, top_k, grad = inputs(hot, rank, ids[rank])
    own = at_home(all_weights(hot, E), rank, ranks)
    hidden.requires_grad_(), top_k.requires_grad_()
    layer = ExpertParallel(E, min_segment=1, imbalance_threshold=0.0, budget=budget)
    with HOOKS[hook](folder):
        made = in_region(region, lambda x: layer(x, ids[rank], top_k, experts, own), hidden)
    if region != "checkpoint in checkpoint":  # x.exp().log() in this region rounds the input
        single = one_process(hidden.detach(), ids[rank], top_k.detach(), all_weights(hot, E))
        assert torch.equal(made, single), f"{case}: outputs"
    found = run_backward(kind, losses_of(kind, made, grad), [hidden, top_k, *own.values()])
    last = layer.last_training
    assert last["transfers"] > 0 and (last["chunks"] > 1) == (budget is not None), last
    exact = [every[rank][0].grad, every[rank][1].grad]
    exact += [weight.grad[mine] for weight in whole.values() if weight.grad is not None]
    assert len(found) == len(exact) == 4
    for one, other in zip(found, exact, strict=True):
        assert other is not None and torch.allclose(one.double(), other, rtol=1e-3, atol=1e-3), (
            f"{case}: off by {(one.double() - other).abs().max()}"
        )
    return case


def storms(rank: int, ranks: int, folder: str) -> list[str]:
    """Runs storms without a budget, with a budget (each chunk has its plan), and with three chunks on one plan."""
    made = []
    for seed in range(len(REGIONS) * len(LOSSES)):
        made += [storm(rank, ranks, seed, budget, folder) for budget in (None, 100_000)]
        with cutting(whole(3)):
            made.append(storm(rank, ranks, seed, 2**40, folder))
    return made


class SavedTensorsTest(unittest.TestCase):
    def test_a_storm_of_hooks_regions_and_backward_passes(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            cases = [case for of_rank in run_ranks(2, storms, folder) for case in of_rank]
        for name in (*HOOKS, *REGIONS, *LOSSES):
            self.assertTrue(any(f", {name}," in case or f": {name}," in case for case in cases), name)


if __name__ == "__main__":
    unittest.main()
