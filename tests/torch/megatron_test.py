"""examples/megatron_layer.py gives the outputs and gradients of Megatron-Core's own MoE layer."""

from __future__ import annotations

import os
import sys
import unittest
from pathlib import Path
from typing import Any

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # Megatron compiles small functions, which takes longer than the tests

import torch
from examples_test import torchrun
from processes import run_ranks, said_by

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
import megatron_layer  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.transformer.moe.moe_layer import MoELayer  # noqa: E402

ALWAYS: dict[str, Any] = {"imbalance_threshold": 0.0, "min_segment": 1}


def example(ranks: int) -> Any:
    """The example's module, on a CPU, with Megatron's groups made."""
    megatron_layer.without_cuda()
    parallel_state.initialize_model_parallel(expert_model_parallel_size=ranks)
    return megatron_layer


def run(layer: Any, hidden: torch.Tensor) -> list[torch.Tensor]:
    """The output, then the gradients of the input and of every parameter."""
    hidden = hidden.clone().requires_grad_()
    output, bias = layer(hidden)
    assert bias is None
    output.square().sum().backward()
    return [output.detach(), hidden.grad, *(parameter.grad for parameter in layer.parameters())]


def compare(rank: int, ranks: int, options: dict[str, Any], shape: dict[str, Any]) -> dict[str, Any]:
    module = example(ranks)
    config = module.make_config(ranks, **shape)
    theirs = module.make_layer(config, MoELayer)
    ours = module.make_layer(config, module.BalancedMoELayer, **options)
    for name, parameter in theirs.named_parameters():
        random = torch.Generator().manual_seed(10 + rank if "local_experts" in name else 10)
        parameter.data.copy_(torch.randn(parameter.shape, generator=random) / 8)
    ours.load_state_dict(theirs.state_dict())
    hidden = torch.randn(40, 2, 32, generator=torch.Generator().manual_seed(rank)) + 1.0
    names = ["output", "hidden", *(name for name, _ in theirs.named_parameters())]
    for name, made, want in zip(names, run(ours, hidden), run(theirs, hidden), strict=True):
        assert torch.allclose(made, want, rtol=1e-4, atol=1e-5 * float(want.abs().max())), name
    return ours.balanced.last


def refusal(rank: int, ranks: int) -> str:
    module = example(ranks)
    config = module.make_config(1, moe_apply_probs_on_input=True)
    return said_by(lambda: module.make_layer(config, module.BalancedMoELayer), ValueError)


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
        said = run_ranks(1, refusal)[0]
        self.assertIn("BalancedMoELayer does not have moe_apply_probs_on_input", said)

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
