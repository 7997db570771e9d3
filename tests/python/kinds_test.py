"""Files as people's tools really write them are read right, by every command and by Python.

A test is about one kind of file, as the README of the collected files lists them: a collected file, and others that are
made here, of other sizes, layer numbers, types and containers.
"""

import json
import re
import textwrap
import unittest

import numpy as np
from kind_checks import (
    ENDINGS,
    KindsTest,
    Truth,
    as_words,
    stored_counts,
    stored_tensor,
    tensor,
    truth_of_hidden,
    truth_of_ids,
)
from tensor_files import safetensors, torch_file

import evenkeel as ek


class Recordings(KindsTest):
    def test_sglang_s_counts_are_those_of_the_hidden_layers_that_have_any(self):
        for name in ("F12_deepseek_shape/expert_distribution_recorder_1.0.pt", "F12_deepseek_shape"):
            with self.subTest("collected", name=name):
                path = self.case(name)
                counts = stored_tensor(self.case("F12_deepseek_shape/expert_distribution_recorder_1.0.pt"), "<i4")
                truth = truth_of_hidden(counts.reshape(61, 256))
                self.assertEqual(truth.layers, list(range(3, 61)))
                self.assert_read(path, truth, ranks=8)
        for moe, hidden, experts, steps, dtype in [
            (range(1, 46), 46, 160, 3, np.int64),
            ([1, 3, 5, 7], 8, 60, 2, np.int32),
            (range(2, 9), 12, 24, 1, np.float32),
            (range(5), 5, 16, 2, np.int32),
        ]:
            with self.subTest(moe=moe, hidden=hidden, experts=experts, dtype=dtype):
                counts = np.zeros((steps, hidden, experts), dtype)
                for step in counts:
                    step[moe] = self.loads(len(moe), experts)
                recording = {"rank": 0, "logical_count": tensor(counts), "average_utilization_rate_over_window": None}
                (self.folder / "r.pt").write_bytes(torch_file(recording))
                truth = truth_of_hidden(counts.sum(axis=0).astype(int))
                self.assert_read(self.folder / "r.pt", truth, ranks=4)
        with self.subTest("counts of physical experts in every pass"):
            hidden, experts, slots = 6, 8, 12
            slot_map = (np.arange(slots) + np.arange(hidden)[:, None]) % experts
            counts, records = np.zeros((hidden, experts), int), []
            for n in range(3):
                physical = np.zeros((hidden, slots), np.int32)
                physical[2:5] = self.loads(3, slots)
                np.add.at(counts, (np.arange(hidden)[:, None], slot_map), physical)
                records.append({"forward_pass_id": n, "rank": 0, "global_physical_count": tensor(physical)})
            recording = {"records": records, "last_physical_to_logical_map": tensor(slot_map)}
            (self.folder / "r.pt").write_bytes(torch_file(recording))
            self.assert_read(self.folder / "r.pt", truth_of_hidden(counts), ranks=4)

    def test_tensorrt_llm_s_statistics_are_of_the_layers_that_their_names_say(self):
        with self.subTest("collected"):
            folder = self.case("B12_trt_stats/whole")
            counts = np.zeros((5, 8), int)
            for rank in (0, 1):
                for name, of_layer in stored_counts(folder / f"rank{rank}.safetensors").items():
                    counts[int(name.split("_")[1])] += of_layer
            truth = truth_of_hidden(counts)
            self.assertEqual(truth.layers, [3, 4])
            self.assert_read(folder, truth, ranks=4)
        for layers, experts, iterations, ranks, dtype in [
            (range(3, 31), 72, [10, 11], 4, np.int32),
            ([1, 3, 9, 10, 11, 100], 10, [0, 1, 2], 2, np.int64),
            ([61], 16, [7], 3, np.int64),
            (range(3), 12, [100], 1, np.int32),
        ]:
            with self.subTest(layers=layers, experts=experts):
                folder = self.folder / f"trt{layers[-1]}"
                folder.mkdir()
                truth = Truth(np.zeros((len(layers), experts), int), list(layers))
                for rank in range(ranks):
                    tensors = {}
                    for iteration in iterations:
                        counts = self.loads(len(layers), experts).astype(dtype)
                        tensors |= {f"{iteration}_{n}": tensor(row) for n, row in zip(layers, counts, strict=True)}
                        truth.loads += counts
                    (folder / f"rank{rank}.safetensors").write_bytes(safetensors(tensors))
                (folder / "meta_info.json").write_text(json.dumps({"num_experts": experts}))
                self.assert_read(folder, truth, ranks=2)

    def test_a_line_for_each_expert_is_a_long_table_and_what_has_no_line_is_0(self):
        with self.subTest("collected"):
            path = self.case("B01_sglang_long_csv/expert_distribution_rank0_timestamp1.csv")
            counts = np.zeros((5, 8), int)
            for layer, expert, count in np.loadtxt(path, int, delimiter=",", skiprows=1):
                counts[layer, expert] = count
            truth = truth_of_hidden(counts)
            self.assertEqual(truth.layers, [3, 4])
            self.assert_read(path, truth, ranks=4)
        truth = Truth(self.loads(12, 96) // 4, list(range(3, 15)))
        truth.loads[:, 95] += 1
        lines = [(n, e, truth.loads[n - 3, e]) for n in truth.layers for e in range(96) if truth.loads[n - 3, e]]
        self.assertLess(len(lines), truth.loads.size)
        with self.subTest("lines in any order"):
            mixed = self.draw.permutation(lines)
            self.assert_read(self.text("a.csv", [("layer_id", "expert_id", "count"), *mixed]), truth, ranks=8)
        with self.subTest("columns in another order and by other names"):
            turned = [("num_tokens", "expert", "layer_idx")] + [(count, e, n) for n, e, count in lines]
            self.assert_read(self.text("b.csv", turned), truth, ranks=8)
        with self.subTest("semicolons, quotes, CRLF, a byte order mark"):
            quoted = [";".join(f'"{cell}"' for cell in line) for line in [("layer_id", "expert_id", "count"), *lines]]
            path = self.folder / "c.csv"
            path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(quoted).encode())
            self.assert_read(path, truth, ranks=8)
        with self.subTest("ranks, which are added up; experts that nobody ever chose"):
            of_ranks = [(rank, *line) for rank in (0, 1) for line in lines]
            path = self.text("d.csv", [("rank", "layer_id", "expert_id", "count"), *of_ranks])
            wide = np.zeros((12, 104), int)
            wide[:, :96] = 2 * truth.loads
            self.assert_read(path, Truth(wide, truth.layers), ranks=8, num_experts=104)

    def test_of_several_columns_of_counts_that_of_all_choices_is_read_or_one_is_asked_for(self):
        with self.subTest("collected"):
            path = self.case("B01_sglang_long_csv/with_ratios.csv")
            counts = np.loadtxt(path, delimiter=",", skiprows=1)[:, 2].astype(int)
            self.assert_read(path, Truth(counts[None], [3]), ranks=4)
        layers = [1, 3, 5, 7]
        truth = Truth(self.loads(4, 12), layers)
        lines = []
        for n, row in zip(layers, truth.loads, strict=True):
            lines += [(n, e, count, count // 3, count / row.sum()) for e, count in enumerate(row)]
        names = ("layer_id", "expert_id", "count_all_topk", "count_top1", "ratio_all_topk")
        with self.subTest("other layers and experts"):
            self.assert_read(self.text("a.csv", [names, *lines]), truth, ranks=4)
        with self.subTest("columns in another order"):
            turned = [names[::-1]] + [line[::-1] for line in lines]
            self.assert_read(self.text("b.csv", turned), truth, ranks=4)
        with self.subTest("counts beside ratios alone"):
            one_count = [("layer_id", "expert_id", "count", "ratio")] + [line[:3] + line[4:] for line in lines]
            self.assert_read(self.text("c.csv", one_count), truth, ranks=4)
        with self.subTest("none of them of all choices"):
            path = self.text(
                "d.csv", [("layer_id", "expert_id", "count_top1", "count_top2")] + [line[:4] for line in lines]
            )
            for error in (self.refusal("profile", path), self.refusal_of_python(ek.RoutingProfile, path)):
                for name in ("count_top1", "count_top2"):
                    self.assertIn(name, error[1])

    def test_vllm_s_statistics_are_added_to_the_experts_that_their_map_names(self):
        def truth_of(path):
            records = [json.loads(line) for line in path.read_text().splitlines()]
            records = [record for record in records if record["record_type"] == "eplb_load_stats"]
            shape = len(records[0]["p2l_map"]), 1 + max(map(max, records[0]["p2l_map"]))
            loads = np.zeros(shape, np.array(records[0]["expert_load"]).dtype)
            for record in records:
                np.add.at(loads, (np.arange(shape[0])[:, None], record["p2l_map"]), record["expert_load"])
            return Truth(loads)

        def statistics(layers, experts, copies, records, draw=self.draw.integers):
            for step in range(records):
                rows = [np.append(np.arange(experts), self.draw.permutation(experts)[:copies]) for _ in range(layers)]
                rows = [self.draw.permutation(row).tolist() for row in rows]
                loads = draw(0, 1000, (layers, experts + copies)).tolist()
                record = {"record_type": "eplb_load_stats", "version": 1, "step": step, "num_ranks": 2}
                yield record | {"expert_load": loads, "p2l_map": rows}

        with self.subTest("collected"):
            path = self.case("B11_vllm_stats/eplb_data.jsonl")
            self.assert_read(path, truth_of(path))
        path = self.folder / "stats.jsonl"
        other = {"record_type": "session_metadata", "model": "some"}
        for name, records in [
            ("other maps in every record", statistics(12, 96, 32, 3)),
            ("records of other kinds", [other, *statistics(4, 10, 2, 2)]),
            ("a single record", statistics(3, 16, 0, 1)),
        ]:
            with self.subTest(name):
                path.write_text("".join(json.dumps(record) + "\n" for record in records))
                self.assert_read(path, truth_of(path))
                layers = [2 * row + 1 for row in range(len(truth_of(path).loads))]
                self.assert_read(path, Truth(truth_of(path).loads, layers), layers=layers)
        with self.subTest("averages"):
            records = statistics(3, 16, 4, 2, self.draw.uniform)
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
            self.assert_read(path, Truth(truth_of(path).loads, only_ratios=True))


class Ids(KindsTest):
    def filled(self, ids, hidden, layers, fill, dtype):
        """[tokens, hidden layers, k] with nothing but the fill in dense layers."""
        array = np.full((len(ids), hidden, ids.shape[2]), fill, dtype)
        array[:, layers] = np.where(ids < 0, fill, ids)
        return array

    def test_layers_of_nothing_but_zeros_are_dense(self):
        with self.subTest("collected"):
            path = self.case("B09_routed_experts/dense_layers_as_zero.npy")
            truth = truth_of_ids(np.load(path)[:, 2:].astype(int), 64, list(range(2, 8)))
            self.assert_asked(path, "tokens,layers,k: 8 layers of 64 experts, 54 tokens, top-8")
            self.assert_read(path, truth, axes="tokens,layers,k")
            self.assert_noted(path, "layers 0-1 hold one id throughout", axes="tokens,layers,k")
        for name, key, hidden, layers, k, experts, dtype in [
            ("a.npy", None, 27, range(1, 27), 6, 64, np.int32),
            ("a.npz", "routed_experts", 12, [1, 3, 5, 7, 9, 11], 2, 16, np.int16),
            ("b.npz", "topk_ids", 9, [2, 3, 5, 6], 3, 24, np.int32),
            ("c.npz", None, 9, [2, 3, 5, 6], 3, 24, np.uint8),
            ("a.safetensors", "routed_experts", 14, range(3, 14), 8, 160, np.int16),
            ("a.pt", None, 6, range(1, 5), 4, 32, np.int32),
            ("b.npy", None, 6, range(1, 6), 1, 8, np.int64),
        ]:
            with self.subTest(name, key=key, hidden=hidden, experts=experts, dtype=dtype):
                ids = self.ids(150, len(layers), k, experts)
                path = self.write(name, self.filled(ids, hidden, layers, 0, dtype), key)
                self.assert_read(path, truth_of_ids(ids, experts, list(layers)))
        for name, key, absent in [
            ("d.npz", "routed_experts", 0),
            ("d.npy", None, 0),
            ("e.npy", None, -1),
            ("f.npy", None, 255),
        ]:
            with self.subTest("tokens without experts besides", name=name, absent=absent):
                ids = self.ids(120, 6, 4, 32)
                array = self.filled(ids, 8, range(2, 8), 0, np.int16)
                array[100:], ids[100:] = absent, -1
                self.assert_read(self.write(name, array, key), truth_of_ids(ids, 32, list(range(2, 8))))

    def test_the_largest_number_of_an_unsigned_type_is_no_expert(self):
        with self.subTest("collected"):
            path = self.case("B09_routed_experts/filled_with_255_uint8.npy")
            ids = np.load(path).astype(int)
            ids[ids == 255] = -1
            self.assert_asked(path, "tokens,layers,k: 6 layers of 64 experts, 54 tokens, top-8")
            self.assert_read(path, truth_of_ids(ids, 64), axes="tokens,layers,k")
            self.assert_noted(path, "id 255 fills", axes="tokens,layers,k")
        for name, key, experts, k, dtype, fill in [
            ("a.npy", None, 60, 4, np.uint8, 255),
            ("a.npz", "routed_experts", 60, 4, np.uint8, 255),
            ("b.npz", "topk_ids", 60, 4, np.uint8, 255),
            ("a.safetensors", "routed_experts", 64, 6, np.int32, 255),
            ("a.pt", None, 128, 8, np.int16, 255),
            ("c.npy", None, 160, 8, np.uint16, 65535),
            ("d.npy", None, 64, 8, np.int64, 65535),
            ("e.npy", None, 64, 8, np.uint32, 2**32 - 1),
        ]:
            ids = self.ids(150, 5, k, experts)
            for where, absent in [
                ("tokens", np.broadcast_to(np.arange(150)[:, None, None] % 7 == 3, ids.shape)),
                ("layers of tokens", np.broadcast_to(self.draw.random((150, 5, 1)) < 0.2, ids.shape)),
                ("single places", self.draw.random(ids.shape) < 0.1),
            ]:
                with self.subTest(where, name=name, key=key, experts=experts, dtype=dtype, fill=fill):
                    path = self.write(name, np.where(absent, fill, ids).astype(dtype), key)
                    truth = truth_of_ids(np.where(absent, -1, ids), experts)
                    self.assert_read(path, truth)
                    self.assert_noted(path, f"id {fill} fills")
        for where, absent in [
            ("the last 2 of 8 places", np.broadcast_to(np.arange(8) >= 6, (150, 4, 8))),
            ("single places", self.draw.random((150, 4, 8)) < 0.1),
            ("once a token", np.broadcast_to(np.arange(8) == 7, (150, 4, 8))),
        ]:
            with self.subTest(where, beside="ids near to it"):
                ids = np.where(absent, -1, self.ids(150, 4, 8, 160))
                path = self.write("f.npy", np.where(ids < 0, 255, ids).astype(np.uint8))
                said = {"axes": "tokens,layers,k"}
                for error in (
                    self.refusal("profile", path, *as_words(said)),
                    self.refusal_of_python(ek.RoutingProfile, path, **said),
                ):
                    self.assertEqual(error[0], "InvalidArgument")
                    self.assertIn("id 255", error[1])
                self.assert_read(path, truth_of_ids(ids, 160), num_experts=160)
        with self.subTest("tokens, beside ids near to it; the number of experts is said"):
            ids = self.ids(150, 3, 6, 160)
            ids[::7] = -1
            path = self.write("h.npy", np.where(ids < 0, 255, ids).astype(np.uint8))
            self.assert_read(path, truth_of_ids(ids, 160), num_experts=160)
        with self.subTest("an expert of a model with 256"):
            ids = self.ids(200, 3, 8, 256)
            self.assert_read(self.write("i.npy", ids.astype(np.uint8)), truth_of_ids(ids, 256))


class Counts(KindsTest):
    def test_a_matrix_of_counts_has_a_row_for_every_layer(self):
        with self.subTest("collected"):
            path = self.case("B18_weight_matrix/weight_58x256.npy")
            counts = np.load(path)
            self.assertEqual(counts.shape, (58, 256))
            self.assert_asked(path, "layers,experts: 58 layers of 256 experts")
            said = {"axes": "layers,experts"}
            self.assert_read(path, Truth(counts), ranks=8, **said)
            self.assert_read(path, Truth(counts, list(range(3, 61))), ranks=8, layers=list(range(3, 61)), **said)
        for name, key, layers, experts, most, dtype in [
            ("a.npy", None, 48, 128, 3000, np.int32),
            ("b.npy", None, 12, 8, 90000, np.int64),
            ("c.npy", None, 16, 64, 100000, np.float32),
            ("d.npy", None, 1, 256, 100, np.uint16),
            ("a.npz", "weight", 24, 60, 250, np.uint8),
            ("b.npz", None, 6, 160, 9999, np.float64),
            ("a.safetensors", "weight", 4, 16, 100, np.int32),
            ("b.safetensors", "any", 6, 96, 100, np.int16),
            ("a.pt", None, 5, 72, 2000, np.int64),
            ("b.pt", "weight", 5, 8, 2000, np.int32),
            ("a.json", None, 3, 12, 200, np.int64),
            ("b.json", "weight", 3, 12, 200, np.int64),
            ("a.csv", None, 3, 12, 200, np.int64),
        ]:
            with self.subTest(name, key=key, layers=layers, experts=experts, dtype=dtype):
                counts = self.loads(layers, experts, most - 1)
                self.assert_read(self.write(name, counts.astype(dtype), key), Truth(counts))
        with self.subTest("rows of dense layers"):
            counts = np.zeros((20, 96), int)
            counts[3:] = self.loads(17, 96)
            self.assert_read(self.write("e.npy", counts), truth_of_hidden(counts))
        with self.subTest("the short form"):
            counts = self.loads(6, 8)
            self.assert_read(self.write("f.npy", counts), Truth(counts), as_="counts")

    def test_a_window_of_steps_is_added_up(self):
        with self.subTest("collected"):
            path = self.case("B18_weight_matrix/steps_3d.npy")
            counts = np.load(path)
            self.assertEqual(counts.shape, (3, 58, 256))
            self.assert_asked(path, "steps,layers,experts: 3 steps of 58 layers of 256 experts")
            said = {"axes": "steps,layers,experts"}
            self.assert_read(path, Truth(counts.sum(axis=0)), ranks=8, **said)
            self.assert_read(path, Truth(counts.sum(axis=0), list(range(58))), ranks=8, layers=list(range(58)), **said)
        for name, key, steps, layers, experts, dtype in [
            ("a.npy", None, 5, 12, 128, np.int32),
            ("b.npy", None, 1, 26, 72, np.int64),
            ("a.npz", "expert_load", 4, 6, 8, np.int64),
            ("b.npz", None, 30, 4, 96, np.uint16),
            ("a.safetensors", "counts", 3, 6, 16, np.int32),
            ("a.pt", None, 3, 5, 80, np.int64),
            ("a.json", "logical_count", 2, 3, 12, np.int64),
        ]:
            with self.subTest(name, key=key, steps=steps, layers=layers, experts=experts, dtype=dtype):
                window = self.loads(steps * layers, experts).reshape(steps, layers, experts)
                self.assert_read(self.write(name, window.astype(dtype), key), Truth(window.sum(axis=0)))
        for dense in (0, 2):
            with self.subTest("every step has equally many tokens", dense=dense):
                window = self.draw.multinomial(128, [0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05], (10, 24))
                window[:, :dense] = 0
                truth = truth_of_hidden(window.sum(axis=0))
                path = self.write("c.npy", window)
                self.assert_read(path, truth if dense else Truth(truth.loads))
        with self.subTest("the short form"):
            window = self.draw.integers(1, 30, (60, 4, 8))
            self.assert_read(self.write("d.npy", window), Truth(window.sum(axis=0)), as_="counts")

    def assert_balanced(self, path, ranks, **said):
        """Balance alone decides, and both say that traffic is not known."""
        placed = self.call("place", path, *as_words(said), "--ranks", ranks)
        by_python = ek.place(ek.RoutingProfile(path, **said), ranks=ranks)
        self.assertEqual((list(placed["objective"]), list(by_python.objective)), (["balance"], ["balance"]))
        for after in (placed["after"], vars(by_python.after)):
            for figure in ("crossing", "total", "worst_pair"):
                self.assertIsNone(after[figure])
        for notes in (placed["after"]["notes"], by_python.notes):
            self.assertTrue(any("traffic is not known" in note for note in notes), notes)

    def test_counts_alone_are_placed_by_balance_and_traffic_is_said_to_be_unknown(self):
        with self.subTest("collected"):
            path = self.case("B16_counts/plain.csv")
            self.assert_read(path, Truth(np.loadtxt(path, int, delimiter=",")), ranks=4, axes="layers,experts")
            self.assert_balanced(path, 4, axes="layers,experts")
        for name, said in [
            ("B12_trt_stats/whole", {}),
            ("B11_vllm_stats/eplb_data.jsonl", {}),
            ("B01_sglang_long_csv/expert_distribution_rank0_timestamp1.csv", {}),
            ("B16_counts/ema_float32.npy", {"as_": "counts"}),
            ("B18_weight_matrix/steps_3d.npy", {"as_": "counts"}),
            ("F12_deepseek_shape", {}),
        ]:
            with self.subTest("collected", name=name):
                self.assert_balanced(self.case(name), 2, **said)
        counts = self.loads(4, 96)
        for name, key in [("a.csv", None), ("a.npy", None), ("a.npz", "counts"), ("a.pt", None), ("a.json", None)]:
            with self.subTest(name):
                path = self.write(name, counts, key)
                self.assert_read(path, Truth(counts), ranks=4)
                self.assert_balanced(path, 4, **({} if key else {"axes": "layers,experts"}))
        with self.subTest("TensorRT-LLM's statistics"):
            path = self.folder / "rank0.safetensors"
            path.write_bytes(safetensors({f"7_{n}": tensor(row) for n, row in enumerate(counts, 3)}))
            self.assert_read(path, Truth(counts, [3, 4, 5, 6]), ranks=4)
            self.assert_balanced(path, 4)
        with self.subTest("vLLM's statistics"):
            record = {"record_type": "eplb_load_stats", "version": 1, "step": 1, "num_ranks": 4}
            record |= {"expert_load": counts.tolist(), "p2l_map": [list(range(96))] * 4}
            (self.folder / "stats.jsonl").write_text(json.dumps(record) + "\n")
            self.assert_read(self.folder / "stats.jsonl", Truth(counts), ranks=4)
            self.assert_balanced(self.folder / "stats.jsonl", 4)

    def test_averages_are_loads_of_which_ratios_matter(self):
        with self.subTest("collected"):
            path = self.case("B16_counts/ema_float32.npy")
            said = {"axes": "layers,experts"}
            self.assert_read(path, Truth(np.load(path).astype(float), only_ratios=True), ranks=4, **said)
            self.assert_noted(path, "not whole numbers are scaled", **said)
        for name, key, shape, most, dtype in [
            ("a.npy", None, (6, 32), 100, np.float16),
            ("b.npy", None, (8, 256), 1e9, np.float32),
            ("c.npy", None, (5, 10), 1e-6, np.float64),
            ("a.npz", "counts", (6, 12), 1, np.float32),
            ("b.npz", None, (3, 6, 8), 50, np.float32),
            ("a.safetensors", "expert_load", (6, 12), 1, np.float32),
            ("a.pt", None, (6, 12), 1, np.float32),
            ("a.csv", None, (6, 12), 1, np.float64),
            ("a.json", None, (6, 12), 1, np.float64),
        ]:
            with self.subTest(name, key=key, shape=shape, most=most, dtype=dtype):
                averages = (self.draw.random(shape) * most).astype(dtype)
                steps = averages.astype(float).reshape(-1, *shape[-2:])
                self.assert_read(self.write(name, averages, key), Truth(steps.sum(axis=0), only_ratios=True))


class Placements(KindsTest):
    def test_tensorrt_llm_s_map_is_read_in_flow_style_and_as_json(self):
        for name in ("trt_pyyaml_all_flow.yaml", "trt_as_json.yaml"):
            with self.subTest("collected", name=name):
                path = self.case(f"C_placements/{name}")
                rows = json.loads(re.sub(r'"?(\w+)"?:', r'"\1":', path.read_text()))["initial_global_assignments"]
                self.assertEqual(list(rows), ["1", "2", "3"])
                self.assert_placement(path, list(rows.values()), 8, [1, 2, 3])

        def flow(value):
            text = re.sub(r'"(\w+)":', r"\1:", json.dumps(value))
            return textwrap.fill(text, 80, subsequent_indent="  ", break_long_words=False)

        def inside(value):
            return {"backend": "pytorch", "moe_config": {"backend": "WIDEEP", "load_balancer": value}}

        numbers = [9, 10, 12, 100]
        for experts, copies, ranks in [(12, 4, 4), (72, 8, 8), (10, 2, 2)]:
            rows = self.slot_rows(4, experts, copies, ranks)
            by_number = {number: row.tolist() for number, row in zip(numbers, rows, strict=True)}
            turned = dict(reversed(by_number.items()))
            for name, write, assignments in [
                ("flow", flow, by_number),
                ("JSON", json.dumps, by_number),
                ("indented JSON", lambda value: json.dumps(value, indent=2), by_number),
                ("flow, last layer first", flow, turned),
                ("JSON, last layer first", json.dumps, turned),
                ("flow inside of options", lambda value: flow(inside(value)), by_number),
                ("JSON inside of options", lambda value: json.dumps(inside(value)), by_number),
            ]:
                with self.subTest(name, experts=experts, copies=copies, ranks=ranks):
                    path = self.folder / "map.yaml"
                    about = {"num_slots": experts + copies, "layer_updates_per_iter": 3}
                    path.write_text(write({"initial_global_assignments": assignments} | about))
                    self.assert_placement(path, rows, ranks, numbers)
                    self.assertEqual(self.json_of("o.json")["layer_updates_per_iter"], 3)

    def test_sglang_s_initial_locations_in_a_torch_file_are_a_placement(self):
        with self.subTest("collected"):
            path = self.case("B02_sglang_pt/init_expert_location.pt")
            rows = stored_tensor(path, "<i8").reshape(5, 24)
            self.assert_placement(path, rows, 4, list(range(5)))
            self.assert_placement(path, rows[1:], 4, [1, 2, 3, 4], layers=[1, 2, 3, 4])
            for error in (self.refusal("profile", path), self.refusal_of_python(ek.RoutingProfile, path)):
                self.assertIn("is a placement, not routing", error[1])
        for hidden, numbers, experts, copies, ranks, dtype in [
            (61, list(range(3, 61)), 64, 8, 8, np.int64),
            (8, [1, 3, 5, 7], 16, 8, 4, np.int32),
            (6, list(range(6)), 10, 2, 4, np.int16),
        ]:
            with self.subTest(hidden=hidden, experts=experts, copies=copies, ranks=ranks, dtype=dtype):
                rows = np.tile(np.arange(experts + copies) % experts, (hidden, 1))
                rows[numbers] = self.slot_rows(len(numbers), experts, copies, ranks)
                path = self.write("map.pt", rows.astype(dtype), "physical_to_logical_map")
                self.assert_placement(path, rows[numbers], ranks, numbers, layers=numbers)

    def test_a_map_without_a_name_is_asked_about_and_never_counted(self):
        with self.subTest("collected"):
            path = self.case("C_placements/phy2log_tensor.pt")
            self.assert_asked(path, "physical_to_logical_map")
            rows = stored_tensor(path, "<i8").reshape(2, 6)
            self.assert_read(path, Truth(rows), as_="counts")
        for layers, experts, copies, ranks, dtype in [
            (58, 256, 32, 8, np.int64),
            (26, 64, 0, 4, np.int32),
            (3, 12, 4, 4, np.int16),
            (1, 16, 0, 4, np.int64),
        ]:
            rows = self.slot_rows(layers, experts, copies, ranks).astype(dtype)
            for name in ("map.pt", "map.npy", "map.npz", "map.safetensors", "map.json", "map.csv"):
                with self.subTest(name, layers=layers, experts=experts, copies=copies, dtype=dtype):
                    path = self.write(name, rows)
                    self.assert_asked(path, "physical_to_logical_map")
                    with self.assertRaises(ek.ParseError):
                        ek.Placement.load(path, num_ranks=ranks)
            with self.subTest("named, as was asked for", layers=layers, experts=experts, copies=copies):
                path = self.write("named.json", rows, "physical_to_logical_map")
                self.assert_placement(path, rows, ranks, list(range(layers)))

    def test_a_map_of_vllm_ascend_whose_labels_are_not_their_places_is_refused(self):
        with self.subTest("collected"):
            path = self.case("C_placements/ascend_layers_out_of_order.json")
            self.assert_no_placement(path, 2, "layer_list[1].layer_id", "is 0")
        for labels, ranks, experts, copies, said in [
            ([2, 1, 0], 4, 16, 0, "layer_list[1].layer_id"),
            ([0, 2, 1], 4, 10, 2, "layer_list[1].layer_id"),
            ([0, 0, 1], 2, 8, 0, "layer_list[1].layer_id"),
            ([3, 5, 4], 4, 12, 4, "layer_list[1].layer_id"),
            ([0, 1, 3], 4, 16, 0, "layer_list[2].layer_id"),
            ([0, 1, 2], 4, 16, 4, None),
            ([3, 4, 5], 2, 6, 2, None),
        ]:
            with self.subTest(labels=labels, ranks=ranks, experts=experts, copies=copies):
                rows = self.slot_rows(3, experts, copies, ranks)
                layer_list = []
                for label, row in zip(labels, rows.reshape(3, ranks, -1).tolist(), strict=True):
                    devices = [{"device_id": i, "device_expert": of_device} for i, of_device in enumerate(row)]
                    layer_list.append({"layer_id": label, "device_count": ranks, "device_list": devices})
                path = self.folder / "map.json"
                path.write_text(json.dumps({"moe_layer_count": 3, "layer_list": layer_list}))
                if said:
                    self.assert_no_placement(path, ranks, said)
                else:
                    self.assert_placement(path, rows, ranks, labels if labels[0] else None)

    def test_ranks_with_unequal_numbers_of_experts_are_told_the_copies_that_make_them_equal(self):
        for name, ranks in [("A_eplb/n10.npz", 4), ("A_eplb/hot_256.npz", 3)]:
            with self.subTest("collected", name=name):
                path = self.case(name)
                with np.load(path) as file:
                    counts = file["counts"]
                self.assert_read(path, Truth(counts), ranks=2)
                self.assert_uneven(path, counts, ranks, copies=0, lacking=2)
                self.assert_uneven(path, counts, ranks, copies=1, lacking=1)
        for layers, experts, ranks, copies in [(3, 60, 8, 0), (2, 160, 48, 0), (1, 64, 24, 3), (3, 7, 2, 0)]:
            with self.subTest(layers=layers, experts=experts, ranks=ranks, copies=copies):
                counts = self.loads(layers, experts)
                path = self.write("counts.npz", counts, "counts")
                self.assert_uneven(path, counts, ranks, copies, lacking=-(experts + copies) % ranks)

    def assert_uneven(self, path, counts, ranks, copies, lacking):
        """Every way to a server's file names the copies that lack, and with them it is written."""
        numbers = list(range(1, 1 + len(counts)))
        words = ["place", path, *as_words({"layers": numbers}), "--ranks", ranks]
        self.call(*words, "--redundant-experts", copies, "-o", "ours.json")
        profile = ek.RoutingProfile(path, layers=numbers)
        placed = ek.place(profile, ranks=ranks, redundant_experts=copies)
        even = ek.place(profile, ranks=ranks, redundant_experts=copies + lacking)
        for server, ending in ENDINGS.items():
            file = self.folder / f"{server}.{ending}"
            written = ["--format", server, "-o", file.name]
            error = self.refusal(*words, "--redundant-experts", copies, *written)
            self.assertEqual(error[0], "Unsupported")
            self.assertRegex(error[1], rf"\b{lacking} more redundant experts? makes? it even")
            for error in (
                self.refusal("convert", "ours.json", file.name, "--to", server),
                self.refusal_of_python(placed.save, file, format=server),
            ):
                self.assertEqual(error[0], "Unsupported")
                self.assertRegex(error[1], rf"\b{copies + lacking} redundant experts?, which makes? it even")
            self.assertFalse(file.exists())
            self.call(*words, "--redundant-experts", copies + lacking, *written)
            even.save(file, format=server)
            file.unlink()


if __name__ == "__main__":
    unittest.main()
