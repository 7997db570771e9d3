"""Every command and Python read a file alike: the same loads, layer numbers and homes, or the same refusal.

What those are is tested in the library (tests/io).
"""

import json
import subprocess
import unittest

import numpy as np
from support import COMMAND, RECORDINGS, PackageTest

import evenkeel as ek


@unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
class Shapes(PackageTest):
    def call(self, *words):
        """What the command prints, or the type and message of its error."""
        done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True, cwd=self.folder)
        self.assertIn(done.returncode, (0, 2, 3, 4), (words, done.stderr))
        out = json.loads(done.stdout)
        return (out["error"]["type"], out["error"]["message"]) if "error" in out else out

    def by_python(self, path, **said):
        profile = ek.RoutingProfile(path, **said)
        return profile.layers, profile.loads.tolist()

    def assert_all_read(self, path, words=(), **said):
        """Compares layers and loads of `profile` and `convert`, the shape of `place`, and the first layer of `plan`."""
        numbers, loads = shape = self.by_python(path, **said)
        for command in (["profile", path, *words, "-o", "p.npz"], ["convert", path, "p.npz", *words]):
            self.call(*command)
            self.assertEqual(self.by_python(self.folder / "p.npz", num_experts=len(loads[0])), shape)
        out = self.call("place", path, *words, "--ranks", 1)
        self.assertEqual((out["layers"], out["num_layers"], out["num_experts"]), (numbers, len(loads), len(loads[0])))
        out = self.call("plan", path, *words, "--layer", (numbers or [0])[0], "--ranks", 1)
        self.assertEqual((out["num_experts"], sum(out["rank_loads"])), (len(loads[0]), sum(loads[0])))

    def assert_all_refuse(self, path, error_type, part):
        with self.assertRaises(ek.Error) as caught:
            ek.RoutingProfile(path)
        self.assertIn(part, str(caught.exception))
        for command in (["profile", path], ["place", path, "--ranks", 1]):
            refused, message = self.call(*command)
            self.assertEqual((refused, message.replace("--", "")), (error_type, str(caught.exception)))
        self.assertEqual(self.call("plan", path, "--ranks", 1)[0], error_type)

    def test_files_that_say_what_they_are(self):
        for name in ["trace.safetensors", "profile.safetensors", "sglang_stat.pt", "sglang_per_token.pt"]:
            with self.subTest(name):
                self.assert_all_read(RECORDINGS / name)
        self.assert_all_refuse(RECORDINGS / "checkpoint.pt", "ParseError", "not a recording of SGLang")

    def test_what_is_said_of_a_file_is_said_to_all(self):
        draw = np.random.default_rng(1)
        ids, counts, lines = (self.folder / name for name in ("ids.npy", "counts.json", "lines.csv"))
        np.save(ids, np.argsort(draw.random((40, 3, 24)), axis=2)[:, :, :4].transpose(0, 2, 1))
        counts.write_text(json.dumps(draw.integers(1, 99, (3, 8)).tolist()))
        lines.write_text("".join(f"{3 + n % 2},{n % 5},{5 + n % 4}\n" for n in range(20)))
        for path, words, said in [
            (ids, ["--axes", "tokens,k,layers", "--num-experts", 30], {"axes": "tokens,k,layers", "num_experts": 30}),
            (counts, ["--as", "counts", "--moe-layers", "2,4-5"], {"as_": "counts", "layers": [2, 4, 5]}),
            (lines, ["--columns", "layer,k..."], {"columns": "layer,k..."}),
        ]:
            with self.subTest(words=words):
                self.assert_all_refuse(path, "InvalidArgument", "no option says what the dimensions")
                self.assert_all_read(path, words, **said)

    def test_a_placement_has_the_same_homes(self):
        path = self.folder / "p.json"
        path.write_text('{"physical_to_logical_map": [[0, 3, 1, 2], [2, 3, 0, 1]]}')
        self.call("convert", path, "o.json", "--ranks", 2)
        self.assertEqual(ek.Placement.load(self.folder / "o.json"), ek.Placement.load(path, num_ranks=2))
        path.write_text('{"physical_to_logical_map": [[0, 0, 1, 2]]}')
        error, message = self.call("convert", path, "o.json", "--ranks", 2)
        self.assertEqual(error, "ParseError")
        self.assert_raises(ek.ParseError, message, ek.Placement.load, path, num_ranks=2)
