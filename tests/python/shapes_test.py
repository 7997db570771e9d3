"""The same file is the same thing to every command and to Python: the same loads, layer numbers and homes, or the same
refusal. What they are is proven elsewhere, of one of them."""

import json
import subprocess
import unittest

import numpy as np
from support import CASES, COMMAND, REPOSITORY, PackageTest

import evenkeel as ek


def readable_files():
    """Whatever the tests have that some reader takes, or refuses."""
    files = [path for path in (REPOSITORY / "tests" / "io" / "data").iterdir() if path.suffix != ".py"]
    files += [path for path in (REPOSITORY / "tests" / "fuzz" / "corpus").rglob("*") if path.is_file()]
    files += list((REPOSITORY / "data" / "tiny-moe").glob("*.npz"))
    if CASES.is_dir():
        files += [path for folder in ("B*", "C*", "F*", "G_axes") for path in CASES.glob(f"{folder}/*")]
    files.sort()
    once = {path.read_bytes() if path.is_file() else path: path for path in files}  # of equal files one
    return list(once.values())


@unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
class Shapes(PackageTest):
    def setUp(self):
        super().setUp()
        ek.RoutingProfile(loads=[[1] * 4] * 2).save(self.folder / "loads.npz")

    def call(self, *words):
        """What the command prints, or the error that it refuses with."""
        done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True, cwd=self.folder)
        self.assertIn(done.returncode, (0, 2, 3, 4), (words, done.stderr))
        return json.loads(done.stdout)

    def by_profile(self, path, *words):
        """Layer numbers and loads, or the error."""
        out = self.call("profile", path, *words, "-o", "p.npz")
        if error_of(out):
            return error_of(out)
        with np.load(self.folder / "p.npz") as written:
            return out["layer_numbers"], written["loads"].tolist()

    def assert_all_read(self, path, shape, *words):
        """The commands but `profile`: of `place` the shape, of `plan` the loads of the first layer."""
        numbers, loads = shape
        out = self.call("place", path, *words, "--ranks", 1, "--time-limit", 1)
        self.assertEqual((out["layers"], out["num_layers"], out["num_experts"]), (numbers, len(loads), len(loads[0])))
        layer = ["--layer", (numbers or [0])[0]] if len(loads) > 1 or numbers else []
        out = self.call("plan", path, *words, *layer, "--ranks", 1)
        if "--ranks" in str(error_of(out)):  # which the file says itself
            out = self.call("plan", path, *words, *layer)
        self.assertEqual((out["num_experts"], sum(out["rank_loads"])), (len(loads[0]), sum(loads[0])))
        self.call("convert", path, "c.npz", *words)
        self.assertEqual(self.by_python(self.folder / "c.npz", num_experts=len(loads[0])), shape)

    def has_the_same_homes(self, path, ranks):
        """Whether all read it as a placement on so many ranks; if not, all refuse it alike."""
        out = self.call("convert", path, "o.json", "--ranks", ranks)
        try:
            placement = ek.Placement.load(path, num_ranks=ranks)
        except ek.Error as error:
            self.assertEqual((type(error).__name__, str(error)), as_python_says(error_of(out)))
            planned = self.call("plan", "loads.npz", "--layer", 0, "--ranks", ranks, "--placement", path)
            moved = ["place", "loads.npz", "--ranks", ranks, "--from", path, "--max-moves", 1]
            self.assertEqual((error_of(planned), error_of(self.call(*moved))), (error_of(out),) * 2)
            return False
        self.assertEqual(ek.Placement.load(self.folder / "o.json"), placement)
        return True

    def by_python(self, path, **said):
        try:
            profile = ek.RoutingProfile(path, **said)
        except ek.Error as error:
            return type(error).__name__, str(error)
        return profile.layers, profile.loads.tolist()

    def test_every_readable_file_has_one_shape(self):
        recordings = placements = 0
        for path in readable_files():
            with self.subTest(path=str(path)):
                shape = self.by_profile(path)
                self.assertEqual(self.by_python(path), as_python_says(shape))
                if not isinstance(shape[0], str):
                    recordings += 1
                    self.assert_all_read(path, shape)
                elif "is a placement" in shape[1]:
                    placements += sum(self.has_the_same_homes(path, ranks) for ranks in (2, 8))
        self.assertGreater(recordings, 30)
        self.assertGreater(placements, 3)

    def test_what_is_said_of_a_file_is_said_to_all(self):
        draw = np.random.default_rng(1)
        ids, counts = self.folder / "ids.npy", self.folder / "counts.json"
        np.save(ids, np.argsort(draw.random((40, 3, 24)), axis=2)[:, :, :4].transpose(0, 2, 1))
        counts.write_text(json.dumps(draw.integers(1, 99, (3, 8)).tolist()))
        filled = self.folder / "filled.npy"  # a dense layer, and places without an expert
        array = np.argsort(draw.random((40, 3, 24)), axis=2)[:, :, :4].astype(np.uint8)
        array[:, 0], array[:, 1:, 3] = 0, 255
        np.save(filled, array)
        lines = self.folder / "lines.csv"
        lines.write_text("".join(f"{3 + n % 2},{n % 5},{5 + n % 4}\n" for n in range(20)))
        for path, words, said in [
            (ids, ["--axes", "tokens,k,layers"], {"axes": "tokens,k,layers"}),
            (ids, ["--axes", "tokens,k,layers", "--num-experts", 30], {"axes": "tokens,k,layers", "num_experts": 30}),
            (filled, ["--axes", "tokens,layers,k"], {"axes": "tokens,layers,k"}),
            (counts, ["--as", "counts", "--moe-layers", "2,4-5"], {"as_": "counts", "layers": [2, 4, 5]}),
            (lines, ["--columns", "layer,k..."], {"columns": "layer,k..."}),
        ]:
            with self.subTest(words=words):
                for command in (["profile"], ["place", "--ranks", 1], ["plan", "--ranks", 1]):
                    asked = as_python_says(error_of(self.call(command[0], path, *command[1:])))
                    self.assertEqual(asked[0], "InvalidArgument")
                    self.assertIn("nobody says what its", asked[1])
                shape = self.by_profile(path, *words)
                self.assertEqual(self.by_python(path, **said), shape)
                self.assert_all_read(path, shape, *words)


def error_of(out):
    return (out["error"]["type"], out["error"]["message"]) if "error" in out else None


def as_python_says(shape):
    """An option of the command is an argument of the package."""
    if not isinstance(shape[0], str):
        return shape
    return shape[0], shape[1].replace("--as: ", "as_: ").replace("--", "")


if __name__ == "__main__":
    unittest.main()
