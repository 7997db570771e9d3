"""transformers models with borrow slots give the logits of transformers' own all-to-all, to the bit.

Products are summed row by row here, since the CPU's own depend on the number of rows.
"""

from __future__ import annotations

import os
import tempfile
import unittest
from unittest import mock

import torch
import torch.distributed as dist
from processes import run_ranks
from tiny_models import Routers, make
from transformers.distributed import DistributedConfig

import evenkeel.transformers
from evenkeel.torch import routes_ahead

TYPES = [
    "deepseek_v3",
    "ernie4_5_moe",
    "glm4_moe",
    "gpt_oss",
    "granitemoe",
    "hunyuan_v1_moe",
    "minimax_m2",
    "mixtral",
    "olmoe",
    "qwen3_moe",
]


def row_by_row(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    made = (rows.unsqueeze(-2) * weight).sum(-1)
    return made if bias is None else made + bias


def row_by_row_product(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return row_by_row(rows, weight.transpose(-1, -2).contiguous()) if weight.dim() == 2 else MATMUL(rows, weight)


MATMUL = torch.Tensor.__matmul__


def compare(rank: int, ranks: int, folder: str, tp: int, slots: int) -> dict[str, str]:
    errors = {}
    for model_type in TYPES:
        with (
            mock.patch("torch.nn.functional.linear", row_by_row),
            mock.patch("torch.Tensor.__matmul__", row_by_row_product),
        ):
            errors[model_type] = compare_type(model_type, rank, ranks, folder, tp, slots)
    return errors


def compare_type(model_type: str, rank: int, ranks: int, folder: str, tp: int, slots: int) -> str:
    """Returns "" if logits equal stock's to the bit, gradients match, and work moved; else what differs."""
    evenkeel.transformers.register(mode="slots", slots=slots, min_segment=1, imbalance_threshold=0.0)
    config = make(model_type)[0].config
    sizes = dict.fromkeys(("moe_intermediate_size", "intermediate_size"), 64)
    model, _ = make(model_type, **{name: size for name, size in sizes.items() if hasattr(config, name)})
    path = os.path.join(folder, model_type)
    if rank == 0:
        model.save_pretrained(path)
    dist.barrier()
    ids = torch.randint(1, 64, (1, 24), generator=torch.Generator().manual_seed(rank // tp))
    found = []
    for name in ("all_to_all", "evenkeel"):
        config = DistributedConfig(tp_size=tp, fsdp_size=ranks // tp, ep_size=ranks, ep_implementation=name)
        spread = type(model).from_pretrained(
            path, dtype=torch.float32, distributed_config=config, experts_implementation="eager"
        )
        with Routers() as routers:
            made = logits(spread, ids)
        made.square().mean().backward()
        others = torch.stack(routers.chosen, dim=1).roll(1, 0)  # each token gets the ids of the token before it
        with Routers(others) if name == "all_to_all" else routes_ahead(spread, others):
            replayed = logits(spread, ids)
        grads = {n: p.grad.to_local() for n, p in spread.named_parameters() if "experts" in n and p.grad is not None}
        found.append((made.detach(), replayed.detach(), grads))
    moved = sum(layer.last["transfers"] for layer in evenkeel.transformers.layers(spread))
    (*stock, right), (*made, grads) = found
    for what, one, other in zip(("logits", "logits of routes ahead"), stock, made, strict=True):
        if not torch.equal(one, other):
            return f"{what} off by {float((one - other).abs().max())} of {float(one.abs().max())}"
    for name, grad in grads.items():
        if (grad - right[name]).abs().max() > 2e-5 * right[name].abs().max():
            return f"{name}: gradient off by {float((grad - right[name]).abs().max())}"
    return "" if moved else "nothing moved"


def logits(model: torch.nn.Module, ids: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = model(ids).logits
    return made.full_tensor() if hasattr(made, "full_tensor") else made


class SlotsModelsTest(unittest.TestCase):
    def test_logits_have_the_stock_implementations_bits(self) -> None:
        for ranks, tp, slots in ((2, 1, 1), (4, 2, 2)):
            with self.subTest(ranks=ranks, tp=tp, slots=slots), tempfile.TemporaryDirectory() as folder:
                for errors in run_ranks(ranks, compare, folder, tp, slots):
                    self.assertEqual(errors, dict.fromkeys(TYPES, ""))


if __name__ == "__main__":
    unittest.main()
