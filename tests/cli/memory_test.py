"""evenkeel memory: its keys, MemFine's numbers from a config, what fits, and chunks over a training run."""

import json
import unittest

from command import REPOSITORY, CommandTest, npz

CONFIGS = REPOSITORY / "tests" / "data" / "configs"
MEMFINE = [
    "memory", "--model", CONFIGS / "memfine-model-1.json", "--parallel", "pp=4,ep=32", "--seq", 4096,
    "--device-memory", "64GB", "--static-bytes", "43GB", "--paper",
]  # fmt: skip
# Fitted to the paper's table 4, which does not give it.
CALIBRATED = ["--received", 596797]
CONFIG = REPOSITORY / "data" / "tiny-moe" / "config.json"
TINY = [
    "memory", "--model", CONFIG, "--parallel", "ep=8", "--seq", 512,
    "--static-bytes", 0, "--available-ratio", 1, "--device-memory", "7.3MB", "--paper", "--received", 2048,
]  # fmt: skip
ROWS = REPOSITORY / "data" / "tiny-moe" / "train_rank_rows.npz"
KEYS = [
    "devices", "static_bytes", "active_bytes", "static_total", "active_total", "s_prime_max", "chunks", "fits", "least_budget",
    "stage", "s_prime", "s_prime_even", "s_prime_worst", "least_chunks", "promised", "available", "longest_sequence",
    "advice", "stages", "static_by_state", "model", "setup",
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
            self.assertEqual(report["fits"], all(each["fits"] for each in report["stages"]))
            fits = report["static_total"] + report["active_total"] <= report["available"]
            self.assertEqual(stage["fits"], fits)
            self.assertEqual(report["advice"] == [], report["fits"])

    def test_table_four_of_the_paper_follows_from_one_calibrated_number(self):
        for bins, printed in [("1", 22.9), ("8", 3.7), ("1,2,4,8", 11.9)]:
            report = self.json(*MEMFINE, *CALIBRATED, "--bins", bins)
            self.assertLess(abs(report["active_total"] / 1e9 - printed), 0.015 * printed)
        self.assertEqual(report["chunks"], 2)
        self.assertEqual(report["s_prime_max"], 371645)
        self.assertTrue(report["fits"])

    def test_types_are_read_as_tools_write_them(self):
        for name, activation in [("dtype_torch_dot", 2), ("dtype_auto", 2)]:
            with self.subTest(name=name):
                report = self.json("memory", "--model", self.case(f"E_configs/{name}.json"), "--parallel", "ep=8")
                self.assertEqual(report["setup"]["bytes"]["activation"], activation)
                self.assertEqual(report["model"]["parameters"], 30_532_122_624)

    def test_optimizer_states_and_gradients_may_be_elsewhere(self):
        words = ["memory", "--model", CONFIG, "--parallel", "ep=8"]
        all_here = self.json(*words)["static_by_state"]
        elsewhere = self.json(*words, "--bytes", "optimizer=0")["static_by_state"]
        self.assertEqual(elsewhere, all_here | {"optimizer": 0})
        frozen = self.json(*words, "--bytes", "gradient=0,optimizer=0")["static_by_state"]
        self.assertEqual(frozen, all_here | {"optimizer": 0, "gradients": 0})
        self.assert_refused([*words, "--bytes", "weight=0"], 2, "InvalidArgument", "--bytes", "0")
        self.assert_refused([*words, "--bytes", "optimizer=-1"], 2, "InvalidArgument", "--bytes", "-1")

    def test_beyond_the_largest_bin_it_says_that_it_cannot_promise(self):
        words = [*TINY[:-1], 30000]
        report = self.json(*words)
        self.assertEqual((report["chunks"], report["least_chunks"], report["promised"]), (8, 10, False))
        self.assertFalse(report["fits"])
        self.assertEqual(report["advice"][0], {"change": "chunks", "value": 10})
        self.assertTrue(self.json(*words, "--bins", 10)["fits"])

    def test_the_longest_sequence_fits_and_one_token_more_does_not(self):
        words = ["memory", "--model", CONFIG, "--parallel", "ep=16,pp=4", "--device-memory", "300MB"]
        longest = self.json(*words)["longest_sequence"]
        self.assertGreater(longest, 0)
        self.assertTrue(self.json(*words, "--seq", longest)["fits"])
        self.assertFalse(self.json(*words, "--seq", longest + 1)["fits"])

    def test_the_layers_least_budget_grows_with_tokens_and_states_and_needs_no_routing(self):
        words = ["memory", "--model", CONFIG, "--parallel", "ep=8", "--seq"]
        least = self.json(*words, 512)["least_budget"]
        self.assertEqual(self.json(*words, 512, "--received", 3)["least_budget"], least)
        # Of a token the ids and router weights of its four experts, four bytes each.
        self.assertEqual(self.json(*words, 1536)["least_budget"], least + 1024 * 8 * 4)
        kept = self.json(*words, 512, "--recompute", "none")["least_budget"]
        self.assertEqual(kept, least + 7 * 512 * 8 * 4)
        self.assertIsNone(self.json(*words, 512, "--bytes", "activation=1")["least_budget"])
        self.assertIsNone(self.json(*words[:-2], "ep=8,etp=2", "--seq", 512)["least_budget"])

    def test_the_least_budget_is_that_of_the_layer_that_runs(self):
        layer = ["run", "--scenario", "balanced", "--experts", 32, "--top-k", 4, "--hidden", 256, "--intermediate", 160]
        layer += ["--dtype", "bf16", "--tokens", 64, "--ranks", 4, "--planner", "ep", "--backward", "--repeat", 1]
        said = self.json("memory", "--model", CONFIG, "--parallel", "ep=4", "--seq", 64)
        self.assertEqual(said["least_budget"], self.json(*layer)["least_budget"])

    def test_the_devices_of_a_layout_hold_the_model(self):
        # 28.99 B weights of experts on eight devices are 3.62 B on each, at 18 bytes a weight.
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel"]
        for layout in ["tp=8,ep=8,dp=1", "tp=8,etp=8", "tp=8,ep=4,etp=2,dp=1", "ep=8"]:
            report = self.json(*words, layout)
            self.assertEqual(report["devices"], 8, layout)
            self.assertEqual(report["static_bytes"]["experts"] * 8, report["model"]["expert_parameters"] * 18, layout)
        text = self.call(*words, "tp=8,ep=8,dp=1").stdout
        self.assertTrue(
            text.startswith(
                "8 devices: pp=1 x tp=8 x cp=1 x dp=1\nexperts: ep=8 x etp=1, 1 copy on 8 devices a stage\n"
            ),
            text,
        )
        for layout, part in [
            ("tp=8,ep=8,etp=8,dp=1", "makes 8 devices a pipeline stage, no multiple of ep=8 x etp=8 = 64"),
            ("tp=2,ep=8,dp=6", "allowed: dp=4 or a multiple, or ep x etp that divides 12"),
            ("etp=5", "etp=5 does not divide the width of an expert, 768"),
            ("tp=3", "tp=3 does not divide the 32 attention heads"),
        ]:
            error = self.assert_refused([*words, layout], 2, "InvalidArgument", "--parallel: ", part)
            self.assertEqual(error["argument"], "--parallel")

    def test_without_dp_a_layout_has_the_fewest_devices_that_hold_the_experts(self):
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel"]
        for layout, data, devices in [("pp=4,ep=32", 32, 128), ("tp=8,ep=8,etp=8", 8, 64), ("tp=4,ep=6", 3, 12)]:
            report = self.json(*words, layout)
            self.assertEqual((report["setup"]["parallel"]["dp"], report["devices"]), (data, devices), layout)
            self.assert_refused([*words, f"{layout},dp={data - 1}"], 2, "InvalidArgument", f"dp={data} or a multiple")

    def test_require_fit_fails_where_the_model_does_not_fit(self):
        words = ["memory", "--model", CONFIG, "--parallel", "ep=8", "--require-fit", "--device-memory"]
        self.assertTrue(self.json(*words, "400MB")["fits"])
        said = ["does not fit: ", "any one of these makes it fit: ", "a device of "]
        self.assert_refused([*words, "50MB"], 4, "Infeasible", *said)

    def test_what_to_change_is_said_when_nothing_fits(self):
        words = ["memory", "--model", CONFIG, "--parallel", "ep=8", "--device-memory", "50MB"]
        text = self.call(*words).stdout
        self.assertIn("\ndoes not fit: ", text)
        self.assertIn("any one of these makes it fit:\n", text)
        needed = self.json(*words)["advice"][-1]
        self.assertEqual(needed["change"], "available_bytes")
        fits = self.json(*words[:-2], "--device-memory", needed["value"], "--available-ratio", 1)
        self.assertTrue(fits["fits"])

    def test_terms_that_the_paper_leaves_out_are_on_unless_its_own_reading_is_asked_for(self):
        words = ["memory", "--model", CONFIG, "--parallel", "tp=2,ep=4,dp=8"]
        paper = self.json(*words, "--paper")
        self.assertEqual(paper["setup"]["terms"], [])
        self.assertEqual(len(paper["active_bytes"]), 12)
        usual = self.json(*words)
        on = ["replicated", "every-layer", "shared-experts", "logits", "buffers", "kept-tensors", "layer-gradients"]
        self.assertEqual(usual["setup"]["terms"], on)
        added = set(usual["active_bytes"]) - set(paper["active_bytes"])
        more = {"query_key_norm", "expert_activation", "layer_gradients"}
        self.assertEqual(added - more, {"layer_inputs", "dispatch_buffer", "combine_buffer", "logits"})
        self.assertLess(usual["longest_sequence"], paper["longest_sequence"])
        sharded = self.json(*words, "--with", "sharded-optimizer")
        self.assertLess(sharded["static_by_state"]["optimizer"], usual["static_by_state"]["optimizer"])
        self.assertEqual(sharded, self.json(*words, "--with", "all"))
        more = self.json(*words, "--paper", "--with", "buffers,logits,sharded-optimizer", "--borrowed-experts", 2)
        added = set(more["active_bytes"]) - set(paper["active_bytes"])
        self.assertEqual(added, {"dispatch_buffer", "combine_buffer", "logits", "borrowed_experts"})
        self.assertEqual(more["setup"]["terms"], ["sharded-optimizer", "logits", "buffers"])
        # The paper's rows are named where its reading is asked for.
        self.assertIn("row 12", self.call(*words, "--paper").stdout)
        self.assertNotIn("row ", self.call(*words).stdout.replace("rows", ""))

    def test_parts_of_a_layer_are_computed_again_as_megatron_names_them(self):
        words = ["memory", "--model", CONFIGS / "deepseek-v3.json", "--parallel", "pp=4,ep=32", "--recompute"]
        none = self.json(*words, "none")
        self.assertEqual(none["setup"]["recompute"], "none")
        again = self.json(*words, "moe_act,mla_up_proj")
        self.assertEqual(again["setup"]["recompute"], "mla_up_proj,moe_act")
        lower = {name for name, size in again["active_bytes"].items() if size < none["active_bytes"][name]}
        self.assertEqual(lower, {"queries", "keys", "values", "expert_activation"})
        self.assertIn("its layers kept but for mla_up_proj,moe_act", self.call(*words, "moe_act,mla_up_proj").stdout)
        self.assertEqual(self.json(*words, "core_attn")["active_bytes"], none["active_bytes"])
        self.assertLess(self.json(*words, "full")["active_total"], again["active_total"])
        error = self.assert_refused([*words, "selective"], 2, "InvalidArgument", "core_attn, layernorm, mla_up_proj")
        self.assertEqual(error["argument"], "--recompute")
        self.assert_refused(
            [*words, "moe_act,full"], 2, "InvalidArgument", "'full' beside others; allowed: it alone, or parts"
        )
        self.assert_refused([*words, "moe,moe"], 2, "InvalidArgument", "'moe' twice")
        qwen = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel", "ep=8", "--recompute"]
        for part, lack in [("mla_up_proj", "latent"), ("shared_experts", "shared experts"), ("mlp", "without experts")]:
            self.assert_refused([*qwen, part], 2, "InvalidArgument", f"{part}, but the model has no", lack)
        self.assert_refused([*words, "moe_act", "--paper"], 2, "InvalidArgument", "Table 2")

    def test_chunks_free_only_what_is_computed_again(self):
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel", "ep=8", "--bins"]
        for recompute, cut in [("none", False), ("moe_act", False), ("moe", True), ("full", True)]:
            whole = self.json(*words, 1, "--recompute", recompute)["active_bytes"]["expert_input"]
            chunked = self.json(*words, 4, "--recompute", recompute)["active_bytes"]["expert_input"]
            self.assertEqual(chunked, whole // 4 if cut else whole, recompute)
        text = self.call(*words, 4).stdout
        self.assertIn("chunks are what MemFine's and evenkeel's layers do; other trainers run one: --bins 1", text)
        self.assertNotIn("--bins 1", self.call(*words, 1).stdout)

    def test_chunks_of_a_history_are_those_of_each_steps_rows(self):
        words = ["memory", "--model", CONFIG, "--parallel", "ep=8", "--seq", 512, "--recompute", "none"]
        words += ["--available-ratio", 1, "--device-memory"]
        (self.folder / "rows.npz").write_bytes(npz("rows", [3, 1], [500, 4000, 9000]))
        config = json.loads(CONFIG.read_text(encoding="utf-8")) | {"num_hidden_layers": 1}
        words[2] = self.write("config.json", config)
        words.append("60MB")
        chosen = self.json(*words, "--counts", "rows.npz")["history"]["chunks"]
        for row, chunks in zip([500, 4000, 9000], chosen, strict=True):
            self.assertEqual(self.json(*words, "--received", row)["chunks"], chunks[0])

    def test_a_device_that_is_advised_fits_as_it_is_printed(self):
        for name in ["mixtral-8x7b", "olmoe-1b-7b", "glm-4.5-air", "deepseek-v3", "gpt-oss-20b"]:
            words = ["memory", "--model", CONFIGS / f"{name}.json"]
            size = self.call(*words).stdout.partition("a device of ")[2].partition(", with")[0]
            self.assertTrue(self.json(*words, "--device-memory", size)["fits"], (name, size))

    def test_options_that_would_say_nothing_are_refused(self):
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel", "ep=8"]
        for more, part in [
            (["--static-bytes", "40GB", "--with", "sharded-optimizer"], "--with: is of static memory"),
            (["--static-bytes", "40GB", "--bytes", "optimizer=0"], "--bytes: is of static memory"),
            (["--borrowed-experts", 113], "at most 112, the experts of other devices"),
            (["--with", "fsdp,fsdp"], "'fsdp' twice"),
            (["--with", "all", "--cross-entropy", "chunked"], "'chunked' beside --with all"),
        ]:
            self.assert_refused([*words, *more], 2, "InvalidArgument", part)
        self.assertTrue(self.json(*words, "--static-bytes", "4GB", "--bytes", "activation=2"))

    def test_infinity_in_a_config_is_no_number(self):
        config = json.loads((CONFIGS / "qwen3-30b-a3b.json").read_text(encoding="utf-8"))
        model = self.write("config.json", config | {"time_step_limit": [0.0, float("inf")], "x": float("nan")})
        self.assertIn("Infinity", (self.folder / model).read_text(encoding="utf-8"))
        report = self.json("memory", "--model", model)
        self.assertEqual(report["model"]["parameters"], 30_532_122_624)
        wrong = self.write("config.json", config | {"hidden_size": float("inf")})
        self.assert_refused(["memory", "--model", wrong], 3, "ParseError", "hidden_size")

    def test_rows_received_may_be_even(self):
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel", "tp=2,ep=8,etp=2", "--received"]
        even = self.json(*words, "even")
        self.assertEqual((even["s_prime"], even["setup"]["received"]), (4096 * 8 * 2, 4096 * 8 * 2))
        self.assertEqual(even, self.json(*words, 4096 * 8 * 2))
        self.assertIn("as given, more than any routing sends", self.call(*words, 10**6).stdout)
        self.assert_refused([*words, "uneven"], 2, "InvalidArgument", "--received", "uneven")

    def test_micro_batches_in_flight_are_those_of_the_schedule(self):
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel", "pp=4,ep=8", "--recompute"]
        for recompute in ["none", "full"]:
            stages = self.json(*words, recompute)["stages"]
            self.assertEqual([stage["stored_copies"] for stage in stages], [4, 3, 2, 1])
        self.assertEqual([s["stored_copies"] for s in self.json(*words, "none", "--paper")["stages"]], [7, 5, 3, 1])

    def test_fully_sharded_weights_leave_gathered_layers(self):
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel", "ep=8,dp=16"]
        whole, sharded = self.json(*words), self.json(*words, "--with", "fsdp")
        # Norms are on all 16 devices, an expert on two.
        for item, devices in [("norms", 16), ("experts", 2)]:
            self.assertEqual(sharded["static_bytes"][item] * devices, whole["static_bytes"][item])
        self.assertEqual(
            set(sharded["active_bytes"]) - set(whole["active_bytes"]), {"gathered_weights", "gathered_gradients"}
        )
        self.assertLess(sharded["static_total"] + sharded["active_total"], whole["static_total"])

    def test_cross_entropy_and_experts_outputs_follow_the_trainer(self):
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel", "ep=8"]
        plain = self.json(*words)["active_bytes"]["logits"]
        fused = self.json(*words, "--cross-entropy", "fused")
        self.assertEqual((fused["active_bytes"]["logits"], fused["setup"]["cross_entropy"]), (plain // 3, "fused"))
        chunked = self.json(*words, "--cross-entropy", "chunked")
        self.assertNotIn("logits", chunked["active_bytes"])
        self.assertNotIn("logits", chunked["setup"]["terms"])
        outputs = self.json(*words, "--with", "expert-outputs")["active_bytes"]
        self.assertEqual(outputs["expert_output"], outputs["expert_input"])
        for more, part in [
            (
                ["--paper", "--cross-entropy", "fused"],
                "--cross-entropy: of logits, which --paper does not count; allowed: beside --with logits",
            ),
            (["--with", "logits", "--cross-entropy", "chunked"], "'chunked' beside --with logits"),
            (["--paper", "--with", "expert-outputs"], "whose Table 2 has them as row 13"),
            (["--paper", "--with", "layer-gradients"], "beside --with kept-tensors"),
        ]:
            self.assert_refused([*words, *more], 2, "InvalidArgument", part)

    def test_devices_by_name_have_the_bytes_that_a_framework_sees(self):
        words = ["memory", "--model", CONFIG, "--available-ratio", 1]
        report = self.json(*words, "--device", "H100")
        self.assertEqual((report["setup"]["device"], report["available"]), ("h100", 84932978278))
        self.assertIsNone(self.json(*words)["setup"]["device"])
        self.assert_refused([*words, "--device", "v100"], 2, "InvalidArgument", "a100, h100, h200, b200, mi300x")
        self.assert_refused(
            [*words, "--device", "h100", "--device-memory", "80GB"], 2, "InvalidArgument", "--device-memory: is what"
        )

    def test_layouts_of_so_many_devices_are_ranked_and_are_as_the_command_says_of_each(self):
        words = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json"]
        found = self.json(*words, "--gpus", 32)
        self.assertEqual(list(found), ["devices", "available", "fits", "layouts"])
        self.assertTrue(found["fits"])
        self.assertTrue(found["layouts"][0]["fits"])
        self.assertFalse(found["layouts"][-1]["fits"])
        self.assertEqual(len({str(layout["parallel"]) for layout in found["layouts"]}), len(found["layouts"]))
        for layout in [*found["layouts"][:3], *found["layouts"][-3:]]:
            degrees = ",".join(f"{name}={number}" for name, number in layout["parallel"].items())
            said = self.json(*words, "--parallel", degrees)
            self.assertEqual(said["devices"], 32)
            for key in ["fits", "static_total", "active_total", "chunks", "stage"]:
                self.assertEqual(said[key], layout[key], key)
        text = self.call(*words, "--gpus", 32).stdout.splitlines()
        self.assertIn("32 devices, 67.1 GiB of each: ", text[0])
        self.assertLessEqual(max(map(len, text)), 100)
        for layout in self.json(*words, "--gpus", 32, "--parallel", "cp=2,etp=2")["layouts"]:
            self.assertEqual((layout["parallel"]["cp"], layout["parallel"]["etp"]), (2, 2))

    def test_a_search_for_layouts_refuses_what_it_cannot_heed(self):
        words = ["memory", "--model", CONFIG, "--gpus"]
        self.assert_refused([*words, 8, "--parallel", "tp=2"], 2, "InvalidArgument", "tp is what --gpus looks for")
        self.assert_refused([*words, 8, "--static-bytes", "1GB"], 2, "InvalidArgument", "--static-bytes: is of one")
        self.assert_refused([*words, 8, "--counts", ROWS], 2, "InvalidArgument", "--counts: is of one layout")
        self.assert_refused([*words, 3, "--parallel", "cp=2"], 2, "InvalidArgument", "3 devices have no layout with")
        self.assert_refused([*words, 0], 2, "InvalidArgument", "--gpus", "1..1048576")
        none = [*words, 8, "--device-memory", "1MB", "--require-fit"]
        self.assert_refused(none, 4, "Infeasible", "layouts fit; the smallest takes")
        self.assertFalse(self.json(*none[:-1])["fits"])

    def test_chunks_rise_and_fall_over_the_steps_of_a_real_training_run(self):
        chunks = self.json(*TINY, "--counts", ROWS)["history"]["chunks"]
        self.assertEqual((len(chunks), len(chunks[0])), (1563, 8))

        def mean(begin, end, layers=range(8)):
            return sum(chunks[s][layer] for s in range(begin, end) for layer in layers) / ((end - begin) * len(layers))

        self.assertLess(mean(0, 5), mean(7, 17))
        self.assertGreater(mean(7, 17), mean(50, 100))
        self.assertGreater(mean(50, 100), mean(1463, 1563))
        self.assertGreater(mean(0, 100, [6, 7]), mean(0, 100, [0, 1]))
        self.assertEqual(self.json(*TINY, "--counts", ROWS, "--steps", "7:17")["history"]["chunks"], chunks[7:17])

    def test_loads_by_expert_are_added_up_by_rank(self):
        # Two ranks of two experts: 4 + 5 and 1 + 0 rows, then 0 + 0 and 9 + 9.
        config = json.loads(CONFIG.read_text(encoding="utf-8"))
        config |= {"num_hidden_layers": 1, "num_local_experts": 4}
        model = self.write("config.json", config)
        (self.folder / "loads.npz").write_bytes(npz("counts", [2, 1, 4], [4, 5, 1, 0, 0, 0, 9, 9]))
        (self.folder / "rows.npz").write_bytes(npz("rows", [2, 1], [9, 18]))
        words = ["memory", "--model", model, "--parallel", "ep=2", "--seq", 8, "--static-bytes", 0, "--paper"]
        size = 8 * 2 * (5 * 256 + 3 * 256 + 4) + 6 * 1664  # for six rows
        words += ["--available-ratio", 1, "--device-memory", size, "--received", 1]
        by_expert = self.json(*words, "--counts", "loads.npz")
        self.assertEqual(by_expert["s_prime_max"], 6)
        self.assertEqual(by_expert["history"], {"chunks": [[2], [4]], "not_promised": 0})
        self.assertEqual(self.json(*words, "--counts", "rows.npz")["history"], by_expert["history"])
        beyond = self.json(*words, "--counts", "rows.npz", "--bins", "1,2")["history"]
        self.assertEqual(beyond, {"chunks": [[2], [2]], "not_promised": 1})

    def test_people_get_tables_of_at_most_100_columns(self):
        for words in [
            TINY + ["--counts", ROWS],
            TINY + ["--counts", ROWS, "--steps", "0:18"],
            ["memory", "--model", CONFIGS / "deepseek-v2-lite.json", "--parallel", "pp=16,ep=64", "--with", "all"],
            ["memory", "--model", CONFIG, "--device-memory", "1MB"],
        ]:
            done = self.call(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)

    def test_what_is_wrong_is_refused_with_its_kind(self):
        model = ["memory", "--model", CONFIGS / "mixtral-8x7b.json"]
        for option, value, part in [
            ("--parallel", "tp=0", "1..1048576"),
            ("--parallel", "tp=2,tp=4", "'tp' twice"),
            ("--parallel", "xp=2", "allowed: tp=N, pp=N, ep=N"),
            ("--parallel", "ep", "'ep'"),
            ("--parallel", "ep=9", "the model has 8 experts"),
            ("--parallel", "pp=64", "more stages than the model has layers, 32"),
            ("--available-ratio", "1.001", "at most 1"),
            ("--available-ratio", "0", "0.001"),
            ("--device-memory", "big", "--device-memory"),
            ("--bins", "2,1", "ascending"),
            ("--with", "more", "allowed: all, replicated"),
            ("--recompute", "some", "none, full"),
            ("--bytes", "weight=2,weights=4", "activation=N"),
            ("--steps", "0:1", "without --counts"),
            ("--micro-batch", "0", "1..4096"),
        ]:
            with self.subTest(option=option, value=value):
                error = self.assert_refused([*model, option, value], 2, "InvalidArgument", option, part)
                self.assertEqual(error["argument"], option)
        self.assert_refused(["memory"], 2, "InvalidArgument", "--model")

    def test_a_config_or_history_that_is_none_is_an_input_error(self):
        lacking = self.write("lacking.json", {"model_type": "mixtral", "num_hidden_layers": 2})
        error = self.assert_refused(["memory", "--model", lacking], 3, "ParseError", "hidden_size: is missing")
        self.assertEqual((error["file"], error["where"]), ("lacking.json", "hidden_size"))
        other = self.write("other.json", {"model_type": "llama"})
        self.assert_refused(["memory", "--model", other], 3, "ParseError", "model_type: is 'llama', whose weights")
        self.assert_refused(["memory", "--model", "absent.json"], 3, "ParseError", "absent.json")
        (self.folder / "rows.npz").write_bytes(npz("rows", [2, 3], [1] * 6))
        self.assert_refused([*TINY, "--counts", "rows.npz"], 3, "ParseError", "is of 3 layers; the model has 8")
        (self.folder / "rows.npz").write_bytes(npz("rows", [0, 8], []))
        self.assert_refused([*TINY, "--counts", "rows.npz"], 3, "ParseError", "has no steps")
        (self.folder / "rows.npz").write_bytes(npz("rows", [1, 8], [-1] * 8))
        self.assert_refused([*TINY, "--counts", "rows.npz"], 3, "ParseError", "has -1, which is no number of rows")
        (self.folder / "rows.npz").write_bytes(npz("rows", [1, 8, 4], [1] * 32))
        self.assert_refused([*TINY, "--counts", "rows.npz"], 3, "ParseError", "is of 4 experts; the model has 32")
        (self.folder / "rows.npz").write_bytes(npz("rows", [8], [1] * 8))
        self.assert_refused([*TINY, "--counts", "rows.npz"], 3, "ParseError", "[steps, layers]")
        self.assert_refused([*TINY, "--counts", ROWS, "--steps", "5:5"], 2, "InvalidArgument", "--steps")
        self.assert_refused([*TINY, "--counts", ROWS, "--steps", "0:1564"], 2, "InvalidArgument", "--steps")


if __name__ == "__main__":
    unittest.main()
