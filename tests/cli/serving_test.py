"""evenkeel memory --serve: bytes against published figures and sums by hand, options, and refusals."""

import json
import math
import struct

from command import REPOSITORY, CommandTest, npz

CONFIGS = REPOSITORY / "tests" / "data" / "configs"
TINY = REPOSITORY / "data" / "tiny-moe"
GIB = 2**30
GLM_46 = {
    "model_type": "glm4_moe", "hidden_size": 5120, "head_dim": 128, "intermediate_size": 12288, "moe_intermediate_size": 1536,
    "num_hidden_layers": 92, "num_attention_heads": 96, "num_key_value_heads": 8, "vocab_size": 151552, "n_routed_experts": 160,
    "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3, "attention_bias": True, "use_qk_norm": True,
    "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
# vLLM's pull request 57270: model, ep (= dp), tokens a rank, and GiB of workspace under even and worst routing.
PUBLISHED = [
    ("GLM-4.6", 16, 8192, 1.3, 20), ("GLM-4.6", 16, 16384, 2.5, 40), ("GLM-4.6", 32, 8192, 1.3, 25), ("GLM-4.6", 32, 16384, 2.5, 50),
    ("GLM-5", 16, 8192, 1.6, 24), ("GLM-5", 16, 16384, 3.1, 48), ("GLM-5", 32, 8192, 1.5, 48), ("GLM-5", 32, 16384, 3.0, 96),
]  # fmt: skip
KEYS = [
    "stage", "layers", "fits", "total", "weight_bytes", "weights_total", "cache_bytes", "cache_bytes_per_sequence", "workspace_bytes",
    "devices", "available", "routing", "cache_tokens", "local_experts", "cases", "stages", "notes", "model", "setup",
]  # fmt: skip


class Serving(CommandTest):
    def serve(self, model, *words, **changes):
        """The report for a config in tests/data, with some keys changed."""
        path = CONFIGS / f"{model}.json"
        if changes:
            path = self.write("config.json", json.loads(path.read_text(encoding="utf-8")) | changes)
        return self.json("memory", "--serve", "--model", path, *words)

    def case_of(self, report, name):
        return next(each for each in report["cases"] if each["routing"] == name)

    def test_workspaces_are_those_that_vllm_publishes_and_stand_in_the_docs(self):
        docs = (REPOSITORY / "docs" / "serving-memory.md").read_text(encoding="utf-8")
        for model, ranks, tokens, *published in PUBLISHED:
            path = self.write("config.json", GLM_46) if model == "GLM-4.6" else CONFIGS / "glm-5.json"
            words = ["--parallel", f"ep={ranks}", "--tokens", tokens]
            report = self.json("memory", "--serve", "--model", path, *words)
            counted = [self.case_of(report, name)["workspace_bytes"] / GIB for name in ("even", "worst")]
            for ours, theirs in zip(counted, published, strict=True):
                self.assertLess(abs(ours / theirs - 1), 0.05, (model, ranks, tokens))
            cells = f"| {model}, {ranks} | {tokens:,} | {published[0]} / {published[1]} | {counted[0]:.2f} / {counted[1]:.1f} |"
            self.assertIn(cells, docs)

    def test_prints_exactly_the_promised_keys_and_sums_that_add_up(self):
        for words in [[], ["--sequences", 64], ["--received", "even"], ["--device-memory", "1GB"]]:
            report = self.serve("deepseek-v3", "--parallel", "pp=4,tp=2,ep=32", *words)
            self.assertEqual(list(report), KEYS)
            self.assertEqual((report["devices"], report["local_experts"]), (128, 8))
            stage = report["stages"][report["stage"]]
            self.assertEqual(stage, {key: report[key] for key in KEYS[:9]})
            parts = sum(report["weight_bytes"].values()) + report["cache_bytes"] + report["workspace_bytes"]
            self.assertEqual(report["total"], parts)
            self.assertEqual(report["fits"], report["total"] <= report["available"])
            self.assertEqual(report["total"], max(each["total"] for each in report["stages"]))

    def test_weights_are_those_that_servers_load(self):
        # vLLM 0.8.5 of Qwen3-30B-A3B in bf16 on four devices: 14.2474 GiB each (issue 17327).
        qwen = self.serve("qwen3-30b-a3b", "--parallel", "tp=4")
        self.assertEqual(qwen["setup"]["parallel"]["etp"], 4)
        self.assertAlmostEqual(qwen["weights_total"] / GIB, 14.2474, delta=0.015)
        # The sizes of the checkpoints in OpenAI's model card.
        for name, size in [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)]:
            oss = self.serve(name, quantization_config={"quant_method": "mxfp4"}, dtype="bfloat16")
            self.assertAlmostEqual(oss["weights_total"] / GIB, size, delta=0.1)
        # On one device each weight is stored once; matrices are in fp8.
        for words, changes in [(["--bytes", "weight=1"], {}), ([], {"quantization_config": {"quant_method": "fp8"}})]:
            report = self.serve("deepseek-v3", *words, **changes)
            wide = sum(report["weight_bytes"][name] for name in ("embedding", "norms", "router", "head"))
            self.assertEqual(report["weights_total"], report["model"]["parameters"] + wide // 2)
        unknown = self.serve("deepseek-v3", quantization_config={"quant_method": "awq"})
        self.assertIn("quantized (awq)", unknown["notes"][0])
        sized = self.serve("qwen3-30b-a3b", "--parallel", "ep=16", "--expert-bytes", "2MiB")
        self.assertEqual(sized["weight_bytes"]["experts"], 48 * 8 * 2 * 2**20)

    def test_caches_are_those_of_each_kind_of_attention(self):
        layer = 2 * 8 * 64 * 2  # bytes a token in one layer of gpt-oss
        window = {"sliding_window": 128}
        state = 36 * (32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * 3 * 2)
        for model, words, changes, wanted in [
            ("qwen3-30b-a3b", [], {}, 4096 * 48 * 2 * 4 * 128 * 2),
            ("qwen3-30b-a3b", ["--parallel", "tp=8"], {}, 4096 * 48 * 2 * 128 * 2),
            ("qwen3-30b-a3b", ["--bytes", "cache=1"], {}, 4096 * 48 * 2 * 4 * 128),
            ("deepseek-v3", ["--parallel", "tp=8"], {}, 4096 * 61 * 576 * 2),
            ("glm-5", ["--bytes", "cache=1"], {}, 4096 * 78 * (576 + 132)),
            ("gpt-oss-20b", [], {}, 4096 * 24 * layer),
            ("gpt-oss-20b", [], window, (4096 + 128) * 12 * layer),
            # llama.cpp prints 9,216 MiB for the full-attention layers of two such sequences.
            ("gpt-oss-120b", ["--context", 131072], window, 9216 * 2**20 // 2 + 128 * 18 * layer),
            ("gpt-oss-20b", ["--context", 100], window, 100 * 24 * layer),
            ("gpt-oss-20b", [], window | {"layer_types": ["full_attention"] * 23 + ["sliding_attention"]},
             (4096 * 23 + 128) * layer),
            ("llama-4-scout", [], {"attention_chunk_size": 1024}, (4096 * 12 + 1024 * 36) * 2 * 8 * 128 * 2),
            ("mixtral-8x7b", [], {"sliding_window": None}, 4096 * 32 * 2 * 8 * 128 * 2),
            ("mixtral-8x7b", [], window, 128 * 32 * 2 * 8 * 128 * 2),
            ("mixtral-8x7b", [], window | {"use_sliding_window": False}, 4096 * 32 * 2 * 8 * 128 * 2),
            ("mixtral-8x7b", [], window | {"use_sliding_window": True, "max_window_layers": 30},
             (4096 * 30 + 128 * 2) * 2 * 8 * 128 * 2),
            ("gemma-4-26b-a4b", [], {"sliding_window": 1024}, (1024 * 25 * 2 * 8 * 256 + 4096 * 5 * 2 * 2 * 512) * 2),
            ("qwen3-next-80b-a3b", [], {"linear_conv_kernel_dim": 4}, 4096 * 12 * 2 * 2 * 256 * 2 + state),
        ]:  # fmt: skip
            with self.subTest(model=model, words=words, changes=changes):
                report = self.serve(model, *words, **changes)
                self.assertEqual(report["cache_bytes_per_sequence"], wanted)
                many = self.serve(model, *words, "--sequences", 7, **changes)
                self.assertEqual(many["cache_bytes"], 7 * wanted)

    def test_a_checkpoint_says_the_weights_of_a_family_that_a_config_alone_does_not(self):
        config = json.loads((CONFIGS / "deepseek-v3.json").read_text(encoding="utf-8"))
        config |= {"model_type": "deepseek_v4", "num_hidden_layers": 4, "head_dim": 512, "o_lora_rank": 8, "sliding_window": 128,
                   "index_head_dim": 128, "compress_ratios": [0, 4, 128, 4], "num_nextn_predict_layers": 0, "n_routed_experts": 2, "num_experts_per_tok": 1}  # fmt: skip
        del config["kv_lora_rank"]
        path = self.write("config.json", config)
        self.assert_refused(["memory", "--serve", "--model", path], 4, "Unsupported", "--model DIR")
        names = [f"model.layers.{layer}.mlp.experts.{expert}.w2.weight" for layer in range(4) for expert in range(2)]
        size = 7168 * 3 * 2
        header = json.dumps(
            {name: {"dtype": "BF16", "shape": [7168, 3], "data_offsets": [i * size, (i + 1) * size]} for i, name in enumerate(names)}
        ).encode()  # fmt: skip
        data = struct.pack("<Q", len(header)) + header + bytes(len(names) * size)
        (self.folder / "model.safetensors").write_bytes(data)
        report = self.json("memory", "--serve", "--model", self.folder)
        self.assertEqual(report["cache_bytes_per_sequence"], 4 * 128 * 1024 + 2 * 1024 * (1024 + 132) + 32 * 1024)

    def test_as_many_tokens_are_cached_as_fit_beside_weights_and_workspace(self):
        words = ["--parallel", "tp=4", "--received", "even", "--context"]
        tokens = self.serve("qwen3-30b-a3b", *words, 8192)["cache_tokens"]
        self.assertEqual([self.serve("qwen3-30b-a3b", *words, tokens + more)["fits"] for more in (0, 1)], [True, False])

    def test_the_fewest_chunks_are_found_with_which_the_worst_fits(self):
        words = ["--parallel", "ep=32", "--bytes", "weight=1", "--device", "h100", "--context", 65536]
        report = self.serve("glm-5", *words)
        chunked = self.case_of(report, "worst, in chunks")
        self.assertEqual((report["fits"], chunked["fits"]), (False, True))
        rows, chunks = chunked["rows"], chunked["chunks"]
        left = report["available"] - report["weights_total"] - report["cache_bytes"]
        sizes = [math.ceil((math.ceil(rows / c) + 8 * 127) / 128) * 128 * 24576 <= left for c in (chunks, chunks - 1)]
        self.assertEqual(sizes, [True, False])
        spilled = self.case_of(report, "worst, spilled")
        self.assertEqual((spilled["rows"], spilled["borrowed_experts"]), (8192 * 8, 2))
        self.assertEqual(spilled["borrowed_bytes"], 2 * 3 * 6144 * 2048)

    def test_copies_lower_the_worst_where_a_token_meets_few_experts_without_one(self):
        tokens, qwen = 8192 * 16, ["qwen3-30b-a3b", "--parallel", "ep=16", "--redundant-experts"]
        for copies, here, rows in [(0, 8, tokens * 8), (32, 10, tokens * 7), (64, 12, tokens * 6), (128, 16, tokens * 4), (256, 24, tokens * 8 // 3 + 1)]:  # fmt: skip
            report = self.serve(*qwen, copies)
            self.assertEqual((report["local_experts"], self.case_of(report, "worst")["rows"]), (here, rows), copies)
            self.assertEqual(report["weight_bytes"]["experts"], 48 * here * 3 * 2048 * 768 * 2)

    def test_a_recording_says_how_bad_it_was_and_what_placing_would_have_done(self):
        config = json.loads((TINY / "config.json").read_text(encoding="utf-8"))
        model = self.write(
            "tiny.json", config | {"num_hidden_layers": 1, "num_local_experts": 4, "num_experts_per_tok": 2}
        )
        steps = [[9, 9, 1, 1], [8, 8, 2, 2], [6, 6, 4, 4], [7, 7, 3, 3]]
        (self.folder / "counts.npz").write_bytes(npz("counts", [4, 1, 4], sum(steps, [])))
        words = ["memory", "--serve", "--model", model, "--parallel", "ep=2", "--tokens", 100, "--counts", "counts.npz"]
        rows = {each["routing"]: each["rows"] for each in self.json(*words)["cases"]}
        recorded = {"recorded": 360, "recorded, second half": 280, "second half, placed by the first": 200}
        self.assertEqual(rows, {"even": 200, "worst": 400, "worst, spilled": 200} | recorded)
        self.assertIn("second half, placed by the first", self.shown(*words))
        real = ["memory", "--serve", "--model", TINY / "config.json", "--parallel", "ep=8", "--counts"]
        for name in ["train_counts.npz", "routing_step50.npz"]:
            cases = {each["routing"]: each["rows"] for each in self.json(*real, TINY / name)["cases"]}
            self.assertLess(cases["even"], cases["recorded"])
            self.assertLess(cases["recorded"], cases["worst"])

    def test_people_get_a_verdict_and_tables_of_at_most_100_columns(self):
        words = ["memory", "--serve", "--model", CONFIGS / "glm-5.json", "--parallel", "ep=32", "--bytes", "weight=1"]
        text = self.shown(*words, "--device", "h100", "--context", 65536)
        for part in ["32 devices: pp=1 x tp=1 x dp=32\n", "8 of 256 on a device", "\ndoes not fit by ", "at worst routing\n",
                     "\nwhat fits: even; worst, in chunks (", "worst, spilled"]:  # fmt: skip
            self.assertIn(part, text)
        self.assert_refused(
            [*words, "--device", "h100", "--require-fit"], 4, "Infeasible", "does not fit by", "what fits: even"
        )
        self.assertTrue(self.json(*words, "--device", "h200", "--require-fit")["fits"])
        self.assertIn("at given routing", self.shown(*words, "--received", "even"))
        for model in ["qwen3-next-80b-a3b", "deepseek-v3"]:
            self.shown("memory", "--serve", "--model", CONFIGS / f"{model}.json", "--device-memory", "1GB")

    def test_what_is_wrong_is_refused_with_its_kind(self):
        qwen = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json"]
        served = [*qwen, "--serve"]
        (self.folder / "rows.npz").write_bytes(npz("counts", [2, 1, 4], [1] * 8))
        for words, option, part in [
            *[([*qwen, option, 2], option, "has no meaning without --serve") for option in (
                "--sequences", "--context", "--tokens", "--redundant-experts", "--slots", "--expert-bytes")],
            *[([*served, option, value], option, "applies only to training") for option, value in [
                ("--gpus", 8), ("--seq", 8), ("--micro-batch", 2), ("--recompute", "none"), ("--cross-entropy", "fused"),
                ("--with", "fsdp"), ("--without", "logits"), ("--borrowed-experts", 1), ("--allocation-granule", 512),
                ("--static-bytes", 0), ("--bins", 1), ("--steps", "0:1")]],
            ([*served, "--paper"], "--paper", "applies only to training"),
            ([*qwen, "--bytes", "cache=1"], "--bytes", "cache applies only with --serve"),
            ([*served, "--bytes", "gradient=2"], "--bytes", "activation, weight and cache"),
            ([*served, "--parallel", "cp=2"], "--parallel", "cp cannot be combined with --serve"),
            ([*served, "--parallel", "tp=4,ep=8,dp=3"], "--parallel", "dp=2 or a multiple"),
            ([*served, "--parallel", "ep=256"], "--parallel", "the model has 128 experts"),
            ([*served, "--sequences", 0], "--sequences", "1..4294967296"),
            ([*served, "--parallel", "ep=2", "--redundant-experts", 129], "--redundant-experts", "0..128"),
            ([*served, "--parallel", "ep=2", "--slots", 1], "--slots", "5..128"),
            ([*served, "--device", "h100", "--device-memory", "80GB"], "--device-memory", "already given by --device"),
        ]:  # fmt: skip
            with self.subTest(words=words[3:]):
                self.assertEqual(self.assert_refused(words, 2, "InvalidArgument", option, part)["argument"], option)
        for counts, part in [("rows.npz", "has 4 experts"), (TINY / "routing_step50.npz", "has 32 experts")]:
            words = [*served, "--parallel", "ep=2", "--counts", counts]
            self.assert_refused(words, 2, "InvalidArgument", "--counts", part, "a recording of the model's 128 experts")
        (self.folder / "whole.npz").write_bytes(npz("counts", [1, 128], [1] * 128))
        self.assert_refused(
            [*served, "--counts", "whole.npz"], 2, "InvalidArgument", "--counts", "is not divided into steps"
        )
