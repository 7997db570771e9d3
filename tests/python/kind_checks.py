"""Whether every command and the package say the same of a file, and whether it is what was counted with numpy from the
numbers that went into it."""

import json
import re
import struct
import subprocess
import unittest
import zipfile
from dataclasses import dataclass

import numpy as np
from support import CASES, COMMAND, PackageTest
from tensor_files import Tensor, safetensors, torch_file

import evenkeel as ek

OPTIONS = {
    "num_experts": "--num-experts",
    "axes": "--axes",
    "columns": "--columns",
    "as_": "--as",
    "layers": "--moe-layers",
}
ENDINGS = {"sglang": "json", "trtllm": "yaml", "vllm": "jsonl", "vllm-ascend": "json"}


@dataclass
class Truth:
    """What a file says."""

    loads: np.ndarray  # [L, E]
    layers: list | None = None  # the model's numbers
    ids: np.ndarray | None = None  # [tokens, L, k] of a trace, -1: no expert
    only_ratios: bool = False  # of loads that are not whole numbers


def truth_of_hidden(counts):
    """Of [hidden layers, E], where dense layers have no counts."""
    layers = np.flatnonzero(counts.any(axis=1))
    return Truth(counts[layers], layers.tolist())


def truth_of_ids(ids, experts, layers=None):
    """Of [tokens, layers, k], -1: no expert."""
    loads = [np.bincount(of_layer[of_layer >= 0], minlength=experts) for of_layer in ids.swapaxes(0, 1)]
    return Truth(np.array(loads), layers, ids)


def transitions(ids, experts):
    """[L - 1, E, E]: pairs of a token's expert in a layer and one in the next."""
    pairs = np.zeros((ids.shape[1] - 1, experts, experts), int)
    for layer in range(len(pairs)):
        here, there = np.broadcast_arrays(ids[:, layer, :, None], ids[:, layer + 1, None, :])
        chosen = (here >= 0) & (there >= 0)
        np.add.at(pairs[layer], (here[chosen], there[chosen]), 1)
    return pairs


def max_over_mean(rows, loads, ranks):
    """[L], of the ranks' loads, if the copies of an expert share its load evenly."""
    rows = np.array(rows)
    copies = np.array([np.bincount(row, minlength=loads.shape[1]) for row in rows])
    assert copies.min() > 0, "an expert has no copy"
    of_slots = np.take_along_axis(loads / copies, rows, axis=1)
    of_ranks = of_slots.reshape(len(rows), ranks, -1).sum(axis=2)
    return of_ranks.max(axis=1) / of_ranks.mean(axis=1)


def by_rank(rows, ranks):
    """Rows of physical experts with those of a rank in order, which says nothing of where they are."""
    rows = np.array(rows)
    return np.sort(rows.reshape(len(rows), ranks, -1), axis=2).reshape(rows.shape)


def as_words(said):
    """Arguments of the package as options of the command."""
    words = []
    for name, value in said.items():
        words += [OPTIONS[name], ",".join(map(str, value)) if name == "layers" else value]
    return words


def tensor(array):
    return Tensor(array.shape, array.ravel().tolist(), array.dtype.name)


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


@unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
class KindsTest(PackageTest):
    def setUp(self):
        super().setUp()
        self.draw = np.random.default_rng(1)
        self.unnamed = {}  # arrays that were written without a name

    def case(self, name):
        """One of the collected files."""
        if not (CASES / name).exists():
            self.skipTest(f"{CASES} has no {name}")
        return CASES / name

    def write(self, name, array, key=None):
        """An array alone or under a key, in the container that the name ends in."""
        path = self.folder / name
        self.unnamed.pop(path, None)
        if key is None or key == "any":
            self.unnamed[path] = array
        if path.suffix == ".npy":
            np.save(path, array)
        elif path.suffix == ".npz":
            np.savez(path, **{key or "arr_0": array})
        elif path.suffix == ".safetensors":
            path.write_bytes(safetensors({key or "array": tensor(array)}))
        elif path.suffix == ".pt":
            path.write_bytes(torch_file({key: tensor(array)} if key else tensor(array)))
        elif path.suffix == ".json":
            path.write_text(json.dumps({key: array.tolist()} if key else array.tolist()))
        else:
            np.savetxt(path, array, fmt="%d" if array.dtype.kind in "iu" else "%.17g", delimiter=",")
        return path

    def text(self, name, lines):
        """A text of these lines of cells."""
        (self.folder / name).write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
        return self.folder / name

    def json_of(self, name):
        return json.loads((self.folder / name).read_text())

    def run_command(self, *words):
        words = [COMMAND, *map(str, words), "--json"]
        return subprocess.run(words, capture_output=True, text=True, cwd=self.folder, check=False)

    def call(self, *words):
        """What the command prints, as an object; its notes are kept."""
        done = self.run_command(*words)
        self.assertEqual(done.returncode, 0, (words, done.stderr))
        self.notes = done.stderr
        return json.loads(done.stdout)

    def refusal(self, *words):
        """The error with which the command refuses, as (type, message)."""
        done = self.run_command(*words)
        self.assertIn(done.returncode, (2, 3, 4), (words, done.stdout[:300], done.stderr))
        error = json.loads(done.stdout)["error"]
        return error["type"], error["message"]

    def refusal_of_python(self, call, *arguments, **named):
        with self.assertRaises(ek.Error) as caught:
            call(*arguments, **named)
        return type(caught.exception).__name__, str(caught.exception)

    def assert_loads(self, loads, expected, only_ratios):
        loads = np.array(loads)
        self.assertEqual(loads.shape, expected.shape)
        if only_ratios:
            np.testing.assert_allclose(loads / loads.sum(), expected / expected.sum(), rtol=1e-6, atol=1e-12)
        else:
            np.testing.assert_array_equal(loads, expected)

    def assert_quality(self, quality, rows, truth, ranks):
        """What is said of a placement holds for its rows of physical experts and the loads."""
        expected = max_over_mean(rows, truth.loads, ranks)
        self.assertAlmostEqual(quality["max_over_mean_mean"], expected.mean(), places=6)
        self.assertAlmostEqual(quality["max_over_mean_worst"], expected.max(), places=6)

    def axes_of(self, path, is_trace):
        """The usual order of what an array without a name holds."""
        if self.unnamed[path].ndim == 2:
            return "tokens,k" if is_trace else "layers,experts"
        return "tokens,layers,k" if is_trace else "steps,layers,experts"

    def assert_read(self, path, truth, ranks=2, **said):
        """Every command, Python and the servers' files go by these loads of these layers.

        Of an array without a name that nobody has spoken of, once they have asked what it is.
        """
        if path in self.unnamed and not {"axes", "as_"} & said.keys():
            said["axes"] = self.axes_of(path, truth.ids is not None)
            self.assert_asked(path, f"{said['axes']}: ")
            self.assertEqual(ek.RoutingProfile(path, **said).axes, said["axes"])
            self.assertEqual(self.call("profile", path, *as_words(said))["axes"], {str(path): said["axes"]})
            self.assertIn(f"read as {said['axes']}: ", self.notes)
        self.assert_read_by_command(path, truth, ranks, said)
        self.assert_read_by_python(path, truth, ranks, said)
        if truth.layers is not None:
            self.assert_served(path, truth, ranks, said)

    def assert_read_by_command(self, path, truth, ranks, said):
        words = as_words(said)
        layers, experts = truth.loads.shape
        profile = self.call("profile", path, *words, "-o", "p.npz")
        self.assertEqual((profile["num_layers"], profile["num_experts"]), (layers, experts))
        self.assertEqual(profile["layer_numbers"], truth.layers)
        self.assertEqual(profile["tokens"], None if truth.ids is None else len(truth.ids))
        with np.load(self.folder / "p.npz") as written:
            self.assert_loads(written["loads"], truth.loads, truth.only_ratios)
        self.call("convert", path, "c.npz", *words)
        converted = ek.RoutingProfile(self.folder / "c.npz", num_experts=experts)
        self.assert_loads(converted.loads, truth.loads, truth.only_ratios)
        self.assertEqual(converted.layers, truth.layers)

        placed = self.call("place", path, *words, "--ranks", ranks, "-o", "o.json")
        ours = self.json_of("o.json")
        self.assertEqual((placed["layers"], ours.get("layers")), (truth.layers, truth.layers))
        self.assert_quality(placed["before"], [range(experts)] * layers, truth, ranks)
        self.assert_quality(placed["after"], ours["physical_to_logical"], truth, ranks)

        last = layers - 1 if truth.layers is None else truth.layers[-1]
        plan = self.call("plan", path, *words, "--layer", last, "--ranks", ranks, "--planner", "ep")
        self.assert_loads(plan["rank_loads"], truth.loads[-1].reshape(ranks, -1).sum(axis=1), truth.only_ratios)

    def assert_read_by_python(self, path, truth, ranks, said):
        layers, experts = truth.loads.shape
        profile = ek.RoutingProfile(path, **said)
        self.assert_loads(profile.loads, truth.loads, truth.only_ratios)
        self.assertEqual(profile.layers, truth.layers)
        if truth.ids is not None:
            np.testing.assert_array_equal(profile.transitions, transitions(truth.ids, experts))
        placed = ek.place(profile, ranks=ranks)
        self.assertEqual(placed.layers, truth.layers)
        self.assert_quality(vars(placed.before), [range(experts)] * layers, truth, ranks)
        self.assert_quality(vars(placed.after), placed.physical_to_logical, truth, ranks)
        last = layers - 1 if truth.layers is None else truth.layers[-1]
        plan = ek.plan(profile, ranks=ranks, layer=last, planner="ep")
        self.assert_loads(plan.rank_loads, truth.loads[-1].reshape(ranks, -1).sum(axis=1), truth.only_ratios)

    def assert_served(self, path, truth, ranks, said):
        """A server finds each layer's row at the layer's number, and a copy of every expert in it."""
        experts = truth.loads.shape[1]
        from_python = ek.place(ek.RoutingProfile(path, **said), ranks=ranks, redundant_experts=ranks)
        for server in ("sglang", "trtllm"):
            words = [*as_words(said), "--ranks", ranks, "--redundant-experts", ranks, "--format", server]
            words += ["--dispatch", "even"]
            placed = self.call("place", path, *words, "-o", f"command.{ENDINGS[server]}")
            from_python.save(self.folder / f"python.{ENDINGS[server]}", format=server)
            for name, after in [("command", placed["after"]), ("python", vars(from_python.after))]:
                rows = self.rows_by_number(f"{name}.{ENDINGS[server]}")
                self.assert_quality(after, [rows.pop(layer) for layer in truth.layers], truth, ranks)
                dense = range(truth.layers[-1]) if server == "sglang" else []
                self.assertEqual(sorted(rows), sorted(set(dense) - set(truth.layers)))
                for row in rows.values():
                    self.assertEqual(row, [slot % experts for slot in range(experts + ranks)])

    def rows_by_number(self, name):
        """Of a placement as SGLang or TensorRT-LLM loads it: the rows of physical experts by layer number."""
        text = (self.folder / name).read_text()
        if name.endswith(".json"):
            return dict(enumerate(json.loads(text)["physical_to_logical_map"]))
        rows = re.findall(r"^  (\d+): (\[[^]]*\])$", text, re.MULTILINE)
        return {int(number): json.loads(row) for number, row in rows}

    def assert_placement(self, path, rows, ranks, numbers, **said):
        """All who take a placement read these rows of physical experts in these layers."""
        words = [*as_words(said), "--ranks", ranks]
        rows = np.array(rows)
        experts = rows.max() + 1
        self.call("convert", path, "o.json", *words)
        ours = self.json_of("o.json")
        self.assertEqual((ours["num_experts"], ours["num_ranks"], ours.get("layers")), (experts, ranks, numbers))
        placement = ek.Placement.load(path, num_ranks=ranks, **said)
        self.assertEqual(placement.layers, numbers)
        for read in (ours["physical_to_logical"], placement.physical_to_logical):
            np.testing.assert_array_equal(by_rank(read, ranks), by_rank(rows, ranks))

        truth = Truth(self.loads(len(rows), experts), numbers)
        profile = ek.RoutingProfile(loads=truth.loads, layers=numbers)
        profile.save(self.folder / "loads.npz")
        copies = rows.shape[1] - experts
        words = ["--ranks", ranks, "--from", path, "--max-moves", 1, "--redundant-experts", copies]
        moved = self.call("place", "loads.npz", *words)
        self.assert_quality(moved["before"], rows, truth, ranks)
        moved = ek.place(profile, ranks=ranks, from_=placement, max_moves=1, redundant_experts=copies)
        self.assert_quality(vars(moved.before), rows, truth, ranks)

        if numbers is None:
            return
        for server in ("sglang", "trtllm"):
            self.call("convert", path, f"command.{ENDINGS[server]}", "--to", server, *as_words(said), "--ranks", ranks)
            placement.save(self.folder / f"python.{ENDINGS[server]}", format=server)
            for name in ("command", "python"):
                of_server = self.rows_by_number(f"{name}.{ENDINGS[server]}")
                np.testing.assert_array_equal(by_rank([of_server[n] for n in numbers], ranks), by_rank(rows, ranks))

    def assert_no_placement(self, path, ranks, *parts):
        """All who take placements refuse it, and say the same."""
        ek.RoutingProfile(loads=self.loads(2, 4)).save(self.folder / "loads.npz")
        errors = [
            self.refusal("convert", path, "o.json", "--ranks", ranks),
            self.refusal("plan", "loads.npz", "--layer", 0, "--ranks", ranks, "--placement", path),
            self.refusal("place", "loads.npz", "--ranks", ranks, "--from", path, "--max-moves", 1),
            self.refusal_of_python(ek.Placement.load, path, num_ranks=ranks),
        ]
        for error in errors:
            self.assertEqual(error, errors[0])
            self.assertEqual(error[0], "ParseError")
            for part in parts:
                self.assertIn(part, error[1])

    def assert_noted(self, path, part, **said):
        """Both say that something was read otherwise than it stands in the file."""
        if path in self.unnamed:
            said["axes"] = self.axes_of(path, True)
        self.call("profile", path, *as_words(said))
        for notes in (self.notes, "\n".join(ek.RoutingProfile(path, **said).notes)):
            self.assertIn(part, notes)

    def assert_asked(self, path, *parts):
        """Nothing takes the file for loads or for tokens, and all ask the same."""
        command = self.refusal("profile", path)
        self.assertEqual(self.refusal("place", path, "--ranks", 2), command)
        plan = self.refusal("plan", path, "--layer", 0, "--ranks", 2)
        for error in (command, plan, self.refusal_of_python(ek.RoutingProfile, path)):
            self.assertEqual(error[0], "InvalidArgument")
            self.assertIn("nobody says what its", error[1])
            for part in parts:
                self.assertIn(part, error[1])

    def loads(self, layers, experts, most=1000):
        """Counts with a few hot experts, which are others in every layer; none is 0."""
        return (1 + self.draw.random((layers, experts)) ** 4 * most).astype(int)

    def ids(self, tokens, layers, k, experts):
        """Distinct experts in every token; the last expert is chosen somewhere."""
        ids = np.argsort(self.draw.random((tokens, layers, experts)), axis=2)[:, :, :k]
        ids[0, 0] = range(experts - k, experts)
        return ids

    def slot_rows(self, layers, experts, copies, ranks):
        """[layers, experts + copies]: a map of slots to experts that has no expert twice on a rank."""
        rows = []
        for _ in range(layers):
            order = self.draw.permutation(experts)
            dealt = np.append(order, np.roll(order[experts - copies :], 1))  # to one rank after the other
            rows.append(dealt.reshape(-1, ranks).T.ravel())
        return np.array(rows)
