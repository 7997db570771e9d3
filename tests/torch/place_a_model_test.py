"""examples/place_a_model.py balances what it recorded, and the placed model gives the same logits."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import tiny_models

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "place_a_model.py"
COMMAND = os.environ.get("EVENKEEL_COMMAND", "")


@unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
class PlaceAModel(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def run_example(self, *options):
        words = [sys.executable, EXAMPLE, "--evenkeel", COMMAND, *options]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        before, after = (float(re.search(rf"{name} +(\d\.\d+)", done.stdout)[1]) for name in ("as it was", "placed"))
        self.assertLess(after, before)
        return before, after

    def test_its_own_model(self):
        before, after = self.run_example()
        self.assertGreater(before, 1.05)
        self.assertLess(after, 1.03)

    def test_a_checkpoint(self):
        model, _ = tiny_models.make("olmoe", num_experts=16)
        model.save_pretrained(self.folder / "model")
        self.run_example("--model", self.folder / "model", "--ranks", "2", "--output", self.folder / "out")
        names = {path.name for path in (self.folder / "out").iterdir()}
        self.assertEqual(names, {"trace.safetensors", "placement.json", "placed", "placed.safetensors"})


if __name__ == "__main__":
    unittest.main()
