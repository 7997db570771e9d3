"""Placements keep the homes they were given, in every file format."""

import json
import os
from unittest import mock

import numpy as np
from support import PackageTest

import evenkeel as ek


class Placements(PackageTest):
    def test_homes_and_physical_experts_say_the_same(self):
        draw = np.random.default_rng(5)
        homes = [[draw.permutation(4)[: draw.integers(1, 4)].tolist() for _expert in range(6)] for _layer in range(3)]
        placement = ek.Placement(homes, num_ranks=4)
        for layer in range(3):
            offsets, physical = placement.rank_offsets[layer], placement.physical_to_logical[layer]
            for rank in range(4):
                here = [expert for expert in range(6) if rank in homes[layer][expert]]
                self.assertEqual(physical[offsets[rank] : offsets[rank + 1]].tolist(), here)
            self.assertTrue((physical[offsets[-1] :] == -1).all())
            for expert in range(6):
                self.assertEqual(placement.homes(layer, expert), homes[layer][expert])
                self.assertEqual(placement.owners[layer, expert], homes[layer][expert][0])

    def test_one_rank_an_expert_may_be_an_array(self):
        ranks = np.array([[0, 1, 1, 0], [1, 0, 1, 0]])
        placement = ek.Placement(ranks)
        np.testing.assert_array_equal(placement.owners, ranks)
        self.assertEqual(placement, ek.Placement(ranks.tolist()))
        self.assertEqual(placement, ek.Placement(ranks[:, :, None].tolist()))
        self.assertFalse(placement.has_copies)

    def test_is_equal_to_one_with_the_same_homes_alone(self):
        placement = ek.Placement([[0, 1, 1]])
        self.assertEqual(placement, ek.Placement([[[0], [1], [1]]]))
        self.assertEqual(hash(placement), hash(ek.Placement([[[0], [1], [1]]])))
        self.assertNotEqual(placement, ek.Placement([[0, 1, 0]]))
        self.assertNotEqual(placement, ek.Placement([[0, 1, 1]], num_ranks=3))
        self.assertNotEqual(placement, ek.Placement([[[0], [1], [1, 0]]]))
        self.assertNotEqual(ek.Placement([[[0, 1]]]), ek.Placement([[[1, 0]]]))
        self.assertNotEqual(placement, 7)

    def test_files_of_other_systems_are_written_and_read_by_name(self):
        placement = ek.Placement([[0, 0, 1, 1], [1, 0, 1, 0]])
        placement.save(self.folder / "t.yaml", format="trtllm", layers=[3, 4])
        self.assertEqual(ek.Placement.load(self.folder / "t.yaml", num_ranks=2, layers=[3, 4]).homes(1, 0), [1])
        uneven, path = ek.Placement([[0, 0, 0, 1]]), self.folder / "file.json"
        self.assert_raises(ek.InvalidArgument, "format: 'deepspeed'", uneven.save, path, "deepspeed")
        self.assert_raises(ek.InvalidArgument, "num_hidden_layers: applies", uneven.save, path, num_hidden_layers=1)
        self.assert_raises(ek.Unsupported, "layer 0", uneven.save, path, "sglang")
        self.assert_raises(ek.InvalidArgument, "ends in .json", uneven.save, self.folder / "file", "sglang")
        self.assertFalse(path.exists())

    def test_a_file_keeps_its_provenance(self):
        ek.Placement([[0, 1]]).save(self.folder / "a.json")
        text = json.loads((self.folder / "a.json").read_text())
        (self.folder / "a.json").write_text(json.dumps(text | {"provenance": {"solver": "by hand"}}))
        placement = ek.Placement.load(self.folder / "a.json")
        self.assertEqual(placement.provenance, {"solver": "by hand"})

    def test_a_mapping_is_a_safetensors_file_of_ranks(self):
        ranks = np.array([[0, 1, 2], [2, 1, 0]])
        ek.Placement(ranks).save_mapping(self.folder / "ranks.safetensors")
        content = (self.folder / "ranks.safetensors").read_bytes()
        length = int.from_bytes(content[:8], "little")
        tensor = json.loads(content[8 : 8 + length])["expert_to_rank"]
        self.assertEqual((tensor["dtype"], tensor["shape"], tensor["data_offsets"]), ("I64", [2, 3], [0, 48]))
        np.testing.assert_array_equal(np.frombuffer(content[8 + length :], "<i8").reshape(2, 3), ranks)

    def test_a_mapping_has_the_rights_of_any_new_file_and_the_umask_is_not_touched(self):
        """The umask belongs to the process. Changing it briefly would open other threads' files to everyone."""
        before = os.umask(0o027)
        self.addCleanup(os.umask, before)
        (self.folder / "any").write_text("")
        with mock.patch("os.umask", side_effect=AssertionError("the umask is touched")):
            ek.Placement([[0, 1]]).save_mapping(self.folder / "ranks.safetensors")
        modes = [(self.folder / name).stat().st_mode & 0o777 for name in ("any", "ranks.safetensors")]
        self.assertEqual(modes, [0o640, 0o640])

    def test_a_mapping_that_is_replaced_keeps_its_mode_whatever_its_name(self):
        path = self.folder / f"{'é' * 121}x.safetensors"  # the longest name that file systems allow
        for mode in [0o600, 0o444]:
            path.write_text("before")
            path.chmod(mode)
            ek.Placement([[0, 1]]).save_mapping(path)
            self.assertNotEqual(path.read_bytes(), b"before")
            self.assertEqual(path.stat().st_mode & 0o7777, mode)
            path.unlink()

    def test_ctrl_c_ends_the_reading_of_a_long_file(self):
        rows = ", ".join(["[" + ", ".join(["0"] * 1000) + "]"] * 20000)
        (self.folder / "long.json").write_text(f'{{"physical_to_logical_map": [{rows}]}}')
        self.assert_interrupted(ek.Placement.load, self.folder / "long.json", num_ranks=2)

    def test_a_mapping_that_cannot_be_written_says_so_and_leaves_nothing(self):
        (self.folder / "taken").mkdir()
        for path, why in [("taken", "Is a directory"), ("nowhere/ranks", "No such file")]:
            save = ek.Placement([[0, 1]]).save_mapping
            self.assert_raises(ek.InvalidArgument, f"cannot be written: {why}", save, self.folder / path)
        self.assertEqual([path.name for path in self.folder.iterdir()], ["taken"])

    def test_a_mapping_without_torch_says_what_to_do(self):
        placement = ek.Placement([[0, 1]])
        with mock.patch.dict("sys.modules", {"torch": None}):
            self.assert_raises(ek.Unsupported, "needs torch", placement.save_mapping, self.folder / "ranks.pt")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_a_mapping_refuses_copies(self):
        placement = ek.Placement([[[0, 1], [1]]])
        self.assertTrue(placement.has_copies)
        self.assert_raises(ek.Unsupported, "redundant experts", placement.save_mapping, self.folder / "r.safetensors")
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_refuses_homes_that_are_none(self):
        for homes, ranks, message in [
            ([[[0], []]], None, "homes of expert 1: has no rank"),
            ([[[0, 0]]], None, "rank 0 twice"),
            ([[0, 5]], 2, "rank 5 does not exist; allowed: 0..1"),
            ([[0, -1]], None, "rank -1 does not exist"),
            ([], 2, "no layer"),
            ([[0, 1], [0]], None, "unequal lengths"),
            ([[0.5, 1]], None, "0.5 is not a whole number"),
            ([[[0.9], [1.9]]], None, "homes: 0.9; allowed: a whole number"),
            ([["01", "10"]], None, "homes: '0'; allowed: a whole number"),
            ([[0, 1]], 0, "num_ranks: 0"),
        ]:
            with self.subTest(message=message):
                self.assert_raises(ek.InvalidArgument, message, ek.Placement, homes, ranks)
        placement = ek.Placement([[0, 1]])
        self.assert_raises(ek.InvalidArgument, "layer: 1; allowed: 0..0", placement.homes, 1, 0)
        self.assert_raises(ek.InvalidArgument, "expert: 2; allowed: 0..1", placement.homes, 0, 2)
