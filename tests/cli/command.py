"""Runs the command under test, named by EVENKEEL_COMMAND: `cd tests/cli && python3 -m unittest plan_test`."""

import io
import json
import os
import re
import signal
import struct
import subprocess
import tempfile
import unittest
import zipfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent
COMMAND = Path(os.environ.get("EVENKEEL_COMMAND") or REPOSITORY / "build/release/bin/evenkeel").resolve()
# Small inputs that people's tools really produce; they are not in the repository.
CASES = Path(os.environ.get("EVENKEEL_CASES") or REPOSITORY.parent / "shared" / "cases")
# Text is UTF-8 unless a test says otherwise.
UTF8 = os.environ | {"LC_ALL": "C.UTF-8"}


def default_signals():
    for sign in [signal.SIGHUP, signal.SIGINT, signal.SIGTERM]:
        signal.signal(sign, signal.SIG_DFL)


def npy(shape, values, descr="<i8", code="q"):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    return array + struct.pack(f"<{len(values)}{code}", *values)


def npz(name, shape, values):
    """An npz with one int64 array, written by hand."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.npy", npy(shape, values))
    return buffer.getvalue()


def without_readings(text):
    """Removes the notes on how an unnamed array was read and on which layers of a trace were taken."""
    return re.sub(r"note: [^\n]*(: read as | layers are taken: )[^\n]*\n", "", text)


class CommandTest(unittest.TestCase):
    """Every test has its own folder, in which the command runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def call(self, *words, **changes):
        """Runs the command; returns its output and exit status. `changes` are arguments of subprocess.run."""
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": UTF8} | changes
        return subprocess.run([COMMAND, *map(str, words)], cwd=self.folder, check=False, **how)

    def start(self, *words, **changes):
        """Starts the command without waiting, with default signals: a shell's background jobs ignore some."""
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": UTF8} | changes
        how.setdefault("preexec_fn", default_signals)
        return subprocess.Popen([COMMAND, *map(str, words)], cwd=self.folder, **how)

    def case(self, name):
        """The path of a case; skips the test if it is missing."""
        if not (CASES / name).exists():
            self.skipTest(f"{CASES} has no {name}")
        return CASES / name

    def json(self, *words):
        done = self.call(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(without_readings(done.stderr), "")
        return json.loads(done.stdout)

    def shown(self, *words):
        """The printed text of a successful run; checks that no line is longer than 100 columns."""
        done = self.call(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        return done.stdout

    def file(self, name):
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def homes(self, name):
        """homes[layer][expert] of a placement file in our format, parsed here; an expert's ranks are sorted."""
        file = self.file(name)
        ranks, rows = file["num_ranks"], file["physical_to_logical"]
        even = [[rank * len(row) // ranks for rank in range(ranks + 1)] for row in rows]
        homes = []
        for row, ends in zip(rows, file.get("rank_offsets", even), strict=True):
            slots = [(rank, row[at]) for rank in range(ranks) for at in range(ends[rank], ends[rank + 1])]
            homes.append([[rank for rank, held in slots if held == e] for e in range(file["num_experts"])])
        return homes

    def write(self, name, value):
        (self.folder / name).write_text(json.dumps(value), encoding="utf-8")
        return name

    def assert_refused(self, words, status, error_type, *parts):
        """Checks the exit status, one line on stderr with all `parts`, and the error as an object on stdout."""
        done = self.call(*words, "--json")
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(without_readings(done.stderr), r"\Aevenkeel: [^\n]+\n\Z")
        for part in parts:
            self.assertIn(part, done.stderr)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["type"], error_type)
        self.assertEqual(f"evenkeel: {error['message']}\n", without_readings(done.stderr))
        return error
