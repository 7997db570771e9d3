"""benchmarks/shaped_link: its modes compute the same, its link is what carries their bytes, and nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "shaped_link"
COMMAND = os.environ.get("EVENKEEL_COMMAND", "")
sys.path.insert(0, str(FOLDER))
from two_nodes import CANNOT, Link, NoNodes, run_ranks  # noqa: E402

MBIT = 200.0
PLANNED = ("ep", "level", "auto")


def networks() -> list[str]:
    """Names and links that everybody sees."""
    return [
        subprocess.run(words, capture_output=True, text=True, check=True).stdout
        for words in (["ip", "netns", "list"], ["ip", "-o", "link"])
    ]


def processes_of(mark: str) -> list[str]:
    """Command lines of those with this mark in their environment; networks live no longer than their processes."""
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
        time.sleep(0.05)
    return True


class Nodes(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        try:
            run_ranks(["true"], Link(MBIT), 1)
        except NoNodes as error:
            raise unittest.SkipTest(f"no two nodes here: {error}") from None

    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.mark = f"EVENKEEL_RUN={self.folder}"
        self.before = networks()

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "EVENKEEL_RUN": str(self.folder)}
        started = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=self.folder, env=environment
        )
        self.addCleanup(started.communicate)
        self.addCleanup(started.kill)
        return started

    def assert_nothing_left(self) -> None:
        self.assertTrue(soon(lambda: not processes_of(self.mark)), processes_of(self.mark))
        self.assertEqual(networks(), self.before)


class TwoNodes(Nodes):
    def caller(self, program: str) -> subprocess.Popen[str]:
        """A process that runs the program (sh's) on the ranks, which write files once they run."""
        (self.folder / "rank.sh").write_text(program)
        code = (
            f"import sys; sys.path.insert(0, {str(FOLDER)!r}); from two_nodes import *\n"
            f"run_ranks(['sh', {str(self.folder / 'rank.sh')!r}], Link({MBIT}), 2)"
        )
        return self.start([sys.executable, "-c", code])

    def test_ranks_are_told_who_they_are_and_live_on_two_networks(self) -> None:
        started = self.caller("echo $RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $(ip -o -4 addr show dev link0) > at.$RANK")
        self.assertEqual(started.wait(timeout=30), 0)
        for rank in range(4):
            said = (self.folder / f"at.{rank}").read_text()
            self.assertTrue(said.startswith(f"{rank} 4 2 "), said)
            self.assertIn(f" 10.0.0.{rank // 2 + 1}/24 ", said)
        self.assert_nothing_left()

    def test_a_rank_that_fails_or_is_killed_ends_the_others(self) -> None:
        for ends, said in (("exit 3", "a rank failed with status 3"), ("kill -KILL $$", "")):
            started = self.caller(f"[ $RANK != 2 ] || {ends}; sleep 60")
            self.assertEqual(started.wait(timeout=30), 1)
            self.assertIn(said, started.communicate()[1])
            self.assert_nothing_left()

    def test_nothing_is_left_after_signals(self) -> None:
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            with self.subTest(sent):
                started = self.caller(f"touch {sent.name}.$RANK; sleep 60")
                ran = soon(lambda: all((self.folder / f"{sent.name}.{rank}").exists() for rank in range(4)))  # noqa: B023
                self.assertTrue(ran)
                self.assertGreater(len(processes_of(self.mark)), 6)
                started.send_signal(sent)
                self.assertNotEqual(started.wait(timeout=30), 0)
                self.assert_nothing_left()

    def test_two_runs_do_not_meet(self) -> None:
        both = [self.caller("sleep 1; touch both.$RANK") for _ in range(2)]
        self.assertEqual([each.wait(timeout=30) for each in both], [0, 0])
        self.assert_nothing_left()

    def test_the_delay_is_that_of_the_link(self) -> None:
        answer = (
            "import os, socket, time\n"
            "if os.environ['RANK'] == '0':\n"
            "    server = socket.create_server(('10.0.0.1', 4000)); server.accept()[0].recv(1)\n"
            "else:\n"
            "    time.sleep(1); start = time.monotonic(); client = socket.create_connection(('10.0.0.1', 4000))\n"
            "    took = time.monotonic() - start; client.close(); assert took >= 0.06, took\n"
        )
        try:
            run_ranks([sys.executable, "-c", answer], Link(MBIT, delay_ms=30), 1)
        except NoNodes as error:
            self.assertIn("netem", str(error))
            self.skipTest(f"no delay here: {error}")


class WhatIsMissing(unittest.TestCase):
    """Needs no namespaces."""

    def run_with_path(self, path: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(FOLDER / "shaped_link.py")]
        return subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60)

    def test_tools_are_named_in_one_line(self) -> None:
        done = self.run_with_path("/nowhere")
        self.assertEqual(done.returncode, CANNOT)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn("unshare and ip and tc not found on PATH", done.stderr)

    def test_rights_are_named_in_one_line(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            for tool in ("unshare", "ip", "tc"):
                path = Path(folder) / tool
                path.write_text(f"#!/bin/sh\necho '{tool}: {tool} failed: Operation not permitted' >&2; exit 1\n")
                path.chmod(0o755)
            done = self.run_with_path(folder)
        self.assertEqual(done.returncode, CANNOT)
        self.assertEqual(
            done.stderr, "shaped_link: no two nodes here: unshare: unshare failed: Operation not permitted\n"
        )

    def test_options_are_refused_with_what_would_be_right(self) -> None:
        for words, said in ((["--ranks", "3"], "must be even"), (["--rate", "0"], "--rate must be above 0, got 0")):
            command = [sys.executable, str(FOLDER / "shaped_link.py"), *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)


@unittest.skipUnless(COMMAND, "EVENKEEL_COMMAND names no command")
class ShapedLink(Nodes):
    result: dict[str, Any]

    def command(self, *more: str) -> list[str]:
        words = ["--evenkeel", COMMAND, "--rate", str(MBIT), "--training-steps", "3", "--sequences", "2"]
        return [sys.executable, str(FOLDER / "shaped_link.py"), *words, "--work", str(self.folder), *more]

    def test_a_short_run_and_one_that_is_ended(self) -> None:
        file = self.folder / "result.json"
        words = self.command("--rounds", "1", "--steps", "2", "--dtype", "float64", "--json", str(file))
        started = self.start(words)
        table, errors = started.communicate(timeout=300)
        self.assertEqual(started.returncode, 0, errors)
        self.assert_nothing_left()
        self.assertIn("placed, level", table)
        self.result = json.loads(file.read_text())
        modes = self.result["modes"]
        self.assertEqual(
            [(mode["placement"], mode["planner"]) for mode in modes[1:]],
            [("contiguous", "ep"), ("contiguous", "stock"), ("contiguous", "level"), ("contiguous", "auto")]
            + [("placed", planner) for planner in PLANNED],
        )
        for mode in modes:
            with self.subTest(placement=mode["placement"], planner=mode["planner"]):
                self.assert_same_model(mode)
                self.assert_link_carries_the_bytes(mode)
        self.assert_modes_do_what_they_are_called(modes)
        self.assert_a_signal_in_the_middle_leaves_nothing()

    def assert_same_model(self, mode: dict[str, Any]) -> None:
        """Products are in f64; the router's softmax is in f32."""
        self.assertEqual((mode["tokens"], mode["tokens_that_differ"]), (4 * 2 * 128, 0))
        self.assertLess(mode["largest_difference"], 1e-6)

    def assert_link_carries_the_bytes(self, mode: dict[str, Any]) -> None:
        """What goes to the other node is on the link, and what goes to the other rank of a node is not."""
        link, payload = mode["link_bytes_a_step"], sum(mode["payload_a_step"].values())
        seconds = self.result["tokens_a_step"] / mode["tokens_per_second"]
        self.assertGreater(link, 1e6)
        self.assertGreater(mode["loopback_bytes_a_step"], 0.3 * link)
        self.assertLess(link / 2 / seconds, 1.05 * MBIT * 1e6 / 8, "faster than the link")
        if mode["planner"] in PLANNED:
            self.assertGreater(link, payload)
            self.assertLess(link, 1.15 * payload + 1e5)
            self.assertGreaterEqual(mode["busiest_direction_a_step"], payload / 2)
            self.assertLess(mode["busiest_direction_a_step"], payload)
            self.assertLess(mode["busiest_direction_a_step"], 1.05 * MBIT * 1e6 / 8 * seconds)
        times = mode["exchange_ms"]
        self.assertTrue(0 < times["median"] <= times["p95"] <= times["max"] < 1e3 * seconds, times)

    def assert_modes_do_what_they_are_called(self, modes: list[dict[str, Any]]) -> None:
        ep, control, stock, level, auto, placed, placed_level, placed_auto = modes
        self.assertEqual(ep["payload_a_step"], control["payload_a_step"])
        self.assertGreater(stock["link_bytes_a_step"], ep["link_bytes_a_step"])  # a row goes to a rank more than once
        for moves in (level, placed_level):
            self.assertGreater(moves["transfers_a_step"], 0)
            self.assertGreater(moves["payload_a_step"]["weights"], 0)
            self.assertLess(moves["max_over_mean"], moves["max_over_mean_at_home"])
        for still in (ep, control, placed):
            self.assertEqual(still["transfers_a_step"], 0)
            self.assertNotIn("weights", still["payload_a_step"])  # no collective, on any rank
        self.assertLess(placed["max_over_mean"], ep["max_over_mean"])
        self.assertEqual(placed_auto["max_over_mean_at_home"], placed["max_over_mean_at_home"])
        self.assertLessEqual(auto["transfers_a_step"], level["transfers_a_step"])

    def assert_a_signal_in_the_middle_leaves_nothing(self) -> None:
        """Of a run in the same folder, which takes the model that is there."""
        started = self.start(self.command("--rounds", "1000"))
        ranks = str(FOLDER / "rank.py")
        self.assertTrue(soon(lambda: any(ranks in line for line in processes_of(self.mark)), seconds=120))
        started.terminate()
        self.assertEqual(started.wait(timeout=30), 128 + signal.SIGTERM)
        self.assert_nothing_left()


if __name__ == "__main__":
    unittest.main()
