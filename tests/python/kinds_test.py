"""Files as people's tools really write them are read right: loads and layer numbers are those that numpy counts.

Collected files, which their README lists, and arrays that are made here of many sizes, types and containers. That every
command reads a file as Python does is shapes_test.py's.
"""

import json
import re
import struct
import unittest
import zipfile

import numpy as np
from support import PackageTest
from tensor_files import Tensor, safetensors, torch_file

import evenkeel as ek

OF_TRACE = {"axes": "tokens,layers,k"}
OF_COUNTS = {"axes": "layers,experts"}
OF_STEPS = {"axes": "steps,layers,experts"}


def stored_tensor(path, dtype):
    """The numbers of a file of torch.save that has one tensor."""
    with zipfile.ZipFile(path) as archive:
        name = next(name for name in archive.namelist() if name.endswith("/data/0"))
        return np.frombuffer(archive.read(name), dtype)


def stored_counts(path):
    """The arrays of a safetensors file of int32, by name."""
    content = path.read_bytes()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    offsets = {name: about["data_offsets"] for name, about in json.loads(content[8:begin]).items()}
    return {name: np.frombuffer(content[begin + a : begin + b], "<i4") for name, (a, b) in offsets.items()}


def loads_of(ids, experts):
    """Of [tokens, layers, k], -1: no expert."""
    return np.array([np.bincount(layer[layer >= 0], minlength=experts) for layer in ids.swapaxes(0, 1)])


def with_numbers(counts):
    """Of [hidden layers, E], where dense layers have no counts: the loads, and the numbers of their layers."""
    layers = np.flatnonzero(counts.any(axis=1))
    return counts[layers], layers.tolist()


class KindsTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.draw = np.random.default_rng(1)

    def write(self, name, array, key=None):
        """An array alone or under a key, in the container that the name ends in."""
        path = self.folder / name
        if path.suffix == ".npy":
            np.save(path, array)
        elif path.suffix == ".npz":
            np.savez(path, **{key or "arr_0": array})
        elif path.suffix == ".safetensors":
            path.write_bytes(safetensors({key or "array": Tensor.of(array)}))
        else:
            path.write_bytes(torch_file({key: Tensor.of(array)}))
        return path

    def loads(self, layers, experts, most=1000):
        """Counts with a few hot experts, which are others in every layer; none is 0."""
        return (1 + self.draw.random((layers, experts)) ** 4 * most).astype(int)

    def ids(self, tokens, layers, k, experts):
        """Distinct experts in every token; the last expert is chosen somewhere."""
        ids = np.argsort(self.draw.random((tokens, layers, experts)), axis=2)[:, :, :k]
        ids[0, 0] = range(experts - k, experts)
        return ids

    def assert_read(self, path, loads, numbers=None, note="", **said):
        profile = ek.RoutingProfile(path, **said)
        np.testing.assert_array_equal(profile.loads, loads)
        self.assertEqual(profile.layers, numbers)
        self.assertIn(note, "\n".join(profile.notes))

    def assert_asked(self, path, *parts):
        error = self.assert_raises(ek.InvalidArgument, "nobody says what its", ek.RoutingProfile, path)
        for part in parts:
            self.assertIn(part, str(error))


