"""Layer numbers travel from the recording system through every command to the rows that a server reads."""

import json

from command import CommandTest, npy

EXPERTS, RANKS = 8, 4
IN_ORDER = [slot % EXPERTS for slot in range(EXPERTS + 4)]


def skewed(layer):
    """Loads that differ in every layer: expert `layer` is the hottest."""
    return [1000 if expert == layer % EXPERTS else 10 + 7 * ((expert * 3 + layer) % 5) for expert in range(EXPERTS)]


class Layers(CommandTest):
    def hidden_counts(self, name, hidden, moe):
        """SGLang's counts as JSON: a row for every hidden layer; dense layers have no load."""
        return self.write(name, {"logical_count": [skewed(n) if n in moe else [0] * EXPERTS for n in range(hidden)]})

    def nameless(self, name, rows):
        (self.folder / name).write_bytes(npy([len(rows), EXPERTS], sum(rows, [])))
        return name

    def test_dense_rows_of_a_recording_number_the_others(self):
        recording = self.hidden_counts("r.json", 7, {3, 4, 6})
        profile = self.json("profile", recording, "-o", "p.safetensors")
        self.assertEqual((profile["num_layers"], profile["layer_numbers"]), (3, [3, 4, 6]))
        self.assertEqual([layer["layer"] for layer in profile["layers"]], [3, 4, 6])
        self.assertEqual(self.json("convert", "p.safetensors", "p.json")["layers"], [3, 4, 6])
        self.assertEqual(self.json("place", "p.json", "--ranks", RANKS, "-o", "placement.json")["layers"], [3, 4, 6])
        self.assertEqual(self.file("placement.json")["layers"], [3, 4, 6])

    def test_a_server_finds_each_layer_s_row_at_the_layer_s_number(self):
        words = ["place", self.hidden_counts("r.json", 6, {2, 3, 5}), "--ranks", RANKS, "--redundant-experts", 4]
        self.json(*words, "--format", "sglang", "-o", "s.json")
        rows = self.file("s.json")["physical_to_logical_map"]
        self.assertEqual([row == IN_ORDER for row in rows], [True, True, False, False, True, False])
        self.json(*words, "--format", "trtllm", "-o", "t.yaml")
        keys = [line.split(":")[0].strip() for line in (self.folder / "t.yaml").read_text().splitlines()]
        self.assertEqual(keys[1:4], ["2", "3", "5"])

    def test_numbers_that_nobody_said_are_asked_for_and_taken_from_options_or_a_model(self):
        rows = self.nameless("w.npy", [skewed(n) for n in range(3)])
        words = ["place", rows, "--as", "counts", "--ranks", RANKS]
        config = {"num_hidden_layers": 5, "first_k_dense_replace": 2, "n_routed_experts": EXPERTS}
        self.write("config.json", config | {"num_nextn_predict_layers": 1})
        for server, name in [("sglang", "s.json"), ("trtllm", "t.yaml")]:
            to_server = [*words, "--format", server, "-o", name]
            self.assert_refused(to_server, 2, "InvalidArgument", "--moe-layers", "must know which", "config.json")
            self.assertFalse((self.folder / name).exists())
            self.assertEqual(self.json(*to_server, "--moe-layers", "1-3")["layers"], [1, 2, 3])
            for model in ("config.json", "."):
                self.assertEqual(self.json(*to_server, "--model", model)["layers"], [2, 3, 4])
        self.assertEqual(len(self.file("s.json")["physical_to_logical_map"]), 5)
        # TensorRT-LLM also asks for the multi-token prediction layer.
        self.assertIn("\n  5: [0, 1, 2,", (self.folder / "t.yaml").read_text())
        self.json(*words, "--format", "sglang", "-o", "s.json", "--num-hidden-layers", 3)
        self.assertEqual(len(self.file("s.json")["physical_to_logical_map"]), 3)

    def test_a_model_of_other_experts_or_layers_is_refused(self):
        rows = self.nameless("w.npy", [skewed(n) for n in range(3)])
        words = ["profile", rows, "--as", "counts", "--model", "config.json"]
        self.write("config.json", {"num_hidden_layers": 5, "first_k_dense_replace": 2, "n_routed_experts": 64})
        self.assert_refused(words, 2, "InvalidArgument", "--model", "64 experts", "8")
        self.write("config.json", {"num_hidden_layers": 5, "first_k_dense_replace": 1, "n_routed_experts": EXPERTS})
        parts = ["--model", "layers 1-4", "3 layers without numbers", "also --moe-layers (layers=) with those layers"]
        self.assert_refused(words, 2, "InvalidArgument", *parts)
        # With the model, --moe-layers says which of its layers the rows are.
        self.assertEqual(self.json(*words, "--moe-layers", "2-4")["layer_numbers"], [2, 3, 4])
        self.assert_refused([*words, "--moe-layers", "0-2"], 2, "InvalidArgument", "--model", "layers 0-2")

    def test_layers_that_nobody_recorded_stay_as_they_are(self):
        # The model's first layers route by a table, and have no load in the recording.
        recording = self.hidden_counts("r.json", 5, {2, 3, 4})
        kinds = ["hash_moe", "hash_moe", "moe", "moe", "moe"]
        self.write("words.json", {"num_hidden_layers": 5, "n_routed_experts": EXPERTS, "mlp_layer_types": kinds})
        words = ["place", recording, "--ranks", RANKS, "--redundant-experts", 4, "--model", "words.json"]
        placed = self.json(*words, "-o", "e.json")
        note = "no placement was made for layers 0-1 of the model, where a table chooses experts by token"
        self.assertTrue(any(text.startswith(note) for text in placed["after"]["notes"]), placed["after"])
        in_order = [[slot // 3 for slot, held in enumerate(IN_ORDER) if held == e] for e in range(EXPERTS)]
        self.assertEqual(self.homes("e.json")[:2], [in_order, in_order])
        # The written placement can judge a recording of some of its layers, and as a start it keeps the other layers.
        judged = self.json("evaluate", recording, "--placement", "e.json")["placements"][-1]["results"][0]
        self.assertAlmostEqual(judged["max_over_mean_worst"], placed["after"]["max_over_mean_worst"], places=9)
        before = self.file("e.json")
        before["physical_to_logical"][1] = [2, 3, 4, 0, 1, 5, 6, 7, 0, 1, 2, 3]
        moved = ["--from", self.write("before.json", before), "--max-moves", 1, "-o", "after.json"]
        again = self.json(*words, *moved)
        self.assertIn("for layers 0-1 of the previous placement: the experts stay where", str(again["after"]["notes"]))
        self.assertEqual(self.homes("after.json")[1], self.homes("before.json")[1])
        again = self.json(*words[:-2], *moved)
        self.assertIn("they are left out; with --model", str(again["after"]["notes"]))

    def test_who_says_which_layers_have_experts_knows_better_than_rows_without_load(self):
        one = [skewed(n) if n != 2 else [0] * EXPERTS for n in range(6)]
        recordings = [self.nameless("one.npy", one), self.write("one.json", {"logical_count": one})]
        # In turn: all rows are MoE layers, though row 2 has no load; rows are hidden layers; rows are layers 3 to 8.
        for layers, kept in [("0-5", [0, 1, 2, 3, 4, 5]), ("0-1,3-5", [0, 1, 3, 4, 5]), ("3-8", list(range(3, 9)))]:
            for name in recordings:
                said = self.json("profile", name, "--as", "counts", "--moe-layers", layers)
                self.assertEqual(said["layer_numbers"], kept, name)
        self.nameless("several.npy", [skewed(n) if n % 2 == 0 else [0] * EXPERTS for n in range(6)])
        for name, words, part in [
            ("one.npy", ["--as", "counts", "--moe-layers", "0-4"], "--moe-layers"),
            ("several.npy", ["--as", "counts"], "rows 1,3,5 of the 6 rows have no load"),
            (self.hidden_counts("r.json", 6, {2, 3}), ["--moe-layers", "3-4"], "names layers 3-4, but"),
        ]:
            with self.subTest(name, refused=words):
                self.assert_refused(["profile", name, *words], 2, "InvalidArgument", "--moe-layers", part)
        # Multi-token prediction makes the numbers of rows and hidden layers equal; rows still identify their layers.
        recording = self.hidden_counts("r.json", 6, {1, 2, 3, 4, 5})
        self.write("config.json", {"num_hidden_layers": 6, "first_k_dense_replace": 1, "n_routed_experts": EXPERTS,
                                   "num_nextn_predict_layers": 1})  # fmt: skip
        self.assertEqual(self.json("profile", recording, "--model", "config.json")["layer_numbers"], [1, 2, 3, 4, 5])

    def test_of_a_trace_the_layers_asked_for_are_taken(self):
        (self.folder / "all.npy").write_bytes(npy([50, 6, 2], [n % 7 for n in range(600)]))
        chosen = self.json("profile", "all.npy", "--as", "trace", "--moe-layers", "1,3,5")
        self.assertEqual((chosen["num_layers"], chosen["layer_numbers"]), (3, [1, 3, 5]))

    def test_two_files_are_paired_by_layer_numbers(self):
        self.hidden_counts("a.json", 8, {2, 3, 5, 7})
        self.hidden_counts("b.json", 8, {3, 5})
        self.json("place", "a.json", "--ranks", RANKS, "-o", "pa.json")
        self.json("place", "b.json", "--ranks", RANKS, "-o", "pb.json")
        row, loads = self.file("pa.json")["physical_to_logical"][2], skewed(5)
        plan = self.json("plan", "b.json", "--layer", 5, "--placement", "pa.json", "--planner", "ep")
        self.assertEqual(plan["rank_loads"], [sum(loads[e] for e in row[2 * r : 2 * r + 2]) for r in range(RANKS)])
        moved = self.json("place", "b.json", "--ranks", RANKS, "--from", "pa.json", "--max-moves", 1)
        self.assertEqual(moved["layers"], [3, 5])
        for words, parts in [
            (["plan", "a.json", "--layer", 7, "--placement", "pb.json"], ["--placement", "layers 3,5", "layer 7 of a.json"]),
            (["plan", "a.json", "--layer", 4, "--placement", "pa.json"], ["--layer", "no layer 4", "2-3,5,7"]),
            (["place", "a.json", "--ranks", RANKS, "--from", "pb.json", "--max-moves", 1], ["--from", "layers 3,5", "layers 2-3,5,7"]),
            (["profile", "a.json", "b.json"], ["a.json", "b.json", "layers 3,5"]),
        ]:  # fmt: skip
            with self.subTest(words=words):
                self.assert_refused(words, 2, "InvalidArgument", *parts)

    def test_a_server_that_counts_moe_layers_alone_is_not_given_dense_ones(self):
        recording = self.hidden_counts("r.json", 5, {2, 3, 4})
        words = ["convert", "s.json", "v.jsonl", "--to", "vllm", "--ranks", RANKS]
        for copies in (4, 0):
            of_sglang = ["--redundant-experts", copies, "--format", "sglang", "-o", "s.json"]
            self.json("place", recording, "--ranks", RANKS, *of_sglang)
            parts = ["--moe-layers", "layers 0-1 look like SGLang's rows for dense layers"]
            self.assert_refused(words, 2, "InvalidArgument", *parts)
        self.json(*words, "--moe-layers", "2-4")
        self.assertEqual(list(self.file("v.jsonl")["initial_global_assignments"]), ["0", "1", "2"])


class ArraysWithoutNames(CommandTest):
    """What each reading means is tested for the library and for Python."""

    def test_every_object_names_the_reading_that_was_taken(self):
        (self.folder / "two.npy").write_bytes(npy([4, 2], [1, 5, 2, 6, 3, 0, 4, 7]))
        for words, axes in [
            (["profile", "--as", "counts"], "layers,experts"),
            (["profile", "--as", "trace"], "tokens,k"),
            (["place", "--ranks", 2, "--axes", "tokens,k"], "tokens,k"),
            (["plan", "--axes", "ranks,experts"], "ranks,experts"),
        ]:
            with self.subTest(words=words):
                done = self.call(words[0], "two.npy", *words[1:], "--json")
                self.assertEqual(json.loads(done.stdout)["axes"], {"two.npy": axes})
                self.assertIn(f"note: two.npy: read as {axes}: ", done.stderr)
        words = ["profile", "two.npy", "--as", "trace", "--axes", "tokens,k"]
        self.assert_refused(words, 2, "InvalidArgument", "--as: cannot be combined with --axes")
        parts = ["layers,experts: 4 layers of 2 experts", "tokens,k: 1 layer of 8 experts, 4 tokens, top-2"]
        self.assert_refused(["profile", "two.npy"], 2, "InvalidArgument", "--axes: ", *parts)
