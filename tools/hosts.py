#!/usr/bin/env python3
"""Simulates hosts on one machine: networks with their own host names, joined by links of a given rate and delay.

    tools/hosts.py --rate 100mbit --per-host 2 -- mpirun PROGRAM                      # Open MPI, two ranks on each host
    tools/hosts.py --rate 100mbit --each -- torchrun --nproc-per-node 2 PROGRAM.py    # PyTorch, two ranks on each host
    tools/hosts.py --rate 100mbit --each --per-host 2 -- PROGRAM                      # RANK, WORLD_SIZE, ... are set

Hosts are host0, host1, ... with addresses 10.0.0.1, 10.0.0.2, ... on the interface link0. Each has a link to one
switch; rate and delay apply to each direction. The command runs on host0, with --each on every host. Environment
variables tell Open MPI the hosts, and torchrun its node. Hosts share all files except those in /run and /dev/shm.

Every run has its own namespaces, so two runs cannot interfere. When the first process in them ends, the kernel ends all
other processes in them and removes the networks. When this program ends, even by
SIGKILL, the kernel ends that first process too.

Exit status: the command's; with --each the first that is not 0. 128 + N: ended by signal N. 77: hosts cannot be created
here, and one line says why. This needs root, or a user who may create namespaces, and the programs
ip, tc, mount, nsenter, unshare and hostname.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

INTERFACE = "link0"
CANNOT = 77
TOOLS = ("ip", "tc", "mount", "nsenter", "unshare", "hostname")
AGENT = """#!/bin/sh
# What Open MPI runs instead of ssh.
host=$1
shift
exec nsenter --net="/run/netns/$host" --uts="/run/$host.uts" sh -c "$*"
"""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)
LIBC = ctypes.CDLL(None, use_errno=True)


class NoHosts(Exception):
    """Hosts cannot be created here; the message says why in one line."""


def main() -> None:
    options = arguments()
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        enter_namespaces()
    except (NoHosts, OSError) as error:
        refuse(error)
    first = os.fork()
    if first == 0:
        be_first(options)
    number = signal.sigwait(SIGNALS)
    if number != signal.SIGCHLD:
        os.kill(first, signal.SIGKILL)
    _, status = os.waitpid(first, 0)  # the kernel ends it after all others of its namespace
    sys.exit(exit_status(status) if number == signal.SIGCHLD else 128 + number)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="number of hosts (2)")
    parser.add_argument("--per-host", type=int, default=1, metavar="N", help="ranks on each host (1)")
    parser.add_argument("--rate", type=mbit, metavar="MBIT", help="rate of each link, such as 100mbit (unlimited)")
    parser.add_argument(
        "--delay", type=ms, default=0, metavar="MS", help="delay of each link, as in 1ms; needs sch_netem (0)"
    )
    parser.add_argument("--each", action="store_true", help="run the command for every rank")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    if not (1 <= options.hosts <= 254 and options.per_host >= 1):
        parser.error("--hosts must be 1 to 254 and --per-host at least 1")
    if (options.rate is not None and options.rate <= 0) or options.delay < 0:
        parser.error("--rate must be above 0 and --delay at least 0")
    return options


def mbit(text: str) -> float:
    return float(text.removesuffix("mbit"))


def ms(text: str) -> float:
    return float(text.removesuffix("ms"))


def refuse(error: Exception) -> None:
    print(f"hosts: cannot be created here: {error}", file=sys.stderr, flush=True)
    os._exit(CANNOT)


def exit_status(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def enter_namespaces() -> None:
    """Enters new network, mount and IPC namespaces; children also get a new process namespace."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoHosts(f"not found on PATH: {', '.join(missing)}; iproute2 has ip and tc (in /usr/sbin)")
    user, group = os.geteuid(), os.getegid()
    new_user = 0 if user == 0 else 0x10000000
    mounts, ipc, processes, networks = 0x00020000, 0x08000000, 0x20000000, 0x40000000
    if LIBC.unshare(mounts | ipc | processes | networks | new_user) != 0:
        raise NoHosts(f"new namespaces: {os.strerror(ctypes.get_errno())}; are you root?")
    if new_user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            Path("/proc/self", name).write_text(text)


# Code that runs in the namespaces.


