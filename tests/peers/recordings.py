"""Recordings of one invented model, as each system saves them. All have the same tokens, and so the same true loads."""

import json
from dataclasses import dataclass, field

import numpy as np


@dataclass
class Model:
    """A model with dense layers. Each MoE layer has different hot experts, so that a shift by one layer is noticed."""

    hidden_layers: int
    moe_layers: list  # the model's layer numbers
    experts: int
    top_k: int
    tokens: int
    config: dict  # the keys of its config.json about layers
    mtp_layers: list = field(default_factory=list)  # multi-token prediction layers with experts
    seed: int = 1

    def __post_init__(self):
        random = np.random.default_rng(self.seed)
        self.ids = {}
        for layer in self.moe_layers + self.mtp_layers:
            heat = random.permutation(1.0 / np.arange(1, self.experts + 1))
            noise = random.gumbel(size=(self.tokens, self.experts))
            self.ids[layer] = np.argsort(-(np.log(heat) + noise), axis=1)[:, : self.top_k]

    def loads(self, layer):
        """Assignments of each expert in one of the model's layers."""
        return np.bincount(self.ids[layer].ravel(), minlength=self.experts)

    def write_config(self, folder):
        path = folder / "config.json"
        path.write_text(
            json.dumps({"num_hidden_layers": self.hidden_layers, "num_experts": self.experts} | self.config)
        )
        return path


def repeated_map(model, slots):
    """A map of physical experts that a server may have used while recording: shifted in each layer, with copies."""
    layers = np.arange(model.hidden_layers)[:, None]
    return (np.arange(slots)[None, :] + 3 * layers) % model.experts


def physical_ids(model, layer, row):
    """A layer's ids, translated to physical ids by a row of a map; tokens alternate between an expert's copies."""
    places = [np.flatnonzero(row == expert) for expert in range(model.experts)]
    ids = model.ids[layer]
    turn = np.arange(ids.size).reshape(ids.shape)
    return np.vectorize(lambda expert, t: places[expert][t % len(places[expert])])(ids, turn)


def sglang_stat(model, folder):
    import torch

    counts = np.zeros((2, model.hidden_layers, model.experts), np.int32)
    for layer in model.moe_layers:
        half = np.bincount(model.ids[layer][: model.tokens // 2].ravel(), minlength=model.experts)
        counts[0, layer], counts[1, layer] = half, model.loads(layer) - half
    path = folder / "expert_distribution_recorder_1.0.pt"
    torch.save(
        {"rank": 0, "logical_count": torch.from_numpy(counts), "average_utilization_rate_over_window": 0.5}, path
    )
    return path


def sglang_per_token(model, folder):
    import torch

    location = repeated_map(model, model.experts + 4)
    ids = np.full((model.hidden_layers, model.tokens, 8), -1, np.int32)
    for layer in model.moe_layers:
        ids[layer, :, : model.top_k] = physical_ids(model, layer, location[layer])
    record = {
        "forward_pass_id": 1,
        "rank": 0,
        "gatherer_key": "primary",
        "input_ids": list(range(model.tokens)),
        "positions": list(range(model.tokens)),
        "extend_seq_lens": [model.tokens],
        "forward_mode": 1,
        "topk_ids_of_layer": torch.from_numpy(ids),
        "misc_objects": [],
    }
    path = folder / "expert_distribution_recorder_2.0.pt"
    torch.save({"records": [record], "last_physical_to_logical_map": torch.from_numpy(location)}, path)
    return path


def trtllm_statistics(model, folder):
    import torch
    from safetensors.torch import save_file

    path = folder / "expert_statistic"
    path.mkdir()
    layers = model.moe_layers + model.mtp_layers
    (path / "meta_info.json").write_text(
        json.dumps({"num_experts": model.experts, "num_experts_per_token": model.top_k, "ep_size": 2, "layers": layers})
    )
    save_file({f"100_{layer}": torch.from_numpy(model.loads(layer)) for layer in layers}, path / "rank0.safetensors")
    return path


def megatron_trace(model, folder):
    path = folder / "router_trace_rank0.jsonl"
    with path.open("w") as lines:
        for layer in model.moe_layers:
            line = {"step": 0, "stage": "pre_dispatch", "block": "decoder", "layer": layer, "rank": 0}
            line |= {"num_tokens": model.tokens, "topk": model.top_k, "top_indices": model.ids[layer].tolist()}
            lines.write(json.dumps(line) + "\n")
    return path


def vllm_stats(model, folder):
    location = repeated_map(model, model.experts + 4)[model.moe_layers]
    loads = [
        np.bincount(physical_ids(model, layer, row).ravel(), minlength=len(row))
        for layer, row in zip(model.moe_layers, location, strict=True)
    ]
    record = {"record_type": "eplb_load_stats", "version": 1, "num_ranks": 4, "p2l_map": location.tolist()}
    path = folder / "eplb_data.jsonl"
    with path.open("w") as lines:
        for step, part in enumerate([np.array(loads) // 2, np.array(loads) - np.array(loads) // 2]):
            lines.write(json.dumps(record | {"step": 100 * step, "expert_load": part.tolist()}) + "\n")
    return path


def routed_experts(model, folder):
    """The ids as servers return them to a client: every hidden layer, with zeros for dense layers."""
    ids = np.zeros((model.tokens, model.hidden_layers, model.top_k), np.int32)
    for layer in model.moe_layers:
        ids[:, layer] = model.ids[layer]
    path = folder / "routed_experts.npz"
    np.savez(path, routed_experts=ids)
    return path


def plain_counts(model, folder):
    path = folder / "counts.npz"
    np.savez(path, counts=np.stack([model.loads(layer) for layer in model.moe_layers]))
    return path
