"""If ranks make different calls or give different arguments, all raise one error at once; none computes wrong results.

Random calls and a rank's own failures are in fault_storm_test.py. The oracle computes every token densely on its own
rank. The deadline is long, so that an error raised in time cannot be a timeout.
"""

from __future__ import annotations

import time
import unittest
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from processes import error_message, require_documented, run_ranks
from torch.utils.checkpoint import checkpoint

import evenkeel as ek
from evenkeel.errors import CommError, InvalidArgument
from evenkeel.torch import ExpertParallel
from evenkeel.torch._exchange import Exchange

HIDDEN, TOKENS, K = 8, 12, 2
SECONDS = 20.0
AT_ONCE = 5.0

LAYERS: dict[str, tuple[int, dict[str, Any]]] = {
    "A": (6, {}),
    "B": (6, {}),
    "C": (40, {"budget": 10**7}),
    "D": (12, {"budget": 10**7, "chunk_bins": [1, 2]}),
    "E": (400, {}),
}
"""Experts and options. The layers' shapes are equal; their messages differ in length."""


def products(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.einsum("th,tho->to", rows, weights["w"][slots])


class Layer:
    """One layer on one rank; its inputs make the layer move weights."""

    def __init__(self, kind: str, rank: int, ranks: int, **options: Any) -> None:
        experts, of_kind = LAYERS[kind]
        options = {"imbalance_threshold": 0.0, "min_segment": 1, "name": kind} | of_kind | options
        self.layer = ExpertParallel(experts, **options)
        self.whole = torch.randn((experts, HIDDEN, HIDDEN), generator=torch.Generator().manual_seed(ord(kind)))
        self.own = self.whole[rank * experts // ranks : (rank + 1) * experts // ranks].clone().requires_grad_()
        seeded = torch.Generator().manual_seed(10 * ord(kind) + rank)
        self.hidden = torch.randn((TOKENS, HIDDEN), generator=seeded).requires_grad_()
        self.top_k = torch.rand((TOKENS, K), generator=seeded).requires_grad_()
        self.ids = torch.randint(experts, (TOKENS, K), generator=seeded)
        self.ids[torch.arange(TOKENS) % 4 != 0] = 1

    def forward(
        self, experts: Callable[..., torch.Tensor] = products, hidden: torch.Tensor | None = None
    ) -> torch.Tensor:
        return self.layer(self.hidden if hidden is None else hidden, self.ids, self.top_k, experts, {"w": self.own})

    def exact(self) -> torch.Tensor:
        return torch.einsum("tk,th,tkho->to", self.top_k, self.hidden, self.whole[self.ids])

    def require_right(self, made: torch.Tensor) -> None:
        assert torch.allclose(made, self.exact(), rtol=1e-4, atol=1e-4), f"{self.layer.exchange.layer}: wrong outputs"

    def backward(self, made: torch.Tensor) -> None:
        self.hidden.grad = self.top_k.grad = None
        made.sum().backward()
        exact = torch.autograd.grad(self.exact().sum(), [self.hidden, self.top_k])
        for tensor, wanted in zip((self.hidden, self.top_k), exact, strict=True):
            assert tensor.grad is not None and torch.allclose(tensor.grad, wanted, rtol=1e-4, atol=1e-4), (
                f"{self.layer.exchange.layer}: wrong gradients"
            )


Script = list[tuple[str, str]]
"""The calls of a rank: `forward` or `backward`, and a layer's name."""


def play(rank: int, ranks: int, scripts: list[Script], warm: bool) -> tuple[str, str, float]:
    """Plays this rank's script. Returns the error's class, its reason, and the seconds until it. Checks outputs."""
    script = scripts[rank]
    layers = {name: Layer(name, rank, ranks) for name in LAYERS}
    if warm:
        for layer in layers.values():
            layer.backward(layer.forward())
    made: dict[str, list[torch.Tensor]] = {name: [] for name in LAYERS}
    start = time.monotonic()
    try:
        for which, name in script:
            if which == "forward":
                made[name].append(layers[name].forward())
                layers[name].require_right(made[name][-1])
            else:
                layers[name].backward(made[name].pop())
    except CommError as error:
        return type(error).__name__, str(error.data["why"]), time.monotonic() - start
    return "none", "", time.monotonic() - start


def steps(names: str) -> Script:
    return [(which, name) for name in names for which in ("forward", "backward")]


def unlike_outputs(rank: int, ranks: int, first: bool) -> tuple[str, str]:
    layer = Layer("A", rank, ranks)
    if not first:
        layer.backward(layer.forward())
    try:
        layer.forward((lambda *given: products(*given).double()) if rank == 1 else products)
    except (InvalidArgument, CommError) as error:
        return type(error).__name__, str(error)
    return "none", ""


def unlike_options(rank: int, ranks: int) -> list[str]:
    messages = []
    homes = [list(range(ranks)) * 200, list(range(ranks)) * 200]
    homes[1][200:202] = [1, 0]  # a position that the message does not show
    long = ek.Placement([[[home] for home in homes[rank]]], ranks)
    for kind, options in ((["A", "C"][rank], {}), ("E", {"placement": long, "planner": "ep"})):
        layer = Layer(kind, rank, ranks, name="moe", **options)  # type: ignore[arg-type]
        messages.append(error_message(layer.forward, InvalidArgument))
    return messages


def unnamed(rank: int, ranks: int) -> str:
    """Two layers of one shape without names; in the first step, each rank runs them in a different order."""
    layers = [Layer("A", rank, ranks, name="") for _ in range(2)]
    try:
        layers[rank].forward()
    except CommError as error:
        return str(error.data["why"])
    return "nothing"


def unlike_collectives(rank: int, ranks: int) -> str:
    """The ranks call two different collectives under the same number, with no layer message before them."""
    exchange = Exchange(None, "7")
    exchange.all_gather("counts", torch.zeros(3))
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
    try:
        if rank == 0:
            exchange.all_gather("counts", torch.zeros(3))
        else:
            exchange.all_to_all("dispatch", torch.zeros((ranks, 3)), [1] * ranks, [1] * ranks)
    except CommError as error:
        assert error.data["peer"] == -1
        return str(error.data["why"])
    return "nothing"


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor) -> torch.Tensor:
        return rows * 1.0

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        raise ValueError("of its own")


def fails_in_backward(rank: int, ranks: int) -> str:
    """Rank 1's experts fail in a backward pass that recomputes a checkpointed forward."""
    layer = Layer("A", rank, ranks)

    def failing(rows: torch.Tensor, *rest: Any) -> torch.Tensor:
        return products(Failing.apply(rows) if rank == 1 else rows, *rest)  # type: ignore[no-untyped-call]

    made = checkpoint(lambda x: layer.forward(failing, hidden=x), layer.hidden, use_reentrant=False)
    return error_message(made.sum().backward, CommError, ValueError)


class AgreementTest(unittest.TestCase):
    def met(self, scripts: list[Script], warm: bool = True) -> str:
        """Returns the reason why the ranks stopped, which must be the same sentence on all of them."""
        outcomes = run_ranks(len(scripts), play, scripts, warm, seconds=SECONDS)
        for kind, why, seconds in outcomes:
            self.assertEqual((kind, why), outcomes[0][:2], scripts)
            self.assertLess(seconds, AT_ONCE, scripts)
        return str(outcomes[0][1])

    def test_layers_of_one_shape_in_another_order(self) -> None:
        why = self.met([steps("AB"), steps("BA")])
        require_documented("two ranks make other calls, or calls in another order", -1, why)
        self.assertEqual(
            why,
            "ranks 0 and 1 are at different calls (rank 0: step 2 of layer A (number 0), forward; rank 1: step 2 of "
            "layer B (number 1), forward), and every rank must make the same layers and the same calls in one order",
        )
        for message in run_ranks(2, unnamed):
            self.assertIn("rank 0: step 1 of layer number 0, forward; rank 1: step 1 of layer number 1", message)

    def test_messages_of_unlike_lengths_are_read(self) -> None:
        for warm in (False, True):
            for one, other in (("AC", "CA"), ("DC", "CA"), ("BD", "DB")):
                self.assertIn("are at different calls", self.met([steps(one), steps(other)], warm))

    def test_unlike_options_are_named_before_a_count_is_read(self) -> None:
        for number, homes in run_ranks(2, unlike_options):
            self.assertIn("num_experts: is not the same on ranks 0 and 1: rank 0 has 6, rank 1 has 40", number)
            self.assertIn("placement: is not the same on ranks 0 and 1: rank 0 has [0, 1, 0, 1", homes)

    def test_outputs_of_unlike_types(self) -> None:
        for kind, message in run_ranks(2, unlike_outputs, True):
            self.assertEqual(kind, "InvalidArgument")
            has = "rank 0 has torch.float32, rank 1 has torch.float64"
            self.assertIn(f"experts: is not the same on ranks 0 and 1: {has}", message)
        others, own = run_ranks(2, unlike_outputs, False)
        self.assertEqual((others[0], own[0]), ("CommError", "InvalidArgument"))
        for _, message in (others, own):
            self.assertIn("experts: returned torch.float64 on rank 1, but torch.float32 on all ranks in", message)
        self.assertIn("rank 1 failed (InvalidArgument", others[1])

    def test_a_rank_that_fails_in_a_checkpoint_s_backward_tells_the_others(self) -> None:
        others, own = run_ranks(2, fails_in_backward, seconds=SECONDS)
        self.assertRegex(others, r"rank 1 failed \(ValueError: of its own\) after .* of layer A, backward")
        self.assertEqual(own, "of its own")

    def test_collectives_of_unlike_kinds_are_no_rank_s_fault(self) -> None:
        for message in run_ranks(2, unlike_collectives):
            self.assertIn("no rank is known to be at fault", message)
            self.assertIn("in counts of layer 7, forward", message)


if __name__ == "__main__":
    unittest.main()
