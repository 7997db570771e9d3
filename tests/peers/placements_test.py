"""What other systems make of the placements that are written for them.

    python3 tests/peers/placements_test.py BUILD/bin/write_placements

Every file is read by a reader that shares no code with ours: Python's json, and PyYAML where it is installed. Where
the source of a system is found, its own reading function is run as well, alone, with stand-ins for what it imports;
it is looked for as servers.py says.
"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import servers

WRITE_PLACEMENTS = sys.argv.pop(1)
MOE_LAYERS, HIDDEN_LAYERS, EXPERTS, SLOTS, RANKS = [1, 3, 4], 6, 6, 8, 4

try:
    import yaml
except ImportError:
    yaml = None


def source_of(path):
    """The text of a server's source file; the test is skipped where there is none."""
    text = servers.find_source(path)
    if text is None:
        raise unittest.SkipTest(f"no {path} in EVENKEEL_PEERS or among Python's packages")
    return text


def needs(module, name):
    if module is None:
        raise unittest.SkipTest(f"{name} is not installed")


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
        text = source_of(servers.SGLANG)
        needs(servers.torch, "torch")
        for rank in range(RANKS):
            location = servers.sglang_location(
                text,
                self.path / "sglang.json",
                rank,
                hidden_layers=HIDDEN_LAYERS,
                experts=EXPERTS,
                slots=SLOTS,
                ranks=RANKS,
            )
            self.assertEqual(location.physical_to_logical_map.tolist(), self.hidden_rows())
            self.assertEqual(location.num_local_physical_experts, SLOTS // RANKS)
            # An expert that this rank has is served by this rank.
            chosen = location.logical_to_rank_dispatch_physical_map
            for layer, row in zip(MOE_LAYERS, self.rows, strict=True):
                for slot in range(rank * 2, rank * 2 + 2):
                    self.assertEqual(chosen[layer, row[slot]].item(), slot)

    def test_vllm_by_its_own_reader(self):
        text = source_of(servers.VLLM_STATE)
        needs(servers.torch, "torch")
        mapping = servers.vllm_initial_mapping(
            text, self.path / "vllm.jsonl", moe_layers=3, experts=EXPERTS, slots=SLOTS
        )
        if mapping is None:
            raise unittest.SkipTest("this vLLM loads no expert map from a file")
        physical_to_logical, logical_to_physical, replicas = mapping
        self.assertEqual(physical_to_logical.tolist(), self.rows)
        self.assertEqual(replicas.sum().item(), 3 * SLOTS)

    def test_vllm_ascend_by_its_own_reader(self):
        text = source_of(servers.VLLM_ASCEND)
        needs(servers.torch, "torch")
        ascend = servers.vllm_ascend(text)
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
        text = source_of(servers.TRTLLM)
        needs(yaml, "PyYAML")
        needs(servers.pydantic, "pydantic")
        content = yaml.safe_load((self.path / "trtllm.yaml").read_text())
        balancer = servers.trtllm_config(text, content, rank=1, ranks=RANKS)
        for layer, row in zip(MOE_LAYERS, self.rows, strict=True):
            self.assertEqual(balancer.get_layer_initial_global_assignments(layer), row)
        with self.assertRaises(KeyError):
            balancer.get_layer_initial_global_assignments(2)


if __name__ == "__main__":
    unittest.main()
