"""tools/hosts.py: hosts have their own names, ranks and links, and leave nothing behind, however they end."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections import Counter
from collections.abc import Callable
from pathlib import Path

HOSTS = Path(__file__).resolve().parents[2] / "tools/hosts.py"
CANNOT = 77
STREAM = """
import os, socket, time
size, port = 8_000_000, 4000
if os.environ["RANK"] == "0":
    peer, _ = socket.create_server(("host0", port)).accept()
    left, start = size, time.monotonic()
    while left:
        left -= len(peer.recv(left))
    print(size * 8e-6 / (time.monotonic() - start))
    peer.send(b".")
else:
    while True:
        try:
            peer = socket.create_connection(("host0", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
    peer.sendall(bytes(size))
    peer.recv(1)
"""
ROUND_TRIP = """
import os, socket, time
if os.environ["RANK"] == "0":
    start = time.monotonic()
    try:
        socket.create_connection(("host1", 1))
    except ConnectionRefusedError:
        print(time.monotonic() - start)
"""


def networks() -> list[str]:
    """The names and links of the machine, outside the namespaces."""
    return [
        subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for words in (["ip", "netns", "list"], ["ip", "-o", "link"])
    ]


def processes_of(mark: str) -> list[str]:
    """Command lines of the processes with this mark in their environment; networks end with their processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def soon(holds: Callable[[], bool], seconds: float = 10) -> bool:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class OnHosts(unittest.TestCase):
    """Checks after every test that nothing is left running."""

    @classmethod
    def setUpClass(cls) -> None:
        done = subprocess.run([sys.executable, HOSTS, "true"], capture_output=True, text=True)
        if done.returncode == CANNOT:
            raise unittest.SkipTest(done.stderr.strip())

    def setUp(self) -> None:
        self.temporary = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.mark = f"TMPDIR={self.temporary}"
        self.before = networks()

    def start_program(self, program: Path, *words: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "TMPDIR": str(self.temporary)}
        started = subprocess.Popen(
            [sys.executable, program, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.addCleanup(started.communicate)
        self.addCleanup(started.kill)
        return started

    def assert_nothing_left(self, seconds: float = 0) -> None:
        self.assertTrue(soon(lambda: not processes_of(self.mark), seconds), processes_of(self.mark))
        self.assertEqual(networks(), self.before)


class Hosts(OnHosts):
    def start(self, *words: str) -> subprocess.Popen[str]:
        return self.start_program(HOSTS, *words)

    def assert_nothing_left(self, seconds: float = 0) -> None:
        super().assert_nothing_left(seconds)
        self.assertEqual(list(self.temporary.iterdir()), [])

    def output(self, *words: str) -> str:
        started = self.start(*words)
        said, errors = started.communicate(timeout=60)
        if started.returncode == CANNOT:
            self.skipTest(errors.strip())
        self.assertEqual(started.returncode, 0, errors)
        self.assert_nothing_left()
        return said

    def test_hosts_have_names_and_addresses_and_ranks_are_told_who_they_are(self) -> None:
        program = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $(hostname) $(ip -br -4 addr show link0)"
        said = self.output("--hosts", "3", "--per-host", "2", "--each", "--", "sh", "-c", program).splitlines()
        self.assertEqual(len(said), 6)
        for rank, line in enumerate(sorted(said)):
            host, local = divmod(rank, 2)
            self.assertTrue(line.startswith(f"{rank} 6 {local} 2 host{host} link0"), line)
            self.assertTrue(line.endswith(f" 10.0.0.{host + 1}/24"), line)

    def test_one_command_is_on_the_first_host_and_its_status_is_passed_on(self) -> None:
        self.assertEqual(self.output("hostname"), "host0\n")
        for program, status in (("exit 3", 3), ("kill -KILL $$", 128 + signal.SIGKILL)):
            self.assertEqual(self.start("--", "sh", "-c", program).wait(timeout=30), status)
            self.assert_nothing_left()

    @unittest.skipUnless(shutil.which("mpirun"), "mpirun is not installed")
    def test_open_mpi_starts_ranks_on_every_host(self) -> None:
        for words in (["--per-host", "2", "--", "mpirun"], ["--", "mpirun", "-np", "4", "--map-by", "ppr:2:node"]):
            said = self.output(*words, "sh", "-c", "echo $(hostname) $((OMPI_COMM_WORLD_RANK / 2))")
            self.assertEqual(Counter(said.splitlines()), {"host0 0": 2, "host1 1": 2})

    def test_the_rate_is_that_of_the_link(self) -> None:
        words = ("--rate", "100mbit", "--each", "--", sys.executable, "-c", STREAM)
        seen = [float(self.output(*words)) for _ in range(3)]
        self.assertGreater(max(seen), 90)  # less if others use the cores
        self.assertLess(max(seen), 100)

    def test_the_delay_is_that_of_the_link(self) -> None:
        for rate in ([], ["--rate", "100mbit"]):
            seen = float(self.output(*rate, "--delay", "30ms", "--each", "--", sys.executable, "-c", ROUND_TRIP))
            self.assertGreaterEqual(seen, 0.06)

    def test_a_rank_that_fails_ends_the_others(self) -> None:
        program = "[ $RANK != 2 ] || exit 3; sleep 60 & sleep 60"
        started = self.start("--per-host", "2", "--each", "--", "sh", "-c", program)
        self.assertEqual(started.wait(timeout=30), 3)
        self.assert_nothing_left()

    def test_nothing_is_left_after_signals(self) -> None:
        program = "trap '' INT TERM HUP; setsid sleep 60 & echo; wait"
        mpirun = [["--", "mpirun", "sh"]] if shutil.which("mpirun") else []
        for words in [["--each", "--", "sh"], *mpirun]:
            for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
                with self.subTest(words=words, sent=sent.name):
                    started = self.start(*words, "-c", program)
                    assert started.stdout is not None
                    self.assertEqual([started.stdout.readline() for _ in range(2)], ["\n", "\n"])
                    started.send_signal(sent)
                    waited = sent in (signal.SIGINT, signal.SIGTERM)
                    self.assertEqual(started.wait(timeout=30), 128 + sent if waited else -sent)
                    self.assert_nothing_left(seconds=0 if waited else 10)


class WhatIsMissing(unittest.TestCase):
    """Tests that need no namespaces."""

    def refusal(self, path: str) -> str:
        command = [sys.executable, str(HOSTS), "true"]
        done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, CANNOT)
        self.assertEqual(done.stderr.count("\n"), 1)
        return done.stderr

    def test_tools_are_named_in_one_line(self) -> None:
        self.assertIn("cannot be created here: not found on PATH: ip, tc, mount", self.refusal("/nowhere"))

    def test_rights_are_named_in_one_line(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for tool in ("ip", "tc", "mount", "nsenter", "unshare", "hostname"):
                path = Path(folder) / tool
                path.write_text(f"#!/bin/sh\necho '{tool}: Operation not permitted' >&2; exit 1\n")
                path.chmod(0o755)
            self.assertIn("Operation not permitted", self.refusal(folder))

    def test_options_are_refused_with_what_would_be_right(self) -> None:
        for words, said in (
            (["--rate", "2gbit"], "invalid mbit value"),
            (["--rate", "0"], "--rate must be above 0"),
            (["--hosts", "0"], "--hosts must be 1 to 254"),
        ):
            done = subprocess.run([sys.executable, HOSTS, *words, "true"], capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    unittest.main()
