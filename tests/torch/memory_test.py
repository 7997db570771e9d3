"""evenkeel.memory() of models. Kinds and sums of every MoE type in transformers are checked against the classes of its
modules. Bytes per device are checked against parameters that transformers shards itself, DTensor by DTensor."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import unittest
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
import transformers
from tiny_models import LEFT_OUT, _model_class, expert_parallel_types, make, tiny_config
from torch import nn
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore
from transformers.distributed import DistributedConfig

import evenkeel as ek

COMMAND = os.environ.get("EVENKEEL_COMMAND", "build/release/bin/evenkeel")
MORE_TYPES = ["llama4_text", "jetmoe", "longcat_flash", "minimax_m3_vl_text"]
TYPES = sorted({*expert_parallel_types(), *MORE_TYPES} - LEFT_OUT.keys())

# The kinds of parameters, by parts of class names. Everything inside a module of one kind has that kind.
CLASSES = {
    "norms": ("Norm", "HyperConnection", "HyperHead", "Residual"),
    "attention": ("Attention", "Attn", "Mamba", "DeltaNet", "ShortConv", "MoA", "MLA", "Mixer"),
    "router": ("Router", "Gate", "TopK", "Statics"),
    "experts": ("Experts",),
    "dense": ("MLP", "Mlp", "FeedForward"),
}

transformers.utils.logging.disable_progress_bar()
transformers.logging.set_verbosity(transformers.logging.CRITICAL)


def meta_model(model_type: str, **sizes: Any) -> nn.Module:
    config = tiny_config(model_type, **sizes)
    with torch.device("meta"):
        return _model_class(type(config))(config)


def oracle(model: nn.Module) -> dict[str, int]:
    """Numbers of parameters by kind, from the classes on each parameter's path."""
    modules = dict(model.named_modules())
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        words = name.split(".")
        path = [(word, modules[".".join(words[: i + 1])]) for i, word in enumerate(words[:-1])]
        layer = next((i for i, word in enumerate(words) if word.isdigit()), None)
        kind = kind_outside(path) if layer is None else kind_in_layer(path[layer + 1 :], model.config)
        counts[kind] += parameter.numel()
    return counts


def kind_outside(path: list[tuple[str, nn.Module]]) -> str:
    word, module = path[-1] if path else ("", nn.Module())
    if isinstance(module, nn.Embedding) or word == "per_layer_model_projection":
        return "embedding"
    return "head" if word == "lm_head" else "norms"


def kind_in_layer(path: list[tuple[str, nn.Module]], config: Any) -> str:
    family = type(config).__name__.removesuffix("Config").removesuffix("Text")
    if any("_expert_norm" in word for word, _ in path) or (path and path[0][0].endswith(("sconv", "convolution"))):
        return "norms"
    for word, module in path:
        name = type(module).__name__.removeprefix(family).removeprefix("Text")
        if word.startswith("shared"):
            return "shared_experts"
        for kind, parts in CLASSES.items():
            if any(part in name for part in parts) and not (kind == "dense" and has_experts(module)):
                return kind
    if path and has_experts(path[0][1]):
        return "router"  # next to experts in the same module
    return "dense" if path else "norms"


def has_experts(module: nn.Module) -> bool:
    return any("Experts" in type(child).__name__ for child in module.modules())


def weights_of_stage(answer: dict[str, Any], stage: int = 0) -> int:
    return sum(kind["bytes"] for kind in answer["stages"][stage]["weights"].values())


def four_layers(model_type: str) -> nn.Module:
    usual = tiny_config(model_type)
    lists = {name: getattr(usual, name, None) for name in ("layer_types", "mlp_layer_types")}
    return meta_model(model_type, num_hidden_layers=4, **{name: (each * 2)[:4] for name, each in lists.items() if each})


def sharded_bytes(model_type: str, sizes: dict[str, int]) -> int:
    """Bytes on the first rank after transformers itself has sharded the model over simulated ranks."""
    degrees = {f"{name}_size": sizes.get(name, 1) for name in ("tp", "ep", "fsdp", "pp")}
    store, ranks = FakeStore(), sizes.get("tp", 1) * sizes.get("fsdp", 1) * sizes.get("pp", 1)
    dist.init_process_group("fake", rank=0, world_size=ranks, store=store)
    try:
        model = four_layers(model_type)
        made, _, mesh = type(model).prepare_distribute_model(DistributedConfig(**degrees))
        model = type(model).maybe_distribute_model(model, made, mesh)
        model.tie_weights()  # as loading does
        return sum(
            (each.to_local() if isinstance(each, DTensor) else each).numel() * each.element_size()
            for each in model.parameters()
        )
    finally:
        dist.destroy_process_group()


# The first types stand for the most common families; together the list covers every style of plan.
SHARDED = [
    "qwen3_moe",
    "mixtral",
    "deepseek_v3",
    "glm4_moe",
    "gpt_oss",
    "olmoe",
    "minimax_m2",
    "ernie4_5_moe",
    "qwen2_moe",
    "llama4_text",
    "dots1",
]
LAYOUTS: list[dict[str, int]] = [
    {"tp": 2},
    {"fsdp": 4},
    {"fsdp": 4, "ep": 2},
    {"tp": 2, "fsdp": 2},
    {"tp": 2, "fsdp": 4, "ep": 4},
    {"tp": 2, "pp": 2},
    {"pp": 2},
]


