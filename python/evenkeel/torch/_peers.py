"""Connections between a group's ranks, over which they report faults to each other: signed lines over TCP.

A rank listens only while the connections are made, at its loopback address and at the address that reaches other hosts.
A line that is not signed with the group's secret is never parsed and closes its connection.
A closed connection means that its rank has ended or left the group: a slow or paused rank keeps it open.
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import json
import os
import secrets
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_CONNECT_SECONDS = 5.0  # a rank that cannot be reached by then is never blamed for its silence
_CONNECT_FIRST_SECONDS = 0.5  # the most that the first step waits for the connections, which take milliseconds
_TICK_SECONDS = 0.25
_MOST_BYTES = 65536  # limit of one read, and of a line


@dataclass(eq=False)
class _Connection:
    socket: socket.socket
    allowed: range  # ranks that may be at the other end
    rank: int = -1  # the rank at the other end; -1 until its first line
    rest: bytes = b""  # the beginning of an incomplete line


class Peers:
    """Connections to the other ranks of a group of `ranks`.

    `on_message(rank, message)` receives each rank's messages, and `["gone"]` when its connection closes. `on_tick()` is
    called at least every 0.25 s. A separate thread makes both calls.
    """

    def __init__(
        self, rank: int, ranks: int, on_message: Callable[[int, list[Any]], None], on_tick: Callable[[], None]
    ) -> None:
        self.rank, self.ranks, self._on_message, self._on_tick = rank, ranks, on_message, on_tick
        self.closed: list[int] = []  # ranks whose connection has closed, in that order
        self._open: dict[int, _Connection] = {}
        self._secret = secrets.token_hex(16)
        self._selector = selectors.DefaultSelector()
        self._listeners: list[socket.socket] = []
        self._setup_done = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._serve, name="evenkeel-faults", daemon=True)

    def connect(self, gather: Callable[[str], Sequence[str]]) -> None:
        """Collective. `gather` collects one short text from each rank. Each rank connects to the lower ranks."""
        near, far = _listen(["127.0.0.1", "::1"]), _listen(_outward_addresses())
        self._listeners = [listener for listener in (near, far) if listener is not None]
        for listener in self._listeners:
            self._selector.register(listener, selectors.EVENT_READ)
        host, found = host_name(), [listener and listener.getsockname()[:2] for listener in (near, far)]
        every = [json.loads(text) for text in gather(json.dumps([host, self._secret, *found]))]
        self._secret = every[0][1]
        self._end = time.monotonic() + _CONNECT_SECONDS
        for peer, (other, _, *at) in enumerate(every[: self.rank]):
            with contextlib.suppress(OSError, TypeError):  # TypeError: the peer has no such address
                called = socket.create_connection(tuple(at[other != host]), max(0.1, self._end - time.monotonic()))
                self._send(self._add(called, range(peer, peer + 1)), [self.rank, peer])
        self._thread.start()
        self._setup_done.wait(_CONNECT_FIRST_SECONDS)

    def connected(self) -> list[int]:
        return sorted(self._open)

    def send(self, rank: int, message: Sequence[Any]) -> None:
        """Sends without blocking; does nothing if the rank is gone."""
        connection = self._open.get(rank)
        if connection is not None:
            self._send(connection, message)

    def is_serving(self) -> bool:
        """Whether the thread runs; false in a forked process, which has the connections but not the thread."""
        return self._thread.is_alive()

    def end(self, wait_seconds: float = 0) -> None:
        """Makes the thread close all connections and end."""
        self._ended = True
        if wait_seconds > 0:
            self._thread.join(wait_seconds)

    def _serve(self) -> None:
        while not self._ended:
            for key, _ in self._selector.select(_TICK_SECONDS):
                if key.data is not None:
                    self._read(key.data)
                else:
                    with contextlib.suppress(OSError):
                        self._add(key.fileobj.accept()[0], range(self.rank + 1, self.ranks))  # type: ignore[union-attr]
            if not self._setup_done.is_set():
                self._stop_listening()
            self._on_tick()
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _stop_listening(self) -> None:
        """Stops listening once all ranks are connected, or at the deadline. Closes connections without a known rank."""
        if len(self._open) + len(self.closed) < self.ranks - 1 and time.monotonic() < self._end:
            return
        for listener in self._listeners:
            self._selector.unregister(listener)
            listener.close()
        for key in list(self._selector.get_map().values()):
            if key.data.rank < 0:
                self._close(key.data)
        self._setup_done.set()

    def _add(self, made: socket.socket, allowed: range) -> _Connection:
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = _Connection(made, allowed)
        self._selector.register(made, selectors.EVENT_READ, connection)
        return connection

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.socket.recv(_MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, connection.rest = (connection.rest + data).split(b"\n")
        for line in lines:
            signature, _, text = line.partition(b" ")
            signed = hmac.compare_digest(signature, self._signature(text))
            if not signed or not self._handle_message(connection, json.loads(text)):
                return self._close(connection)
        if not data or len(connection.rest) > _MOST_BYTES:
            self._close(connection)

    def _handle_message(self, connection: _Connection, message: list[Any]) -> bool:
        """Handles a line. Returns whether it is allowed: a connection's first line names its sender and receiver."""
        if connection.rank >= 0:
            self._on_message(connection.rank, message)
            return True
        rank, to = message[0], message[-1]
        if to != self.rank or rank not in connection.allowed or rank in self._open:
            return False
        connection.rank = rank
        self._open[rank] = connection
        if rank > self.rank:
            self._send(connection, [self.rank, rank])
        return True

    def _close(self, connection: _Connection) -> None:
        self._selector.unregister(connection.socket)
        connection.socket.close()
        if connection.rank >= 0:
            self.closed.append(connection.rank)  # before the deletion: a rank is always connected or gone
            del self._open[connection.rank]
            self._on_message(connection.rank, ["gone"])

    def _send(self, connection: _Connection, message: Sequence[Any]) -> None:
        text = json.dumps(message).encode()
        with contextlib.suppress(OSError):
            connection.socket.send(self._signature(text) + b" " + text + b"\n")

    def _signature(self, text: bytes) -> bytes:
        return hmac.digest(self._secret.encode(), text, "sha256").hex().encode()


def _listen(addresses: Iterable[str]) -> socket.socket | None:
    """Listens at the first of these addresses that this machine has; None if it has none."""
    for address in addresses:
        with contextlib.suppress(OSError):
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            return socket.create_server((address, 0), family=family, backlog=128)
    return None


def _outward_addresses() -> Iterator[str]:
    """This machine's addresses that reach other hosts, the likeliest first."""
    for host in (os.environ.get("MASTER_ADDR", ""), socket.gethostname(), "192.0.2.1", "2001:db8::1"):
        with contextlib.suppress(OSError, UnicodeError):
            for family, kind, _, _, address in socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM):
                with socket.socket(family, kind) as probe:
                    probe.connect(address)  # sends nothing
                    found = str(probe.getsockname()[0])
                if not ipaddress.ip_address(found).is_loopback:
                    yield found


def host_name() -> str:
    """A host name, equal for processes that reach each other over loopback."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as boot:
            return f"{boot.read().strip()}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()[:64]
