"""The same file is the same thing to every command and to Python: layers, experts, layer numbers, or the same refusal."""

import json
import subprocess
import unittest

from support import CASES, COMMAND, REPOSITORY, PackageTest

import evenkeel as ek


def readable_files():
    """Whatever the tests have that some reader takes, or refuses."""
    files = [path for path in (REPOSITORY / "tests" / "io" / "data").iterdir() if path.suffix != ".py"]
    files += [path for path in (REPOSITORY / "tests" / "fuzz" / "corpus").rglob("*") if path.is_file()]
    files += list((REPOSITORY / "data" / "tiny-moe").glob("*.npz"))
    if CASES.is_dir():
        files += [path for folder in ("B*", "C*", "F*") for path in CASES.glob(f"{folder}/*")]
    return sorted(files)


@unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
class Shapes(PackageTest):
    def call(self, *words):
        """What the command prints, or the error that it refuses with."""
        done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True, cwd=self.folder)
        self.assertIn(done.returncode, (0, 2, 3, 4), (words, done.stderr))
        return json.loads(done.stdout)

    def by_profile(self, path):
        out = self.call("profile", path)
        return error_of(out) or (out["num_layers"], out["num_experts"], out["layer_numbers"])

    def by_place(self, path):
        out = self.call("place", path, "--ranks", 1, "--time-limit", 1)
        return error_of(out) or (out["num_layers"], out["num_experts"], out["layers"])

    def by_plan(self, path, shape):
        first = (shape[2] or [0])[0]
        layer = ["--layer", first] if shape[0] > 1 or shape[2] else []
        out = self.call("plan", path, *layer, "--ranks", 2)
        if "--ranks" in str(error_of(out)):  # which the file says itself
            out = self.call("plan", path, *layer)
        return error_of(out) or out["num_experts"]

    def by_python(self, path):
        try:
            profile = ek.RoutingProfile(path)
        except ek.Error as error:
            return type(error).__name__, str(error)
        return profile.num_layers, profile.num_experts, profile.layers

    def test_every_readable_file_has_one_shape(self):
        shapes = {}
        for path in readable_files():
            with self.subTest(path=str(path)):
                shape = self.by_profile(path)
                self.assertEqual(self.by_python(path), as_python_says(shape))
                if isinstance(shape[0], str):
                    continue
                shapes[path] = shape
                self.assertEqual(self.by_place(path), shape)
                self.assertEqual(self.by_plan(path, shape), shape[1])
                self.call("convert", path, "c.npz")
                self.assertEqual(self.by_profile("c.npz"), shape)
        self.assertGreater(len(shapes), 30)


def error_of(out):
    return (out["error"]["type"], out["error"]["message"]) if "error" in out else None


def as_python_says(shape):
    """An option of the command is an argument of the package."""
    if not isinstance(shape[0], str):
        return shape
    return shape[0], shape[1].replace("--as: ", "as_: ").replace("--", "")


if __name__ == "__main__":
    unittest.main()