class CollectedRecordings(KindsTest):
    def test_of_sglang_are_of_the_hidden_layers_that_have_any_counts(self):
        path = self.case("F12_deepseek_shape/expert_distribution_recorder_1.0.pt")
        counts, layers = with_numbers(stored_tensor(path, "<i4").reshape(61, 256))
        self.assertEqual(layers, list(range(3, 61)))
        for each in (path, path.parent):
            self.assert_read(each, counts, layers)

    def test_of_tensorrt_llm_are_of_the_layers_that_their_names_say(self):
        folder = self.case("B12_trt_stats/whole")
        counts = np.zeros((2, 8), int)
        for rank in (0, 1):
            for name, of_layer in stored_counts(folder / f"rank{rank}.safetensors").items():
                counts[int(name.split("_")[1]) - 3] += of_layer
        self.assert_read(folder, counts, [3, 4])

    def test_of_a_line_for_each_expert_are_0_where_there_is_no_line(self):
        path = self.case("B01_sglang_long_csv/expert_distribution_rank0_timestamp1.csv")
        counts = np.zeros((5, 8), int)
        for layer, expert, count in np.loadtxt(path, int, delimiter=",", skiprows=1):
            counts[layer, expert] = count
        self.assert_read(path, counts[3:], [3, 4])

    def test_of_several_columns_of_counts_are_those_of_all_choices(self):
        path = self.case("B01_sglang_long_csv/with_ratios.csv")
        self.assert_read(path, np.loadtxt(path, delimiter=",", skiprows=1)[:, 2][None], [3])

    def test_of_vllm_are_added_to_the_experts_that_their_map_names(self):
        path = self.case("B11_vllm_stats/eplb_data.jsonl")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        loads = np.zeros(np.shape(records[0]["expert_load"]), int)
        for record in records:
            np.add.at(loads, (np.arange(len(loads))[:, None], record["p2l_map"]), record["expert_load"])
        self.assert_read(path, loads)
        layers = [2 * row + 1 for row in range(len(loads))]
        self.assert_read(path, loads, layers, layers=layers)


