"""Whatever is wrong with an argument is an evenkeel.Error that names it; what can be copied can be pickled."""

import copy
import pickle
import sys
import types
import unittest

import numpy as np
from support import TRACE, PackageTest

import evenkeel as ek


class Arguments(PackageTest):
    def refused(self, argument, call):
        with self.assertRaises(ek.InvalidArgument) as raised:
            call()
        self.assertEqual(raised.exception.data["argument"], argument)
        self.assertTrue(str(raised.exception).startswith(f"{argument}: "), raised.exception)

    def test_paths_that_no_system_has(self):
        profile = ek.RoutingProfile(loads=[[1, 2]])
        placement = ek.Placement([[0, 1]])
        for path in ("a\0b", "\ud800", 3, object()):
            self.refused("path", lambda path=path: ek.RoutingProfile(path))
            self.refused("path", lambda path=path: ek.Placement.load(path))
            self.refused("path", lambda path=path: profile.save(path, "json"))
            self.refused("path", lambda path=path: placement.save(path))
            self.refused("path", lambda path=path: ek.source_counts(path, 2))
            self.refused("topology", lambda path=path: ek.place(profile, topology=path))
            self.refused("model", lambda path=path: ek.RoutingProfile(TRACE, model=path))

    def test_objects_of_another_kind(self):
        profile = ek.RoutingProfile(loads=[[1, 2]])
        self.refused("placement", lambda: ek.plan([1, 2], ranks=2, placement="x"))
        self.refused("profile", lambda: ek.place([[1, 2]], ranks=2))
        self.refused("from_", lambda: ek.place(profile, ranks=2, from_="x", max_moves=1))
        self.refused("other", lambda: profile.add("x"))

    def test_ranks_that_are_none(self):
        self.refused("homes of expert 0", lambda: ek.Placement([[-1]]))
        self.refused("homes of expert 0", lambda: ek.Placement([[[0, -3]]]))
        for ranks in (0, 2**30):
            self.refused("ranks", lambda ranks=ranks: ek.source_counts(TRACE, ranks))
            self.refused("ranks", lambda ranks=ranks: ek.place(ek.RoutingProfile(loads=[[1]]), ranks=ranks))
            self.refused("ranks", lambda ranks=ranks: ek.plan([1], ranks=ranks))

    def test_tensors_that_hold_no_numbers(self):
        class Tensor:
            layout, device = "torch.strided", "meta"

            def detach(self):
                raise NotImplementedError("no data")

        torch = types.ModuleType("torch")
        torch.Tensor = Tensor
        before = sys.modules.get("torch")
        sys.modules["torch"] = torch
        try:
            self.refused("loads", lambda: ek.plan(Tensor(), ranks=2))
        finally:
            sys.modules.pop("torch")
            if before is not None:
                sys.modules["torch"] = before

    def test_arguments_have_python_s_names(self):
        np.save(self.folder / "a.npy", np.array([[1, 5], [2, 6]]))
        self.refused("as_", lambda: ek.RoutingProfile(self.folder / "a.npy"))
        self.refused("as_", lambda: ek.RoutingProfile(self.folder / "a.npy", as_="ids"))
        placement = ek.place(ek.RoutingProfile(loads=[[1, 2], [3, 4]]), ranks=2)
        self.refused("layers", lambda: placement.save(self.folder / "s.json", "sglang"))
        other = ek.Placement.contiguous(3, 2, 2)
        profile = ek.RoutingProfile(loads=[[1, 2], [3, 4]])
        self.refused("from_", lambda: ek.place(profile, ranks=2, from_=other, max_moves=1))

    def test_profiles_and_placements_are_pickled_and_copied(self):
        profile = ek.RoutingProfile(loads=[[1, 2], [3, 4]], layers=[3, 5])
        placement = ek.Placement([[[1, 0], [0]], [[0], [1]]], layers=[3, 5])
        for each in (profile, placement, ek.RoutingProfile(TRACE)):
            for again in (pickle.loads(pickle.dumps(each)), copy.deepcopy(each)):
                self.assertEqual(again, each)
                self.assertEqual(again.layers, each.layers)
        self.assertEqual(pickle.loads(pickle.dumps(placement)).homes(0, 0), [1, 0])


class LayerNumbers(PackageTest):
    def test_numbers_travel_through_files_and_place(self):
        profile = ek.RoutingProfile(loads=[[9, 1, 1, 5], [1, 1, 7, 1]], layers=[3, 5])
        for name in ("p.safetensors", "p.npz", "p.json"):
            profile.save(self.folder / name)
            self.assertEqual(ek.RoutingProfile(self.folder / name).layers, [3, 5])
        placement = ek.place(profile, ranks=2)
        self.assertEqual(placement.layers, [3, 5])
        placement.save(self.folder / "ours.json")
        self.assertEqual(ek.Placement.load(self.folder / "ours.json").layers, [3, 5])
        placement.save(self.folder / "s.json", "sglang", num_hidden_layers=7)
        rows = ek.Placement.load(self.folder / "s.json", num_ranks=2)
        self.assertEqual((rows.num_layers, rows.layers), (7, list(range(7))))
        self.assertEqual(rows.physical_to_logical[3].tolist(), placement.physical_to_logical[0].tolist())
        self.assertIsNone(ek.RoutingProfile(loads=[[1, 2]]).layers)

    def test_a_step_is_planned_by_layer_number(self):
        profile = ek.RoutingProfile(loads=[[9, 1, 1, 5], [1, 1, 7, 1]], layers=[3, 5])
        placement = ek.Placement([[0, 0, 1, 1], [0, 1, 1, 0], [1, 0, 1, 0]], layers=[3, 4, 5])
        step = ek.plan(profile, layer=5, placement=placement, planner="ep")
        self.assertEqual(step.rank_loads.tolist(), [2, 8])
        for call in (
            lambda: ek.plan(profile, layer=4, ranks=2),
            lambda: ek.plan(profile, layer=3, placement=ek.Placement.contiguous(3, 4, 2)),
            lambda: ek.plan(profile, layer=3, placement=ek.Placement([[0, 0, 1, 1]], layers=[5])),
        ):
            self.assertRaises(ek.InvalidArgument, call)


if __name__ == "__main__":
    unittest.main()
