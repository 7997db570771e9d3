"""Runs the command under test, which EVENKEEL_COMMAND names: `cd tests/cli && python3 -m unittest plan_test`."""

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
# Small inputs that people's tools really produce; not in the repository.
CASES = Path(os.environ.get("EVENKEEL_CASES") or REPOSITORY.parent / "shared" / "cases")
# Characters are UTF-8 unless a test says otherwise.
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
    """An npz of one array of int64, by hand."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.npy", npy(shape, values))
    return buffer.getvalue()


def without_readings(text):
    """Of an array without a name the reading taken is always said, and of a trace which layers were chosen."""
    return re.sub(r"note: [^\n]*(: read as | layers are taken: )[^\n]*\n", "", text)


class CommandTest(unittest.TestCase):
    """Each test has a folder of its own, where the command runs."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def call(self, *words, **changes):
        """What the command printed, and its exit status; `changes` are those of subprocess.run."""
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": UTF8} | changes
        return subprocess.run([COMMAND, *map(str, words)], cwd=self.folder, check=False, **how)

    def start(self, *words, **changes):
        """The same, running. Signals have their default, which those of a shell's background jobs have not."""
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": UTF8} | changes
        how.setdefault("preexec_fn", default_signals)
        return subprocess.Popen([COMMAND, *map(str, words)], cwd=self.folder, **how)

    def case(self, name):
        """A path among the cases, or a skipped test."""
        if not (CASES / name).exists():
            self.skipTest(f"{CASES} has no {name}")
        return CASES / name

    def json(self, *words):
        done = self.call(*words, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(without_readings(done.stderr), "")
        return json.loads(done.stdout)

    def shown(self, *words):
        """What people see: all is well, and no line is longer than 100 columns."""
        done = self.call(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)
        return done.stdout

    def file(self, name):
        return json.loads((self.folder / name).read_text(encoding="utf-8"))

    def homes(self, name):
        """homes[layer][expert] of a placement of ours, from the file alone; the ranks of an expert in order."""
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
        """The exit status, one line on stderr that has all parts, and the error as an object on stdout."""
        done = self.call(*words, "--json")
        self.assertEqual(done.returncode, status, done.stderr)
        self.assertRegex(without_readings(done.stderr), r"\Aevenkeel: [^\n]+\n\Z")
        for part in parts:
            self.assertIn(part, done.stderr)
        error = json.loads(done.stdout)["error"]
        self.assertEqual(error["type"], error_type)
        self.assertEqual(f"evenkeel: {error['message']}\n", without_readings(done.stderr))
        return error
