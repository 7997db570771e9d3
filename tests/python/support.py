"""What the tests of the Python package share: a folder of one's own, random arrays, and errors that are held to message
and data."""

import os
import tempfile
import unittest
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
TRACE = REPOSITORY / "data" / "tiny-moe" / "routing_step1563.npz"
RECORDINGS = REPOSITORY / "tests" / "io" / "data"
# The command that says the same as the package; empty where there is none.
COMMAND = os.environ.get("EVENKEEL_COMMAND", "")


def random_arrays(seed, layers, experts):
    """Loads and transitions, some experts much busier than others."""
    draw = np.random.default_rng(seed)
    transitions = draw.integers(0, 200, (layers - 1, experts, experts)) ** 2
    return draw.lognormal(5, 1, (layers, experts)).astype(int), transitions


class PackageTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def assert_raises(self, error_type, message, call, *arguments, **named):
        """The error's type, a part of its sentence, and that its data are in the sentence."""
        with self.assertRaises(error_type) as caught:
            call(*arguments, **named)
        self.assertIn(message, str(caught.exception))
        self.assertTrue(caught.exception.data)
        return caught.exception
