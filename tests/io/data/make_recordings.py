#!/usr/bin/env python3
"""Makes the recordings beside this script in the form in which the systems save them, with torch and the safetensors
package (here with versions 2.13.0 and 0.8.0).

The tests recompute every number from the formulas below; nothing here is random.

    python3 tests/io/data/make_recordings.py
"""

import json
import pathlib

import torch
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
LAYERS, EXPERTS, PHYSICAL = 4, 6, 8  # layer 0 is dense


def logical_count():
    s, l, e = torch.meshgrid(torch.arange(3), torch.arange(LAYERS), torch.arange(EXPERTS), indexing="ij")
    return torch.where(l > 0, (7 * s + 5 * l + 3 * e) % 11, 0).to(torch.int32)


def physical_map():
    l, p = torch.meshgrid(torch.arange(LAYERS), torch.arange(PHYSICAL), indexing="ij")
    return (l + p) % EXPERTS


def physical_count(n):
    l, p = torch.meshgrid(torch.arange(LAYERS), torch.arange(PHYSICAL), indexing="ij")
    return torch.where(l > 0, (5 * n + 3 * l + p) % 7, 0).to(torch.int32)


def topk_ids(n, tokens):
    """SGLang stores eight ids per token; this model's k is 2, and the other ids are -1."""
    l, t, j = torch.meshgrid(torch.arange(LAYERS), torch.arange(tokens), torch.arange(8), indexing="ij")
    return torch.where((l > 0) & (j < 2), (3 * t + l + 5 * j + n) % PHYSICAL, -1).to(torch.int32)


def record(n, **more):
    return {"forward_pass_id": 10 + n, "rank": 0, "gatherer_key": "primary", **more}


torch.save(
    {"rank": 0, "logical_count": logical_count(), "average_utilization_rate_over_window": 0.75},
    HERE / "sglang_stat.pt",
)
torch.save(
    {
        "records": [record(n, global_physical_count=physical_count(n)) for n in range(3)],
        "last_physical_to_logical_map": physical_map(),
    },
    HERE / "sglang_per_pass.pt",
)
torch.save(
    {"records": [record(0, global_physical_count=physical_count(0))]},
    HERE / "sglang_without_map.pt",
)
torch.save(
    {
        "records": [
            record(
                n,
                input_ids=list(range(70000, 70000 + tokens)),
                positions=list(range(tokens)),
                extend_seq_lens=[tokens] if n == 0 else None,
                forward_mode=1 + n,
                topk_ids_of_layer=topk_ids(n, tokens),
                misc_objects=[],
                global_physical_count=physical_count(n),
            )
            for n, tokens in enumerate([3, 2])
        ],
        "last_physical_to_logical_map": physical_map(),
    },
    HERE / "sglang_per_token.pt",
)
# [layers, experts], floating point, not contiguous.
torch.save(torch.arange(6, dtype=torch.float64).reshape(3, 2).t(), HERE / "counts.pt")
torch.save(torch.arange(6).reshape(2, 3) * 0.5, HERE / "halves.pt")
torch.save({"model": {"weight": torch.zeros(2, 2)}}, HERE / "checkpoint.pt")

FOLDER = HERE / "trtllm_statistics"
FOLDER.mkdir(exist_ok=True)
(FOLDER / "meta_info.json").write_text(json.dumps({"num_experts": 5, "num_experts_per_token": 2}))
for rank in range(2):
    save_file(
        {
            f"{iteration}_{layer}": (torch.arange(5) * 2 + iteration + 10 * layer + 100 * rank)
            for iteration in (100, 101)
            for layer in (3, 4)
        },
        FOLDER / f"rank{rank}.safetensors",
    )
