"""What other systems make of the placements that are written for them.

    python3 tests/peers/placements_test.py BUILD/bin/write_placements

Every file is read by a reader that shares no code with ours: Python's json, and PyYAML where it is installed. Where
the source of a system is found, its own reading function is run as well, alone, with stand-ins for what it imports;
it is looked for in the folders that EVENKEEL_PEERS names (separated by ':') and where Python looks for packages.
"""

import ast
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import types
import typing
import unittest
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

WRITE_PLACEMENTS = sys.argv.pop(1)
MOE_LAYERS, HIDDEN_LAYERS, EXPERTS, SLOTS, RANKS = [1, 3, 4], 6, 6, 8, 4

try:
    import yaml
except ImportError:
    yaml = None
try:
    import torch
except ImportError:
    torch = None
try:
    import pydantic
except ImportError:
    pydantic = None


def source_of(path):
    """The text of a peer's source file, wherever it is; the test is skipped where there is none."""
    for folder in os.environ.get("EVENKEEL_PEERS", "").split(os.pathsep) + sys.path:
        found = Path(folder, path) if folder else None
        if found and found.is_file():
            return found.read_text(encoding="utf-8")
    raise unittest.SkipTest(f"no {path} in EVENKEEL_PEERS or among Python's packages")


def needs(module, name):
    if module is None:
        raise unittest.SkipTest(f"{name} is not installed")


def run_parts(text, wanted, namespace):
    """Runs the functions and classes of a module that are `wanted` (all but imports for None) and nothing else."""
    tree = ast.parse(text)

    def keep(node):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.If)):
            return False
        return wanted is None or getattr(node, "name", None) in wanted

    tree.body = [ast.parse("from __future__ import annotations").body[0]] + [n for n in tree.body if keep(n)]
    # Dataclasses look up the module they are defined in.
    module = types.ModuleType("peer")
    module.__dict__.update(namespace, logger=logging.getLogger("peer"))
    sys.modules["peer"] = module
    exec(compile(tree, "peer", "exec"), module.__dict__)
    return module