def be_first(options: argparse.Namespace) -> None:
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: ends with its parent
    os.setsid()  # so that Ctrl-C reaches only the parent
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        make_hosts(options)
    except NoHosts as error:
        refuse(error)
    os._exit(run(options))


def make_hosts(options: argparse.Namespace) -> None:
    hosts = [f"host{i}" for i in range(options.hosts)]
    must("mount --make-rprivate /")
    must("mount -t proc proc /proc")
    must("mount -t tmpfs tmpfs /run")
    must("mount -t tmpfs tmpfs /dev/shm")
    Path("/run/enter").write_text(AGENT)
    Path("/run/enter").chmod(0o755)
    Path("/run/slots").write_text("".join(f"{host} slots={options.per_host}\n" for host in hosts))
    named = "".join(f"10.0.0.{i} {host}\n" for i, host in enumerate(hosts, 1))
    Path("/run/names").write_text(f"127.0.0.1 localhost\n{named}")
    must("mount --bind /run/names /etc/hosts")
    must("ip link add switch type bridge")
    must("ip link set switch up")
    for i, host in enumerate(hosts, 1):
        must(f"ip netns add {host}")
        must(f"ip link add port{i} type veth peer name {INTERFACE} netns {host}")
        must(f"ip link set port{i} master switch up")
        must(f"ip -n {host} addr add 10.0.0.{i}/24 dev {INTERFACE}")
        must(f"ip -n {host} link set lo up")
        must(f"ip -n {host} link set {INTERFACE} up")
        Path(f"/run/{host}.uts").touch()
        must(f"unshare --uts=/run/{host}.uts hostname {host}")
        parent = "root"
        if options.rate is not None:
            # Timers may be half a millisecond late, so the burst lasts that long. A longer burst would let short
            # messages bypass the rate.
            burst_kb = max(16, options.rate / 16)
            shape = f"handle 1: tbf rate {options.rate}mbit burst {burst_kb}kb limit 64mb"
            must(f"tc qdisc add dev port{i} root {shape}")
            must(f"tc -n {host} qdisc add dev {INTERFACE} root {shape}")
            parent = "parent 1:1"
        if options.delay > 0:
            must(f"tc -n {host} qdisc add dev {INTERFACE} {parent} netem delay {options.delay}ms limit 100000")


def must(words: str) -> None:
    done = subprocess.run(words.split(), capture_output=True, text=True)
    if done.returncode != 0:
        why = (done.stderr.strip() or "failed").splitlines()[0]
        raise NoHosts(f"`{words}` says: {why}")


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the first status that is not 0, or 0. Processes still running then end with this one."""
    world = options.hosts * options.per_host
    running = set()
    for rank in range(world if options.each else 1):
        host, local = divmod(rank, options.per_host)
        variables = open_mpi() | (torch(rank, world, host, local, options) if options.each else {})
        words = ["nsenter", f"--net=/run/netns/host{host}", f"--uts=/run/host{host}.uts", *options.command]
        running.add(os.posix_spawnp(words[0], words, {**os.environ, **variables}, setsigdef=[signal.SIGPIPE]))
    while running:
        pid, status = os.wait()  # also reaps orphans
        if pid in running and status != 0:
            return exit_status(status)
        running.discard(pid)
    return 0


def open_mpi() -> dict[str, str]:
    settings = {
        "plm_rsh_agent": "/run/enter",
        "orte_default_hostfile": "/run/slots",
        "orte_tmpdir_base": "/run",
        "oob_tcp_if_include": INTERFACE,
        "btl_tcp_if_include": INTERFACE,
        "rmaps_base_oversubscribe": "1",
        "hwloc_base_binding_policy": "none",
        "mpi_yield_when_idle": "1",
    }
    # A process in these namespaces runs as root.
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return root | {f"OMPI_MCA_{name}": value for name, value in settings.items()}


def torch(rank: int, world: int, host: int, local: int, options: argparse.Namespace) -> dict[str, str]:
    """Variables of torch.distributed, and of torchrun (PET_)."""
    return {
        "RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": str(local),
        "LOCAL_WORLD_SIZE": str(options.per_host),
        "MASTER_ADDR": "host0",
        "MASTER_PORT": "29500",
        "GLOO_SOCKET_IFNAME": INTERFACE,
        "PET_NNODES": str(options.hosts),
        "PET_NODE_RANK": str(host),
        "PET_MASTER_ADDR": "host0",
    }


if __name__ == "__main__":
    main()
