"""How four servers read a placement: their own code where it is found, with stand-ins for the modules it imports.

A server's source is searched in the folders that EVENKEEL_PEERS names (separated by ':') and in Python's path: unpacked
wheels of sglang and vllm, checkouts of vllm-ascend and TensorRT-LLM.
"""

import ast
import json
import logging
import os
import random
import sys
import types
import typing
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

try:
    import numpy
    import torch
except ImportError:
    numpy = torch = None
try:
    import pydantic
except ImportError:
    pydantic = None

SGLANG = "sglang/srt/eplb/expert_location.py"
VLLM_STATE = "vllm/distributed/eplb/eplb_state.py"
VLLM_MODEL = "vllm/model_executor/models/deepseek_v2.py"
VLLM_ASCEND = "vllm_ascend/eplb/core/eplb_utils.py"
TRTLLM = "tensorrt_llm/llmapi/llm_args.py"


def find_folder(path):
    """The folder that contains a server's source file; None if it is not found."""
    for folder in os.environ.get("EVENKEEL_PEERS", "").split(os.pathsep) + sys.path:
        if folder and Path(folder, path).is_file():
            return Path(folder)
    return None


def find_source(path):
    """The text of a server's source file, from any folder; None if it is not found."""
    folder = find_folder(path)
    return None if folder is None else Path(folder, path).read_text(encoding="utf-8")


def run_parts(text, wanted, namespace):
    """Runs only those functions and classes of a module that `wanted` names; with None, all except its imports."""
    tree = ast.parse(text)

    def keep(node):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.If)):
            return False
        return wanted is None or getattr(node, "name", None) in wanted

    tree.body = [ast.parse("from __future__ import annotations").body[0]] + [n for n in tree.body if keep(n)]
    # Dataclasses look up the module in which they are defined.
    module = types.ModuleType("peer")
    module.__dict__.update(namespace, logger=logging.getLogger("peer"))
    sys.modules["peer"] = module
    exec(compile(tree, "peer", "exec"), module.__dict__)
    return module


def class_parts(text, class_name, wanted):
    """The source of a class, with only the methods whose names begin with `wanted`."""
    (found,) = [node for node in ast.parse(text).body if getattr(node, "name", None) == class_name]
    found.body = [part for part in found.body if getattr(part, "name", "").startswith(wanted)]
    found.bases = []
    return ast.unparse(found)


def sglang_location(text, path, rank, *, hidden_layers, experts, slots, ranks, nodes=1, **how):
    """A rank's ExpertLocationMetadata in SGLang: its experts and its dispatch. `how` sets other start options."""
    options = {"init_expert_location": str(path), **how}
    sglang = sglang_locations(text, hidden_layers, experts, slots, ranks, nodes, **options)
    return sglang.compute_initial_expert_location_metadata(None, rank)


def sglang_parts(locations, algorithm):
    """`[layers, slots]`: the share of its expert's load that each slot computes, averaged over the ranks' locations."""
    parts = numpy.zeros(locations[0].physical_to_logical_map.shape)
    for location in locations:
        if algorithm == "static":
            chosen = location.logical_to_rank_dispatch_physical_map.numpy()
            for of_layer, slots in zip(parts, chosen, strict=True):
                numpy.add.at(of_layer, slots, 1 / len(locations))
            continue
        # Each assignment goes to a random valid slot.
        for of_layer, experts in zip(parts, location.logical_to_all_physical_map.numpy(), strict=True):
            for slots in experts:
                valid = slots[slots >= 0]
                numpy.add.at(of_layer, valid, 1 / len(valid) / len(locations))
    return parts


def sglang_location_by_eplb(text, logical_count, *, experts, slots, ranks):
    """SGLang's ExpertLocationMetadata after rebalancing, with the eplb_algorithms module that is installed."""
    sglang = sglang_locations(text, len(logical_count), experts, slots, ranks, ep_dispatch_algorithm=None)
    return sglang.ExpertLocationMetadata.init_by_eplb(None, logical_count)


def stand_in_elastic_ep():
    """Turns elastic EP off, since its module needs the whole server."""
    for name in ("sglang", "sglang.srt", "sglang.srt.elastic_ep", "sglang.srt.elastic_ep.elastic_ep"):
        module = sys.modules.setdefault(name, types.ModuleType(name))
    module.elastic_expanded_world_enabled = lambda: False
    module.ElasticEPStateManager = SimpleNamespace(instance=lambda: None)


