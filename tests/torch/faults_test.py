"""Which ranks hear of a fault, and that outsiders cannot join. Faults in every phase: fault_storm_test.py."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import sys
import threading
import time
import unittest
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from layer_test import experts
from modes_test import Case
from processes import require_documented, run_ranks

from evenkeel.errors import CommError
from evenkeel.torch import _faults, _peers
from evenkeel.torch._exchange import Exchange
from evenkeel.torch._faults import Place, Verdict


def run(case: Case, computed_by: Callable[..., torch.Tensor] = experts) -> None:
    """A step in which weights move."""
    case.run(computed_by).backward(case.grad)


def raising(*_: Any) -> torch.Tensor:
    raise ValueError("rows of another planet")


def on_subgroups(rank: int, ranks: int) -> list[str]:
    """Errors on two groups of all ranks but rank 0: in the first, the last rank fails; in the second, none does."""
    met = []
    for fails in (True, False):
        threads = threading.active_count()
        group = dist.new_group(list(range(1, ranks)))
        if rank == 0:
            continue
        case = Case(rank - 1, ranks - 1, group=group, name="7")
        try:
            run(case, raising if fails and rank == ranks - 1 else experts)
            met.append("none")
        except (CommError, ValueError) as error:
            met.append(str(error))
        dist.destroy_process_group(group)
        del group, case
        gc.collect()
        for _ in range(100):
            if threading.active_count() > threads:
                time.sleep(0.02)
        assert threading.active_count() == threads, "the thread outlives its group"
    return met


def told_of_a_fault(rank: int, ranks: int) -> list[str]:
    """Results on rank 1 while rank 0 is late: rank 1 hears of a fault in a later collective, then in an earlier one."""
    exchange = Exchange(None, "7")
    exchange.all_gather("counts", torch.zeros(1))
    met = []
    for first in (3, 2):  # the collective below is number 2, then number 3
        if rank == 0:
            time.sleep(0.8)
        else:
            faults = exchange.faults(torch.device("cpu"))
            message = Verdict(0, Place(first, "counts", "7", "forward"), "rank 0 failed")
            threading.Timer(0.1, setattr, (faults, "verdict", message)).start()
        try:
            met.append(str(exchange.all_gather("counts", torch.ones(1)).sum().item()))
            exchange.faults(torch.device("cpu")).verdict = None
        except CommError as error:
            met.append(str(error))
    return met


def outcome(work: Callable[[], object]) -> tuple[int, str]:
    """The peer and the message of the error raised; peer -2 if it was not a `CommError`."""
    try:
        work()
    except CommError as error:
        return int(error.data["peer"]), str(error)
    except (ValueError, RuntimeError) as error:
        return -2, str(error)
    return -2, "nothing"


def rank_1_raises(rank: int, ranks: int) -> tuple[int, str]:
    """Rank 1 raises in the second step."""
    case = Case(rank, ranks, name="7")
    run(case)
    return outcome(lambda: run(case, raising if rank == 1 else experts))


def without_ipv4(rank: int, ranks: int) -> tuple[int, str]:
    create = socket.create_server

    def refused(address: Any, *, family: Any, **options: Any) -> socket.socket:
        if family == socket.AF_INET:
            raise OSError("Address family not supported by protocol")
        return create(address, family=family, **options)

    socket.create_server = refused
    return rank_1_raises(rank, ranks)


def on_hosts_of_their_own(rank: int, ranks: int) -> tuple[int, str]:
    """Every rank has its own address, and none listens at 127.0.0.1."""
    addresses = [f"127.0.0.{rank + 2}"]
    with mock.patch.multiple(_peers, host_name=lambda: f"host{rank}", _outward_addresses=lambda: iter(addresses)):
        return rank_1_raises(rank, ranks)


def among_strangers(rank: int, ranks: int) -> tuple[int, str]:
    """Strangers connect to every rank while the group is being set up.

    They send noise, and replay what ranks have sent. One knows the secret, and sends messages meant for other ranks.
    """
    listeners: list[Any] = []
    strangers: list[socket.socket] = []
    listen, connect, send = _peers._listen, _peers.Peers.connect, _peers.Peers._send

    def listening(addresses: Any) -> socket.socket | None:
        made = listen(addresses)
        if made is not None:
            listeners.append(made.getsockname()[:2])
            for data in (b"[" * 4096 + b"\n", b"\n", os.urandom(70000), b"0 [0, 1]\n", b""):
                call(data)
        return made

    def call(data: bytes, address: Any = None) -> None:
        strangers.append(socket.create_connection(address or listeners[-1]))
        strangers[-1].sendall(data)

    def sending(self: Any, connection: Any, message: Any) -> None:
        send(self, connection, message)
        line = json.dumps(message).encode()
        for data in (self._signature(line) + b" " + line + b"\n", self._signature(line) + b" " + line):
            with contextlib.suppress(OSError):  # only one end of a connection listens
                call(data, connection.socket.getpeername()[:2])

    def connecting(self: Any, gather: Callable[[str], list[str]]) -> None:
        def gathering(text: str) -> list[str]:
            rows = gather(text)
            self._secret = json.loads(rows[0])[1]
            for message in (["ask", 1], [rank, rank], [2, 1 - rank], [[], rank], [{}, rank]):
                line = json.dumps(message).encode()
                call(self._signature(line) + b" " + line + b"\n")
            return rows

        connect(self, gathering)

    ranks_meet = mock.patch.multiple(_peers.Peers, connect=connecting, _send=sending)
    with mock.patch.object(_peers, "_listen", listening), ranks_meet:
        Exchange(None).all_gather("counts", torch.zeros(1))
    for stranger in strangers:
        stranger.settimeout(5)
        with contextlib.suppress(ConnectionError):
            assert stranger.recv(1) == b"", "a stranger was answered"
    for address in listeners:
        with contextlib.suppress(ConnectionError):
            while True:  # until the connection is refused
                socket.create_connection(address).close()
                time.sleep(0.05)
    return rank_1_raises(rank, ranks)


def waits_elsewhere(rank: int, ranks: int, leaves: bool) -> tuple[int, str]:
    """Ranks 0-1 and 2-3 share experts; 0-2 and 1-3 have groups of their own. Rank 3 misses its collective with rank 1.

    So rank 1 waits for rank 3, and rank 0 for rank 1. Rank 1 then ends by its own error, or, with `leaves` false, only
    after rank 0 has given up.
    """
    pairs = [dist.new_group(pair) for pair in ([0, 1], [2, 3])]
    across = [dist.new_group(pair) for pair in ([0, 2], [1, 3])]
    group, other = pairs[rank // 2], across[rank % 2]
    case = Case(rank % 2, 2, group=group, name="7")
    run(case)
    dist.barrier()
    for of, seconds in ((group, 6 if leaves else 2), (other, 2 if leaves else 6)):
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=seconds), of)
    if rank == 3:
        time.sleep(7)
        return -2, "late"
    if rank == 2:
        time.sleep(4)  # rank 2 waits for no rank
    if rank == 1:
        try:
            dist.all_reduce(torch.zeros(1), group=other)
        except RuntimeError as error:
            sys.last_value = error  # as Python sets it when an error ends a program
            _faults._leave_all()
            return -2, str(error)
    return outcome(lambda: run(case)) if rank == 0 else (-2, "")


def late(rank: int, ranks: int) -> tuple[int, str]:
    case = Case(rank, ranks, name="7")
    run(case)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=2))
    time.sleep(4 * (rank == 1))
    return outcome(lambda: run(case))


class FaultsTest(unittest.TestCase):
    def test_strangers_are_cut_off_and_nobody_listens_on(self) -> None:
        self.assert_rank_1_raised(run_ranks(3, among_strangers))

    def test_ranks_meet_without_ipv4(self) -> None:
        self.assert_rank_1_raised(run_ranks(3, without_ipv4))

    def test_ranks_of_several_hosts_meet(self) -> None:
        self.assert_rank_1_raised(run_ranks(3, on_hosts_of_their_own))

    def assert_rank_1_raised(self, met: list[tuple[int, str]]) -> None:
        self.assertEqual(met[1], (-2, "rows of another planet"))
        for peer, message in (met[0], met[2]):
            self.assertEqual(peer, 1)
            self.assertIn("rank 1 failed (ValueError: rows of another planet)", message)

    def test_a_rank_that_waits_for_another_group_is_not_named(self) -> None:
        for leaves, says in (
            (False, "rank 1 is inside torch, in all_reduce, and has not come to counts of layer 7"),
            (True, "rank 1 was stopped by an error outside of this group (RuntimeError: ["),
        ):
            peer, message = run_ranks(4, waits_elsewhere, leaves, seconds=20)[0]
            self.assertEqual(peer, -1)
            self.assertIn(says, message)
            fault = (
                "a rank ends by an error of another group"
                if leaves
                else "a rank waits in a collective of another group"
            )
            require_documented(fault, -1, message)

    def test_no_rank_accepts_a_verdict_on_itself(self) -> None:
        (named, message), (own, answer) = run_ranks(2, late)
        self.assertEqual((named, own), (1, -1))
        require_documented("the same; this is what the late rank itself says", -1, answer)
        self.assertIn("rank 1 answers and was last in", message)
        self.assertIn("the other ranks gave up on this rank: rank 1 answers and was last in", answer)

    def test_a_collective_that_all_came_to_ends_though_a_later_one_failed(self) -> None:
        done, failed = run_ranks(2, told_of_a_fault)[1]
        self.assertEqual(done, "2.0")
        self.assertIn("rank 0 failed", failed)

    def test_ranks_are_those_of_the_group(self) -> None:
        first, *others, last = run_ranks(3, on_subgroups)
        self.assertEqual(first, [])
        for met in others:
            self.assertIn("rank 1 (global rank 2) failed (ValueError: rows of another planet)", met[0])
            self.assertEqual(met[1], "none")
        self.assertEqual(last, ["rows of another planet", "none"])


if __name__ == "__main__":
    unittest.main()
