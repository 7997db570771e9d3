"""What the tests of the Python package share: a folder of one's own, and errors that are held to message and data."""

import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
TRACE = REPOSITORY / "data" / "tiny-moe" / "routing_step1563.npz"
RECORDINGS = REPOSITORY / "tests" / "io" / "data"


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
