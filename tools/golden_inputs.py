"""Makes inputs of tools/golden_commands.txt that the repository has no files for."""

from __future__ import annotations

import itertools
import json
import random
import struct
from pathlib import Path


def make_inputs(folder: Path) -> None:
    """Loads, counts, costs, a placement of 2 layers of 8 experts on 4 ranks, and a checkpoint that fits it."""

    def write(name: str, value: object) -> None:
        (folder / name).write_text(json.dumps(value), encoding="utf-8")

    write("loads.json", {"loads": [9000, 500, 300, 200, 1200, 800, 40, 0]})
    write("counts.json", {"counts": [[900, 5, 30, 20, 0, 7, 8, 9], [10, 80, 100, 0, 60, 4, 3, 2]]})
    cost = {"flops_per_second": 7e10, "weight_bytes_per_second": 4e9, "overlap": 0.0, "link_bytes_per_second": 1e9}
    write("cost.json", {"format": "evenkeel.cost.v1", **cost, "chunk_seconds": 1e-4})
    homes = [random.Random(layer).sample(range(8), 8) for layer in range(2)]
    placement = {"format": "evenkeel.placement.v1", "num_layers": 2, "num_experts": 8, "num_ranks": 4}
    write("placement.json", placement | {"physical_to_logical": homes})
    (folder / "checkpoint").mkdir()
    write("checkpoint/config.json", {"model_type": "olmoe", "num_hidden_layers": 2, "num_experts": 8})
    (folder / "checkpoint/model.safetensors").write_bytes(checkpoint(layers=2, experts=8))


def checkpoint(layers: int, experts: int) -> bytes:
    """An OLMoE checkpoint's router and expert tensors, filled with random bytes."""
    shapes = {"gate.weight": [experts, 4]} | {f"experts.{each}.down_proj.weight": [1, 32] for each in range(experts)}
    header, begin = {}, 0
    for layer, (name, shape) in itertools.product(range(layers), shapes.items()):
        end = begin + shape[0] * shape[1]
        header[f"model.layers.{layer}.mlp.{name}"] = {"dtype": "U8", "shape": shape, "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + random.Random(1).randbytes(begin)
