"""Layer numbers travel: from what records them, through every command, to the rows that a server looks at."""

import json
import struct
import unittest
from pathlib import Path

from command import CommandTest
from tensor_files import Tensor, safetensors

RECORDINGS = Path(__file__).resolve().parents[1] / "io" / "data"
EXPERTS, RANKS = 8, 4


def skewed(layer):
    """Loads that are unlike in every layer: expert `layer` is the hottest."""
    return [1000 if expert == layer % EXPERTS else 10 + 7 * ((expert * 3 + layer) % 5) for expert in range(EXPERTS)]


def npy(shape, values, descr="<i8", code="q"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    text = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    return text + struct.pack(f"<{len(values)}{code}", *values)


def max_over_mean(row, loads, ranks=RANKS):
    """Of the rank loads that a row of physical experts gives, its copies sharing evenly."""
    sums = [0.0] * ranks
    for slot, expert in enumerate(row):
        sums[slot * ranks // len(row)] += loads[expert] / row.count(expert)
    return max(sums) * ranks / sum(sums)


class Layers(CommandTest):
    def hidden_counts(self, name, hidden, moe):
        """SGLang's counts as JSON: a row for every hidden layer, dense ones without any."""
        return self.write(name, {"logical_count": [skewed(n) if n in moe else [0] * EXPERTS for n in range(hidden)]})

    def test_dense_rows_of_a_recording_number_the_others(self):
        recording = self.hidden_counts("r.json", 7, {3, 4, 6})
        profile = self.json("profile", recording, "-o", "p.safetensors")
        self.assertEqual((profile["num_layers"], profile["layer_numbers"]), (3, [3, 4, 6]))
        self.assertEqual([layer["layer"] for layer in profile["layers"]], [3, 4, 6])
        for name in ("p.npz", "p.json"):
            self.json("convert", "p.safetensors", name)
            self.assertEqual(self.json("profile", name)["layer_numbers"], [3, 4, 6])
        placed = self.json("place", "p.npz", "--ranks", RANKS, "-o", "placement.json")
        self.assertEqual(placed["layers"], [3, 4, 6])
        self.assertEqual(json.loads((self.folder / "placement.json").read_text())["layers"], [3, 4, 6])

    def test_a_server_finds_each_layer_s_row_at_the_layer_s_number(self):
        recording = self.hidden_counts("r.json", 6, {2, 3, 5})
        placed = self.json("place", recording, "--ranks", RANKS, "--redundant-experts", 4, "--format", "sglang",
                           "--dispatch", "even", "-o", "s.json")  # fmt: skip
        rows = json.loads((self.folder / "s.json").read_text())["physical_to_logical_map"]
        self.assertEqual(len(rows), 6)
        got = [max_over_mean(rows[n], skewed(n)) for n in (2, 3, 5)]
        self.assertAlmostEqual(sum(got) / 3, placed["after"]["max_over_mean_mean"], places=9)
        self.assertAlmostEqual(max(got), placed["after"]["max_over_mean_worst"], places=9)
        for dense in (0, 1, 4):
            self.assertEqual(rows[dense], [slot % EXPERTS for slot in range(EXPERTS + 4)])

    def test_the_layer_numbers_of_statistics_are_the_keys_of_the_server_s_yaml(self):
        counts = {f"0_{layer}": Tensor([EXPERTS], skewed(layer)) for layer in (3, 4)}
        (self.folder / "rank0.safetensors").write_bytes(safetensors(counts))
        self.json("place", "rank0.safetensors", "--ranks", RANKS, "--format", "trtllm", "-o", "t.yaml")
        keys = [line.split(":")[0].strip() for line in (self.folder / "t.yaml").read_text().splitlines()]
        self.assertEqual(keys[1:3], ["3", "4"])
        back = self.json("convert", "t.yaml", "back.json", "--ranks", RANKS)
        self.assertEqual(back["layers"], [3, 4])

    def test_numbers_that_nobody_said_are_asked_for(self):
        (self.folder / "w.npy").write_bytes(npy([3, 72], [n % 97 for n in range(3 * 72)]))
        for server, name in [("sglang", "s.json"), ("trtllm", "t.yaml")]:
            words = ["place", "w.npy", "--as", "counts", "--ranks", RANKS, "--format", server, "-o", name]
            self.assert_refused(words, 2, "InvalidArgument", "--moe-layers", "nobody said", "config.json")
            self.assertFalse((self.folder / name).exists())
            self.json(*words, "--moe-layers", "1-3")
        words = ["place", "w.npy", "--as", "counts", "--ranks", RANKS, "--format", "sglang", "-o", "s.json"]
        self.json(*words, "--num-hidden-layers", 3)
        rows = json.loads((self.folder / "s.json").read_text())["physical_to_logical_map"]
        self.assertEqual(len(rows), 3)

    def test_a_model_s_config_says_the_numbers(self):
        (self.folder / "w.npy").write_bytes(npy([3, 72], [n % 97 for n in range(3 * 72)]))
        config = {"num_hidden_layers": 5, "first_k_dense_replace": 2, "n_routed_experts": 72}
        self.write("config.json", config | {"num_nextn_predict_layers": 1})
        placed = self.json(
            "place", "w.npy", "--ranks", RANKS, "--format", "trtllm", "-o", "t.yaml", "--model", "config.json"
        )
        self.assertEqual(placed["layers"], [2, 3, 4])
        text = (self.folder / "t.yaml").read_text()
        self.assertIn(
            "\n  5: [0, 1, 2,", text
        )  # the layer of multi-token prediction, which that server asks for as well
        self.json("place", "w.npy", "--ranks", RANKS, "--format", "sglang", "-o", "s.json", "--model", ".")
        self.assertEqual(len(json.loads((self.folder / "s.json").read_text())["physical_to_logical_map"]), 5)
        self.write("config.json", config | {"n_routed_experts": 64})
        words = ["profile", "w.npy", "--as", "counts", "--model", "config.json"]
        self.assert_refused(words, 2, "InvalidArgument", "--model", "64 experts", "72")
        self.write("config.json", config | {"first_k_dense_replace": 1})
        self.assert_refused(words, 2, "InvalidArgument", "--model", "layers 1-4", "3 layers without numbers")
        self.assert_refused(words, 2, "InvalidArgument", "or beside it --moe-layers")
        # Beside the model, the numbers say which of its layers these are.
        self.assertEqual(self.json(*words, "--moe-layers", "2-4")["layer_numbers"], [2, 3, 4])
        self.assert_refused([*words, "--moe-layers", "0-2"], 2, "InvalidArgument", "--model", "layers 0-2")

    def test_layers_that_nobody_recorded_stay_as_they_are(self):
        # The first layers of the model route by a table, and have no load in the recording.
        recording = self.hidden_counts("r.json", 5, {2, 3, 4})
        (self.folder / "r.npy").write_bytes(npy([3, EXPERTS], [n for layer in (2, 3, 4) for n in skewed(layer)]))
        kinds = ["hash_moe", "hash_moe", "moe", "moe", "moe"]
        self.write("words.json", {"num_hidden_layers": 5, "n_routed_experts": EXPERTS, "mlp_layer_types": kinds})
        self.write("number.json", {"model_type": "deepseek_v4", "num_hidden_layers": 5, "n_routed_experts": EXPERTS,
                                   "num_hash_layers": 2, "num_nextn_predict_layers": 1})  # fmt: skip
        self.json("profile", recording, "-o", "r.npz")
        in_order = [slot % EXPERTS for slot in range(EXPERTS + 4)]
        note = "no placement was made for layers 0-1 of the model, where a table chooses experts by token"
        for source in ["r.npz", "r.npy", recording]:
            for model in ["words.json", "number.json"]:
                words = ["place", source, "--ranks", RANKS, "--redundant-experts", 4, "--model", model]
                words += ["--as", "counts"] if source == "r.npy" else []
                with self.subTest(source=source, model=model):
                    placed = self.json(*words, "--format", "vllm", "-o", "v.json")
                    self.assertTrue(any(text.startswith(note) for text in placed["after"]["notes"]), placed["after"])
                    rows = json.loads((self.folder / "v.json").read_text())["initial_global_assignments"]
                    self.assertEqual([rows["0"], rows["1"], len(rows)], [in_order, in_order, 5])
                    loads = [max_over_mean(rows[str(n)], skewed(n)) for n in (2, 3, 4)]
                    self.assertAlmostEqual(max(loads), placed["after"]["max_over_mean_worst"], places=9)
                    self.json(*words, "--format", "vllm-ascend", "-o", "a.json")
                    ascend = json.loads((self.folder / "a.json").read_text())
                    self.assertEqual((ascend["moe_layer_count"], len(ascend["layer_list"])), (5, 5))
                    self.json(*words, "--format", "sglang", "--dispatch", "even", "-o", "s.json")
                    sglang = json.loads((self.folder / "s.json").read_text())["physical_to_logical_map"]
                    self.assertEqual(sglang, [rows[str(n)] for n in range(5)])
                    self.json(*words, "--format", "trtllm", "-o", "t.yaml")
                    keys = [line.split(":")[0] for line in (self.folder / "t.yaml").read_text().splitlines()]
                    self.assertEqual(keys[1:-2], [f"  {n}" for n in range(6 if model == "number.json" else 5)])
                    self.json(*words, "-o", "e.json")
                    self.assertEqual(json.loads((self.folder / "e.json").read_text())["layers"], [0, 1, 2, 3, 4])
        # What was written serves a recording of some of its layers, and is a start that keeps the others.
        judged = self.json("evaluate", "r.npz", "--placement", "e.json", "--ranks", RANKS)
        self.assertAlmostEqual(judged["placements"][-1]["results"][0]["max_over_mean_worst"],
                               placed["after"]["max_over_mean_worst"], places=9)  # fmt: skip
        before = json.loads((self.folder / "e.json").read_text())
        before["physical_to_logical"][1] = [2, 3, 4, 0, 1, 5, 6, 7, 0, 1, 2, 3]
        self.write("before.json", before)
        again = self.json("place", "r.npz", "--ranks", RANKS, "--redundant-experts", 4, "--from", "before.json",
                          "--max-moves", 1, "--model", "words.json", "-o", "after.json")  # fmt: skip
        self.assertIn("for layers 0-1 of the placement before: the experts stay where", str(again["after"]["notes"]))
        after = json.loads((self.folder / "after.json").read_text())["physical_to_logical"]
        ranks_of = [[sorted(row[at : at + 3]) for at in range(0, 12, 3)] for row in (after[1], before["physical_to_logical"][1])]  # fmt: skip
        self.assertEqual(ranks_of[0], ranks_of[1])
        again = self.json("place", "r.npz", "--ranks", RANKS, "--redundant-experts", 4, "--from", "before.json",
                          "--max-moves", 1, "-o", "after.json")  # fmt: skip
        self.assertIn("they are left out; with --model", str(again["after"]["notes"]))
        self.assertEqual(json.loads((self.folder / "after.json").read_text())["layers"], [2, 3, 4])

    def test_layers_said_beside_a_model_are_the_recordings_alone(self):
        (self.folder / "r.npy").write_bytes(npy([3, EXPERTS], [n for layer in (2, 3, 4) for n in skewed(layer)]))
        kinds = ["hash_moe", "hash_moe", "moe", "moe", "moe"]
        self.write("c.json", {"num_hidden_layers": 5, "n_routed_experts": EXPERTS, "mlp_layer_types": kinds})
        words = ["place", "r.npy", "--as", "counts", "--ranks", RANKS, "--model", "c.json", "--moe-layers", "2-4"]
        for form in ("evenkeel", "vllm", "sglang", "trtllm"):
            self.assertEqual(self.json(*words, "--format", form, "-o", "p.json")["layers"], [2, 3, 4], form)
            self.json("convert", "p.json", "q.json", "--ranks", RANKS)
            self.assertEqual(len(json.loads((self.folder / "q.json").read_text())["physical_to_logical"]), 5, form)

    def test_a_recording_that_lacks_layers_of_its_model_is_placed(self):
        case = self.case("G_hash_layers")
        words = ["place", case / "expert_distribution_recorder_1.0.pt", "--ranks", 8, "--model", case / "config.json"]
        placed = self.json(*words, "--format", "vllm", "-o", "v.json")
        self.assertIn("for layers 0-2 of the model, where a table", str(placed["after"]["notes"]))
        rows = json.loads((self.folder / "v.json").read_text())["initial_global_assignments"]
        self.assertEqual(len(rows), 43)
        for layer in range(3):
            self.assertEqual(rows[str(layer)], list(range(32)))

    def test_who_says_which_layers_have_experts_knows_better_than_rows_without_load(self):
        rows = [skewed(n) for n in range(6)]
        rows[2] = [0] * EXPERTS
        (self.folder / "c.npy").write_bytes(npy([6, EXPERTS], [n for row in rows for n in row]))
        self.write("l.json", {"logical_count": rows})
        for name in ("c.npy", "l.json"):
            with self.subTest(name):
                # All have experts, one of which nobody chose; or rows are hidden layers, or layers of a later part.
                for layers, kept in [
                    ("0-5", [0, 1, 2, 3, 4, 5]),
                    ("0-1,3-5", [0, 1, 3, 4, 5]),
                    ("3-8", list(range(3, 9))),
                ]:
                    done = self.call("profile", name, "--as", "counts", "--moe-layers", layers, "--json")
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(json.loads(done.stdout)["layer_numbers"], kept)
                words = ["profile", name, "--as", "counts", "--moe-layers", "0-4"]
                self.assert_refused(words, 2, "InvalidArgument", "--moe-layers")
        # With layers of multi-token prediction there are as many as hidden layers; the rows still say which is which.
        recording = self.hidden_counts("r.json", 6, {1, 2, 3, 4, 5})
        self.write("config.json", {"num_hidden_layers": 6, "first_k_dense_replace": 1, "n_routed_experts": EXPERTS,
                                   "num_nextn_predict_layers": 1})  # fmt: skip
        self.assertEqual(self.json("profile", recording, "--model", "config.json")["layer_numbers"], [1, 2, 3, 4, 5])

    def test_several_rows_without_load_amid_others_are_asked_about(self):
        rows = [skewed(n) if n % 2 == 0 else [0] * EXPERTS for n in range(6)]
        (self.folder / "c.npy").write_bytes(npy([6, EXPERTS], [n for row in rows for n in row]))
        words = ["place", "c.npy", "--as", "counts", "--ranks", RANKS, "--format", "vllm", "-o", "v.jsonl"]
        self.assert_refused(words, 2, "InvalidArgument", "--moe-layers", "rows 1,3,5 of the 6 have no assignment")
        self.assertEqual(self.json(*words, "--moe-layers", "0,2,4")["layers"], [0, 2, 4])
        self.assertEqual(self.json(*words, "--moe-layers", "0-5")["layers"], list(range(6)))

    def test_a_first_column_that_counts_is_asked_about(self):
        (self.folder / "c.csv").write_text("".join(f"{n},{n * 7 % 5},{n * 3 % 4 + 1}\n" for n in range(3, 9)))
        self.assert_refused(
            ["profile", "c.csv"], 2, "InvalidArgument", "--axes", "layer,experts...: 6 layers of 2 experts"
        )
        lines = "".join(f"{n},{e},{n + e + 1}\n" for n in range(3) for e in range(4))
        (self.folder / "m.csv").write_text("moe_layer,expert,count\n" + lines)
        profile = self.json("profile", "m.csv", "--moe-layers", "1,3,5")
        self.assertEqual((profile["num_layers"], profile["layer_numbers"]), (3, [1, 3, 5]))

    def test_layers_beside_counts_are_obeyed(self):
        self.write("l.json", {"logical_count": [skewed(n) for n in range(3)], "layers": [4, 6, 7]})
        self.assertEqual(self.json("profile", "l.json")["layer_numbers"], [4, 6, 7])
        self.write("l.json", {"logical_count": [skewed(n) for n in range(3)], "layers": [4, 6]})
        self.assert_refused(["profile", "l.json"], 3, "ParseError", "layers: has 2 numbers for 3 layers")
        self.write("c.json", {"counts": [skewed(n) for n in range(3)], "layers": [4, 6, 7]})
        self.assert_refused(["profile", "c.json"], 3, "ParseError", "layers")

    def test_hidden_layers_of_a_trace_are_chosen_by_who_knows_them(self):
        values = [0 if layer % 2 == 0 else (token * 3 + layer) % 7 for token in range(50) for layer in range(6)]
        (self.folder / "top1.npy").write_bytes(
            npy([50, 6, 1], values, "<i2", "h")
        )  # one id a token: k equal ids say nothing
        done = self.call("profile", "top1.npy", "--as", "trace", "--json")
        self.assertEqual(json.loads(done.stdout)["layer_numbers"], [1, 3, 5])
        (self.folder / "all.npy").write_bytes(npy([50, 6, 2], [n % 7 for n in range(600)], "<i2", "h"))
        chosen = self.json("profile", "all.npy", "--as", "trace", "--moe-layers", "1,3,5")
        self.assertEqual((chosen["num_layers"], chosen["layer_numbers"]), (3, [1, 3, 5]))

    def test_what_a_file_says_is_not_said_otherwise(self):
        recording = self.hidden_counts("r.json", 6, {2, 3})
        for command in (["profile"], ["place", "--ranks", RANKS]):
            self.json(command[0], recording, *command[1:], "--moe-layers", "2-3")
            words = [command[0], recording, *command[1:], "--moe-layers", "3-4"]
            self.assert_refused(words, 2, "InvalidArgument", "--moe-layers: names layers 3-4", "layers 2-3")

    def test_two_files_are_paired_by_layer_numbers(self):
        self.json("profile", self.hidden_counts("a.json", 8, {2, 3, 5, 7}), "-o", "a.npz")
        self.json("profile", self.hidden_counts("b.json", 8, {3, 5}), "-o", "b.npz")
        self.json("place", "a.npz", "--ranks", RANKS, "-o", "pa.json")
        self.json("place", "b.npz", "--ranks", RANKS, "-o", "pb.json")
        rows = json.loads((self.folder / "pa.json").read_text())["physical_to_logical"]
        plan = self.json("plan", "b.npz", "--layer", 5, "--placement", "pa.json", "--planner", "ep")
        loads = skewed(5)
        of_rank = [sum(loads[e] for e in rows[2][2 * rank : 2 * rank + 2]) for rank in range(RANKS)]
        self.assertEqual(plan["rank_loads"], of_rank)
        self.assert_refused(["plan", "a.npz", "--layer", 7, "--placement", "pb.json"], 2, "InvalidArgument",
                            "--placement", "layers 3,5", "layer 7 of a.npz")  # fmt: skip
        self.assert_refused(["plan", "a.npz", "--layer", 4, "--placement", "pa.json"], 2, "InvalidArgument", "--layer",
                            "no layer 4", "2-3,5,7")  # fmt: skip
        moved = self.json("place", "b.npz", "--ranks", RANKS, "--from", "pa.json", "--max-moves", 1)
        self.assertEqual(moved["layers"], [3, 5])
        words = ["place", "a.npz", "--ranks", RANKS, "--from", "pb.json", "--max-moves", 1]
        self.assert_refused(words, 2, "InvalidArgument", "--from", "layers 3,5", "layers 2-3,5,7")
        self.assert_refused(["profile", "a.npz", "b.npz"], 2, "InvalidArgument", "a.npz", "b.npz", "layers 3,5")

    def test_files_without_numbers_are_paired_row_by_row_or_not_at_all(self):
        self.write("three.json", {"loads": [skewed(n) for n in range(3)]})
        self.write("two.json", {"loads": [skewed(n) for n in range(2)]})
        self.json("place", "two.json", "--ranks", RANKS, "-o", "p2.json")
        self.assert_refused(["plan", "three.json", "--layer", 0, "--placement", "p2.json"], 2, "InvalidArgument",
                            "--placement", "p2.json has 2 layers", "three.json has 3 layers")  # fmt: skip
        words = ["place", "three.json", "--ranks", RANKS, "--from", "p2.json", "--max-moves", 1]
        self.assert_refused(words, 2, "InvalidArgument", "--from", "2 layers", "3 layers")

    def test_the_file_that_a_server_runs_is_taken_as_it_is(self):
        recording = self.hidden_counts("r.json", 6, {2, 3, 5})
        for server, name in [
            ("sglang", "s.json"),
            ("trtllm", "t.yaml"),
            ("vllm", "v.jsonl"),
            ("vllm-ascend", "a.json"),
        ]:
            placed = self.json("place", recording, "--ranks", RANKS, "--format", server, "-o", name)
            with self.subTest(server):
                moved = self.json("place", recording, "--ranks", RANKS, "--from", name, "--max-moves", 1)
                self.assertEqual(moved["before"]["max_over_mean_mean"], placed["after"]["max_over_mean_mean"])
                plan = self.json(
                    "plan", recording, "--layer", 3, "--ranks", RANKS, "--placement", name, "--planner", "ep"
                )
                self.assertGreater(plan["max_over_mean"], 1)

    def test_a_server_that_counts_moe_layers_alone_is_not_given_dense_ones(self):
        recording = self.hidden_counts("r.json", 5, {2, 3, 4})
        self.json("place", recording, "--ranks", RANKS, "--format", "sglang", "-o", "s.json")
        words = ["convert", "s.json", "v.jsonl", "--to", "vllm", "--ranks", RANKS]
        self.assert_refused(words, 2, "InvalidArgument", "--moe-layers", "layers 0-1 are as SGLang fills dense ones")
        self.json(
            "place", recording, "--ranks", RANKS, "--redundant-experts", 4, "--format", "sglang", "-o", "r.placed.json"
        )
        copies = ["convert", "r.placed.json", "v.jsonl", "--to", "vllm", "--ranks", RANKS]
        self.assert_refused(copies, 2, "InvalidArgument", "--moe-layers", "layers 0-1 are as SGLang fills dense ones")
        self.json(*words, "--moe-layers", "2-4")
        record = json.loads((self.folder / "v.jsonl").read_text())
        self.assertEqual(list(record["initial_global_assignments"]), ["0", "1", "2"])

    def test_a_trace_carries_them_too(self):
        converted = self.json("convert", RECORDINGS / "sglang_per_token.pt", "t.safetensors")
        for name in ("u.npz", "t.safetensors"):
            if name != "t.safetensors":
                self.json("convert", "t.safetensors", name)
            self.assertEqual(self.json("profile", name)["layer_numbers"], converted["layers"])

    def test_counts_alone_are_placed_by_balance_and_say_so(self):
        (self.folder / "plain.csv").write_text("100,1,1,1\n1,100,1,1\n1,1,1,100\n")
        words = ["place", "plain.csv", "--as", "counts", "--ranks", 2]
        placed = self.json(*words)
        self.assertEqual(list(placed["objective"]), ["balance"])
        self.assertIsNone(placed["after"]["crossing"])
        self.assertTrue(any("traffic is not known" in note for note in placed["after"]["notes"]))
        self.assert_refused([*words, "--objective", "joint"], 2, "InvalidArgument", "--traffic")

    def test_a_refusal_names_the_copies_that_make_ranks_even(self):
        (self.folder / "ten.csv").write_text(",".join(map(str, range(1, 11))) + "\n")
        words = ["place", "ten.csv", "--as", "counts", "--ranks", 4, "--format", "vllm", "-o", "v.jsonl"]
        self.assert_refused(words, 4, "Unsupported", "2 more redundant experts make it even")
        self.json(*words, "--redundant-experts", 2)
        self.assert_refused([*words, "--redundant-experts", 3], 4, "Unsupported", "3 more redundant experts")


class Evidence(CommandTest):
    """What an array is that nobody named."""

    def ids(self, tokens, layers, k, experts, dense=()):
        """Distinct ids a token, but zeros in dense layers."""
        values = []
        for token in range(tokens):
            for layer in range(layers):
                first = (token * 7 + layer * 3) % experts
                values += [0] * k if layer in dense else [(first + j * (1 + token % 3)) % experts for j in range(k)]
        return values

    def shape_of(self, name, *options):
        if name == "r.npy" and "--as" not in options:
            options = (*options, "--as", "trace")
        done = self.call("profile", name, "--json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        profile = json.loads(done.stdout)
        return profile["num_layers"], profile["num_experts"], profile["tokens"], profile["layer_numbers"], done.stderr

    def noted(self, *words):
        """What is printed by a command that may have notes besides."""
        words = [*words, "--as", "trace"] if "r.npy" in words and "--as" not in words else words
        return json.loads(self.call(*words, "--json").stdout)

    def test_layers_filled_with_zeros_are_dense(self):
        for k, dense in [(8, (0, 1)), (4, (0,)), (2, (0, 2, 4))]:
            (self.folder / "r.npy").write_bytes(npy([60, 6, k], self.ids(60, 6, k, 31, dense), "<i2", "h"))
            layers, experts, tokens, numbers, notes = self.shape_of("r.npy")
            kept = [layer for layer in range(6) if layer not in dense]
            self.assertEqual((layers, experts, tokens, numbers), (len(kept), 31, 60, kept))
            self.assertIn("dense", notes)

    def test_the_largest_number_of_an_unsigned_type_fills(self):
        values = self.ids(40, 3, 4, 60)
        values[: 5 * 12] = [255] * 60
        (self.folder / "r.npy").write_bytes(npy([40, 3, 4], values, "|u1", "B"))
        layers, experts, tokens, _, notes = self.shape_of("r.npy")
        self.assertEqual((layers, experts, tokens), (3, 60, 40))
        self.assertIn("id 255 fills", notes)
        self.assertEqual(self.call("convert", "r.npy", "t.npz", "--as", "trace").returncode, 0)
        self.assertEqual(self.json("profile", "t.npz")["layers"][0]["assignments"], 35 * 4)
        # Of a model of 256 experts it is one of them.
        values = [(i * 5) % 256 for i in range(300 * 4)]
        (self.folder / "whole.npy").write_bytes(npy([300, 1, 4], values, "|u1", "B"))
        self.assertEqual(self.shape_of("whole.npy", "--as", "trace")[:3], (1, 256, 300))

    def test_ids_that_repeat_by_themselves_stand_by_the_name_topk_ids(self):
        values = [(i * i + i // 7) % 5 for i in range(400 * 3 * 2)]  # many a token has one id twice, of any id
        (self.folder / "r.npy").write_bytes(npy([400, 3, 2], values))
        self.assert_refused(["profile", "r.npy", "--as", "trace"], 2, "InvalidArgument", "--axes",
                            "rows name one id 2 times, 0 or 4, which no router does", "topk_ids")  # fmt: skip
        (self.folder / "r.safetensors").write_bytes(safetensors({"topk_ids": Tensor([400, 3, 2], values)}))
        layers, experts, tokens, _, notes = self.shape_of("r.safetensors")
        self.assertEqual((layers, experts, tokens), (3, 5, 400))
        self.assertIn("rows name one id 2 times, which no router chooses: read as they stand", notes)
        said = self.noted("profile", "r.safetensors")["layers"]
        self.assertEqual([layer["assignments"] for layer in said], [800] * 3)

    def test_rows_of_one_id_are_tokens_absent_from_a_layer(self):
        for k, filler in [(8, 0), (4, 3), (2, 5)]:
            values = self.ids(90, 4, k, 31)
            rows = [7, 8, 40, 101, 333]
            for row in rows:
                values[row * k : (row + 1) * k] = [filler] * k
            (self.folder / "r.npy").write_bytes(npy([90, 4, k], values, "<i2", "h"))
            layers, experts, tokens, _, notes = self.shape_of("r.npy")
            self.assertEqual((layers, experts, tokens), (4, 31, 90))
            self.assertIn(f"id {filler} stands {k} times in 5 rows", notes)
            loads = [layer["assignments"] for layer in self.noted("profile", "r.npy")["layers"]]
            self.assertEqual(loads, [(90 - sum(row % 4 == layer for row in rows)) * k for layer in range(4)])

    def test_one_token_tells_its_dense_layers(self):
        (self.folder / "r.npy").write_bytes(npy([1, 6, 4], self.ids(1, 6, 4, 31, (0, 1)), "<i2", "h"))
        layers, _, tokens, numbers, _ = self.shape_of("r.npy")
        self.assertEqual((layers, tokens, numbers), (4, 1, [2, 3, 4, 5]))

    def test_a_filler_in_single_places_of_any_type(self):
        for experts, code, letter, fill in [
            (64, "|u1", "B", 255),
            (64, "<i4", "i", 255),
            (64, "<i8", "q", 65535),
            (200, "<u2", "H", 65535),
        ]:
            with self.subTest((experts, code, fill)):
                values = self.ids(experts, 3, 6, experts)
                for at in range(4, len(values), 6):
                    values[at] = values[at + 1] = fill
                (self.folder / "r.npy").write_bytes(npy([experts, 3, 6], values, code, letter))
                layers, found, tokens, _, notes = self.shape_of("r.npy", "--as", "trace")
                self.assertEqual((layers, found, tokens), (3, experts, experts))
                self.assertIn(f"id {fill} fills", notes)
                self.assertEqual(
                    [layer["assignments"] for layer in self.noted("profile", "r.npy", "--as", "trace")["layers"]],
                    [experts * 4] * 3,
                )
                self.assertEqual(self.shape_of("r.npy", "--num-experts", experts)[:3], (3, experts, experts))
        # Beside ids that are not far below, the command asks and is told.
        for places in (1, 2):
            values = self.ids(160, 3, 6, 160)
            for at in range(6 - places, 6):
                values[at::6] = [255] * len(values[at::6])
            (self.folder / "r.npy").write_bytes(npy([160, 3, 6], values, "|u1", "B"))
            self.assert_refused(
                ["profile", "r.npy", "--as", "trace"],
                2,
                "InvalidArgument",
                "--num-experts",
                "id 255 stands beside ids up to 159",
            )
            self.assertEqual(self.shape_of("r.npy", "--num-experts", 160)[:3], (3, 160, 160))
            self.assertEqual(self.shape_of("r.npy", "--num-experts", 256)[:3], (3, 256, 160))

    def test_two_fillers_are_asked_about_and_told(self):
        experts = 60
        chosen = self.ids(80, 3, 6, experts)
        for at in range(4, len(chosen), 6):
            chosen[at] = chosen[at + 1] = 65535
        in_places, rows = list(chosen), list(chosen)
        in_places[0] = in_places[61] = 255  # in rows that have 65535 too
        rows[12:18] = rows[60:66] = [255] * 6  # rows of their own
        whole = list(chosen)
        whole[90:108] = [255] * 18  # a token that has nothing else
        for name, values, filled in [("places", in_places, 2), ("rows", rows, 8), ("token", whole, 12)]:
            with self.subTest(name):
                (self.folder / "r.npy").write_bytes(npy([80, 3, 6], values, "<u2", "H"))
                for command in ["profile", "place"]:
                    words = [command, "r.npy", "--as", "trace", *(["--ranks", 4] if command == "place" else [])]
                    self.assert_refused(
                        words, 2, "InvalidArgument", "--num-experts",
                        "r.npy: id 255 stands beside ids up to 59 and 65535, which fills",
                        "256 or more if it is an expert, 60..255 if it fills",
                    )  # fmt: skip
                for told in [60, 64, 255]:
                    words = ["r.npy", "--num-experts", told]
                    layers, found, tokens, _, notes = self.shape_of(*words)
                    self.assertEqual((layers, found, tokens), (3, told, 80))
                    self.assertIn("id 65535 fills", notes)
                    self.assertIn("id 255 fills", notes)
                    said = self.noted("profile", *words)["layers"]
                    self.assertEqual(sum(layer["assignments"] for layer in said), 80 * 3 * 4 - filled)
                self.assertEqual(self.shape_of("r.npy", "--num-experts", 256)[1], 256)
        # All ids of 256 experts are there, so 255 is one of them.
        values = [(i * 5) % 256 for i in range(300 * 6)]
        values[5::6] = values[4::6] = [65535] * 300
        (self.folder / "r.npy").write_bytes(npy([300, 1, 6], values, "<u2", "H"))
        self.assertEqual(self.shape_of("r.npy", "--as", "trace")[1], 256)

    def test_an_id_that_only_fills_rows_is_no_expert(self):
        values = self.ids(40, 3, 4, 60)
        values[4:8] = [60] * 4
        values[100:104] = [60] * 4
        (self.folder / "r.npy").write_bytes(npy([40, 3, 4], values))
        layers, experts, tokens, _, notes = self.shape_of("r.npy")
        self.assertEqual((layers, experts, tokens), (3, 60, 40))
        self.assertIn("id 60 stands 4 times in 2 rows", notes)

    def test_what_nobody_named_is_one_question_and_the_answer_is_obeyed(self):
        values = [1, 5, 2, 6, 3, 0, 4, 7]
        (self.folder / "two.npy").write_bytes(npy([4, 2], values))
        self.write("two.json", [[1, 5], [2, 6], [3, 0], [4, 7]])
        (self.folder / "two.csv").write_text("1,5\n2,6\n3,0\n4,7\n")
        for name in ("two.npy", "two.json", "two.csv"):
            for words in (["profile"], ["place", "--ranks", 2], ["plan", "--ranks", 2, "--layer", 0]):
                command = [words[0], name, *words[1:]]
                parts = ["layers,experts: 4 layers of 2 experts", "tokens,k: 1 layer of 8 experts, 4 tokens, top-2"]
                self.assert_refused(command, 2, "InvalidArgument", "--axes: ", *parts)
            self.assertEqual(self.shape_of(name, "--as", "counts")[:3], (4, 2, None))
            self.assertEqual(self.shape_of(name, "--axes", "tokens,k")[:3], (1, 8, 4))
            self.assertIn("read as tokens,k: 1 layer of 8 experts", self.shape_of(name, "--as", "trace")[4])
            plan = self.json("plan", name, "--axes", "ranks,experts")
            self.assertEqual((plan["num_ranks"], plan["axes"]), (4, {name: "ranks,experts"}))
        words = ["profile", "two.npy", "--as", "trace", "--axes", "tokens,k"]
        self.assert_refused(words, 2, "InvalidArgument", "--as: is short for an order that --axes says")

    def test_an_array_with_a_name_in_another_order_is_asked_about(self):
        ids = {"routed_experts": Tensor([3, 400, 4], self.ids(400, 3, 4, 16))}
        (self.folder / "r.safetensors").write_bytes(safetensors(ids))
        self.assert_refused(["profile", "r.safetensors"], 2, "InvalidArgument", "400 layers", "layers,tokens,k")
        (self.folder / "c.safetensors").write_bytes(safetensors({"counts": Tensor([2, 300, 65], [1] * (2 * 300 * 65))}))
        self.assert_refused(["profile", "c.safetensors"], 2, "InvalidArgument", "300 layers")


if __name__ == "__main__":
    unittest.main()
