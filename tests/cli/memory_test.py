"""evenkeel memory: its keys, the effect of each option on them, the printed text, and refusals.

The bytes are tested in the library (tests/training_memory).
"""

import json
import math
import struct
import tempfile
from pathlib import Path

from command import REPOSITORY, CommandTest, npz

CONFIGS = REPOSITORY / "tests" / "data" / "configs"
CONFIG = REPOSITORY / "data" / "tiny-moe" / "config.json"
TINY = [
    "memory", "--model", CONFIG, "--parallel", "ep=8", "--seq", 512,
    "--static-bytes", 0, "--available-ratio", 1, "--device-memory", "7.3MB", "--paper", "--received", 2048,
]  # fmt: skip
QWEN = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel"]
DEEPSEEK = ["memory", "--model", CONFIGS / "deepseek-v3.json", "--parallel", "ep=32"]
NARROW = {
    "model_type": "mixtral", "num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 32, "vocab_size": 16,
    "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 4, "num_local_experts": 2, "num_experts_per_tok": 1,
}  # fmt: skip
TENSORS = {
    "model.embed_tokens": [16, 64], "lm_head": [16, 64], "model.norm": [64], "model.layers.0.input_layernorm": [64],
    "model.layers.0.post_attention_layernorm": [64], "model.layers.0.block_sparse_moe.gate": [2, 64],
    "model.layers.0.self_attn.q_proj": [8, 64], "model.layers.0.self_attn.k_proj": [4, 64],
    "model.layers.0.self_attn.v_proj": [4, 64], "model.layers.0.self_attn.o_proj": [64, 8],
}  # fmt: skip
ROWS = REPOSITORY / "data" / "tiny-moe" / "train_rank_rows.npz"
KEYS = [
    "devices", "static_bytes", "active_bytes", "static_total", "active_total", "s_prime_max", "chunks", "fits", "least_budget",
    "stage", "s_prime", "s_prime_even", "s_prime_worst", "least_chunks", "promised", "available", "longest_sequence",
    "advice", "stages", "static_by_state", "model", "notes", "setup",
]  # fmt: skip


