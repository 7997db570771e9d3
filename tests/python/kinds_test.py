"""Files as people's tools really write them are read correctly: collected files, which their README lists, and arrays
made here and counted by numpy. What each format means is tested in the library (tests/io)."""

import numpy as np
from support import PackageTest
from tensor_files import Tensor, safetensors, torch_file

import evenkeel as ek

OF_TRACE = {"axes": "tokens,layers,k"}
OF_COUNTS = {"axes": "layers,experts"}
OF_STEPS = {"axes": "steps,layers,experts"}


def loads_of(ids, experts):
    """The loads of ids `[tokens, layers, k]`, where -1 is no expert."""
    return np.array([np.bincount(layer[layer >= 0], minlength=experts) for layer in ids.swapaxes(0, 1)])


class KindsTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.draw = np.random.default_rng(1)

    def write(self, name, array, key=None):
        """Writes an array, alone or under a key, in the container that the name's suffix says."""
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
        """Counts with a few hot experts, different in every layer; none is 0."""
        return (1 + self.draw.random((layers, experts)) ** 4 * most).astype(int)

    def ids(self, tokens, layers, k, experts):
        """Distinct experts for every token; the last expert is chosen at least once."""
        ids = np.argsort(self.draw.random((tokens, layers, experts)), axis=2)[:, :, :k]
        ids[0, 0] = range(experts - k, experts)
        return ids

    def assert_read(self, path, loads, numbers=None, note="", **said):
        profile = ek.RoutingProfile(path, **said)
        np.testing.assert_array_equal(profile.loads, loads)
        self.assertEqual(profile.layers, numbers)
        self.assertIn(note, "\n".join(profile.notes))

    def assert_asked(self, path, *parts):
        error = self.assert_raises(ek.InvalidArgument, "no option says what the dimensions", ek.RoutingProfile, path)
        for part in parts:
            self.assertIn(part, str(error))


def range_of(first, last):
    return list(range(first, last + 1))


class Collected(KindsTest):
    # Each file's options, then numpy's counts: layers and experts, the layers' numbers, all assignments, and the largest.
    FILES = [
        ("F12_deepseek_shape", {}, (58, 256), range_of(3, 60), 49416603, 103049),
        ("B12_trt_stats/whole", {}, (2, 8), [3, 4], 850, 95),
        ("B01_sglang_long_csv/expert_distribution_rank0_timestamp1.csv", {}, (2, 8), [3, 4], 882569, 554868),
        ("B01_sglang_long_csv/with_ratios.csv", {}, (1, 8), [3], 244572, 153953),
        ("B11_vllm_stats/eplb_data.jsonl", {}, (2, 4), None, 191, 39),
        ("B09_routed_experts/dense_layers_as_zero.npy", OF_TRACE, (6, 64), range_of(2, 7), 2592, 17),
        ("B09_routed_experts/filled_with_255_uint8.npy", OF_TRACE, (6, 64), None, 2112, 15),
        ("B16_counts/plain.csv", OF_COUNTS, (3, 8), None, 644622, 72951),
        ("B18_weight_matrix/weight_58x256.npy", OF_COUNTS, (58, 256), None, 12102522, 25544),
        ("B18_weight_matrix/steps_3d.npy", OF_STEPS, (58, 256), None, 36307566, 76632),
        ("G_axes/tokens_k_layers.npy", {"axes": "tokens,k,layers"}, (16, 64), None, 65536, 395),
        ("G_axes/layers_tokens_k.npy", {"axes": "layers,tokens,k"}, (16, 64), None, 25600, 159),
        ("G_axes/layers_ranks_local.npy", {"axes": "layers,ranks,experts"}, (26, 64), None, 156000, 650),
        ("G_axes/token_layer_ids_without_header.csv", {"columns": "layer,k..."}, (4, 16), range_of(1, 4), 2400, 150),
        ("G_axes/layer_then_ids.json", {"columns": "layer,k..."}, (6, 32), range_of(0, 5), 1920, 48),
        ("A_eplb/n10.npz", {}, (2, 10), None, 17421, 1902),
        ("A_eplb/hot_256.npz", {}, (1, 256), None, 5553029, 230000),
    ]

    def test_have_the_loads_and_layers_that_they_have(self):
        for name, said, shape, numbers, total, most in self.FILES:
            with self.subTest(name):
                path = self.case(name)
                profile = ek.RoutingProfile(path, **said)
                counted = (profile.loads.shape, profile.layers, profile.loads.sum(), profile.loads.max())
                self.assertEqual(counted, (shape, numbers, total, most))
                if said:
                    self.assert_asked(path, next(iter(said.values())))

    def test_placements_have_the_homes_that_they_have(self):
        # Ranks, layers, slots, and the homes of two experts: the very first and the very last.
        for name, ranks, layers, slots, homes in [
            ("C_placements/trt_pyyaml_all_flow.yaml", 8, [1, 2, 3], 80, [[7], [6]]),
            ("C_placements/trt_as_json.yaml", 8, [1, 2, 3], 80, [[7], [6]]),
            ("B02_sglang_pt/init_expert_location.pt", 4, range_of(0, 4), 24, [[0, 2], [1]]),
        ]:
            with self.subTest(name):
                placement = ek.Placement.load(self.case(name), num_ranks=ranks)
                self.assertEqual((placement.layers, placement.physical_to_logical.shape[1]), (layers, slots))
                last = (placement.num_layers - 1, placement.num_experts - 1)
                self.assertEqual([placement.homes(0, 0), placement.homes(*last)], homes)
        self.assert_raises(ek.ParseError, "is a placement, not routing", ek.RoutingProfile, self.case(name))
        four = ek.Placement.load(self.case(name), num_ranks=4, layers=[1, 2, 3, 4])  # four of the five layers
        self.assertEqual((four.layers, four.homes(3, 15)), ([1, 2, 3, 4], [1]))
        unnamed = self.case("C_placements/phy2log_tensor.pt")
        self.assert_asked(unnamed, "physical_to_logical_map")