class MemoryTest(unittest.TestCase):
    def test_kinds_and_sums_of_every_type(self) -> None:
        for model_type in TYPES:
            with self.subTest(model_type=model_type):
                model = meta_model(model_type)
                counted = ek.memory(model)["model"]
                self.assertEqual(counted["parameters_by_kind"], oracle(model))
                self.assertEqual(counted["parameters"], sum(each.numel() for each in model.parameters()))
                self.assertEqual(counted["unsorted"], [])
        self.assertGreaterEqual(len(TYPES), 66)

    def test_a_checkpoint_has_the_kinds_of_its_model(self) -> None:
        for model_type in TYPES:
            if model_type == "longcat_flash":  # even its tiny model is large
                continue
            model, _ = make(model_type)
            wanted = ek.memory(model)["model"]
            tensors = {name for name, _ in model.named_parameters(remove_duplicate=False)}
            buffers = sum(
                each.numel()
                for name, each in model.state_dict().items()
                if name not in tensors and each.is_floating_point()
            )
            for saving in ({}, {"save_original_format": False}):
                with self.subTest(model_type=model_type, **saving), tempfile.TemporaryDirectory() as folder:
                    model.save_pretrained(folder, **saving)
                    done = subprocess.run(
                        [COMMAND, "memory", "--model", folder, "--json"], capture_output=True, text=True, check=False
                    )
                    self.assertEqual(done.returncode, 0, done.stderr)
                    counted = json.loads(done.stdout)["model"]
                    self.assertEqual(counted["parameters"], wanted["parameters"] + buffers)
                    self.assertEqual(counted["unsorted"], [])
                    for kind in ("embedding", "experts", "shared_experts", "dense", "head"):
                        self.assertEqual(
                            counted["parameters_by_kind"].get(kind), wanted["parameters_by_kind"].get(kind)
                        )

    def test_a_device_holds_what_transformers_shards_to_it(self) -> None:
        compared = 0
        for model_type in SHARDED:
            for sizes in LAYOUTS:
                with self.subTest(model_type=model_type, sizes=sizes):
                    try:
                        held = sharded_bytes(model_type, sizes)
                    except (ValueError, KeyError, AttributeError):  # no such plan, or transformers cannot apply it
                        continue
                    answer = ek.memory(four_layers(model_type), parallel=sizes)
                    self.assertEqual(weights_of_stage(answer), held)
                    compared += 1
        self.assertGreaterEqual(compared, 60)

    def test_frozen_weights_have_neither_gradients_nor_states(self) -> None:
        model = meta_model("qwen3_moe")
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("experts" in name)
        answer = ek.memory(model)
        numbers, bytes_ = answer["model"]["parameters_by_kind"], answer["static_bytes"]
        self.assertEqual(bytes_["experts"], numbers["experts"] * (4 + 4 + 8))  # f32
        self.assertEqual(bytes_["attention"], numbers["attention"] * 4)
        self.assertEqual(answer["static_by_state"]["weights"], weights_of_stage(answer))

    def test_what_means_nothing_is_refused(self) -> None:
        model = meta_model("qwen3_moe")
        for wrong, said in [
            ({"with_terms": ["nonsense"]}, "with_terms: 'nonsense'; allowed: all, replicated, "),
            ({"with_terms": "fsdp,fsdp"}, "with_terms: 'fsdp' twice"),
            ({"without": ["fsdp"]}, "without: 'fsdp'"),
            ({"parallel": {"fdsp": 2}}, "parallel: 'fdsp'; allowed: tp, pp, ep, dp, fsdp, vp, cp, etp"),
            ({"parallel": "tp=2,,ep=2"}, "parallel: is 'tp=2,,ep=2'"),
            ({"parallel": {"dp": 2, "fsdp": 2}}, "parallel: has both dp and fsdp"),
            ({"parallel": {"tp": 1.5}}, "parallel: 1.5; allowed: a whole number"),
            ({"bytes": {"weights": 2}}, "bytes: has 'weights'"),
            ({"bins": 1}, "bins: is a int"),
            ({"received": "evenly"}, "received: "),
            ({"device": "h100", "device_memory": "80GB"}, "device_memory: is already given by device"),
            ({"pipeline_layout": "3,3"}, "pipeline_layout: has 2 pieces with 6 layers"),
        ]:
            with self.subTest(wrong=wrong), self.assertRaises(ek.InvalidArgument) as caught:
                ek.memory(model, **wrong)
            self.assertTrue(str(caught.exception).startswith(said), str(caught.exception))
        with self.assertRaisesRegex(ek.InvalidArgument, "model: is a Linear; allowed: a transformers model"):
            ek.memory(nn.Linear(2, 2))


if __name__ == "__main__":
    unittest.main()