class Memory(CommandTest):
    def test_prints_exactly_the_promised_keys_and_sums_that_add_up(self):
        for words in [[], ["--with", "all"], ["--recompute", "none"], ["--device-memory", "100MB"]]:
            report = self.json("memory", "--model", CONFIG, "--parallel", "pp=3,ep=8", *words)
            self.assertEqual(list(report), KEYS)
            self.assertEqual(sum(report["static_bytes"].values()), report["static_total"])
            self.assertEqual(sum(report["active_bytes"].values()), report["active_total"])
            self.assertEqual(sum(report["static_by_state"].values()), report["static_total"])
            self.assertEqual(len(report["stages"]), 3)
            stage = report["stages"][report["stage"]]
            for key in ["static_total", "active_total", "s_prime_max", "chunks", "s_prime", "least_chunks"]:
                self.assertEqual(stage[key], report[key], key)
            self.assertEqual(
                sum(kind["bytes"] for kind in stage["weights"].values()), report["static_by_state"]["weights"]
            )
            self.assertEqual(report["fits"], all(each["fits"] for each in report["stages"]))
            self.assertEqual(stage["fits"], report["static_total"] + report["active_total"] <= report["available"])
            self.assertEqual(report["advice"] == [], report["fits"])

    def test_the_least_budget_is_that_of_the_layer_that_runs(self):
        layer = ["run", "--scenario", "balanced", "--experts", 32, "--top-k", 4, "--hidden", 256, "--intermediate", 160]
        layer += ["--dtype", "bf16", "--tokens", 64, "--ranks", 4, "--planner", "ep", "--backward", "--repeat", 1]
        said = self.json("memory", "--model", CONFIG, "--parallel", "ep=4", "--seq", 64)
        self.assertEqual(said["least_budget"], self.json(*layer)["least_budget"])
        self.assertIsNone(self.json(*QWEN, "ep=8,etp=2")["least_budget"])
        self.assertIsNone(self.json(*QWEN, "ep=8", "--bytes", "activation=1")["least_budget"])

    def test_without_dp_a_layout_has_the_fewest_devices_that_hold_the_experts(self):
        for layout, data, devices in [("pp=4,ep=32", 32, 128), ("tp=8,ep=8,etp=8", 8, 64), ("tp=4,ep=6", 3, 12)]:
            report = self.json(*QWEN, layout)
            self.assertEqual((report["setup"]["parallel"]["dp"], report["devices"]), (data, devices), layout)
        text = self.call(*QWEN, "tp=8,ep=8,dp=1").stdout
        devices = "8 devices: pp=1 x tp=8 x cp=1 x dp=1\nexperts: ep=8 x etp=1, 1 copy on 8 devices a stage\n"
        self.assertTrue(text.startswith(devices), text)

    def test_what_to_change_is_said_when_nothing_fits(self):
        words = ["memory", "--model", CONFIG, "--parallel", "ep=8", "--device-memory"]
        text = self.call(*words, "50MB").stdout
        self.assertIn("\ndoes not fit: ", text)
        self.assertIn("any one of these makes it fit:\n", text)
        needed = self.json(*words, "50MB")["advice"][-1]
        self.assertEqual(needed["change"], "available_bytes")
        self.assertTrue(self.json(*words, needed["value"], "--available-ratio", 1, "--require-fit")["fits"])
        said = ["does not fit: ", "any one of these makes it fit: ", "a device of "]
        self.assert_refused([*words, "50MB", "--require-fit"], 4, "Infeasible", *said)
        chunks = self.json(*TINY[:-1], 30000)
        self.assertEqual((chunks["promised"], chunks["advice"][0]), (False, {"change": "chunks", "value": 10}))
        for name in ["olmoe-1b-7b", "glm-4.5-air", "deepseek-v3"]:  # the printed size is exact
            words = ["memory", "--model", CONFIGS / f"{name}.json"]
            size = self.call(*words).stdout.partition("a device of ")[2].partition(", with")[0]
            self.assertTrue(self.json(*words, "--device-memory", size)["fits"], (name, size))

    def test_terms_are_those_that_are_usual_or_named(self):
        words = ["memory", "--model", CONFIG, "--parallel", "tp=2,ep=4,dp=8"]
        paper, usual = self.json(*words, "--paper"), self.json(*words)
        on = "replicated, every-layer, shared-experts, prediction, logits, buffers, kept-tensors, layer-gradients"
        self.assertEqual((paper["setup"]["terms"], len(paper["active_bytes"])), ([], 12))
        self.assertEqual(", ".join(usual["setup"]["terms"]), on)
        self.assertEqual(self.json(*words, "--with", "sharded-optimizer"), self.json(*words, "--with", "all"))
        more = self.json(*words, "--paper", "--with", "buffers,logits,sharded-optimizer", "--borrowed-experts", 2)
        added = set(more["active_bytes"]) - set(paper["active_bytes"])
        self.assertEqual(added, {"dispatch_buffer", "combine_buffer", "logits", "borrowed_experts"})
        # With the paper's reading, the rows of its table are named.
        self.assertIn("row 12", self.call(*words, "--paper").stdout)
        self.assertNotIn("row ", self.call(*words).stdout.replace("rows", ""))
        words = [
            *DEEPSEEK,
            "--recompute",
            "moe_act,mla_up_proj",
            "--with",
            "fsdp,expert-outputs",
            "--cross-entropy",
            "fused",
        ]
        report = self.json(*words, "--attention", "unfused")
        said = (report["setup"]["recompute"], report["setup"]["cross_entropy"])
        self.assertEqual(said, ("mla_up_proj,moe_act", "fused"))
        terms = {"gathered_weights", "gathered_gradients", "expert_output", "logits", "attention_scores"}
        self.assertLessEqual(terms, set(report["active_bytes"]))
        self.assertNotIn("attention_scores", self.json(*words)["active_bytes"])

    def test_layers_that_predict_further_tokens_are_counted_unless_they_are_not_to_be(self):
        counted = self.json(*DEEPSEEK)
        self.assertEqual(counted["model"]["prediction_layers"], 1)
        self.assertIn("prediction", counted["static_bytes"])
        self.assertIn(
            "1 layer of multi-token prediction besides, counted on the last stage", self.call(*DEEPSEEK).stdout
        )
        self.assertIn("besides, not counted", self.call(*DEEPSEEK, "--paper").stdout)
        without = self.json(*DEEPSEEK, "--without", "prediction")
        self.assertNotIn("prediction", [*without["static_bytes"], *without["setup"]["terms"]])

    def test_received_devices_and_pieces_may_be_words(self):
        words = [*QWEN, "tp=2,ep=8,etp=2", "--received"]
        even = self.json(*words, "even")
        self.assertEqual(even["s_prime"], 4096 * 8 * 2)
        self.assertEqual(even, self.json(*words, 4096 * 8 * 2))
        self.assertIn("as given, more than any routing sends", self.call(*words, 10**6).stdout)
        report = self.json("memory", "--model", CONFIG, "--available-ratio", 1, "--device", "H100")
        self.assertEqual((report["setup"]["device"], report["available"]), ("h100", 84932978278))
        stages = self.json("memory", "--model", CONFIG, "--parallel", "pp=2", "--pipeline-layout", "Et*5|tttL")[
            "stages"
        ]
        self.assertEqual([len(stage["layers"]) for stage in stages], [5, 3])

    def test_notes_say_what_is_not_counted(self):
        config = json.loads((CONFIGS / "deepseek-v2.json").read_text(encoding="utf-8"))
        words = ["memory", "--model", self.write("config.json", config | {"mlp_bias": True})]
        note = "mlp_bias is set, but the weights that it adds are not counted"
        self.assertEqual(self.json(*words)["notes"], [note])
        self.assertIn(f"\nnote: {note}\n", self.shown(*words))
        # Infinity and NaN are not numbers, but unread keys may have them.
        words = ["memory", "--model", self.write("config.json", config | {"limit": [0.0, math.inf], "x": math.nan})]
        self.assertEqual(self.json(*words)["model"]["parameters"], 235_741_434_880)

    def checkpoint(self, more, files=1):
        """A folder with a narrow Mixtral's tensors, all zeros, in one file or in several files with an index."""
        tensors = [(f"{name}.weight", "BF16", shape) for name, shape in TENSORS.items()] + more
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        self.write(folder / "config.json", NARROW)
        places = {}
        for file in range(files):
            name = f"model-{file}.safetensors" if files > 1 else "model.safetensors"
            header, end = {}, 0
            for tensor, dtype, shape in tensors[file::files]:
                begin, end = end, end + math.prod(shape) * {"BF16": 2, "F32": 4, "I32": 4}.get(dtype, 1)
                header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
                places[tensor] = name
            text = json.dumps(header).encode()
            (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))
        if files > 1:
            self.write(folder / "model.safetensors.index.json", {"weight_map": places})
        return folder

    def test_a_checkpoint_has_the_weights_that_its_config_says(self):
        at = "model.layers.0.block_sparse_moe.experts"
        shapes = [("w1", [32, 64]), ("w2", [64, 32]), ("w3", [32, 64])]
        each = [(f"{at}.{e}.{name}.weight", "F8_E4M3", shape) for e in range(2) for name, shape in shapes]
        each += [(f"{at}.{e}.w1.weight_scale_inv", "F32", [1, 1]) for e in range(2)]
        blocks = []
        for name, groups in [("gate_up", 2), ("down", 1)]:
            blocks.append((f"{at}.{name}_proj_blocks", "U8", [2, 64, groups, 16]))
            blocks.append((f"{at}.{name}_proj_scales", "U8", [2, 64, groups]))
        for folder in self.checkpoint(each, files=2), self.checkpoint(blocks):
            stored, alone = (self.json("memory", "--model", path) for path in (folder, folder / "config.json"))
            self.assertEqual(stored["model"], alone["model"])
            self.assertEqual(stored["notes"], ["2 tensors of scales or ids are not counted"])
        packed = self.checkpoint([*each, (f"{at}.0.w1.qweight", "I32", [1, 8])])
        said = "experts.0.w1.qweight: is packed by GPTQ or AWQ, so its shape is not that of the weights"
        self.assert_refused(["memory", "--model", packed], 3, "ParseError", said)
        nothing = self.checkpoint([(f"{at}.0.w2.weight", "BF16", [0, 32])])
        self.assert_refused(["memory", "--model", nothing], 2, "InvalidArgument", "no tensor of experts")

    def test_layouts_of_so_many_devices_are_ranked_and_are_as_the_command_says_of_each(self):
        words = QWEN[:-1]
        found = self.json(*words, "--gpus", 32)
        self.assertEqual(list(found), ["devices", "available", "fits", "layouts"])
        self.assertEqual([found["fits"], *(found["layouts"][i]["fits"] for i in (0, -1))], [True, True, False])
        degrees = ",".join(f"{name}={number}" for name, number in found["layouts"][0]["parallel"].items())
        said = self.json(*words, "--parallel", degrees)
        for key in ["fits", "static_total", "active_total", "chunks", "stage"]:
            self.assertEqual(said[key], found["layouts"][0][key], key)
        self.assertIn("32 devices, 67.1 GiB of each: ", self.shown(*words, "--gpus", 32).splitlines()[0])
        none = ["memory", "--model", CONFIG, "--gpus", 8, "--device-memory", "1MB"]
        self.assertFalse(self.json(*none)["fits"])
        self.assert_refused([*none, "--require-fit"], 4, "Infeasible", "layouts fit; the smallest takes")

    def test_the_chunks_of_a_history_are_printed_by_step_and_layer(self):
        words = [*TINY, "--counts", ROWS, "--steps", "0:5"]
        chunks = self.json(*words)["history"]["chunks"]
        self.assertEqual([len(step) for step in chunks], [8] * 5)
        self.assertGreater({chunk for step in chunks for chunk in step}, {1})
        beyond = sum(chunk > 1 for step in chunks for chunk in step)
        self.assertEqual(self.json(*words, "--bins", 1)["history"], {"chunks": [[1] * 8] * 5, "not_promised": beyond})

    def test_people_get_tables_of_at_most_100_columns(self):
        for words in [
            TINY + ["--counts", ROWS],
            TINY + ["--counts", ROWS, "--steps", "0:18"],
            ["memory", "--model", CONFIGS / "deepseek-v2-lite.json", "--parallel", "pp=16,ep=64", "--with", "all"],
            ["memory", "--model", CONFIG, "--device-memory", "1MB"],
        ]:
            self.shown(*words)
        text = self.shown(*QWEN, "ep=8", "--recompute", "moe_act")
        for part in ["its layers kept but for moe_act",
                     "chunks are a feature of MemFine's and evenkeel's layers; for other trainers use --bins 1"]:  # fmt: skip
            self.assertIn(part, text)

    def test_what_is_wrong_is_refused_with_its_kind(self):
        mixtral = ["memory", "--model", CONFIGS / "mixtral-8x7b.json"]
        qwen, search = [*QWEN, "ep=8"], ["memory", "--model", CONFIG, "--gpus"]
        for words, option, part in [
            *[
                ([*mixtral, option, value], option, part)
                for option, value, part in [
                    ("--parallel", "tp=0", "1..1048576"),
                    ("--parallel", "tp=2,tp=4", "'tp' twice"),
                    ("--parallel", "xp=2", "allowed: tp=N, pp=N, ep=N"),
                    ("--parallel", "ep", "'ep'"),
                    ("--parallel", "tp=3", "tp=3 does not divide the 32 attention heads"),
                    ("--available-ratio", "1.001", "at most 1"),
                    ("--available-ratio", "0", "0.001"),
                    ("--device-memory", "big", "--device-memory"),
                    ("--device", "v100", "a100, h100, h200, b200, mi300x"),
                    ("--bins", "2,1", "ascending"),
                    ("--with", "more", "allowed: all, replicated"),
                    ("--with", "fsdp,fsdp", "'fsdp' twice"),
                    ("--recompute", "some", "none, full"),
                    ("--recompute", "moe,moe", "'moe' twice"),
                    ("--recompute", "selective", "core_attn, layernorm, mla_up_proj"),
                    ("--recompute", "mla_up_proj", "mla_up_proj, but the model has no latent"),
                    ("--recompute", "shared_experts", "shared_experts, but the model has no shared experts"),
                    ("--recompute", "mlp", "mlp, but the model has no layer without experts"),
                    ("--bytes", "weight=2,weights=4", "activation=N"),
                    ("--bytes", "weight=0", "0"),
                    ("--bytes", "optimizer=-1", "-1"),
                    ("--received", "uneven", "uneven"),
                    ("--steps", "0:1", "without --counts"),
                    ("--micro-batch", "0", "1..4096"),
                ]
            ],
            ([*DEEPSEEK, "--without", "fsdp"], "--without", "'fsdp'"),
            ([*DEEPSEEK, "--without", "prediction,prediction"], "--without", "twice"),
            ([*DEEPSEEK, "--without", "mtp"], "--without", "'mtp'"),
            ([*qwen, "--paper", "--attention", "unfused"], "--attention", "unfused needs kept-tensors, which --paper leaves out"),
            ([*qwen, "--borrowed-experts", 113], "--borrowed-experts", "at most 112, the experts of other devices"),
            # Options that have no effect together with another.
            ([*qwen, "--static-bytes", "40GB", "--with", "sharded-optimizer"], "--with", "affects only static memory"),
            ([*qwen, "--static-bytes", "40GB", "--bytes", "optimizer=0"], "--bytes", "affects only static memory"),
            ([*qwen, "--with", "all", "--cross-entropy", "chunked"], "--cross-entropy", "'chunked' does not work with --with all"),
            ([*qwen, "--with", "logits", "--cross-entropy", "chunked"], "--cross-entropy", "does not work with --with logits"),
            ([*qwen, "--device", "h100", "--device-memory", "80GB"], "--device-memory", "is already given by --device"),
            ([*qwen, "--paper", "--recompute", "moe_act"], "--recompute", "Table 2"),
            ([*qwen, "--paper", "--cross-entropy", "fused"], "--cross-entropy", "applies to logits, which --paper does not count"),
            ([*qwen, "--paper", "--with", "expert-outputs"], "--with", "row 13 of the paper's Table 2"),
            ([*qwen, "--paper", "--with", "layer-gradients"], "--with", "needs the term kept-tensors"),
            # Options that a search for layouts cannot use.
            ([*search, 8, "--parallel", "tp=2"], "--parallel", "tp is chosen by --gpus"),
            ([*search, 8, "--static-bytes", "1GB"], "--static-bytes", "applies to one"),
            ([*search, 8, "--counts", ROWS], "--counts", "applies to one layout"),
            ([*search, 3, "--parallel", "cp=2"], "--gpus", "3 devices have no layout with"),
            ([*search, 0], "--gpus", "1..1048576"),
            ([*TINY, "--counts", ROWS, "--steps", "5:5"], "--steps", "--steps"),
            ([*TINY, "--counts", ROWS, "--steps", "0:1564"], "--steps", "--steps"),
        ]:  # fmt: skip
            with self.subTest(words=words[3:]):
                error = self.assert_refused(words, 2, "InvalidArgument", option, part)
                self.assertEqual(error["argument"], option)
        self.assert_refused(["memory"], 2, "InvalidArgument", "--model")

    def test_a_config_or_history_that_is_none_is_an_input_error(self):
        lacking = self.write("lacking.json", {"model_type": "mixtral", "num_hidden_layers": 2})
        error = self.assert_refused(["memory", "--model", lacking], 3, "ParseError", "hidden_size: is missing")
        self.assertEqual((error["file"], error["where"]), ("lacking.json", "hidden_size"))
        self.assert_refused(["memory", "--model", "absent.json"], 3, "ParseError", "absent.json")
        nemotron = NARROW | {"model_type": "nemotron_h", "layers_block_type": ["moe"], "moe_intermediate_size": 8}
        alone = self.write("alone.json", nemotron | {"moe_shared_expert_intermediate_size": 8})
        self.assert_refused(["memory", "--model", alone], 4, "Unsupported", "(--model DIR: ", "evenkeel.memory(model)")
        for shape, value, part in [
            ([2, 3], 1, "has 3 layers; the model has 8"),
            ([0, 8], 1, "has no steps"),
            ([1, 8], -1, "has the number -1; allowed: 0.."),
            ([1, 8, 4], 1, "has 4 experts; the model has 32"),
            ([8], 1, "[steps, layers]"),
        ]:
            with self.subTest(shape=shape):
                (self.folder / "rows.npz").write_bytes(npz("rows", shape, [value] * math.prod(shape)))
                self.assert_refused([*TINY, "--counts", "rows.npz"], 3, "ParseError", part)
