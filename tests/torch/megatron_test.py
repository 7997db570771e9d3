"""examples/megatron_layer.py gives the outputs and gradients of Megatron-Core's own MoE layer."""

from __future__ import annotations

import contextlib
import os
import sys
import unittest
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling Megatron's small functions takes longer than the tests

import torch
from examples_test import torchrun
from processes import error_message, run_ranks

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
import megatron_layer  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.transformer.moe import token_dispatcher  # noqa: E402
from megatron.core.transformer.moe.moe_layer import MoELayer  # noqa: E402

ALWAYS: dict[str, Any] = {"imbalance_threshold": 0.0, "min_segment": 1}


class Stream:
    """The part of CUDA streams that Megatron's all-to-all uses, for machines without CUDA."""

    def wait_stream(self, other: object) -> None: ...
    def record_event(self) -> Stream:
        return self

    def synchronize(self) -> None: ...


def to_cpu(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    return tensor.numpy() if as_numpy and isinstance(tensor, torch.Tensor) else tensor


def example(ranks: int) -> Any:
    """The example's module on a CPU, with Megatron's groups set up."""
    megatron_layer.without_cuda()
    if not torch.cuda.is_available():
        torch.cuda.Stream = torch.cuda.current_stream = Stream  # type: ignore[assignment, misc]
        torch.cuda.stream = contextlib.nullcontext  # type: ignore[assignment]
        token_dispatcher.maybe_move_tensor_to_cpu = to_cpu
    parallel_state.initialize_model_parallel(expert_model_parallel_size=ranks)
    return megatron_layer


def run(layer: Any, hidden: torch.Tensor) -> list[torch.Tensor]:
    """The output, then the gradients of the input and of every parameter."""
    hidden = hidden.clone().requires_grad_()
    output, bias = layer(hidden)
    assert bias is None
    output.square().sum().backward()
    return [output.detach(), hidden.grad, *(parameter.grad for parameter in layer.parameters())]


def layers(ranks: int, rank: int, name: str, options: dict[str, Any], shape: dict[str, Any], hot: bool) -> Any:
    """Megatron's layer and ours with the same weights; with `hot` all tokens choose the first expert."""
    module = example(ranks)
    config = module.make_config(ranks, **shape)
    theirs = module.make_layer(config, MoELayer)
    ours = module.make_layer(config, getattr(module, name), **options)
    for key, parameter in theirs.named_parameters():
        random = torch.Generator().manual_seed(10 + rank if "local_experts" in key else 10)
        parameter.data.copy_(torch.randn(parameter.shape, generator=random) / 8)
    if hot:
        theirs.router.weight.data[0] = 1.0  # the mean of the inputs is positive
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def compare(
    rank: int,
    ranks: int,
    options: dict[str, Any],
    shape: dict[str, Any],
    name: str = "BalancedMoELayer",
    hot: bool = False,
) -> dict[str, Any]:
    theirs, ours = layers(ranks, rank, name, options, shape, hot)
    hidden = torch.randn(40, 2, 32, generator=torch.Generator().manual_seed(rank)) + 1.0
    names = ["output", "hidden", *(name for name, _ in theirs.named_parameters())]
    for name, made, want in zip(names, run(ours, hidden), run(theirs, hidden), strict=True):
        assert torch.allclose(made, want, rtol=1e-4, atol=1e-5 * float(want.abs().max())), name
    return ours.balanced.last


def nothing_moves(rank: int, ranks: int, shape: dict[str, Any]) -> None:
    """A step in which nothing may move gives Megatron's bits."""
    theirs, ours = layers(ranks, rank, "SlotsMoELayer", {"imbalance_threshold": 1e6}, shape, hot=False)
    hidden = torch.randn(40, 2, 32, generator=torch.Generator().manual_seed(rank))
    assert all(map(torch.equal, run(ours, hidden), run(theirs, hidden)))
    assert ours.balanced.last["transfers"] == 0


def refusals(rank: int, ranks: int) -> list[str]:
    module = example(ranks)
    messages = []
    for shape, layer in (
        ({"moe_apply_probs_on_input": True}, module.BalancedMoELayer),
        (
            {"moe_token_dispatcher_type": "alltoall", "moe_expert_capacity_factor": 1.0}
            | {"moe_pad_expert_input_to_capacity": True},
            module.SlotsMoELayer,
        ),
    ):
        config = module.make_config(1, **shape)
        messages.append(error_message(lambda: module.make_layer(config, layer), ValueError))  # noqa: B023
    return messages


class MegatronTest(unittest.TestCase):
    def test_outputs_and_gradients(self) -> None:
        for ranks in (2, 4):
            last = run_ranks(ranks, compare, ALWAYS, {})[0]
            self.assertGreater(last["transfers"], 0)
            self.assertLess(max(last["rank_loads"]), max(last["home_loads"]))

    def test_what_megatron_s_options_and_a_budget_change(self) -> None:
        for shape in (
            {"moe_shared_expert_intermediate_size": 16},
            {"add_bias_linear": True, "gated_linear_unit": False},
            {"moe_expert_capacity_factor": 0.5},  # assignments that the router drops
        ):
            with self.subTest(**shape):
                run_ranks(2, compare, ALWAYS, shape)
        last = run_ranks(2, compare, {**ALWAYS, "budget": 100_000}, {})[0]
        self.assertGreater(last["chunks"], 1)

    def test_what_is_refused(self) -> None:
        probs, padding = run_ranks(1, refusals)[0]
        self.assertIn("BalancedMoELayer does not have moe_apply_probs_on_input", probs)
        self.assertIn("SlotsMoELayer does not have moe_pad_expert_input_to_capacity", padding)

    def test_slots_over_megatrons_own_dispatchers(self) -> None:
        one_expert = {"moe_router_topk": 1, "moe_router_pre_softmax": True}
        for dispatcher in ("allgather", "alltoall"):
            for ranks, slots, hot in ((2, 1, True), (2, 4, False), (4, 1, False), (4, 2, True)):
                with self.subTest(dispatcher=dispatcher, ranks=ranks, slots=slots, hot=hot):
                    shape = {"moe_token_dispatcher_type": dispatcher} | (one_expert if hot else {})
                    options = {**ALWAYS, "slots": slots}
                    last = run_ranks(ranks, compare, options, shape, "SlotsMoELayer", hot)[0]
                    self.assertGreater(last["transfers"], 0)
                    self.assertLess(max(last["rank_loads"]), max(last["home_loads"]))
                    self.assertTrue(not hot or last["home_loads"][1:] == [0] * (ranks - 1), last)

    def test_slots_and_megatrons_options(self) -> None:
        for shape in (
            {"moe_shared_expert_intermediate_size": 16},
            {"add_bias_linear": True, "gated_linear_unit": False},
            {"moe_expert_capacity_factor": 0.5},
            {"moe_expert_capacity_factor": 0.5, "moe_token_dispatcher_type": "alltoall"},
        ):
            with self.subTest(**shape):
                run_ranks(2, compare, {**ALWAYS, "slots": 2}, shape, "SlotsMoELayer")

    def test_with_slots_a_step_in_which_nothing_moves_has_megatrons_bits(self) -> None:
        for dispatcher in ("allgather", "alltoall"):
            run_ranks(2, nothing_moves, {"moe_token_dispatcher_type": dispatcher})

    def test_the_example(self) -> None:
        self.assertIn("assignments by rank [", torchrun("megatron_layer.py"))

    def test_the_page_shows_the_examples_code(self) -> None:
        page, code = ((ROOT / name).read_text() for name in ("docs/megatron.md", "examples/megatron_layer.py"))
        blocks = [block.split("```")[0] for block in page.split("```python\n")[1:]]
        self.assertTrue(blocks)
        for block in blocks:
            self.assertIn(block, code)


if __name__ == "__main__":
    unittest.main()
