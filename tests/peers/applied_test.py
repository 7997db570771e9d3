"""Placements applied as the servers apply them: the ranks' loads are those that `evenkeel place` promised.

    tools/peers.sh && EVENKEEL_PEERS=FOLDER python3 tests/peers/applied_test.py BUILD/bin/evenkeel

Each pair of a recording system and a server is tested. `place` reads a recording of a model with dense layers. The
server's own code reads the placement (servers.py); if that code is not found, this file's restatement of it is used.
Each layer of the model takes the row that the server gives it, and the ranks' loads are counted from the true loads of
that layer. A row at another layer's position changes max/mean.
"""

import itertools
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from types import SimpleNamespace

import peer

peer.require("torch", "numpy", "safetensors", "yaml")

import numpy as np  # noqa: E402
import recordings  # noqa: E402
import servers  # noqa: E402
import yaml  # noqa: E402

COMMAND = Path(sys.argv.pop(1)).resolve()
RANKS, REDUNDANT = 4, 8

MODELS = {
    "deepseek-like": recordings.Model(
        hidden_layers=61, moe_layers=list(range(3, 61)), experts=32, top_k=4, tokens=150,
        config={"first_k_dense_replace": 3, "moe_layer_freq": 1},
    ),
    "interleaved": recordings.Model(
        hidden_layers=12, moe_layers=[1, 3, 5, 7, 9, 11], experts=16, top_k=2, tokens=300,
        config={"decoder_sparse_step": 2, "mlp_only_layers": []},
    ),
    # The last layer is dense, so files must not end with the last layer that has experts.
    "dense at both ends": recordings.Model(
        hidden_layers=9, moe_layers=[2, 3, 5, 6], experts=24, top_k=3, tokens=200,
        config={"moe_layers": [2, 3, 5, 6]},
    ),
}  # fmt: skip
WITH_MTP = recordings.Model(
    hidden_layers=8, moe_layers=[1, 2, 3, 4, 5, 6, 7], mtp_layers=[8], experts=16, top_k=2, tokens=300,
    config={"first_k_dense_replace": 1, "num_nextn_predict_layers": 1},
)  # fmt: skip

# The systems that record, and whether their recordings say the layer number of each row.
RECORDINGS = {
    "SGLang stat": (recordings.sglang_stat, True),
    "SGLang per_token": (recordings.sglang_per_token, True),
    "TensorRT-LLM statistics": (recordings.trtllm_statistics, True),
    "Megatron-LM trace": (recordings.megatron_trace, True),
    "routed_experts": (recordings.routed_experts, True),
    "vLLM statistics": (recordings.vllm_stats, False),
    "counts": (recordings.plain_counts, False),
}
FILES = {"sglang": "placement.json", "vllm": "placement.jsonl", "vllm-ascend": "map.json", "trtllm": "placement.yaml"}


