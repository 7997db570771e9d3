"""Any wrong argument raises an evenkeel.Error that names it; objects that can be copied can be pickled."""

import copy
import decimal
import fractions
import inspect
import os
import pickle
import sys
import types
from unittest import mock

import numpy as np
from support import RECORDINGS, REPOSITORY, TRACE, PackageTest

import evenkeel as ek


class Odd:
    """An object whose conversions all fail."""

    def fails(self, *arguments, **named):
        raise RuntimeError("odd")

    __index__ = __float__ = __str__ = __repr__ = __array__ = fails


def odd_values():
    """Values that callers pass by mistake; most of them fit no argument."""
    in_itself = []
    in_itself.append(in_itself)
    numbers = [True, 2.5, -1, 0, 3, 2**40, 2**63, 2**64, 10**400, 10**5000, 1e308, 1j, float("nan"), float("inf")]
    words = ["2", "", "\ud800", "\udc80", "a\0b", "é", "x" * 5000, "/", b"x"]
    lists = [[], [[]], [[[]]], [1], [[1]], [None], ["a"], [[1, 2], [3]], (1, 2), {}, {1: 2}, set(), range(3)]
    lists += [[2**70], [1.5], [float("nan")], [-1], [2**62, 2**63 - 1], [[2**62]], in_itself, iter([1])]
    arrays = [np.array(x) for x in (2, [2], [2, 3], 2.5, "a", ["a"], [], [True], [None], [2**40], [[-(2**40)]])]
    arrays += [np.zeros(shape) for shape in ((0, 2), (1, 0, 1))] + [np.zeros(n, [("a", int)]) for n in (0, 2)]
    arrays += [np.zeros(0, bool), np.array(["2020"], "M8[Y]"), np.ma.array([1, 2], mask=[0, 1])]
    arrays += [np.int64(2), np.float32(1.5), np.bool_(True), np.uint64(2**63), np.float16(3), np.longdouble(3)]
    decimals = [fractions.Fraction(1, 3), *map(decimal.Decimal, ("1.5", "sNaN", "1e999999"))]
    return [None, object(), int, Odd(), len, *numbers, *words, *lists, *arrays, *decimals]


def public_calls():
    """Every public call: its name, and valid arguments."""
    profile = ek.RoutingProfile(loads=[[1, 2], [3, 4]])
    placement = ek.Placement.contiguous(2, 2, 2)
    known = ek.RoutingProfile(loads=[[1, 2], [3, 4]], transitions=[[[1, 2], [3, 4]]])
    two = [profile, profile]
    trace = str(RECORDINGS / "trace.safetensors")
    yield "plan()", ek.plan, {"loads": [1, 2], "ranks": 2}
    yield "plan()", ek.plan, {"loads": profile, "ranks": 2, "layer": 1}
    model = REPOSITORY / "tests" / "data" / "configs" / "mixtral-8x7b.json"
    on_links = {"topology": "2x8xh100", "model": model, "device": "h100"}
    yield "plan()", ek.plan, {"loads": [160] * 8} | on_links
    yield "plan_layers()", ek.plan_layers, {"loads": profile, "ranks": 2, "layers": [0, 1]}
    yield "place()", ek.place, {"profile": profile, "ranks": 2}
    yield "place()", ek.place, {"profile": two, "topology": "8xh100", "across": "sum", "redundant_experts": 6}
    yield "place()", ek.place, {"profile": known, "ranks": 2, "objective": "joint"}
    yield "place()", ek.place, {"profile": profile, "ranks": 2, "traffic": "dispatch-combine"}
    yield "place()", ek.place, {"profile": profile, "ranks": 2, "from_": placement, "max_moves": 1}
    yield "evaluate()", ek.evaluate, {"recordings": profile, "placements": placement, "ranks": 2}
    yield "evaluate()", ek.evaluate, {"recordings": trace, "placements": ek.Placement.contiguous(3, 16, 2), "ranks": 2}
    yield "compare()", ek.compare, {"recordings": trace, "ranks": 2}
    yield (
        "compare()",
        ek.compare,
        {"recordings": two, "topology": "2xh100", "place_from": [profile], "methods": ["eplb:2"]},
    )
    yield "read_steps()", ek.read_steps, {"path": trace}
    yield "source_counts()", ek.source_counts, {"path": trace, "ranks": 2}
    eplb = {"weight": [[1, 2]], "num_replicas": 2, "num_groups": 1, "num_nodes": 1, "num_gpus": 1}
    yield "rebalance_experts()", ek.rebalance_experts, eplb
    contiguous = {"num_layers": 1, "num_experts": 4, "num_ranks": 2}
    yield "Placement.contiguous()", ek.Placement.contiguous, contiguous
    yield "Placement()", ek.Placement, {"homes": [[0, 1]]}
    yield "Placement()", ek.Placement, {"homes": [[[0], [1]]], "num_ranks": 4}
    yield "Placement.load()", ek.Placement.load, {"path": "nowhere"}
    yield "Placement.homes()", placement.homes, {"layer": 0, "expert": 0}
    yield "Placement.save()", placement.save, {"path": "a.json"}
    yield "Placement.save()", placement.save, {"path": "a.yaml", "format": "trtllm", "layers": [0, 1]}
    yield "Placement.save_mapping()", placement.save_mapping, {"path": "a.safetensors"}
    yield "RoutingProfile()", ek.RoutingProfile, {"loads": [[1, 2], [3, 4]], "transitions": [[[1, 2], [3, 4]]]}
    yield "RoutingProfile()", ek.RoutingProfile, {"path": trace}
    yield "RoutingProfile.add()", profile.add, {"other": profile}
    yield "RoutingProfile.save()", profile.save, {"path": "p.json"}


