"""Shared by the tests of the Python package: a temporary folder, random arrays, and checks of errors."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import numpy as np

REPOSITORY = Path(__file__).resolve().parents[2]
TRACE = REPOSITORY / "data" / "tiny-moe" / "routing_step1563.npz"
RECORDINGS = REPOSITORY / "tests" / "io" / "data"
# Small inputs that people's tools really produce: in a folder beside a checkout of ours, if there is one.
CASES = Path(os.environ.get("EVENKEEL_CASES") or REPOSITORY.parent / "shared" / "cases")
sys.path.append(str(REPOSITORY / "tests" / "cli"))  # file writers that the command's tests also use
# The command that gives the same results as the package; empty if there is none.
COMMAND = os.environ.get("EVENKEEL_COMMAND", "")


def command_output(*words):
    done = subprocess.run([COMMAND, *map(str, words), "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def random_arrays(seed, layers, experts):
    """Loads and transitions in which some experts are much busier than others."""
    draw = np.random.default_rng(seed)
    transitions = draw.integers(0, 200, (layers - 1, experts, experts)) ** 2
    return draw.lognormal(5, 1, (layers, experts)).astype(int), transitions


def write_sparse_trace(path, tokens):
    """Writes zeros [tokens, 4, 4] as npy in a sparse file, which is quick to make and takes long to read."""
    header = f"{{'descr': '|i1', 'fortran_order': False, 'shape': ({tokens}, 4, 4), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode())
        file.truncate(file.tell() + tokens * 16)


class PackageTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def case(self, name):
        """The path of a collected file; skips the test if it is missing."""
        if not (CASES / name).exists():
            self.skipTest(f"{CASES} has no {name}")
        return CASES / name

    def assert_interrupted(self, call, *arguments, within=1.5, **named):
        """Checks that Ctrl-C ends the call within `within` seconds."""
        # A shell starts background jobs with the signal ignored.
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.default_int_handler))
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            call(*arguments, **named)
        self.assertLess(time.monotonic() - begin, within)

    def assert_raises(self, error_type, message, call, *arguments, **named):
        """Checks the error's type, a part of its message, and that it has data; returns the error."""
        with self.assertRaises(error_type) as caught:
            call(*arguments, **named)
        self.assertIn(message, str(caught.exception))
        self.assertTrue(caught.exception.data)
        return caught.exception