class Applied(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.parts = None  # each slot's share of its expert's load, if the server does not split evenly

    def place(self, model, recording, server, *options):
        words = ["place", recording, "--ranks", RANKS, "--redundant-experts", REDUNDANT, "--num-experts", model.experts]
        words += ["--format", server, "-o", self.folder / FILES[server], "--json", *options]
        if server == "sglang" and servers.find_source(servers.SGLANG) is None:
            words += ["--dispatch", "even"]  # SGLang's random choices are not restated here
        return subprocess.run([COMMAND, *map(str, words)], capture_output=True, text=True, check=False)

    # Each method returns the physical experts of every layer with experts, by the model's layer number.

    def sglang(self, model, path):
        """A row for every hidden layer. By SGLang's default, ranks dispatch to slots drawn at the start."""
        text = servers.find_source(servers.SGLANG)
        slots = model.experts + REDUNDANT
        if text is None:
            rows = json.loads(path.read_text())["physical_to_logical_map"]
        else:
            sizes = {"hidden_layers": model.hidden_layers, "experts": model.experts, "slots": slots, "ranks": RANKS}
            locations = [servers.sglang_location(text, path, rank, **sizes) for rank in range(RANKS)]
            self.assertEqual(locations[0].num_local_physical_experts, slots // RANKS)
            rows = locations[0].physical_to_logical_map.tolist()
            self.parts = servers.sglang_parts(locations, "static")
        self.assertEqual(len(rows), model.hidden_layers)
        for layer in set(range(model.hidden_layers)) - set(model.moe_layers):
            # How SGLang itself fills the slots without a map.
            self.assertEqual(rows[layer], [slot % model.experts for slot in range(slots)])
        return {layer: rows[layer] for layer in model.moe_layers}

    def vllm(self, model, path):
        """Rows for layers with experts only, in the order of the model's `moe_layers`."""
        slots = model.experts + REDUNDANT
        text = servers.find_source(servers.VLLM_STATE) or ""
        sizes = {"moe_layers": len(model.moe_layers), "experts": model.experts, "slots": slots}
        mapping = servers.vllm_initial_mapping(text, path, **sizes)
        rows = self.restated_vllm(path, **sizes) if mapping is None else mapping[0].tolist()
        order = model.moe_layers
        if text := servers.find_source(servers.VLLM_MODEL):
            order = servers.vllm_moe_layers(text, model.hidden_layers, model.moe_layers)
        return dict(zip(order, rows, strict=True))

    def restated_vllm(self, path, *, moe_layers, experts, slots):
        """Restates `EplbState._load_initial_mapping` of pull request vllm-project/vllm#41141, not yet released."""
        (record,) = [json.loads(line) for line in path.read_text().splitlines()]
        self.assertEqual((record["record_type"], record["version"]), ("eplb_initial_mapping", 1))
        self.assertEqual((record["num_redundant_experts"], record["num_slots"]), (slots - experts, slots))
        rows = record["initial_global_assignments"]
        self.assertEqual(set(rows), {str(layer) for layer in range(moe_layers)})
        return [rows[str(layer)] for layer in range(moe_layers)]

    def vllm_ascend(self, model, path):
        """A layer takes row n if the process built n MoE layers before it (AscendRoutedExperts.moe_counter)."""
        text = servers.find_source(servers.VLLM_ASCEND)
        if text is None:
            # expert_file_to_tensor uses the position in the list, not the layer_id.
            layers = json.loads(path.read_text())["layer_list"]
            flat = [sum((device["device_expert"] for device in layer["device_list"]), []) for layer in layers]
            return dict(zip(model.moe_layers, flat, strict=True))
        ascend = servers.vllm_ascend(text)
        config = SimpleNamespace(expert_map_path=str(path), dynamic_eplb=False, num_redundant_experts=0)
        rows = {}
        for counter, layer in enumerate(model.moe_layers):
            rows[layer] = ascend.expert_file_to_tensor(str(path), counter)[0].flatten().tolist()
            moe = SimpleNamespace(num_experts=model.experts, ep_size=RANKS, ep_rank=1)
            where, _, _, redundant = ascend.init_eplb_config(config, counter, moe)
            self.assertEqual(redundant, REDUNDANT)
            each = len(rows[layer]) // RANKS
            for rank in range(RANKS):
                held = [rows[layer][slot] for slot in range(rank * each, (rank + 1) * each)]
                self.assertEqual(sorted(held), [e for e in range(model.experts) if where[rank][e] >= 0])
        # The multi-token prediction layer comes after the last layer, and has no row in this file.
        self.assertIsNone(ascend.expert_file_to_tensor(str(path), len(model.moe_layers))[0])
        return rows

    def trtllm(self, model, path):
        """Rows by the model's layer numbers; multi-token prediction layers come after the hidden layers."""
        content = yaml.safe_load(path.read_text())
        slots = model.experts + REDUNDANT
        text = servers.find_source(servers.TRTLLM) if servers.pydantic else None
        if text is None:
            # MoeLoadBalancerConfig in tensorrt_llm/llmapi/llm_args.py, at commit 00043967.
            self.assertLessEqual(set(content), {"num_slots", "initial_global_assignments", "layer_updates_per_iter"})
            self.assertEqual(content["num_slots"], slots)
            row_of = content["initial_global_assignments"].__getitem__
        else:
            row_of = servers.trtllm_config(text, content, rank=1, ranks=RANKS).get_layer_initial_global_assignments
        rows = {layer: row_of(layer) for layer in model.moe_layers + model.mtp_layers}
        for row in rows.values():
            # The checks that TensorRT-LLM's own layer makes (tensorrt_llm/_torch/modules/fused_moe/interface.py).
            self.assertEqual((len(row), set(row)), (slots, set(range(model.experts))))
        return rows

    def rank_loads(self, loads, row, layer):
        """Splits an expert's load evenly over its copies, or as SGLang does. Slots are listed rank by rank."""
        copies = np.bincount(row, minlength=len(loads))
        parts = 1 / copies[row] if self.parts is None else self.parts[layer]
        return (loads[row] * parts).reshape(RANKS, -1).sum(axis=1)

    def assert_promise_kept(self, model, server, promised, layers=None):
        self.parts = None
        rows = getattr(self, server.replace("-", "_"))(model, self.folder / FILES[server])
        ratios = []
        for layer in layers or model.moe_layers:
            loads = self.rank_loads(model.loads(layer), np.array(rows[layer]), layer)
            ratios.append(loads.max() / loads.mean())
        self.assertAlmostEqual(np.mean(ratios), promised["max_over_mean_mean"], places=9)
        self.assertAlmostEqual(max(ratios), promised["max_over_mean_worst"], places=9)
        return rows

    def test_every_server_gets_the_loads_that_were_promised_for_every_recording(self):
        for (name, (record, says_layers)), server in itertools.product(RECORDINGS.items(), FILES):
            for kind, model in MODELS.items():
                with self.subTest(recording=name, server=server, model=kind), tempfile.TemporaryDirectory() as folder:
                    recording = record(model, Path(folder))
                    config = model.write_config(Path(folder))
                    # Even with layer numbers in the recording, SGLang must be told of dense layers that follow the last
                    # MoE layer.
                    needs_model = server in ("sglang", "trtllm") and not says_layers
                    ends_dense = model.moe_layers[-1] + 1 < model.hidden_layers
                    options = ["--model", config] if needs_model or (server == "sglang" and ends_dense) else []
                    done = self.place(model, recording, server, *options)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assert_promise_kept(model, server, json.loads(done.stdout)["after"])

    def test_the_model_may_always_be_named(self):
        for name, server in itertools.product(RECORDINGS, FILES):
            model = MODELS["dense at both ends"]
            with self.subTest(recording=name, server=server), tempfile.TemporaryDirectory() as folder:
                recording = RECORDINGS[name][0](model, Path(folder))
                done = self.place(model, recording, server, "--model", model.write_config(Path(folder)))
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assert_promise_kept(model, server, json.loads(done.stdout)["after"])

    def test_layers_of_multi_token_prediction_go_where_each_server_looks_for_them(self):
        """TensorRT-LLM has rows for these layers. The others have none: SGLang and vLLM use no map for draft models."""
        model = WITH_MTP
        for server in FILES:
            with self.subTest(server=server), tempfile.TemporaryDirectory() as folder:
                recording = recordings.trtllm_statistics(model, Path(folder))
                done = self.place(model, recording, server, "--model", model.write_config(Path(folder)))
                self.assertEqual(done.returncode, 0, done.stderr)
                promised = json.loads(done.stdout)["after"]
                if server == "trtllm":
                    self.assert_promise_kept(model, server, promised, model.moe_layers + model.mtp_layers)
                else:
                    rows = getattr(self, server.replace("-", "_"))(model, self.folder / FILES[server])
                    self.assertEqual(list(rows), model.moe_layers)

    def test_trtllm_finds_prediction_layers_that_were_not_recorded(self):
        """TensorRT-LLM fails without rows for these layers, so they get an even placement."""
        model = WITH_MTP
        with tempfile.TemporaryDirectory() as folder:
            recording = recordings.sglang_stat(model, Path(folder))
            done = self.place(model, recording, "trtllm", "--model", model.write_config(Path(folder)))
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = self.assert_promise_kept(model, "trtllm", json.loads(done.stdout)["after"])
            self.assertIn(8, rows)

    def test_a_row_at_another_layers_place_would_break_the_promise(self):
        """Proves that this test can fail: rows shifted by one layer give other loads."""
        model = MODELS["deepseek-like"]
        with tempfile.TemporaryDirectory() as folder:
            recording = recordings.sglang_stat(model, Path(folder))
            promised = json.loads(self.place(model, recording, "sglang").stdout)["after"]
        path = self.folder / FILES["sglang"]
        rows = json.loads(path.read_text())["physical_to_logical_map"]
        path.write_text(json.dumps({"physical_to_logical_map": rows[:3] + rows[4:] + rows[3:4]}))
        with self.assertRaises(AssertionError):
            self.assert_promise_kept(model, "sglang", promised)


if __name__ == "__main__":
    unittest.main()
