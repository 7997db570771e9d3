"""Training that survives a lost process: the others form a new group, take over its experts and repeat the step.

usage: python examples/elastic.py FOLDER 3 1      3 ranks, of which rank 1 dies in the third step

Each step saves every expert, so that any number of ranks can go on. Processes are started without torchrun, which
would end them all when one dies.
"""

import signal
import sys
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.distributed as dist

from evenkeel.errors import CommError
from evenkeel.torch import ExpertParallel

EXPERTS, HIDDEN, WIDTH, TOKENS, K, STEPS, FATAL = 12, 16, 32, 240, 2, 6, 2


def random(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) / 4


def train(folder: Path, rank: int, ranks: int, dies: bool) -> None:
    """Runs the steps that are not done yet, as `rank` of `ranks`."""
    first = next(s for s in range(STEPS + 1) if not all((folder / f"{s}.{e}").exists() for e in range(EXPERTS)))
    here = range(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
    saved = [torch.load(folder / f"{first - 1}.{e}") for e in here] if first > 0 else []
    saved = saved or [(random(HIDDEN, WIDTH, seed=e), random(WIDTH, HIDDEN, seed=100 + e)) for e in here]
    up, down = (torch.stack(each).requires_grad_() for each in zip(*saved, strict=True))
    layer = ExpertParallel(EXPERTS, imbalance_threshold=1.1, min_segment=4)

    def experts(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
        if dies and step == FATAL:
            signal.raise_signal(signal.SIGKILL)
        middle = torch.relu(torch.einsum("th,thw->tw", rows, weights["up"][slots]))
        return torch.einsum("tw,twh->th", middle, weights["down"][slots])

    for step in range(first, STEPS):
        hidden = 4 * random(TOKENS, HIDDEN, seed=1000 + step).tensor_split(ranks)[rank]  # this rank's part of the batch
        weights, index = (hidden @ random(HIDDEN, EXPERTS, seed=7) - torch.arange(EXPERTS)).softmax(1).topk(K)
        output = layer(hidden, index, weights, experts, {"up": up, "down": down})
        ((output - hidden).square().sum() / TOKENS).backward()
        with torch.no_grad():
            for each in (up, down):
                each -= 0.1 * each.grad
                each.grad = None
            for at, expert in enumerate(here):
                torch.save((up[at].clone(), down[at].clone()), folder / f"part.{expert}")
                (folder / f"part.{expert}").rename(folder / f"{step}.{expert}")
        print(f"step {step} on rank {rank} of {ranks}; weights that travelled: {layer.last['transfers']}", flush=True)


def live(me: int, ranks: int, folder: Path, dying: int) -> None:
    alive = list(range(ranks))
    while True:
        store = f"file://{folder.absolute()}/group of {len(alive)}"
        dist.init_process_group("gloo", store, timedelta(seconds=10), len(alive), alive.index(me))
        dist.barrier()  # after it no process still saves a step of the previous group
        try:
            return train(folder, alive.index(me), len(alive), me == dying)
        except CommError as error:
            if alive[error.data["peer"]] == me or error.data["peer"] < 0:  # the rank at fault is this one, or unknown
                raise
            print(f"process {me}: {error}", flush=True)
            alive.pop(error.data["peer"])  # all remaining processes name the same peer
        finally:
            dist.destroy_process_group()


if __name__ == "__main__":
    folder, ranks, dying = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    processes = [get_context("fork").Process(target=live, args=(me, ranks, folder, dying)) for me in range(ranks)]
    for process in processes:
        process.start()
    sys.exit(sum(process.join() or process.exitcode not in (0, -signal.SIGKILL) for process in processes))