class Placements(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = Path(cls.folder.name)
        subprocess.run([WRITE_PLACEMENTS, cls.folder.name], check=True)
        cls.rows = json.loads((cls.path / "evenkeel.json").read_text())["physical_to_logical"]

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def hidden_rows(self):
        """The rows of every hidden layer; a dense one is what SGLang gives it without a map."""
        rows = [[slot % EXPERTS for slot in range(SLOTS)] for _ in range(HIDDEN_LAYERS)]
        for layer, row in zip(MOE_LAYERS, self.rows, strict=True):
            rows[layer] = row
        return rows

    def test_the_placement_has_copies_and_differs_by_layer(self):
        self.assertEqual([len(row) for row in self.rows], [SLOTS] * 3)
        self.assertEqual([set(row) for row in self.rows], [set(range(EXPERTS))] * 3)
        self.assertNotEqual(self.rows[0], self.rows[1])

    def test_sglang_by_json(self):
        data = json.loads((self.path / "sglang.json").read_text())
        self.assertEqual(data, {"physical_to_logical_map": self.hidden_rows()})

    def test_vllm_by_json(self):
        (line,) = (self.path / "vllm.jsonl").read_text().splitlines()
        self.assertEqual(
            json.loads(line),
            {
                "record_type": "eplb_initial_mapping",
                "version": 1,
                "num_redundant_experts": SLOTS - EXPERTS,
                "num_slots": SLOTS,
                "initial_global_assignments": {str(i): row for i, row in enumerate(self.rows)},
            },
        )

    def test_vllm_ascend_by_json(self):
        data = json.loads((self.path / "vllm_ascend.json").read_text())
        self.assertEqual(data["moe_layer_count"], 3)
        for i, (layer, row) in enumerate(zip(data["layer_list"], self.rows, strict=True)):
            self.assertEqual((layer["layer_id"], layer["device_count"]), (i, RANKS))
            self.assertEqual([device["device_id"] for device in layer["device_list"]], list(range(RANKS)))
            self.assertEqual(sum((device["device_expert"] for device in layer["device_list"]), []), row)

    def test_trtllm_by_yaml(self):
        needs(yaml, "PyYAML")
        data = yaml.safe_load((self.path / "trtllm.yaml").read_text())
        self.assertEqual(
            data,
            {
                "initial_global_assignments": dict(zip(MOE_LAYERS, self.rows, strict=True)),
                "layer_updates_per_iter": 0,
                "num_slots": SLOTS,
            },
        )

    def test_sglang_by_its_own_reader(self):
        text = source_of("sglang/srt/eplb/expert_location.py")
        needs(torch, "torch")
        moe = SimpleNamespace(
            init_expert_location=str(self.path / "sglang.json"),
            ep_num_redundant_experts=SLOTS - EXPERTS,
            ep_dispatch_algorithm="static",
            moe_a2a_backend="deepep",
            ep_join_mode=None,
        )
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
                "get_parallel": lambda: SimpleNamespace(ep_size=RANKS, nnodes=1, elastic_ep_initial_size=None),
            },
        )
        sglang._prefer_same_node_experts = lambda: False
        config = sglang.ModelConfigForExpertLocation(HIDDEN_LAYERS, EXPERTS)
        sglang.ModelConfigForExpertLocation.from_model_config = staticmethod(lambda model_config: config)
        for rank in range(RANKS):
            location = sglang.compute_initial_expert_location_metadata(None, rank)
            self.assertEqual(location.physical_to_logical_map.tolist(), self.hidden_rows())
            self.assertEqual(location.num_local_physical_experts, SLOTS // RANKS)
            # An expert that this rank has is served by this rank.
            chosen = location.logical_to_rank_dispatch_physical_map
            for layer, row in zip(MOE_LAYERS, self.rows, strict=True):
                for slot in range(rank * 2, rank * 2 + 2):
                    self.assertEqual(chosen[layer, row[slot]].item(), slot)

    def test_vllm_by_its_own_reader(self):
        text = source_of("vllm/distributed/eplb/eplb_state.py")
        needs(torch, "torch")
        if "_load_initial_mapping" not in text:
            raise unittest.SkipTest("this vLLM loads no expert map from a file")
        (vllm,) = [node for node in ast.parse(text).body if getattr(node, "name", None) == "EplbState"]
        vllm.body = [f for f in vllm.body if getattr(f, "name", "").startswith("_load_initial_mapping")]
        state = run_parts(ast.unparse(vllm), None, {"json": json, "torch": torch}).EplbState()
        state.device = torch.device("cpu")
        physical_to_logical, logical_to_physical, replicas = state._load_initial_mapping(
            str(self.path / "vllm.jsonl"), 3, SLOTS, EXPERTS, SLOTS - EXPERTS, 1024
        )
        self.assertEqual(physical_to_logical.tolist(), self.rows)
        self.assertEqual(replicas.sum().item(), 3 * SLOTS)

    def test_vllm_ascend_by_its_own_reader(self):
        text = source_of("vllm_ascend/eplb/core/eplb_utils.py")
        needs(torch, "torch")
        from collections import defaultdict

        class Tensor(torch.Tensor):
            npu = torch.Tensor.cpu

        ascend = run_parts(
            text,
            {"expert_file_to_tensor", "init_eplb_config", "generate_log2phy_map"},
            {"json": json, "torch": torch, "defaultdict": defaultdict},
        )
        log2phy = ascend.generate_log2phy_map
        ascend.generate_log2phy_map = lambda *a, **k: log2phy(*a, **k).as_subclass(Tensor)
        for layer, row in enumerate(self.rows):
            placement, count = ascend.expert_file_to_tensor(str(self.path / "vllm_ascend.json"), layer)
            self.assertEqual((placement.flatten().tolist(), count), (row, SLOTS))
            config = SimpleNamespace(expert_map_path=str(self.path / "vllm_ascend.json"), dynamic_eplb=False)
            for rank in range(RANKS):
                moe = SimpleNamespace(num_experts=EXPERTS, ep_size=RANKS, ep_rank=rank)
                _, local, chosen, redundant = ascend.init_eplb_config(config, layer, moe)
                self.assertEqual(redundant, SLOTS - EXPERTS)
                self.assertEqual([local[e].item() for e in row[2 * rank : 2 * rank + 2]], [0, 1])
                self.assertEqual([row[slot] for slot in chosen.tolist()], list(range(EXPERTS)))

    def test_trtllm_by_its_own_reader(self):
        text = source_of("tensorrt_llm/llmapi/llm_args.py")
        needs(yaml, "PyYAML")
        needs(pydantic, "pydantic")

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
        balancer = trtllm.MoeLoadBalancerConfig(**yaml.safe_load((self.path / "trtllm.yaml").read_text()))
        balancer.setup(ep_rank=1, ep_size=RANKS)
        for layer, row in zip(MOE_LAYERS, self.rows, strict=True):
            self.assertEqual(balancer.get_layer_initial_global_assignments(layer), row)
        with self.assertRaises(KeyError):
            balancer.get_layer_initial_global_assignments(2)


if __name__ == "__main__":
    unittest.main()
