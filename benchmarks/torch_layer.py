"""evenkeel's two modes between processes against transformers' AllToAllEP: time, and bytes of the worst rank.

    OMP_NUM_THREADS=1 python -m torch.distributed.run --nproc-per-node 2 benchmarks/torch_layer.py

32 experts top-4, 768 x 768, 2048 tokens a rank, f32, one thread a rank; Qwen3-MoE's experts as grouped products.
Routing is balanced, or has 95 % of the assignments in expert 0. Steps of the three variants alternate; times are
medians of --repeats steps after a first one. The bytes are those that the layer's operations allocate and hold in
forward and backward, without inputs and weights. They are counted in separate passes, since counting takes time.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
import transformers
from torch.distributed.device_mesh import init_device_mesh
from transformers.distributed.expert_parallel import AllToAllEP
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

from evenkeel.torch import LiveBytes
from evenkeel.torch._options import LayerOptions
from evenkeel.transformers import EvenkeelEP, SlotsEP

EXPERTS, TOP_K, HIDDEN, WIDTH, TOKENS = 32, 4, 768, 768, 2048

Layer = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


class Exchange(EvenkeelEP):
    """mode="exchange": our own transport."""

    layer_options = LayerOptions(min_segment=256, imbalance_threshold=1.3)


class Slots(SlotsEP):
    """mode="slots": AllToAllEP carries the rows."""

    layer_options = LayerOptions(min_segment=256, imbalance_threshold=1.3, slots=4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    try:
        mesh = init_device_mesh("cpu", (dist.get_world_size(), 1), mesh_dim_names=("ep", "tp"))
        experts = make_experts()
        kinds = {"stock": AllToAllEP, "exchange": Exchange, "slots": Slots}
        layers: dict[str, Layer] = {name: kind(experts, mesh["ep"], mesh["tp"]) for name, kind in kinds.items()}
        say(f"{dist.get_world_size()} ranks   stock = AllToAllEP of transformers {transformers.__version__}")
        say(f"{'routing':<26}{'pass':<20}{'mode':<10}{'ms':>8}{'speed':>8}{'MiB':>10}")
        for name, share in (("95 % into one expert", 0.95), ("balanced", 0.0)):
            inputs = routed(share)
            for training in (False, True):
                row(name, training, layers, experts, inputs, options.repeats)
    finally:
        dist.destroy_process_group()


def row(
    name: str, training: bool, layers: dict[str, Layer], experts: Qwen3MoeExperts, inputs: Inputs, repeats: int
) -> None:
    outputs = {which: step(layer, experts, inputs, training) for which, layer in layers.items()}
    for which, output in outputs.items():
        assert torch.allclose(outputs["stock"], output, atol=1e-4), f"{which} differs from stock"
    seconds: dict[str, list[float]] = {which: [] for which in layers}
    for _ in range(repeats):
        for which, layer in layers.items():
            dist.barrier()
            start = time.perf_counter()
            step(layer, experts, inputs, training)
            dist.barrier()
            seconds[which].append(time.perf_counter() - start)
    passes = "forward, backward" if training else "forward"
    stock = median(seconds["stock"])
    for which, layer in layers.items():
        taken, held = median(seconds[which]), peak_bytes(layer, experts, inputs, training) / 2**20
        say(f"{name:<26}{passes:<20}{which:<10}{1e3 * taken:>8.0f}{stock / taken:>7.2f}x{held:>10.1f}")


def step(layer: Layer, experts: Qwen3MoeExperts, inputs: Inputs, training: bool) -> torch.Tensor:
    hidden, index, weights = inputs
    experts.zero_grad()
    hidden = hidden.detach().requires_grad_(training)
    with torch.set_grad_enabled(training):
        made = layer(hidden, index, weights)
    if training:
        made.backward(torch.ones_like(made))  # type: ignore[no-untyped-call]
    return made.detach()


def peak_bytes(layer: Layer, experts: Qwen3MoeExperts, inputs: Inputs, training: bool) -> int:
    with LiveBytes() as live:
        step(layer, experts, inputs, training)
    worst = torch.tensor(live.peak)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    return int(worst)


def make_experts() -> Qwen3MoeExperts:
    config = transformers.Qwen3MoeConfig(
        hidden_size=HIDDEN,
        moe_intermediate_size=WIDTH,
        num_experts=EXPERTS // dist.get_world_size(),
        num_experts_per_tok=TOP_K,
    )
    config._experts_implementation = "grouped_mm"
    torch.manual_seed(dist.get_rank())
    experts = Qwen3MoeExperts(config)  # type: ignore[no-untyped-call]
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    return experts


def routed(share: float) -> Inputs:
    """The fraction `share` of this rank's assignments goes to expert 0, the others to random experts."""
    random = torch.Generator().manual_seed(dist.get_rank())
    anywhere = torch.randint(0, EXPERTS, (TOKENS, TOP_K), generator=random)
    index = torch.where(torch.rand(TOKENS, TOP_K, generator=random) < share, torch.zeros_like(anywhere), anywhere)
    return torch.randn(TOKENS, HIDDEN, generator=random), index, torch.rand(TOKENS, TOP_K, generator=random)


def say(line: str) -> None:
    if dist.get_rank() == 0:
        print(line, flush=True)


if __name__ == "__main__":
    main()
