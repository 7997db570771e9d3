"""Runs a function on P ranks that are processes of this machine, joined by gloo.

Ranks are forked, so that only the parent spends seconds on importing torch and the test's modules. Each rank starts
fresh: the parent computes no gradients, and has no group and no threads.
"""

from __future__ import annotations

import logging
import os
import re
import runpy
import socket
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.fx.experimental.symbolic_shapes  # noqa: F401  # else each rank imports it, and sympy, at its first step
import torch.multiprocessing as mp


def _rank(
    rank: int, ranks: int, store: str, seconds: float, queue: Any, work: Callable[..., Any], args: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)
    try:
        if store:
            dist.init_process_group(
                "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=seconds)
            )
            dist.barrier()  # else a rank with little work ends before the others have connected to it
        queue.put((rank, work(rank, ranks, *args), None))
    except BaseException:
        queue.put((rank, None, traceback.format_exc()))
    finally:
        sys.stdout.flush()
        queue.close()
        queue.join_thread()
        os._exit(0)  # do not wait for a group whose other ranks may be gone


def run_ranks(ranks: int, work: Callable[..., Any], *args: Any, seconds: float = 60, grouped: bool = True) -> list[Any]:
    """Returns the results of `work(rank, ranks, *args)` by rank; raises the first failed rank's traceback.

    The ranks form a gloo group, unless `work` makes its own group.
    """
    context = mp.get_context("fork")
    queue = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        store = os.path.join(folder, "store") if grouped else ""
        started = [
            context.Process(target=_rank, args=(rank, ranks, store, seconds, queue, work, args), daemon=True)
            for rank in range(ranks)
        ]
        for process in started:
            process.start()
        try:
            answers: dict[int, Any] = {}
            for _ in started:
                rank, answer, failure = queue.get(timeout=10 * seconds)
                if failure is not None:
                    raise AssertionError(f"rank {rank} of {ranks}:\n{failure}")
                answers[rank] = answer
        finally:
            for process in started:
                process.kill()
                process.join()
    return [answers[rank] for rank in range(ranks)]


def _program(rank: int, ranks: int, port: int, program: str, options: list[str], folder: str) -> str:
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in names.items()})
    sys.argv, sys.path[:0] = [program, *options], [os.path.dirname(program)]
    os.chdir(folder)
    with redirect_stdout(StringIO()) as text:
        runpy.run_path(program, run_name="__main__")
    return text.getvalue()


def run_program(ranks: int, program: Path, *options: object, folder: Path | None = None) -> str:
    """Returns a program's output on processes set up as by torchrun, without the seconds of torchrun's imports."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as own:
        words = (str(program), [*map(str, options)], str(folder or own))
        return "".join(run_ranks(ranks, _program, port, *words, grouped=False))


def error_message(call: Callable[[], object], *kinds: type[BaseException]) -> str:
    """The message of an error of the given kinds; "nothing" if the call raises none."""
    try:
        call()
    except kinds as error:
        return str(error)
    return "nothing"


def chosen_seeds(arguments: Sequence[str]) -> list[int]:
    """The seeds in command line arguments such as `17 30-59`."""
    chosen: list[int] = []
    for argument in arguments:
        first, _, last = argument.partition("-")
        chosen += range(int(first), int(last or first) + 1)
    return chosen


def lines_of_log(level: int) -> list[str]:
    """Collects what `evenkeel.torch` logs from now on, at `level` and above."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("evenkeel.torch")
    logger.addHandler(handler)
    logger.setLevel(level)
    return lines


PAGE = Path(__file__).resolve().parents[2] / "docs" / "errors.md"


def require_documented(fault: str, peer: int, why: str) -> None:
    """Checks that a row of the page on errors has this message; the row leaves out the backend's own text."""
    text = re.sub(
        r"\((RuntimeError: )?\[.*\)", "(…)", why.partition("; rank 0 waited")[0].partition("; rank 1 waited")[0]
    )
    row = f"| {fault} | {peer} | `{text}` |"
    assert row in PAGE.read_text(), f"{PAGE} should have: {row}"
