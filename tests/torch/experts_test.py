"""Experts of every kind: either their gradients match one process in any number of chunks, or they are refused."""

from __future__ import annotations

import copy
import pickle
import re
import unittest
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from layer_test import HIDDEN, at_home, inputs, least_budget
from processes import error_message, run_ranks
from torch.distributed.device_mesh import init_device_mesh
from transformers.models.mixtral.configuration_mixtral import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

import evenkeel as ek
from evenkeel.torch import ExpertParallel, LiveBytes, SpillCosts
from evenkeel.torch._module import with_weights
from evenkeel.torch._options import LayerOptions
from evenkeel.transformers import EvenkeelEP

E, K, SEED = 4, 2, 5
F8 = torch.float8_e4m3fn
Weights = dict[str, torch.Tensor]
Experts = Callable[[torch.Tensor, torch.Tensor, Weights], torch.Tensor]


def product(rows: torch.Tensor, slots: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.bmm(rows.unsqueeze(1), weight[slots]).squeeze(1)


def shared_gradient(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """A base weight plus a learned delta: autograd gives both the same gradient tensor."""
    return product(rows, slots, weights["up"] + weights["delta"])


def repeated_gradient(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    """The gradient of `delta` is one number, expanded: a view that repeats it."""
    return product(rows, slots, weights["up"]) + 0 * weights["delta"].sum()


def unused(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
    return product(rows, slots, weights["up"])


def make_weights(count: int, dtype: torch.dtype) -> Weights:
    random = torch.Generator().manual_seed(SEED)
    return {name: torch.randn((count, HIDDEN, HIDDEN), generator=random).to(dtype) for name in ("up", "delta")}


def one_process(experts: Experts, hidden: torch.Tensor, ids: torch.Tensor, top_k: torch.Tensor, whole: Weights) -> Any:
    made = experts(hidden.repeat_interleave(K, 0), ids.reshape(-1), whole)
    return (made.view(len(ids), K, -1) * top_k.unsqueeze(-1)).sum(1)


def gradients(rank: int, ranks: int, experts: Experts, chunks: int) -> int:
    ids = [torch.randint(E, (48, K), generator=torch.Generator().manual_seed(each)) for each in range(ranks)]
    whole = {name: weight.requires_grad_() for name, weight in make_weights(E, torch.float64).items()}
    every = [inputs(SEED, each, ids[each], torch.float64) for each in range(ranks)]
    for each, (hidden, top_k, grad) in enumerate(every):
        one_process(experts, hidden, ids[each], top_k, whole).backward(grad)
    mine, own = slice(rank * E // ranks, (rank + 1) * E // ranks), at_home(whole, rank, ranks)
    hidden, top_k, grad = every[rank]
    hidden.requires_grad_(), top_k.requires_grad_()
    budget = None if chunks == 1 else 10**7
    bins = None if chunks == 1 else [chunks]
    layer = ExpertParallel(E, min_segment=1, imbalance_threshold=0.0, budget=budget, chunk_bins=bins)
    layer(hidden, ids[rank], top_k, experts, own).backward(grad)
    for name, weight in own.items():
        exact = whole[name].grad
        exact = torch.zeros_like(weight) if exact is None else exact[mine]
        assert weight.grad is not None
        assert torch.allclose(weight.grad, exact, rtol=1e-10, atol=1e-10), (
            f"{name}: {(weight.grad - exact).abs().max()}"
        )
    return int(layer.last["chunks"])


def stagnating(rank: int, ranks: int) -> float:
    """The gradient of a bf16 weight to which 1,024 tokens in 64 chunks contribute equally."""
    ids = torch.zeros((1024, 1), dtype=torch.int64)
    hidden, weight = torch.ones((1024, 1), dtype=torch.bfloat16), torch.ones((1, 1, 1), dtype=torch.bfloat16)
    layer = ExpertParallel(1, budget=10**6, chunk_bins=[64])
    weight.requires_grad_()
    out = layer(hidden, ids, torch.ones_like(hidden), lambda r, s, w: product(r, s, w["up"]), {"up": weight})
    out.backward(torch.ones_like(out))
    assert weight.grad is not None
    return weight.grad.item()


def of_mixtral(rank: int, ranks: int, training: bool, count: int, times: int) -> list[tuple[int, int]]:
    """Peak bytes of steps with transformers' grouped products, and the budget, `times` the least.

    Each rank has `count` experts: bf16 in training, else f32 under autocast.
    """
    made, hidden_size, k = [], 32 if count == 1 else 64, min(count, 2)
    config = MixtralConfig(hidden_size=hidden_size, intermediate_size=256 if training else 8, num_local_experts=count)
    config._experts_implementation = "grouped_mm"
    dtype = torch.bfloat16 if training else torch.float32
    torch.manual_seed(rank)
    module = MixtralExperts(config).to(dtype)
    for weight in module.parameters():
        torch.nn.init.normal_(weight, std=0.2)
    own = dict(module.named_parameters())

    def experts(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
        ones = rows.new_ones((len(rows), 1))
        out: torch.Tensor = MixtralExperts.forward(with_weights(module, weights), rows, slots.unsqueeze(-1), ones)
        return out

    planner = "ep" if training else "level"
    options: dict[str, Any] = {"min_segment": 1, "imbalance_threshold": 0.0, "planner": planner}
    budget, layer = 0, None
    for seed in range(3):
        random = torch.Generator().manual_seed(seed)
        ids = torch.randint(count, (300, k), generator=random)
        if training and count > 1:
            ids += count * (1 - rank)  # route to the other rank's experts
        hidden = torch.randn((300, hidden_size), generator=random).to(dtype).requires_grad_()
        top_k = torch.rand((300, k), generator=random).requires_grad_()
        with torch.set_grad_enabled(training), torch.autocast("cpu", torch.bfloat16, enabled=not training):
            if layer is None:
                small = ExpertParallel(2 * count, budget=1, **options)
                budget = times * least_budget(partial(small, hidden, ids, top_k, experts, own))
                layer = ExpertParallel(2 * count, budget=budget, **options)
                layer(hidden[:0], ids[:0], top_k[:0], experts, own)  # measures
            with LiveBytes() as live:
                out = layer(hidden, ids, top_k, experts, own)
                results = [out]
                if training:
                    grad = torch.ones_like(out)
                    results += [grad, *torch.autograd.grad(out, [hidden, top_k, *own.values()], grad)]
        made.append((live.peak - sum(result.nbytes for result in results), budget))
    return made


def few(rank: int, ranks: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, Weights]:
    """Six tokens that all choose expert 0: hidden, ids, router weights, and this rank's weights."""
    ids = torch.zeros((6, K), dtype=torch.int64)
    hidden, top_k, _ = inputs(SEED, rank, ids)
    return hidden, ids, top_k, at_home(make_weights(E, torch.float32), rank, ranks)


def refusal(call: Callable[[], object]) -> str:
    said = error_message(call, ek.errors.InvalidArgument)
    torch.distributed.destroy_process_group()  # the failed group
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    return said


def refused(rank: int, ranks: int) -> None:
    """Changes one argument of a right call at a time, and checks the error message for each."""
    hidden, ids, top_k, own = few(rank, ranks)
    outside = torch.ones(HIDDEN, requires_grad=True)
    right: dict[str, Any] = {"hidden": hidden, "ids": ids, "top_k": top_k}
    right |= {"experts": unused, "weights": own, "stock": None}
    up, numbers = own["up"].detach(), "whole numbers [tokens, k], k from 1"
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        (
            {"experts": lambda r, s, w: unused(r, s, w) * outside},
            f"use a tensor ({HIDDEN},) that requires a gradient but is not in weights",
        ),
        ({"experts": lambda r, s, w: unused(r, s, w)[1:]}, f"returned shape (11, {HIDDEN}) for rows (12, {HIDDEN})"),
        ({"experts": lambda r, s, w: unused(r, s, w).detach()}, "returned an output without a grad_fn"),
        ({"ids": ids[:, :0], "top_k": top_k[:, :0]}, numbers),
        ({"ids": ids.float()}, numbers),
        ({"ids": ids.bool()}, numbers),
        (
            {"experts": lambda r, s, w: unused(r.mul_(2), s, w)},
            "changed their rows in place; allowed: operations that make new tensors",
        ),
        ({"experts": lambda r, s, w: unused(r, s, {"up": w["up"].mul_(2)})}, "changed their up in place"),
        ({"experts": lambda r, s, w: (unused(r, s, w), None)}, "returned a tuple; allowed: one tensor"),
        ({"weights": list(own)}, "weights: is a list; allowed: a Mapping"),
        ({"weights": {}}, "weights: is empty; allowed: at least one tensor, [experts at home, ...]"),
        (
            {"weights": {"up": torch.tensor(1.0)}},
            "weights['up']: a single number, but 4 are at home on rank 0; allowed: [4, ...]",
        ),
        ({"weights": {"up": [1.0] * E}}, "weights['up']: is a list; allowed: a Tensor"),
        ({"weights": {"up": up.to(F8).requires_grad_()}}, "weights['up']: is of torch.float8_e4m3fn; allowed: float16"),
        (
            {"hidden": hidden.to(F8)},
            "hidden: is of torch.float8_e4m3fn; allowed: float16, bfloat16, float32 or float64",
        ),
        ({"hidden": hidden.to(torch.int32)}, "hidden: is of torch.int32; allowed: float16"),
        ({"hidden": hidden.tolist()}, "hidden: is a list; allowed: a Tensor"),
        ({"top_k": top_k.to(F8)}, "top_k_weights: is of torch.float8_e4m3fn; allowed: float16"),
        ({"ids": ids.tolist()}, "top_k_index: is a list; allowed: a Tensor"),
        ({"experts": None}, "experts: is a NoneType; allowed: a callable"),
        ({"stock": 3}, "stock: is a int; allowed: a callable"),
    )
    for changed, part in changes:
        said = refusal(lambda: ExpertParallel(E)(*(right | changed).values()))  # noqa: B023
        assert part in said, f"{said} lacks: {part}"
    options: tuple[tuple[dict[str, Any], str], ...] = (
        ({"layer": 0}, "layer: needs placement; allowed"),
        ({"budget": True}, "budget: True; allowed: a whole number"),
        ({"group": [0]}, "group: is a list; allowed: a ProcessGroup"),
        ({"num_experts": torch.tensor(2.0)}, "num_experts: tensor(2.); allowed: a whole number"),
        ({"bugdet": 10}, "'bugdet' is no argument of ExpertParallel(); allowed: num_experts, group, planner"),
    )
    for option, part in options:
        said = refusal(lambda: ExpertParallel(**({"num_experts": E} | option)))  # noqa: B023
        assert part in said, f"{said} lacks: {part}"


def with_dropout(rank: int, ranks: int) -> list[tuple[float, float, int]]:
    """Returns <output, v>, <gradient of hidden, hidden> and chunks; if the layer is linear, the products are equal."""
    ids = torch.randint(E, (48, K), generator=torch.Generator().manual_seed(rank))
    hidden, top_k, grad = inputs(SEED, rank, ids, torch.float64)
    own = {name: w[: E // ranks].clone().requires_grad_() for name, w in make_weights(E, torch.float64).items()}
    made = []
    for options in ({}, {"budget": 10**7, "chunk_bins": [4]}):
        hidden = hidden.detach().requires_grad_()
        layer = ExpertParallel(E, min_segment=1, imbalance_threshold=0.0, **options)  # type: ignore[arg-type]
        for _ in range(2):  # a second step, after the first call's probes
            torch.manual_seed(7 + rank)
            hidden.grad = None
            out = layer(hidden, ids, top_k, lambda r, s, w: torch.dropout(unused(r, s, w), 0.5, True), own)
            out.backward(grad)
        assert hidden.grad is not None
        assert layer.last["transfers"] > 0 or ranks == 1
        made.append(((out * grad).sum().item(), (hidden.grad * hidden).sum().item(), int(layer.last["chunks"])))
    return made


def refused_where_measured(rank: int, ranks: int) -> list[str]:
    """Error messages for experts that a first call measures, with the factor by which that call changed a weight."""
    outside = torch.ones(HIDDEN, requires_grad=True)
    kinds: list[Any] = [
        lambda r, s, w: unused(r, s, {"up": w["up"].mul_(2)}),
        lambda r, s, w: (unused(r, s, w), None),
        lambda r, s, w: unused(r, s, w) * outside,
    ]
    said = []
    for training in (True, False):
        for experts in kinds:
            hidden, ids, top_k, own = few(rank, ranks)
            before = own["up"].detach().clone()
            with torch.set_grad_enabled(training):
                call = partial(ExpertParallel(E, budget="1GiB"), hidden, ids, top_k, experts, own)
                said.append(refusal(call) + f"; {(own['up'] / before).max().item():g} times")
    return said


def refused_where_timed(rank: int, ranks: int, training: bool) -> str:
    hidden, ids, top_k, own = few(rank, ranks)
    experts: Any = lambda r, s, w: (unused(r, s, w), None)  # noqa: E731
    with torch.set_grad_enabled(training):
        layer = ExpertParallel(E, imbalance_threshold="auto")
        return error_message(lambda: layer(hidden, ids, top_k, experts, own), ek.errors.InvalidArgument)


def quantized(rank: int, ranks: int) -> bool:
    """Experts with float8 weights that travel. Returns whether outputs equal those of the same weights in f32."""
    hidden, ids, top_k, weights = few(rank, ranks)
    own = {"up": weights["up"].detach().to(F8)}

    def experts(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
        return product(rows, slots, weights["up"].float())

    layer = ExpertParallel(E, min_segment=1, imbalance_threshold=0.0)
    with torch.no_grad():
        made = layer(hidden, ids, top_k, experts, own)
        wide = layer(hidden, ids, top_k, experts, {"up": own["up"].float()})
    return layer.last["transfers"] > 0 and torch.equal(made, wide)


def copied(rank: int, ranks: int) -> tuple[bool, str]:
    """Returns whether a copy is the layer itself, and the error of pickling it."""
    layer = ExpertParallel(E)
    return copy.deepcopy([layer])[0] is layer, error_message(lambda: pickle.dumps([layer]), ek.errors.Unsupported)


def probes_draw_nothing(rank: int, ranks: int) -> bool:
    hidden, ids, top_k, own = few(rank, ranks)
    drawn: list[torch.Tensor] = []

    def experts(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
        drawn.append(torch.rand(1))
        return unused(rows, slots, weights)

    torch.manual_seed(3)
    first = torch.rand(1)
    torch.manual_seed(3)
    ExpertParallel(E, budget="1GiB")(hidden, ids, top_k, experts, own)
    return rank != 0 or torch.equal(drawn[-1], first)  # rank 0 has all rows, so only it can draw


def unlike(rank: int, ranks: int) -> list[tuple[str, str]]:
    """Error messages where the two ranks are given different options or arguments."""
    ids = torch.randint(E, (8, K), generator=torch.Generator().manual_seed(rank))
    hidden, top_k, _ = inputs(SEED, rank, ids)
    own = {name: w[: E // ranks].requires_grad_() for name, w in make_weights(E, torch.float32).items()}
    frozen = {name: weight.detach() for name, weight in own.items()}
    swapped = ek.Placement([[0, 0, 1, 1], [1, 0, 1, 0]], num_ranks=2)
    of_ranks: tuple[tuple[str, dict[str, Any]], ...] = (
        ("planner", {"planner": ["level", "ep"][rank]}),
        ("min_segment", {"min_segment": rank}),
        ("capacity_factor", {"capacity_factor": 1.0 + rank}),
        ("imbalance_threshold", {"imbalance_threshold": [1.0, "auto"][rank]}),
        ("budget", {"budget": [None, 10**7][rank]}),
        ("chunk_bins", {"budget": 10**7, "chunk_bins": [[1, 2], None][rank]}),
        ("costs", {"costs": SpillCosts(1, 1, 1 + rank)}),
        ("placement", {"placement": swapped, "layer": rank}),
        ("none", {"imbalance_threshold": [1, 1.0][rank], "capacity_factor": [1.0, 1][rank]}),
        ("none", {"budget": 10**7, "chunk_bins": [[1, 2], (1, 2)][rank]}),
        ("none", {"costs": [SpillCosts(1, 1, 1), SpillCosts(1.0, 1.0, 1.0)][rank]}),
    )
    of_rank_1: tuple[tuple[str, dict[str, Any]], ...] = (
        ("hidden", {"hidden": hidden.double()}),
        ("top_k_weights", {"top_k": top_k.double()}),
        ("top_k_index", {"ids": ids[:, :1], "top_k": top_k[:, :1]}),
        ("weights", {"weights": dict(reversed(own.items()))}),
        ("weights", {"weights": own | {"more": own["up"]}}),
        ("weights", {"weights": {name: weight.double() for name, weight in own.items()}}),
        ("weights.requires_grad", {"weights": frozen | {"up": own["up"]}}),
        ("stock", {"stock": lambda *_: hidden}),
        ("autocast", {}),
    )
    given = {"hidden": hidden, "ids": ids, "top_k": top_k, "experts": unused, "weights": own, "stock": None}
    calls: list[tuple[str, Any]] = [
        (name, partial(ExpertParallel(E, **options), *given.values())) for name, options in of_ranks
    ]
    layer = ExpertParallel(E)
    calls += [(name, partial(layer, *(given | (changed if rank else {})).values())) for name, changed in of_rank_1]
    said = []
    for name, call in calls:
        layer(*given.values())  # the group still works after each fault
        with torch.autocast("cpu", torch.bfloat16, enabled=name == "autocast" and rank == 1):
            said.append((name, error_message(call, ek.errors.InvalidArgument)))
    return said


def not_plain(rank: int, ranks: int) -> list[str]:
    """Error messages for experts that have a buffer besides their parameters, outside and inside a compiled graph."""
    mesh = init_device_mesh("cpu", (ranks, 1), mesh_dim_names=("ep", "tp"))
    module = MixtralExperts(MixtralConfig(hidden_size=8, intermediate_size=8, num_local_experts=2))
    module.register_buffer("scales", torch.ones(2, 3))
    rows, ids = torch.randn(4, 8), torch.zeros((4, 1), dtype=torch.int64)
    layer = EvenkeelEP(module, mesh["ep"], mesh["tp"])
    given = rows, ids, torch.ones(4, 1)
    calls = (lambda: layer(*given), lambda: layer.in_graph(*given, [*module.parameters()]))
    return [error_message(call, ek.errors.InvalidArgument) for call in calls]


def all_gradients(rank: int, ranks: int) -> list[int]:
    kinds = (shared_gradient, repeated_gradient, unused)
    return [gradients(rank, ranks, experts, chunks) for experts in kinds for chunks in (1, 4)]


class ExpertsTest(unittest.TestCase):
    def test_gradients_that_share_memory_or_repeat(self) -> None:
        for ranks in (1, 2):
            self.assertEqual(run_ranks(ranks, all_gradients), [[1, 4] * 3] * ranks)

    def test_narrow_gradients_of_many_chunks_are_added_wide(self) -> None:
        self.assertEqual(run_ranks(1, stagnating), [1024.0])

    def test_grouped_products_keep_a_budget(self) -> None:
        for case in ((True, 4, 1), (True, 1, 3), (False, 4, 2)):
            for steps in run_ranks(2, of_mixtral, *case):
                for held, budget in steps:
                    self.assertLessEqual(held, budget, str(case))

    def test_what_would_be_wrong_in_silence_is_refused(self) -> None:
        run_ranks(1, refused)

    def test_experts_are_refused_where_a_first_call_measures_them(self) -> None:
        said = run_ranks(1, refused_where_measured)[0]
        for message, part in zip(
            said, ("changed their up in place", "returned a tuple", "requires a gradient but is not") * 2, strict=True
        ):
            if message != "nothing; 1 times":  # without gradients, an outside tensor is allowed
                self.assertIn(part, message)
        self.assertEqual([message.startswith("nothing") for message in said], [False] * 5 + [True])
        for message in said:  # changed once, in the refused call
            self.assertTrue(message.endswith(("; 1 times", "; 2 times")), message)

        for training in (True, False):
            for message in run_ranks(2, refused_where_timed, training):
                self.assertIn("returned a tuple", message)

    def test_weights_of_float8_travel(self) -> None:
        self.assertEqual(run_ranks(2, quantized), [True, True])

    def test_a_copy_of_a_layer_is_the_layer(self) -> None:
        for is_it, said in run_ranks(2, copied):
            self.assertTrue(is_it)
            self.assertIn("save state_dict()", said)

    def test_weights_that_would_stay_at_home_are_refused(self) -> None:
        for said in run_ranks(1, not_plain)[0]:
            self.assertIn("have a buffer of each expert, scales", said)

    def test_a_chunk_that_is_computed_again_draws_the_same_random_numbers(self) -> None:
        for ranks in (1, 2):
            for kinds in run_ranks(ranks, with_dropout):
                self.assertEqual([chunks for _, _, chunks in kinds], [1, 4])
                for of_output, of_hidden, _ in kinds:
                    self.assertAlmostEqual(of_output, of_hidden, delta=1e-9 * abs(of_output))
        self.assertEqual(run_ranks(2, probes_draw_nothing), [True, True])

    def test_every_rank_says_what_ranks_were_not_given_alike(self) -> None:
        for said in run_ranks(2, unlike):
            for name, message in said:
                same = f"{name}: is not the same on ranks 0 and 1: rank 0 has "
                self.assertRegex(message, "^nothing$" if name == "none" else f"^{same}.*, rank 1 has ")

    def test_options_are_python_s_numbers_whatever_they_were_given_as(self) -> None:
        given = LayerOptions(
            capacity_factor=np.float32(1.2),  # type: ignore[arg-type]
            min_segment=np.int64(3),  # type: ignore[arg-type]
            imbalance_threshold=np.float64(1.3),
            budget=torch.tensor(10**6),  # type: ignore[arg-type]
            chunk_bins=(np.int8(1), 2),
        )
        plain = LayerOptions(
            capacity_factor=1.2, min_segment=3, imbalance_threshold=1.3, budget=10**6, chunk_bins=[1, 2]
        )
        self.assertEqual(repr(given), repr(plain))

    def test_options_say_what_would_be_right(self) -> None:
        for options, said in (
            ({"imbalance_threshold": "autp"}, "'autp'; allowed: auto, or max/mean from 0; did you mean 'auto'?"),
            ({"imbalance_threshold": -1.0}, "-1.0; allowed: auto"),
            ({"imbalance_threshold": None}, "None; allowed: auto"),
            ({"imbalance_threshold": 1.3, "costs": SpillCosts(1, 1, 1)}, "costs: have no effect if imbalance"),
            ({"costs": (1, 2, 3)}, "costs"),
            ({"budget": 10**6, "chunk_bins": (n for n in (1, 2))}, "a list of numbers of chunks"),
            ({"budget": 10**6, "chunk_bins": [1, np.array([2])]}, "chunk_bins: array([2]); allowed: a whole number"),
            ({"capacity_factor": "1.2"}, "capacity_factor: '1.2'; allowed: a number"),
            ({"capacity_factor": torch.tensor([2.0])}, "capacity_factor: tensor([2.]); allowed: a number"),
            ({"imbalance_threshold": np.array([1.3])}, "imbalance_threshold: array([1.3]); allowed: a number"),
            ({"min_segment": 10**5000}, "min_segment: this int; allowed: 0..9223372036854775807"),
            ({"budget": 2.5}, "budget: 2.5; allowed: a whole number"),
            ({"planner": ["ep"]}, "planner: ['ep']; allowed: ep, least-loaded, level"),
        ):
            with self.subTest(said=said), self.assertRaisesRegex(ek.errors.InvalidArgument, re.escape(said)):
                LayerOptions(**options)  # type: ignore[arg-type]
        with self.assertRaisesRegex(ek.errors.InvalidArgument, "did you mean 'per_transfer'"):
            SpillCosts(1, per_transfr=1, per_step=1)  # type: ignore[call-arg]
        for wrong in (float("nan"), -1.0, float("inf"), "1", torch.ones(2)):
            with self.assertRaises(ek.errors.InvalidArgument):
                SpillCosts(wrong, 0, 0)  # type: ignore[arg-type]


if __name__ == "__main__":
    unittest.main()
