"""`evenkeel.torch.ExpertParallel` around your own experts.

usage: torchrun --nproc-per-node 2 examples/balanced_layer.py [--ranks-per-node N]

All tokens of all ranks choose two experts of rank 0; the other ranks compute part of these assignments.
"""

import argparse

import torch
import torch.distributed as dist

from evenkeel.torch import ExpertParallel

EXPERTS, HIDDEN, WIDTH, TOKENS, K = 16, 64, 128, 512, 2


def experts(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns each row's output, without its top-k weight, from the expert in `slots`."""
    out = torch.zeros_like(rows)
    for slot in slots.unique().tolist():
        at = (slots == slot).nonzero()[:, 0]
        middle = torch.nn.functional.silu(rows[at] @ weights["up"][slot])
        out = out.index_add(0, at, middle @ weights["down"][slot])
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks-per-node", type=int)
    nodes = parser.parse_args().ranks_per_node
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    here = EXPERTS // ranks
    up = torch.nn.Parameter(torch.randn(here, HIDDEN, WIDTH) / 8)
    down = torch.nn.Parameter(torch.randn(here, WIDTH, HIDDEN) / 8)
    layer = ExpertParallel(EXPERTS, imbalance_threshold=1.3, nodes=nodes)

    hidden = torch.randn(TOKENS, HIDDEN, requires_grad=True)
    index = torch.arange(2).expand(TOKENS, K)
    weights = torch.full((TOKENS, K), 0.5)
    output = layer(hidden, index, weights, experts, {"up": up, "down": down})
    output.square().mean().backward()
    if rank == 0:
        print(f"assignments by rank {layer.last['rank_loads']}, weights that travelled: {layer.last['transfers']}")
    if rank == 0 and nodes is not None:
        for what in ("rows", "weights"):
            between, within = (layer.last[f"{what}_{where}_nodes"] for where in ("between", "within"))
            print(f"{what}: {between} between nodes, {within} within")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
