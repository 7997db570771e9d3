"""Two nodes on one machine: network namespaces joined by a link of a given rate, and ranks that run in them.

The namespaces of networks, processes and mounts are all the run's own, made by `unshare`. Names in them are seen by
nobody else, so two runs cannot meet. Their first process is this file; when it ends, however it ends, the kernel ends all
others, and networks and link are gone with them. It ends when its standard input does, so also when the caller is killed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

INTERFACE = "link0"
CANNOT = 77
"""Exit status where this machine has no such nodes; CTest takes it for skipped."""
REFUSALS = ("two nodes: ", "unshare: ")
"""How a line begins that says why."""


class NoNodes(Exception):
    """Two nodes cannot be had here: what is missing, in one line."""


class RankFailed(Exception):
    """With its status; what it had to say it has said."""


@dataclass(frozen=True)
class Link:
    """Between the two nodes, in each direction."""

    mbit_per_s: float
    delay_ms: float = 0.0


def run_ranks(command: Sequence[str], link: Link, ranks_per_node: int) -> None:
    """Runs the command once for each rank, with torch.distributed's variables set; returns when all have ended.

    Raises:
        NoNodes: tools, rights or parts of the kernel are missing.
        RankFailed: one did; the others have been ended.
    """
    missing = [tool for tool in ("unshare", "ip", "tc") if shutil.which(tool) is None]
    if missing:
        raise NoNodes(
            f"{' and '.join(missing)} not found on PATH; iproute2 has ip and tc (in /usr/sbin), util-linux unshare"
        )
    own = ["unshare", "--net", "--mount", "--mount-proc", "--pid", "--fork", "--kill-child"]
    if os.geteuid() != 0:
        own.append("--map-root-user")
    arguments = [str(link.mbit_per_s), str(link.delay_ms), str(ranks_per_node), *command]
    # In a session of its own, so that Ctrl-C reaches the caller alone.
    first = subprocess.Popen(
        [*own, sys.executable, __file__, *arguments],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        last = _pass_on_errors(first)
        status = first.wait()
    finally:
        _end(first)
    if status != 0 and last.startswith(REFUSALS):
        raise NoNodes(last.removeprefix(REFUSALS[0]))
    if status != 0:
        raise RankFailed(f"a rank failed with status {status}")


def _pass_on_errors(first: subprocess.Popen[str]) -> str:
    """Standard error, until all have closed it; the last line, which says why if there are no nodes."""
    assert first.stderr is not None
    last = ""
    with first.stderr as lines:
        for line in lines:
            last = line.strip()
            if not line.startswith(REFUSALS):
                sys.stderr.write(line)
    return last


def _end(first: subprocess.Popen[str]) -> None:
    assert first.stdin is not None
    first.stdin.close()
    try:
        first.wait(timeout=10)
    except subprocess.TimeoutExpired:
        first.kill()
        first.wait()


# In the namespaces.


def main() -> None:
    rate, delay, ranks_per_node, *command = sys.argv[1:]
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        make_nodes(Link(float(rate), float(delay)))
    except NoNodes as error:
        print(f"{REFUSALS[0]}{error}", file=sys.stderr)
        sys.exit(CANNOT)
    sys.exit(run_in_nodes(command, int(ranks_per_node)))


def _end_with_input() -> None:
    os.read(0, 1)
    os._exit(1)


def make_nodes(link: Link) -> None:
    """Networks node0 and node1 with addresses 10.0.0.1 and 10.0.0.2; a node's own address leads to its loopback."""
    _must("mount -t tmpfs tmpfs /run")  # where `ip netns` keeps names: here and for nobody else
    for node in (0, 1):
        _must(f"ip netns add node{node}")
    _must(f"ip link add {INTERFACE} netns node0 type veth peer name {INTERFACE} netns node1")
    for node in (0, 1):
        _must(f"ip -n node{node} addr add 10.0.0.{node + 1}/24 dev {INTERFACE}")
        for interface in ("lo", INTERFACE):
            _must(f"ip -n node{node} link set {interface} up")
        # A burst of a few packets: a larger one would let short messages pass as if there were no rate.
        shape = f"tbf rate {link.mbit_per_s}mbit burst 16kb limit 64mb"
        _must(f"tc -n node{node} qdisc add dev {INTERFACE} root handle 1: {shape}")
        if link.delay_ms > 0:
            delay = f"netem delay {link.delay_ms}ms limit 100000"
            _must(f"tc -n node{node} qdisc add dev {INTERFACE} parent 1:1 handle 2: {delay}")


def _must(words: str) -> None:
    done = subprocess.run(words.split(), capture_output=True, text=True)
    if done.returncode != 0:
        why = (done.stderr.strip() or "failed").splitlines()[0]
        raise NoNodes(f"`{words}` says: {why}")


def run_in_nodes(command: Sequence[str], ranks_per_node: int) -> int:
    """The status of the first rank that fails, or 0; the others end with this process."""
    ranks: dict[int, subprocess.Popen[bytes]] = {}
    for rank in range(2 * ranks_per_node):
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": str(2 * ranks_per_node),
            "LOCAL_WORLD_SIZE": str(ranks_per_node),
            "MASTER_ADDR": "10.0.0.1",
            "MASTER_PORT": "29500",
            "GLOO_SOCKET_IFNAME": INTERFACE,
        }
        started = subprocess.Popen(
            ["ip", "netns", "exec", f"node{rank // ranks_per_node}", *command],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
        )
        ranks[started.pid] = started
    while ranks:
        pid, status = os.wait()  # orphans of a rank come here too
        if ranks.pop(pid, None) is not None and status != 0:
            return os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1
    return 0


def bytes_sent_and_received(interface: str) -> tuple[int, int]:
    """Of an interface of the network that this process is in, since it is there."""
    for line in Path("/proc/net/dev").read_text().splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == interface:
            fields = counts.split()
            return int(fields[8]), int(fields[0])
    raise LookupError(f"no interface {interface} here")


if __name__ == "__main__":
    main()
