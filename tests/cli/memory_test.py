"""evenkeel memory: its keys, what each option does to them, what it prints for people, and what it refuses.

The bytes are proven of the library (tests/training_memory).
"""

import json

from command import REPOSITORY, CommandTest, npz

CONFIGS = REPOSITORY / "tests" / "data" / "configs"
CONFIG = REPOSITORY / "data" / "tiny-moe" / "config.json"
TINY = [
    "memory", "--model", CONFIG, "--parallel", "ep=8", "--seq", 512,
    "--static-bytes", 0, "--available-ratio", 1, "--device-memory", "7.3MB", "--paper", "--received", 2048,
]  # fmt: skip
QWEN = ["memory", "--model", CONFIGS / "qwen3-30b-a3b.json", "--parallel"]
DEEPSEEK = ["memory", "--model", CONFIGS / "deepseek-v3.json", "--parallel", "ep=32"]
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
            self.assertEqual(report["fits"], all(each["fits"] for each in report["stages"]))
            fits = report["static_total"] + report["active_total"] <= report["available"]
            self.assertEqual(stage["fits"], fits)
            self.assertEqual(report["advice"] == [], report["fits"])

    def test_beyond_the_largest_bin_it_says_that_it_cannot_promise(self):
        report = self.json(*TINY[:-1], 30000)
        self.assertEqual((report["chunks"], report["least_chunks"], report["promised"]), (8, 10, False))
        self.assertEqual(report["advice"][0], {"change": "chunks", "value": 10})
        self.assertTrue(self.json(*TINY[:-1], 30000, "--bins", 10)["fits"])

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
        self.assertTrue(self.json(*words, needed["value"], "--available-ratio", 1)["fits"])
        self.assertTrue(self.json(*words, "400MB", "--require-fit")["fits"])
        said = ["does not fit: ", "any one of these makes it fit: ", "a device of "]
        self.assert_refused([*words, "50MB", "--require-fit"], 4, "Infeasible", *said)

    def test_terms_that_the_paper_leaves_out_are_on_unless_its_own_reading_is_asked_for(self):
        words = ["memory", "--model", CONFIG, "--parallel", "tp=2,ep=4,dp=8"]
        paper, usual = self.json(*words, "--paper"), self.json(*words)
        on = [
            "replicated",
            "every-layer",
            "shared-experts",
            "prediction",
            "logits",
            "buffers",
            "kept-tensors",
            "layer-gradients",
        ]
        self.assertEqual((paper["setup"]["terms"], len(paper["active_bytes"])), ([], 12))
        self.assertEqual(usual["setup"]["terms"], on)
        self.assertEqual(self.json(*words, "--with", "sharded-optimizer"), self.json(*words, "--with", "all"))
        more = self.json(*words, "--paper", "--with", "buffers,logits,sharded-optimizer", "--borrowed-experts", 2)
        added = set(more["active_bytes"]) - set(paper["active_bytes"])
        self.assertEqual(added, {"dispatch_buffer", "combine_buffer", "logits", "borrowed_experts"})
        # The paper's rows are named where its reading is asked for.
        self.assertIn("row 12", self.call(*words, "--paper").stdout)
        self.assertNotIn("row ", self.call(*words).stdout.replace("rows", ""))

    def test_layers_that_predict_further_tokens_are_counted_unless_they_are_not_to_be(self):
        counted = self.json(*DEEPSEEK)
        self.assertEqual(counted["model"]["prediction_layers"], 1)
        self.assertIn("prediction", counted["static_bytes"])
        self.assertIn(
            "1 layer of multi-token prediction besides, counted on the last stage", self.call(*DEEPSEEK).stdout
        )
        self.assertIn("besides, not counted", self.call(*DEEPSEEK, "--paper").stdout)
        without = self.json(*DEEPSEEK, "--without", "prediction")
        self.assertNotIn("prediction", without["static_bytes"])
        self.assertEqual([*without["setup"]["terms"], "prediction"].count("prediction"), 1)
        for words, said in [
            ("fsdp", "--without: 'fsdp'"),
            ("prediction,prediction", "twice"),
            ("mtp", "--without: 'mtp'"),
        ]:
            self.assert_refused([*DEEPSEEK, "--without", words], 2, "InvalidArgument", said)

    def test_terms_parts_and_losses_are_those_asked_for(self):
        words = [*DEEPSEEK, "--recompute", "moe_act,mla_up_proj", "--with", "fsdp,expert-outputs"]
        report = self.json(*words, "--cross-entropy", "fused")
        said = (report["setup"]["recompute"], report["setup"]["cross_entropy"])
        self.assertEqual(said, ("mla_up_proj,moe_act", "fused"))
        terms = {"gathered_weights", "gathered_gradients", "expert_output", "logits"}
        self.assertLessEqual(terms, set(report["active_bytes"]))
        text = self.call(*QWEN, "ep=8", "--recompute", "moe_act").stdout
        for part in ["its layers kept but for moe_act",
                     "chunks are what MemFine's and evenkeel's layers do; other trainers run one: --bins 1"]:  # fmt: skip
            self.assertIn(part, text)

    def test_a_device_that_is_advised_fits_as_it_is_printed(self):
        for name in ["olmoe-1b-7b", "glm-4.5-air", "deepseek-v3"]:
            words = ["memory", "--model", CONFIGS / f"{name}.json"]
            size = self.call(*words).stdout.partition("a device of ")[2].partition(", with")[0]
            self.assertTrue(self.json(*words, "--device-memory", size)["fits"], (name, size))

    def test_infinity_in_a_config_is_no_number(self):
        config = json.loads((CONFIGS / "qwen3-30b-a3b.json").read_text(encoding="utf-8"))
        model = self.write("config.json", config | {"time_step_limit": [0.0, float("inf")], "x": float("nan")})
        self.assertIn("Infinity", (self.folder / model).read_text(encoding="utf-8"))
        self.assertEqual(self.json("memory", "--model", model)["model"]["parameters"], 30_532_122_624)
        wrong = self.write("config.json", config | {"hidden_size": float("inf")})
        self.assert_refused(["memory", "--model", wrong], 3, "ParseError", "hidden_size")

    def test_rows_received_may_be_even(self):
        words = [*QWEN, "tp=2,ep=8,etp=2", "--received"]
        even = self.json(*words, "even")
        self.assertEqual((even["s_prime"], even["setup"]["received"]), (4096 * 8 * 2, 4096 * 8 * 2))
        self.assertEqual(even, self.json(*words, 4096 * 8 * 2))
        self.assertIn("as given, more than any routing sends", self.call(*words, 10**6).stdout)

    def test_devices_by_name_have_the_bytes_that_a_framework_sees(self):
        words = ["memory", "--model", CONFIG, "--available-ratio", 1]
        report = self.json(*words, "--device", "H100")
        self.assertEqual((report["setup"]["device"], report["available"]), ("h100", 84932978278))
        self.assertIsNone(self.json(*words)["setup"]["device"])

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
        for layout in self.json(*words, "--gpus", 32, "--parallel", "cp=2,etp=2")["layouts"]:
            self.assertEqual((layout["parallel"]["cp"], layout["parallel"]["etp"]), (2, 2))
        none = ["memory", "--model", CONFIG, "--gpus", 8, "--device-memory", "1MB"]
        self.assertFalse(self.json(*none)["fits"])
        self.assert_refused([*none, "--require-fit"], 4, "Infeasible", "layouts fit; the smallest takes")

    def test_the_chunks_of_a_history_are_printed_of_rows_and_of_loads_by_expert(self):
        config = json.loads(CONFIG.read_text(encoding="utf-8"))
        model = self.write("config.json", config | {"num_hidden_layers": 1, "num_local_experts": 4})
        (self.folder / "loads.npz").write_bytes(npz("counts", [2, 1, 4], [4, 5, 1, 0, 0, 0, 9, 9]))
        (self.folder / "rows.npz").write_bytes(npz("rows", [2, 1], [9, 18]))
        words = ["memory", "--model", model, "--parallel", "ep=2", "--seq", 8, "--static-bytes", 0, "--paper"]
        size = 8 * 2 * (5 * 256 + 3 * 256 + 4) + 6 * 1664  # for six rows
        words += ["--available-ratio", 1, "--device-memory", size, "--received", 1, "--counts"]
        for name in ("loads.npz", "rows.npz"):
            self.assertEqual(self.json(*words, name)["history"], {"chunks": [[2], [4]], "not_promised": 0})
        beyond = self.json(*words, "rows.npz", "--bins", "1,2")["history"]
        self.assertEqual(beyond, {"chunks": [[2], [2]], "not_promised": 1})

    def test_people_get_tables_of_at_most_100_columns(self):
        for words in [
            TINY + ["--counts", ROWS],
            TINY + ["--counts", ROWS, "--steps", "0:18"],
            ["memory", "--model", CONFIGS / "deepseek-v2-lite.json", "--parallel", "pp=16,ep=64", "--with", "all"],
            ["memory", "--model", CONFIG, "--device-memory", "1MB"],
        ]:
            self.shown(*words)

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
            ([*qwen, "--borrowed-experts", 113], "--borrowed-experts", "at most 112, the experts of other devices"),
            # What would say nothing beside another.
            ([*qwen, "--static-bytes", "40GB", "--with", "sharded-optimizer"], "--with", "is of static memory"),
            ([*qwen, "--static-bytes", "40GB", "--bytes", "optimizer=0"], "--bytes", "is of static memory"),
            ([*qwen, "--with", "all", "--cross-entropy", "chunked"], "--cross-entropy", "'chunked' beside --with all"),
            ([*qwen, "--with", "logits", "--cross-entropy", "chunked"], "--cross-entropy", "beside --with logits"),
            ([*qwen, "--device", "h100", "--device-memory", "80GB"], "--device-memory", "is what"),
            ([*qwen, "--paper", "--recompute", "moe_act"], "--recompute", "Table 2"),
            ([*qwen, "--paper", "--cross-entropy", "fused"], "--cross-entropy", "of logits, which --paper does not count"),
            ([*qwen, "--paper", "--with", "expert-outputs"], "--with", "whose Table 2 has them as row 13"),
            ([*qwen, "--paper", "--with", "layer-gradients"], "--with", "beside --with kept-tensors"),
            # What a search for layouts cannot heed.
            ([*search, 8, "--parallel", "tp=2"], "--parallel", "tp is what --gpus looks for"),
            ([*search, 8, "--static-bytes", "1GB"], "--static-bytes", "is of one"),
            ([*search, 8, "--counts", ROWS], "--counts", "is of one layout"),
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
        for shape, value, part in [
            ([2, 3], 1, "is of 3 layers; the model has 8"),
            ([0, 8], 1, "has no steps"),
            ([1, 8], -1, "has -1, which is no number of rows"),
            ([1, 8, 4], 1, "is of 4 experts; the model has 32"),
            ([8], 1, "[steps, layers]"),
        ]:
            with self.subTest(shape=shape):
                count = 1
                for length in shape:
                    count *= length
                (self.folder / "rows.npz").write_bytes(npz("rows", shape, [value] * count))
                self.assert_refused([*TINY, "--counts", "rows.npz"], 3, "ParseError", part)