def sglang_locations(text, hidden_layers, experts, slots, ranks, nodes=1, **options):
    """SGLang's module expert_location, for a model of one group."""
    stand_in_elastic_ep()
    settings = {
        "ep_num_redundant_experts": slots - experts,
        "ep_dispatch_algorithm": "static",
        "eplb_algorithm": "deepseek",
        "moe_a2a_backend": "deepep",
        "ep_join_mode": None,
    }
    moe = SimpleNamespace(**{**settings, **options})
    sglang = run_parts(
        text,
        None,
        {
            "dataclass": dataclass,
            "json": json,
            "random": random,
            "logging": logging,
            "Path": Path,
            "torch": torch,
            "F": torch.nn.functional,
            "Iterable": typing.Iterable,
            "List": list,
            "Optional": typing.Optional,
            "get_exec": lambda: SimpleNamespace(moe=moe),
            "get_device": lambda: SimpleNamespace(device="cpu"),
            "get_parallel": lambda: SimpleNamespace(ep_size=ranks, nnodes=nodes, elastic_ep_initial_size=None),
        },
    )
    config = sglang.ModelConfigForExpertLocation(hidden_layers, experts)
    sglang.ModelConfigForExpertLocation.from_model_config = staticmethod(lambda model_config: config)
    return sglang


def vllm_initial_mapping(text, path, *, moe_layers, experts, slots):
    """vLLM's initial map, its inverse and the copies' counts; None if this vLLM loads no map from a file."""
    if "_load_initial_mapping" not in text:
        return None
    state = run_parts(
        class_parts(text, "EplbState", "_load_initial_mapping"), None, {"json": json, "torch": torch}
    ).EplbState()
    state.device = torch.device("cpu")
    return state._load_initial_mapping(str(path), moe_layers, slots, experts, slots - experts, 1024)


def vllm_moe_layers(text, hidden_layers, moe_layers):
    """The model's layer numbers in the order in which vLLM numbers its MoE layers."""
    vllm = run_parts(
        class_parts(text, "DeepseekV2ForCausalLM", "set_moe_parameters"),
        None,
        {
            "DeepseekV2DecoderLayer": SimpleNamespace,
            "DeepseekV2MoE": dict,
            "PPMissingLayer": type("PPMissingLayer", (), {}),
        },
    )

    class Experts(dict):
        experts = None

    layers = []
    for layer in range(hidden_layers):
        mlp = Experts() if layer in moe_layers else None
        if mlp is not None:
            mlp.experts = layer
        layers.append(SimpleNamespace(mlp=mlp))
    model = vllm.DeepseekV2ForCausalLM()
    model.config = SimpleNamespace(n_group=1)
    model.model = SimpleNamespace(layers=layers)
    model.extract_moe_parameters = lambda example_moe: None
    model.set_moe_parameters()
    return model.moe_layers


def vllm_ascend(text):
    """vLLM-Ascend's functions that read a map, for CPU tensors."""

    class Tensor(torch.Tensor):
        npu = torch.Tensor.cpu

    ascend = run_parts(
        text,
        {"expert_file_to_tensor", "init_eplb_config", "generate_log2phy_map", "generate_global_placement"},
        {"json": json, "torch": torch, "defaultdict": defaultdict, "np": numpy},
    )
    log2phy = ascend.generate_log2phy_map
    ascend.generate_log2phy_map = lambda *a, **k: log2phy(*a, **k).as_subclass(Tensor)
    return ascend


def trtllm_config(text, content, *, rank, ranks):
    """TensorRT-LLM's load balancer config, set up for one rank; `content` is the file's parsed YAML."""

    class StrictBaseModel(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")

    trtllm = run_parts(
        text,
        {"MoeLoadBalancerConfig"},
        {
            "StrictBaseModel": StrictBaseModel,
            "Field": pydantic.Field,
            "PrivateAttr": pydantic.PrivateAttr,
            "Dict": dict,
            "List": list,
            "Optional": typing.Optional,
        },
    )
    balancer = trtllm.MoeLoadBalancerConfig(**content)
    balancer.setup(ep_rank=rank, ep_size=ranks)
    return balancer
