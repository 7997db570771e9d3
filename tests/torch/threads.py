"""Runs a function on P ranks that are threads of this process, joined by torch's threaded process group."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg as threaded


def run_threads(ranks: int, work: Callable[..., Any], *args: Any, seconds: float = 120) -> list[Any]:
    """Returns the results of `work(rank, ranks, *args)` by rank; raises all tracebacks if a rank fails."""
    answers: dict[int, Any] = {}
    failures: list[str] = []
    store = dist.HashStore()

    def run(rank: int) -> None:
        try:
            dist.init_process_group("threaded", rank=rank, world_size=ranks, store=store)
            answers[rank] = work(rank, ranks, *args)
        except BaseException as error:
            failures.append(f"rank {rank} of {ranks}:\n{traceback.format_exc()}")
            threaded.ProcessLocalGroup.exception_handle(error)  # the others stop waiting for this rank
        finally:
            if dist.is_initialized():
                dist.destroy_process_group()

    torch.set_num_threads(1)
    threaded._install_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    try:
        started = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(seconds)
        if failures or len(answers) < ranks:
            raise AssertionError("\n".join(failures) or f"ranks {set(range(ranks)) - set(answers)} did not end")
    finally:
        torch._C._distributed_c10d._set_thread_isolation_mode(False)
        threaded._uninstall_threaded_pg()
        threaded.ProcessLocalGroup.reset()
    return [answers[rank] for rank in range(ranks)]