class Ids(KindsTest):
    def test_collected_ones_in_each_order_are_asked_about(self):
        for name, axes, turn in [
            ("tokens_k_layers.npy", "tokens,k,layers", (0, 2, 1)),
            ("layers_tokens_k.npy", "layers,tokens,k", (1, 0, 2)),
        ]:
            with self.subTest(name):
                path = self.case(f"G_axes/{name}")
                ids = np.load(path).transpose(turn)
                self.assert_asked(path, f"{axes}: 16 layers of 64 experts, {len(ids)} tokens, top-8")
                self.assert_read(path, loads_of(ids, 64), axes=axes)

    def test_layers_of_nothing_but_one_id_are_dense(self):
        with self.subTest("collected"):
            path = self.case("B09_routed_experts/dense_layers_as_zero.npy")
            loads = loads_of(np.load(path)[:, 2:].astype(int), 64)
            self.assert_asked(path, "tokens,layers,k: 8 layers of 64 experts, 54 tokens, top-8")
            self.assert_read(path, loads, list(range(2, 8)), "layers 0-1 hold one id throughout", **OF_TRACE)
        for name, key, tokens, hidden, layers, k, experts, dtype in [
            ("a.npz", "routed_experts", 150, 12, [1, 3, 5, 7, 9, 11], 2, 16, np.int16),
            ("c.npy", None, 1, 6, range(2, 6), 4, 31, np.int16),  # one token tells as much
        ]:
            with self.subTest(name, key=key, tokens=tokens, hidden=hidden, experts=experts, dtype=dtype):
                ids = self.ids(tokens, len(layers), k, experts)
                array = np.zeros((tokens, hidden, k), dtype)
                array[:, layers] = ids
                said = {} if key else OF_TRACE
                self.assert_read(self.write(name, array, key), loads_of(ids, experts), list(layers), "dense", **said)

    def test_rows_of_one_id_are_tokens_absent_from_a_layer(self):
        for k, filler in [(8, 0), (4, 3), (2, 5), (4, 31)]:  # 31 is no expert: it only fills rows
            with self.subTest(k=k, filler=filler):
                ids = self.ids(90, 4, k, 31).reshape(-1, k)
                rows = [7, 8, 40, 101, 333]
                filled = ids.copy()
                filled[rows], ids[rows] = filler, -1
                path = self.write("r.npy", filled.reshape(90, 4, k).astype(np.int16))
                note = f"id {filler} stands {k} times in 5 rows"
                self.assert_read(path, loads_of(ids.reshape(90, 4, k), 31), note=note, **OF_TRACE)
        for key, absent in [("routed_experts", 0), (None, 0), (None, -1), (None, 255)]:
            with self.subTest("beside dense layers", key=key, absent=absent):
                ids = self.ids(120, 6, 4, 32)
                ids[100:] = -1
                array = np.zeros((120, 8, 4), np.int16)
                array[:, 2:] = ids
                array[100:] = absent
                path = self.write("d.npz", array, key)
                self.assert_read(path, loads_of(ids, 32), list(range(2, 8)), **({} if key else OF_TRACE))

    def test_the_largest_number_of_an_unsigned_type_is_no_expert(self):
        with self.subTest("collected"):
            path = self.case("B09_routed_experts/filled_with_255_uint8.npy")
            ids = np.load(path).astype(int)
            ids[ids == 255] = -1
            self.assert_asked(path, "tokens,layers,k: 6 layers of 64 experts, 54 tokens, top-8")
            self.assert_read(path, loads_of(ids, 64), note="id 255 fills", **OF_TRACE)
        for name, key, experts, k, dtype, fill in [
            ("b.npz", "topk_ids", 60, 4, np.uint8, 255),
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
                    loads = loads_of(np.where(absent, -1, ids), experts)
                    self.assert_read(path, loads, note=f"id {fill} fills", **({} if key else OF_TRACE))

    def test_a_filler_that_may_be_an_expert_is_asked_about(self):
        for where, absent in [
            ("the last 2 of 8 places", np.arange(8) >= 6),
            ("single places", self.draw.random((150, 4, 8)) < 0.1),
            ("once a token", np.arange(8) == 7),
        ]:
            with self.subTest(where):
                ids = np.where(absent, -1, self.ids(150, 4, 8, 160))
                path = self.write("f.npy", np.where(ids < 0, 255, ids).astype(np.uint8))
                message = f"num_experts: {path}: id 255 stands beside ids up to 159"
                self.assert_raises(ek.InvalidArgument, message, ek.RoutingProfile, path, **OF_TRACE)
                self.assert_read(path, loads_of(ids, 160), num_experts=160, **OF_TRACE)
        ids = self.ids(200, 3, 8, 256)  # of a model that has as many
        self.assert_read(self.write("i.npy", ids.astype(np.uint8)), loads_of(ids, 256), **OF_TRACE)

    def test_two_fillers_are_asked_about_and_told(self):
        chosen = self.ids(80, 3, 6, 60)
        chosen[:, :, 4:] = -1
        in_places, rows, token = (chosen.copy() for _ in range(3))
        in_places[0, 0, 0] = in_places[3, 1, 1] = -2  # in rows that have the other one too
        rows[0, 2] = rows[3, 1] = -2
        token[5] = -2
        for where, ids in [("places", in_places), ("rows", rows), ("token", token)]:
            with self.subTest(where):
                array = np.where(ids == -1, 65535, np.where(ids == -2, 255, ids)).astype(np.uint16)
                path = self.write("r.npy", array)
                message = "id 255 stands beside ids up to 59 and 65535, which fills"
                error = self.assert_raises(ek.InvalidArgument, message, ek.RoutingProfile, path, **OF_TRACE)
                self.assertIn("256 or more if it is an expert, 60..255 if it fills", str(error))
                for told in [60, 64, 255]:
                    for fill in (255, 65535):
                        note = f"id {fill} fills"
                        self.assert_read(path, loads_of(ids, told), note=note, num_experts=told, **OF_TRACE)
                self.assertEqual(ek.RoutingProfile(path, num_experts=256, **OF_TRACE).num_experts, 256)

    def test_ids_that_repeat_by_themselves_stand_by_the_name_topk_ids(self):
        ids = np.array([(i * i + i // 7) % 5 for i in range(400 * 3 * 2)]).reshape(400, 3, 2)
        path = self.write("r.npy", ids)  # many a token has one id twice, of any id
        message = "rows name one id 2 times, 0 or 4, which no router does"
        self.assert_raises(ek.InvalidArgument, message, ek.RoutingProfile, path, **OF_TRACE)
        path = self.write("r.safetensors", ids, "topk_ids")
        self.assert_read(path, loads_of(ids, 5), note="which no router chooses: read as they stand")


class Counts(KindsTest):
    def test_a_matrix_of_counts_has_a_row_for_every_layer(self):
        with self.subTest("collected"):
            path = self.case("B18_weight_matrix/weight_58x256.npy")
            self.assert_asked(path, "layers,experts: 58 layers of 256 experts")
            layers = list(range(3, 61))
            self.assert_read(path, np.load(path), layers, layers=layers, **OF_COUNTS)
        with self.subTest("collected, as text"):
            path = self.case("B16_counts/plain.csv")
            self.assert_read(path, np.loadtxt(path, int, delimiter=","), **OF_COUNTS)
        with self.subTest("rows of dense layers"):
            counts = np.zeros((20, 96), int)
            counts[3:] = self.loads(17, 96)
            self.assert_read(self.write("e.npy", counts), counts[3:], list(range(3, 20)), as_="counts")

    def test_a_window_of_steps_is_added_up(self):
        with self.subTest("collected"):
            path = self.case("B18_weight_matrix/steps_3d.npy")
            self.assert_asked(path, "steps,layers,experts: 3 steps of 58 layers of 256 experts")
            self.assert_read(path, np.load(path).sum(axis=0), **OF_STEPS)
        for dense in (0, 2):
            with self.subTest("every step has equally many tokens", dense=dense):
                window = self.draw.multinomial(128, [0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05], (10, 24))
                window[:, :dense] = 0
                layers = list(range(dense, 24)) if dense else None
                self.assert_read(self.write("c.npy", window), window[:, dense:].sum(axis=0), layers, as_="counts")

    def test_of_ranks_and_their_experts(self):
        path = self.case("G_axes/layers_ranks_local.npy")
        self.assert_asked(path, "layers,ranks,experts: 26 layers of 64 experts on 4 ranks")
        self.assert_read(path, np.load(path).reshape(26, 64), axes="layers,ranks,experts")

    def test_averages_are_loads_of_which_ratios_matter(self):
        path = self.case("B16_counts/ema_float32.npy")
        averages, profile = np.load(path).astype(float), ek.RoutingProfile(path, **OF_COUNTS)
        shares = profile.loads / profile.loads.sum()
        np.testing.assert_allclose(shares, averages / averages.sum(), rtol=1e-6, atol=1e-12)
        self.assertIn("not whole numbers are scaled", "\n".join(profile.notes))

    def test_probabilities_are_no_counts(self):
        path = self.case("G_axes/router_probabilities_L_T_E.npy")
        for said in ({}, {"as_": "counts"}, {"axes": "layers,ranks,experts"}):
            self.assert_raises(ek.ParseError, "probabilities of tokens, not counts", ek.RoutingProfile, path, **said)

    def test_names_whose_numbers_lie_in_another_order_are_asked_about(self):
        ids = self.write("r.safetensors", self.ids(400, 3, 4, 16).transpose(1, 0, 2), "routed_experts")
        error = self.assert_raises(ek.InvalidArgument, "400 layers", ek.RoutingProfile, ids)
        self.assertIn("layers,tokens,k", str(error))
        counts = self.write("c.safetensors", self.loads(600, 65).reshape(2, 300, 65), "counts")
        self.assert_raises(ek.InvalidArgument, "300 layers", ek.RoutingProfile, counts)


class ColumnsOfTables(KindsTest):
    def test_collected_lines_of_a_layer_and_ids(self):
        path = self.case("G_axes/token_layer_ids_without_header.csv")
        lines = np.loadtxt(path, int, delimiter=",")
        self.assert_asked(path, "or columns layer,k...: ")
        layers = np.unique(lines[:, 0]).tolist()
        loads = [np.bincount(lines[lines[:, 0] == n, 1], minlength=16) for n in layers]
        self.assert_read(path, loads, layers, columns="layer,k...")

    def test_collected_records_of_a_layer_and_ids(self):
        path = self.case("G_axes/layer_then_ids.json")
        records = np.array(json.loads(path.read_text()))
        self.assert_asked(path, "layer,k...: 6 layers")
        loads = loads_of(records[:, 1:].reshape(-1, 6, records.shape[1] - 1), 32)
        self.assert_read(path, loads, list(range(6)), columns="layer,k...")

    def test_a_first_column_that_counts_may_be_the_layer(self):
        path = self.folder / "c.csv"
        path.write_text("".join(f"{n},{n * 7 % 5},{n * 3 % 4 + 1}\n" for n in range(3, 9)))
        self.assert_asked(path, "layer,experts...: 6 layers of 2 experts")
        # Its name may say that MoE layers are counted; which of the model's they are says an option.
        path.write_text(
            "moe_layer,expert,count\n" + "".join(f"{n},{e},{n + e + 1}\n" for n in range(3) for e in range(4))
        )
        self.assert_read(path, [[n + e + 1 for e in range(4)] for n in range(3)], [1, 3, 5], layers=[1, 3, 5])


class Placements(KindsTest):
    def assert_placement(self, path, rows, ranks, numbers, **said):
        """These rows of physical experts; those of a rank in any order."""
        placement = ek.Placement.load(path, num_ranks=ranks, **said)
        self.assertEqual(placement.layers, numbers)
        read, expected = (
            np.sort(np.reshape(each, (len(rows), ranks, -1)), axis=2) for each in (placement.physical_to_logical, rows)
        )
        np.testing.assert_array_equal(read, expected)

    def test_tensorrt_llm_s_map_is_read_in_flow_style_and_as_json(self):
        for name in ("trt_pyyaml_all_flow.yaml", "trt_as_json.yaml"):
            with self.subTest(name):
                path = self.case(f"C_placements/{name}")
                rows = json.loads(re.sub(r'"?(\w+)"?:', r'"\1":', path.read_text()))["initial_global_assignments"]
                self.assertEqual(list(rows), ["1", "2", "3"])
                self.assert_placement(path, list(rows.values()), 8, [1, 2, 3])

    def test_sglang_s_initial_locations_in_a_torch_file_are_a_placement(self):
        path = self.case("B02_sglang_pt/init_expert_location.pt")
        rows = stored_tensor(path, "<i8").reshape(5, 24)
        self.assert_placement(path, rows, 4, list(range(5)))
        self.assert_placement(path, rows[1:], 4, [1, 2, 3, 4], layers=[1, 2, 3, 4])
        self.assert_raises(ek.ParseError, "is a placement, not routing", ek.RoutingProfile, path)

    def test_a_map_without_a_name_is_asked_about_and_never_counted(self):
        with self.subTest("collected"):
            path = self.case("C_placements/phy2log_tensor.pt")
            self.assert_asked(path, "physical_to_logical_map")
            self.assert_read(path, stored_tensor(path, "<i8").reshape(2, 6), as_="counts")
        path = self.folder / "list.pt"
        path.write_bytes(torch_file({"physical_to_logical_map": [1, 2]}))
        self.assert_raises(ek.ParseError, "not a tensor", ek.Placement.load, path, num_ranks=2)
        rows = np.stack([np.roll(np.append(np.arange(12), np.arange(4)), layer) for layer in range(3)])
        named = self.write("named.pt", rows, "physical_to_logical_map")
        self.assert_placement(named, rows, 4, [0, 1, 2])

    def test_a_map_of_vllm_ascend_whose_labels_are_not_their_places_is_refused(self):
        path = self.case("C_placements/ascend_layers_out_of_order.json")
        message = "layer_list[1].layer_id: is 0"
        self.assert_raises(ek.ParseError, message, ek.Placement.load, path, num_ranks=2)

    def test_ranks_with_unequal_numbers_of_experts_are_told_the_copies_that_make_them_equal(self):
        for name, ranks in [("n10.npz", 4), ("hot_256.npz", 3)]:
            path = self.case(f"A_eplb/{name}")
            with np.load(path) as file:
                counts = file["counts"]
            self.assert_read(path, counts)
            profile = ek.RoutingProfile(path)
            file = self.folder / "p.jsonl"
            for copies in (0, 1):
                placed = ek.place(profile, ranks=ranks, redundant_experts=copies)
                message = "2 redundant experts, which make it even"
                self.assert_raises(ek.Unsupported, message, placed.save, file, format="vllm")
            ek.place(profile, ranks=ranks, redundant_experts=2).save(file, format="vllm")


if __name__ == "__main__":
    unittest.main()
