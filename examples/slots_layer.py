"""`evenkeel.torch.ExpertSlots` around your own dispatcher, which knows nothing of balancing.

usage: torchrun --nproc-per-node 2 examples/slots_layer.py

All tokens of all ranks choose expert 0; the other rank borrows it into a slot and computes half of them.
"""

import torch
import torch.distributed as dist
from torch.distributed._functional_collectives import all_to_all_single_autograd

from evenkeel.torch import ExpertSlots, weights_fixed

EXPERTS, HIDDEN, WIDTH, TOKENS = 16, 64, 128, 512


def dispatch(hidden, index, run, experts_here):
    """All-to-all of top-1 rows, sorted by expert; each rank has `experts_here`. `run` computes the received rows."""
    order = index.argsort()
    sent = index.bincount(minlength=dist.get_world_size() * experts_here).view(-1, experts_here)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sizes = received.sum(1).tolist(), sent.sum(1).tolist()
    rows = all_to_all_single_autograd(hidden[order], *sizes, dist.group.WORLD)
    slots = torch.arange(experts_here).repeat(len(received)).repeat_interleave(received.flatten())
    back = all_to_all_single_autograd(run(rows, slots), *reversed(sizes), dist.group.WORLD)
    return torch.empty_like(back).index_copy(0, order, back)


def experts(rows, slots, weights):
    """Returns each row's output, without its top-k weight, from the expert in `slots`."""
    out = torch.zeros_like(rows)
    for slot in slots.unique().tolist():
        at = (slots == slot).nonzero()[:, 0]
        middle = torch.nn.functional.silu(rows[at] @ weights["up"][slot])
        out = out.index_add(0, at, middle @ weights["down"][slot])
    return out


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    up = torch.nn.Parameter(torch.randn(EXPERTS // ranks, HIDDEN, WIDTH) / 8)
    down = torch.nn.Parameter(torch.randn(EXPERTS // ranks, WIDTH, HIDDEN) / 8)
    weights = {"up": up, "down": down}
    layer = ExpertSlots(EXPERTS, slots=2, imbalance_threshold=1.3)

    def carry(hidden, places, top_k_weights, run):
        return dispatch(hidden, places[:, 0], run, layer.places_here) * top_k_weights

    def step(hidden):
        index, top_k_weights = torch.zeros((TOKENS, 1), dtype=torch.int64), torch.ones((TOKENS, 1))
        return layer(hidden, index, top_k_weights, experts, weights, carry)

    step(torch.randn(TOKENS, HIDDEN, requires_grad=True)).square().mean().backward()
    if rank == 0:
        print(f"assignments by rank {layer.last['rank_loads']}, weights that travelled: {layer.last['transfers']}")
    sent = []
    with torch.no_grad(), weights_fixed(layer):
        for _ in range(3):
            step(torch.randn(TOKENS, HIDDEN))
            sent.append(layer.last["transfers"])
    if rank == 0:
        print(f"weights that travelled in three steps without gradients: {sent}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