class EveryCall(PackageTest):
    def test_takes_a_value_or_says_as_an_error_of_ours_why_not(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        for called, call, arguments in public_calls():
            names = inspect.signature(call).parameters
            for name in names:
                for value in odd_values():
                    try:
                        call(**arguments | {name: value})
                    except ek.InvalidArgument as error:
                        said = error.data["argument"].split(" of ")[0]  # "homes of expert 0" becomes "homes"
                        self.assertTrue(said in names or name == "path", f"{called}: {name}: {error}")
                    except ek.Error as error:
                        self.assertTrue(error.data)
                    except Exception as error:
                        self.fail(f"{called}: {name} = {_shown(value)}: {type(error).__name__}: {error}")

    def test_says_which_argument_a_misspelt_name_was_meant_to_be(self):
        for called, call, arguments in public_calls():
            for name in inspect.signature(call).parameters:
                misspelt = name[:-1] + "_" + name[-1]
                with self.assertRaises(ek.InvalidArgument) as raised:
                    call(**{misspelt: arguments.get(name)})
                said = str(raised.exception)
                self.assertIn(f"'{misspelt}' is no argument of {called}; allowed: ", said)
                self.assertTrue(said.endswith(f"; did you mean '{name}'?"), said)
                self.assertEqual(raised.exception.data["argument"], misspelt)

    def test_says_which_word_was_meant(self):
        profile = ek.RoutingProfile(loads=[[1, 2], [3, 4]], layers=[0, 1])
        placement = ek.Placement.contiguous(1, 2, 2)
        for call, meant in [
            (lambda: ek.plan([1], ranks=1, planner="levle"), "level"),
            (lambda: ek.place(profile, ranks=2, solver="exat"), "exact"),
            (lambda: ek.place(profile, ranks=2, redundant_experts="aut"), "auto"),
            (lambda: ek.place(profile, topology="8xh10"), "8xh100"),  # this suggestion comes from the C++ library
            (lambda: placement.save("x", format="sglan"), "sglang"),
            (lambda: profile.save("x.jso"), "json"),
            (lambda: ek.RoutingProfile("x", as_="count"), "counts"),
        ]:
            with self.assertRaises(ek.InvalidArgument) as raised:
                call()
            self.assertIn(f"; did you mean '{meant}'?", str(raised.exception))
            self.assertNotIn("did you mean", "".join(map(str, raised.exception.data.values())))
        with self.assertRaises(ek.InvalidArgument) as raised:
            ek.plan([1], ranks=1, planner="something")
        self.assertNotIn("did you mean", str(raised.exception))

    def test_takes_whole_numbers_of_every_kind(self):
        for two in (2, np.int64(2), np.uint8(2), np.array(2)):
            self.assertEqual(ek.plan([1, 2], ranks=two).num_ranks, 2)
            self.assertEqual(ek.Placement.contiguous(two, two, two).num_layers, 2)
            self.assertEqual(ek.plan([1, 2], ranks=2, capacity_factor=two).num_ranks, 2)

    def test_leaves_nothing_empty_out_in_silence(self):
        with self.assertRaisesRegex(ek.InvalidArgument, "base_load: is empty"):
            ek.plan([1, 2], ranks=2, base_load=[])
        with self.assertRaisesRegex(ek.InvalidArgument, "layers: is empty"):
            ek.RoutingProfile(loads=[[1, 2]], layers=[])
        with self.assertRaisesRegex(ek.InvalidArgument, "sources: shape"):
            profile = ek.RoutingProfile(loads=[[1, 2]])
            ek.place(profile, ranks=2, traffic="dispatch-combine", sources=np.zeros((1, 2, 0)))


def _shown(value):
    return type(value).__name__ if isinstance(value, Odd) or value == 10**5000 else repr(value)[:60]


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
        with mock.patch.dict(sys.modules, torch=torch):
            self.refused("loads", lambda: ek.plan(Tensor(), ranks=2))

    def test_arguments_have_python_s_names(self):
        np.save(self.folder / "a.npy", np.array([[1, 5], [2, 6]]))
        self.refused("axes", lambda: ek.RoutingProfile(self.folder / "a.npy"))
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
    def test_are_none_where_nobody_said_them(self):
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
