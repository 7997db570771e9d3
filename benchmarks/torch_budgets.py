"""Budgets of `evenkeel.torch` for models with a config.json: the bytes of one layer in training.

    python benchmarks/torch_budgets.py tests/data/configs/qwen3-30b-a3b.json [--ranks 8] [--tokens 4096]

No process group and no weights are needed. The experts, bf16 and gated, are grouped products (Qwen3-MoE's) on torch's
meta device; the layer counts its tensors like real ones. Biases are left out. The columns are the least budget; the
bytes of even routing in 1, 2, 4 and 8 chunks (`budget="auto"` uses those of 2); and the bytes of steps with 95 % in one
expert that are balanced.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.models.qwen3_moe.configuration_qwen3_moe import Qwen3MoeConfig
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

from evenkeel import Placement, _native
from evenkeel.torch._budgets import Budgets, CountedStep, ExpertSize
from evenkeel.torch._chunk import Weights
from evenkeel.torch._cut import Counted
from evenkeel.torch._module import with_weights
from evenkeel.torch._phase_bytes import chunk_phases

BLOCKS, CHUNKS, HOT = 8, (1, 2, 4, 8), 0.95


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("configs", nargs="+", type=Path)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=4096, help="tokens on each rank in a step")
    options = parser.parse_args()
    heads = [*(f"even, {n}" for n in CHUNKS), *(f"hot, {n}" for n in CHUNKS)]
    print(f"GiB of one layer in training, {options.ranks} ranks, {options.tokens} tokens a rank; chunks")
    print(f"{'':<20}{'least':>8}" + "".join(f"{head:>9}" for head in heads))
    for path in options.configs:
        found = budgets(json.loads(path.read_text()), options.ranks, options.tokens)
        sizes = [found.least, *found.even.values(), *found.step.values()]
        print(f"{path.stem:<20}{sizes[0] / 2**30:>8.2f}" + "".join(f"{size / 2**30:>9.2f}" for size in sizes[1:]))


def budgets(config: dict[str, Any], ranks: int, tokens: int) -> Budgets:
    config = config.get("text_config", config)
    experts = next(config[key] for key in ("n_routed_experts", "num_experts", "num_local_experts") if config.get(key))
    hidden, k = config["hidden_size"], config["num_experts_per_tok"]
    width = config.get("moe_intermediate_size") or config["intermediate_size"]
    placement = Placement.contiguous(1, experts, ranks)
    layout = _native.StepLayout(placement._native, 0, 0, "level", 1000, 64, 1000)
    phases = phases_of(experts, ranks, hidden, width, k)
    counts = np.full((ranks, BLOCKS, experts), round(tokens * k * (1 - HOT) / BLOCKS / experts), dtype=np.int64)
    counts[:, :, 0] = tokens * k // BLOCKS - counts[:, :, 1:].sum(axis=2)
    of_blocks = np.full((ranks, BLOCKS), tokens // BLOCKS, dtype=np.int64)
    counted = Counted(0, tokens, counts, of_blocks, np.zeros((ranks, BLOCKS, 0)))
    step = CountedStep(layout, phases, ExpertSize(0, 0, 0, 0), counted, k, training=True)
    step.set_budget(0, None)
    return step.budgets(CHUNKS)


def phases_of(experts: int, ranks: int, hidden: int, width: int, k: int) -> list[_native.PhaseBytes]:
    """Phases of a layer with f32 router weights, on the rank with the most home experts."""
    config = Qwen3MoeConfig(hidden_size=hidden, moe_intermediate_size=width, num_experts=-(-experts // ranks))
    config._experts_implementation = "grouped_mm"
    with torch.device("meta"):
        module = Qwen3MoeExperts(config).to(torch.bfloat16)
        row = torch.empty((1, hidden), dtype=torch.bfloat16)

    def run(rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
        ones = rows.new_ones((len(rows), 1))
        out: torch.Tensor = Qwen3MoeExperts.forward(with_weights(module, weights), rows, slots.unsqueeze(-1), ones)
        return out

    own = dict(module.named_parameters())
    return chunk_phases(run, list(own), list(own.values()), row, torch.float32, k, ranks, training=True)


if __name__ == "__main__":
    main()