class Ids(KindsTest):
    def test_layers_of_nothing_but_one_id_are_dense(self):
        for name, key, tokens, hidden, layers, k, experts, dtype in [
            ("a.npz", "routed_experts", 150, 12, [1, 3, 5, 7, 9, 11], 2, 16, np.int16),
            ("c.npy", None, 1, 6, range(2, 6), 4, 31, np.int16),  # one token shows which layers are dense
        ]:
            with self.subTest(name, key=key, tokens=tokens, hidden=hidden, experts=experts, dtype=dtype):
                ids = self.ids(tokens, len(layers), k, experts)
                array = np.zeros((tokens, hidden, k), dtype)
                array[:, layers] = ids
                said = {} if key else OF_TRACE
                self.assert_read(self.write(name, array, key), loads_of(ids, experts), list(layers), "dense", **said)

    def test_rows_of_one_id_are_tokens_absent_from_a_layer(self):
        for k, filler in [(8, 0), (4, 3), (2, 5), (4, 31)]:  # id 31 is not an expert, and only fills rows
            with self.subTest(k=k, filler=filler):
                ids = self.ids(90, 4, k, 31).reshape(-1, k)
                rows = [7, 8, 40, 101, 333]
                filled = ids.copy()
                filled[rows], ids[rows] = filler, -1
                path = self.write("r.npy", filled.reshape(90, 4, k).astype(np.int16))
                note = f"5 rows repeat id {filler} {k} times"
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
                    self.assert_read(path, loads, note=f"id {fill} is read as padding", **({} if key else OF_TRACE))

    def test_a_filler_that_may_be_an_expert_is_asked_about(self):
        for where, absent in [
            ("the last 2 of 8 places", np.arange(8) >= 6),
            ("single places", self.draw.random((150, 4, 8)) < 0.1),
            ("once a token", np.arange(8) == 7),
        ]:
            with self.subTest(where):
                ids = np.where(absent, -1, self.ids(150, 4, 8, 160))
                path = self.write("f.npy", np.where(ids < 0, 255, ids).astype(np.uint8))
                message = f"num_experts: {path}: id 255 may be an expert or padding: the other ids are at most 159"
                self.assert_raises(ek.InvalidArgument, message, ek.RoutingProfile, path, **OF_TRACE)
                self.assert_read(path, loads_of(ids, 160), num_experts=160, **OF_TRACE)
        ids = self.ids(200, 3, 8, 256)  # of a model with 256 experts
        self.assert_read(self.write("i.npy", ids.astype(np.uint8)), loads_of(ids, 256), **OF_TRACE)

    def test_two_fillers_are_asked_about_and_told(self):
        chosen = self.ids(80, 3, 6, 60)
        chosen[:, :, 4:] = -1
        in_places, rows, token = (chosen.copy() for _ in range(3))
        in_places[0, 0, 0] = in_places[3, 1, 1] = -2  # in rows that also have the other filler
        rows[0, 2] = rows[3, 1] = -2
        token[5] = -2
        for where, ids in [("places", in_places), ("rows", rows), ("token", token)]:
            with self.subTest(where):
                array = np.where(ids == -1, 65535, np.where(ids == -2, 255, ids)).astype(np.uint16)
                path = self.write("r.npy", array)
                message = "id 255 may be an expert or padding: the other ids are at most 59, except the padding 65535"
                error = self.assert_raises(ek.InvalidArgument, message, ek.RoutingProfile, path, **OF_TRACE)
                self.assertIn("256 or more if id 255 is an expert, 60..255 if it is padding", str(error))
                for told in [60, 64, 255]:
                    for fill in (255, 65535):
                        note = f"id {fill} is read as padding"
                        self.assert_read(path, loads_of(ids, told), note=note, num_experts=told, **OF_TRACE)
                self.assertEqual(ek.RoutingProfile(path, num_experts=256, **OF_TRACE).num_experts, 256)

    def test_ids_that_repeat_by_themselves_stand_by_the_name_topk_ids(self):
        ids = np.array([(i * i + i // 7) % 5 for i in range(400 * 3 * 2)]).reshape(400, 3, 2)
        path = self.write("r.npy", ids)  # in many tokens an id repeats, and not always the same id
        message = "some rows repeat one id 2 times (id 0 or 4), which no router does"
        self.assert_raises(ek.InvalidArgument, message, ek.RoutingProfile, path, **OF_TRACE)
        path = self.write("r.safetensors", ids, "topk_ids")
        self.assert_read(path, loads_of(ids, 5), note="which no router does: the ids are kept as they are")


class Counts(KindsTest):
    def test_rows_of_dense_layers_have_no_counts(self):
        counts = np.zeros((20, 96), int)
        counts[3:] = self.loads(17, 96)
        self.assert_read(self.write("e.npy", counts), counts[3:], range_of(3, 19), as_="counts")
        for dense in (0, 2):
            with self.subTest("every step has equally many tokens", dense=dense):
                window = self.draw.multinomial(128, [0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.05], (10, 24))
                window[:, :dense] = 0
                layers = range_of(dense, 23) if dense else None
                self.assert_read(self.write("c.npy", window), window[:, dense:].sum(axis=0), layers, as_="counts")

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
    def test_a_first_column_that_counts_may_be_the_layer(self):
        path = self.folder / "c.csv"
        path.write_text("".join(f"{n},{n * 7 % 5},{n * 3 % 4 + 1}\n" for n in range(3, 9)))
        self.assert_asked(path, "layer,experts...: 6 layers of 2 experts")
        # The column's name may say that MoE layers are counted; an option says their layer numbers.
        path.write_text(
            "moe_layer,expert,count\n" + "".join(f"{n},{e},{n + e + 1}\n" for n in range(3) for e in range(4))
        )
        self.assert_read(path, [[n + e + 1 for e in range(4)] for n in range(3)], [1, 3, 5], layers=[1, 3, 5])


class Placements(KindsTest):
    def test_a_tensor_of_that_name_is_a_map_and_never_counted(self):
        rows = np.stack([np.roll(np.append(np.arange(12), np.arange(4)), 4 * layer) for layer in range(3)])
        named = self.write("named.pt", rows, "physical_to_logical_map")
        placement = ek.Placement.load(named, num_ranks=4)
        np.testing.assert_array_equal(placement.physical_to_logical, rows)
        named.write_bytes(torch_file({"physical_to_logical_map": [1, 2]}))
        self.assert_raises(ek.ParseError, "not a tensor", ek.Placement.load, named, num_ranks=2)

    def test_ranks_with_unequal_numbers_of_experts_are_told_the_copies_that_make_them_equal(self):
        profile, file = ek.RoutingProfile(loads=self.loads(2, 10)), self.folder / "p.jsonl"
        for copies in (0, 1):
            placed = ek.place(profile, ranks=4, redundant_experts=copies)
            message = "2 redundant experts"
            self.assert_raises(ek.Unsupported, message, placed.save, file, format="vllm")
        ek.place(profile, ranks=4, redundant_experts=2).save(file, format="vllm")
