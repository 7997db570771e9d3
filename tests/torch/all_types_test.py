"""Every model type of the installed transformers that has an expert-parallel plan gives one process's logits on two ranks."""

from __future__ import annotations

import os
import sys
import tempfile
import unittest
from typing import Any

import torch
import torch.distributed as dist
from processes import run_ranks
from tiny_models import LEFT_OUT, expert_parallel_types, make
from transformers.distributed import DistributedConfig

import evenkeel.transformers

_WRONG_WITHOUT_US = "transformers' own all_to_all is off by as much from one process"
_NO_CHECKPOINT = "transformers does not load the tiny model that it saved"
_OWN_NORM = "refused in training: its experts share a norm, a parameter that is none of their weights"
_NO_MESH = "transformers cannot spread its parameters: overlapping device meshes"
REFUSED = {
    "bailing_hybrid": _WRONG_WITHOUT_US,
    "diffusion_gemma_text": _NO_MESH,
    "gemma4_text": _NO_MESH,
    "glm5_next_text": _WRONG_WITHOUT_US,
    "inkling2_loop_text": _NO_CHECKPOINT,
    "kimi_linear": _WRONG_WITHOUT_US,
    "lara_mini": _NO_CHECKPOINT,
    "muse_spark_text": _OWN_NORM,
}
"""Types that are not run, and why, with transformers 5.24."""


def try_type(model_type: str, folder: str, rank: int, ranks: int) -> str:
    """ "" where logits and experts' gradients are those of one process."""
    model, inputs = make(model_type)
    path = os.path.join(folder, model_type)
    if rank == 0:
        model.save_pretrained(path)
    dist.barrier()
    config = DistributedConfig(tp_size=1, fsdp_size=ranks, ep_size=ranks, ep_implementation="evenkeel")
    alone = type(model).from_pretrained(path, dtype=torch.float32)
    spread = type(model).from_pretrained(path, dtype=torch.float32, distributed_config=config)
    layers = [name for name, module in spread.named_modules() if getattr(module, "_is_hooked", False)]
    if not any("experts" in name for name in layers):
        return "no experts are spread"
    made, single = spread(**inputs)[0], alone(**inputs)[0]
    made = made.full_tensor() if hasattr(made, "full_tensor") else made
    if not torch.allclose(made, single, rtol=1e-3, atol=1e-4):
        return f"outputs off by {float((made - single).abs().max())}"
    made.float().square().mean().backward()
    single.float().square().mean().backward()
    whole = dict(alone.named_parameters())
    for name, parameter in spread.named_parameters():
        if "experts" not in name or parameter.grad is None or whole[name].grad is None:
            continue
        grad, want = parameter.grad, whole[name].grad
        grad = grad.to_local() if hasattr(grad, "to_local") else grad
        if grad.shape == want.shape:
            continue  # not spread over ranks
        want = want[rank * len(grad) : (rank + 1) * len(grad)]
        if not torch.allclose(grad, want, rtol=1e-2, atol=1e-5 + 1e-3 * float(want.abs().max())):
            return f"{name}: gradient off by {float((grad - want).abs().max())} of {float(want.abs().max())}"
    return ""


def try_all(rank: int, ranks: int, types: list[str], folder: str) -> dict[str, str]:
    evenkeel.transformers.register(min_segment=1, imbalance_threshold=0.0)
    said = {}
    for model_type in types:
        try:
            said[model_type] = try_type(model_type, folder, rank, ranks)
        except Exception as error:
            said[model_type] = f"{type(error).__name__}: {error}"[:300]
    return said


class AllTypesTest(unittest.TestCase):
    def test_every_type_gives_the_logits_and_gradients_of_one_process(self) -> None:
        types = [name for name in expert_parallel_types() if name not in LEFT_OUT and name not in REFUSED]
        with tempfile.TemporaryDirectory() as folder:
            answers: list[dict[str, Any]] = run_ranks(2, try_all, types, folder, seconds=30)
        wrong = {name: [answer[name] for answer in answers] for name in types if any(a[name] for a in answers)}
        print(f"{len(types) - len(wrong)} of {len(types)} types", file=sys.stderr)
        self.assertFalse(wrong, "\n".join(f"{name}: {said}" for name, said in wrong.items()))
        self.assertGreaterEqual(len(types), 60)


if __name__ == "__main__":
    unittest.main()
