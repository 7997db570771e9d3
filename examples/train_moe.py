"""Trains a small MoE language model on two processes, with plain expert parallelism or balanced (spill).

    OMP_NUM_THREADS=1 python -m torch.distributed.run --nproc-per-node 2 examples/train_moe.py --mode budget

    --mode is plain, spill (excess work is sent to the other rank) or budget (spill within a memory budget).

The text is the source of Python's standard library, as bytes. The router begins without a balancing loss, so that a few
experts take over within tens of steps, as at the beginning of any MoE training. From step --balance-after on, a
balancing loss evens out the experts' loads. Each rank has its own sequences and its own experts. All other weights are
equal on all ranks, and their gradients are averaged.

Every mode trains the same model and writes curves and TensorBoard scalars to --out. The curves are drawn beside those
of modes that ran before, and the largest difference of their losses is printed.
Needs evenkeel, torch, tensorboard, matplotlib and tqdm.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import sysconfig
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from evenkeel.torch import ExpertParallel, LiveBytes

MODES = {"plain": "plain expert parallelism", "spill": "spill", "budget": "spill within a budget"}
MIB = 2**20

LAYERS, HIDDEN, HEADS, WIDTH = 3, 128, 4, 128
EXPERTS, TOP_K = 32, 4
SEQUENCES, LENGTH = 6, 128  # of each rank
VOCABULARY = 256


def main() -> None:
    options = arguments()
    torch.set_default_dtype(getattr(torch, options.dtype))
    dist.init_process_group("gloo")
    try:
        curves = train(options)
        if dist.get_rank() == 0:
            curves.save(options.out)
            everything = [Curves.load(options.out, mode) for mode in MODES if Curves.path(options.out, mode).exists()]
            report(curves, everything)
            draw(everything, options)
    finally:
        dist.destroy_process_group()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=list(MODES), default="budget")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--budget", type=float, default=32.0, metavar="MIB", help="of one layer, in --mode budget")
    parser.add_argument("--balance-after", type=int, default=150, metavar="STEP", help="the balancing loss begins here")
    parser.add_argument("--measure-every", type=int, default=5, metavar="N", help="bytes are counted every N-th step")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float64")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("train_moe"))
    options = parser.parse_args()
    if "WORLD_SIZE" not in os.environ:
        parser.error("start it with: python -m torch.distributed.run --nproc-per-node 2 " + " ".join(sys.argv))
    return options


# The model.


class MoE(nn.Module):
    """A router and top-k experts, of which this rank holds its share."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.router = nn.Linear(HIDDEN, EXPERTS, bias=False)
        self.layer = ExpertParallel(
            EXPERTS,
            planner="ep" if options.mode == "plain" else "level",
            imbalance_threshold=1.05,
            budget=int(options.budget * MIB) if options.mode == "budget" else None,
        )
        rank, ranks = dist.get_rank(), dist.get_world_size()
        mine = slice(rank * EXPERTS // ranks, (rank + 1) * EXPERTS // ranks)
        up = torch.randn(EXPERTS, 2 * WIDTH, HIDDEN) * HIDDEN**-0.5
        down = torch.randn(EXPERTS, HIDDEN, WIDTH) * WIDTH**-0.5
        self.up, self.down = nn.Parameter(up[mine].clone()), nn.Parameter(down[mine].clone())
        self.balancing_loss = torch.zeros(())
        self.memory: LiveBytes | None = None

    def forward(self, rows: torch.Tensor, measured: bool) -> torch.Tensor:
        scores = self.router(rows).softmax(dim=-1)
        weights, chosen = scores.topk(TOP_K, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        shares = F.one_hot(chosen, EXPERTS).sum(dim=1).to(scores.dtype).mean(dim=0) / TOP_K
        self.balancing_loss = EXPERTS * (shares * scores.mean(dim=0)).sum()
        self.memory = LiveBytes() if measured else None
        with self.memory or nullcontext():
            made: torch.Tensor = self.layer(rows, chosen, weights, gated_experts, self.experts)
        if self.memory is not None:
            count_backward(self.memory, made)
        return made

    @property
    def experts(self) -> dict[str, torch.Tensor]:
        """Weights of this rank's experts, each `[experts at home, ...]`."""
        return {"up": self.up, "down": self.down}


def gated_experts(rows: torch.Tensor, slots: torch.Tensor, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """Computes one product for each expert that has rows; `slots` must ascend."""
    counts = torch.bincount(slots, minlength=len(weights["up"])).tolist()
    made = []
    for part, up, down in zip(torch.split(rows, counts), weights["up"].unbind(), weights["down"].unbind(), strict=True):
        if len(part):
            gate, value = (part @ up.T).chunk(2, dim=-1)
            made.append((F.silu(gate) * value) @ down.T)
    return torch.cat(made)


def count_backward(memory: LiveBytes, made: torch.Tensor) -> None:
    """Also counts memory during the backward pass of the operation that made this tensor."""
    if made.grad_fn is None:
        return

    def begin(grads: object) -> None:
        memory.__enter__()  # type: ignore[no-untyped-call]

    def end(grad_inputs: object, grad_outputs: object) -> None:
        memory.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    made.grad_fn.register_prehook(begin)
    made.grad_fn.register_hook(end)


class Block(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.attention_norm, self.moe_norm = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.qkv, self.out = nn.Linear(HIDDEN, 3 * HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.moe = MoE(options)

    def forward(self, x: torch.Tensor, measured: bool) -> torch.Tensor:
        batch, length, _ = x.shape
        query, key, value = self.qkv(self.attention_norm(x)).view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
        made: torch.Tensor = self.moe(self.moe_norm(x).flatten(0, 1), measured)
        return x + made.view(x.shape)


class Model(nn.Module):
    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        torch.manual_seed(options.seed)
        self.bytes = nn.Embedding(VOCABULARY, HIDDEN)
        self.positions = nn.Embedding(LENGTH, HIDDEN)
        blocks = [Block(options) for _ in range(LAYERS)]
        self.blocks = nn.ModuleList(blocks)
        self.moes = [block.moe for block in blocks]
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, text: torch.Tensor, measured: bool = False) -> torch.Tensor:
        x = self.bytes(text) + self.positions.weight[: text.shape[1]]
        for block in self.blocks:
            x = block(x, measured)
        logits: torch.Tensor = self.head(self.norm(x))
        return logits

    @property
    def shared_parameters(self) -> list[nn.Parameter]:
        """All parameters except the experts'."""
        own = {id(weight) for moe in self.moes for weight in moe.experts.values()}
        return [parameter for parameter in self.parameters() if id(parameter) not in own]


# Training.


def train(options: argparse.Namespace) -> Curves:
    from torch.utils.tensorboard import SummaryWriter
    from tqdm import tqdm  # type: ignore[import-untyped]

    first = dist.get_rank() == 0
    model, text = Model(options), library_text()
    optimizer = make_optimizer(model)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, total_iters=max(options.steps, 300))
    curves = Curves(options.mode, options.budget if options.mode == "budget" else None)
    writer = SummaryWriter(options.out / options.mode) if first else None
    bar = tqdm(range(options.steps), desc=options.mode, disable=not (first and sys.stderr.isatty()))
    for step in bar:
        measured = step % options.measure_every == 0
        batch = sequences(text, options.seed, step)
        dist.barrier()
        start = time.perf_counter()
        loss = training_step(model, optimizer, batch, balanced=step >= options.balance_after, measured=measured)
        schedule.step()
        seconds = time.perf_counter() - start
        curves.add(step, loss, model.moes, seconds, measured)
        bar.set_postfix(curves.last)
        if writer is not None:
            for name, value in curves.last.items():
                writer.add_scalar(name, value, step)
    if writer is not None:
        writer.close()
    return curves


def make_optimizer(model: Model) -> torch.optim.Optimizer:
    """Routers learn ten times as fast, so that a run of minutes shows what happens in a long one."""
    routers = [parameter for name, parameter in model.named_parameters() if ".router." in name]
    others = [parameter for name, parameter in model.named_parameters() if ".router." not in name]
    groups = [{"params": others, "lr": 1e-3}, {"params": routers, "lr": 1e-2}]
    return torch.optim.AdamW(groups, betas=(0.9, 0.95))


def training_step(
    model: Model, optimizer: torch.optim.Optimizer, batch: torch.Tensor, *, balanced: bool, measured: bool
) -> float:
    """Runs one step and returns the mean loss of all ranks."""
    logits = model(batch[:, :-1], measured)
    loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    total = loss
    if balanced:
        total = loss + 0.02 * torch.stack([moe.balancing_loss for moe in model.moes]).sum()
    optimizer.zero_grad()
    total.backward()  # type: ignore[no-untyped-call]
    average_gradients(model)
    nn.utils.clip_grad_norm_(model.shared_parameters, 1.0)
    optimizer.step()
    mean = loss.detach().clone()
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def average_gradients(model: Model) -> None:
    """Averages gradients over ranks. Experts' gradients are already sums over all ranks, so they are only divided."""
    ranks = dist.get_world_size()
    shared = [parameter.grad for parameter in model.shared_parameters if parameter.grad is not None]
    flat = torch.cat([grad.flatten() for grad in shared])
    dist.all_reduce(flat)
    for grad, summed in zip(shared, torch.split(flat, [grad.numel() for grad in shared]), strict=True):
        grad.copy_(summed.view_as(grad) / ranks)
    for moe in model.moes:
        for weight in moe.experts.values():
            if weight.grad is not None:
                weight.grad.div_(ranks)


def library_text() -> torch.Tensor:
    """The modules of this Python's standard library, by name, as bytes."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    return torch.frombuffer(bytearray(b"".join(path.read_bytes() for path in paths)), dtype=torch.uint8)


def sequences(text: torch.Tensor, seed: int, step: int) -> torch.Tensor:
    """This rank's sequences of a step, with the byte that follows each."""
    random = torch.Generator().manual_seed((seed * 1_000_000 + step) * 1000 + dist.get_rank())
    begins = torch.randint(len(text) - LENGTH, (SEQUENCES, 1), generator=random)
    return text[begins + torch.arange(LENGTH + 1)].long()


# Records of a run.


@dataclass
class Curves:
    """Values by step. Imbalance and chunks are those of the worst layer; transfers are summed over layers."""

    mode: str
    budget_mib: float | None = None
    loss: list[float] = field(default_factory=list)
    imbalance_at_home: list[float] = field(default_factory=list)
    """max/mean of the ranks' loads if every assignment were computed at its expert's home."""
    imbalance: list[float] = field(default_factory=list)
    """max/mean of the ranks' loads, as computed."""
    transfers: list[int] = field(default_factory=list)
    chunks: list[int] = field(default_factory=list)
    tokens_per_second: list[float] = field(default_factory=list)
    measured_steps: list[int] = field(default_factory=list)
    peak_bytes: list[int] = field(default_factory=list)
    """The most bytes that any layer of any rank held, for each step in which bytes were counted."""

    def add(self, step: int, loss: float, moes: list[MoE], seconds: float, measured: bool) -> None:
        lasts = [moe.layer.last for moe in moes]
        self.loss.append(loss)
        self.imbalance_at_home.append(max(max_over_mean(last["home_loads"]) for last in lasts))
        self.imbalance.append(max(max_over_mean(last["rank_loads"]) for last in lasts))
        self.transfers.append(sum(last["transfers"] for last in lasts))
        self.chunks.append(max(last["chunks"] for last in lasts))
        self.tokens_per_second.append(dist.get_world_size() * SEQUENCES * LENGTH / seconds)
        if measured:
            peak = torch.tensor(max(moe.memory.peak for moe in moes if moe.memory is not None))
            dist.all_reduce(peak, dist.ReduceOp.MAX)
            self.measured_steps.append(step)
            self.peak_bytes.append(int(peak))

    @property
    def last(self) -> dict[str, float]:
        lists = {name: values for name, values in asdict(self).items() if isinstance(values, list)}
        step = lists.pop("measured_steps")[-1]
        if step != len(self.loss) - 1:
            del lists["peak_bytes"]
        return {name: values[-1] for name, values in lists.items()}

    @property
    def quick_tokens_per_second(self) -> float:
        """The median tokens per second of the steps in which no bytes were counted, without the first five steps."""
        measured = set(self.measured_steps)
        rates = sorted(rate for i, rate in enumerate(self.tokens_per_second) if i not in measured and i >= 5)
        return rates[len(rates) // 2] if rates else self.tokens_per_second[-1]

    @staticmethod
    def path(out: Path, mode: str) -> Path:
        return out / f"{mode}.json"

    def save(self, out: Path) -> None:
        out.mkdir(parents=True, exist_ok=True)
        self.path(out, self.mode).write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, out: Path, mode: str) -> Curves:
        return cls(**json.loads(cls.path(out, mode).read_text()))


def max_over_mean(loads: list[int]) -> float:
    return max(loads) * len(loads) / max(sum(loads), 1)


def report(newest: Curves, everything: list[Curves]) -> None:
    print(f"{'mode':<26}{'tokens/s':>10}{'imbalance':>11}{'peak MiB':>10}{'final loss':>12}")
    for curves in everything:
        print(
            f"{MODES[curves.mode]:<26}{curves.quick_tokens_per_second:>10,.0f}{max(curves.imbalance):>11.2f}"
            f"{max(curves.peak_bytes) / MIB:>10.1f}{curves.loss[-1]:>12.4f}"
        )
    for other in everything:
        if other.mode != newest.mode:
            most = max(abs(mine - its) for mine, its in zip(newest.loss, other.loss, strict=False))
            print(f"largest difference in loss from {MODES[other.mode]}: {most:.1e}")


def draw(everything: list[Curves], options: argparse.Namespace) -> None:
    """Draws all modes in one picture. Line style and lightness tell them apart even in grey."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    looks: dict[str, dict[str, Any]] = {
        "plain": {"color": "#222222", "linestyle": "-", "linewidth": 1.3},
        "spill": {"color": "#d95f02", "linestyle": "--", "linewidth": 1.6},
        "budget": {"color": "#56b4e9", "linestyle": "-", "linewidth": 2.6},
    }
    figure, (loss, imbalance, peak) = pyplot.subplots(3, 1, figsize=(8, 9), sharex=True, layout="constrained")
    for order, curves in enumerate(sorted(everything, key=lambda each: -looks[each.mode]["linewidth"])):
        style = {**looks[curves.mode], "label": MODES[curves.mode], "zorder": 2 + order}
        loss.plot(curves.loss, **style)
        imbalance.plot(curves.imbalance, **style)
        peak.plot(curves.measured_steps, [held / MIB for held in curves.peak_bytes], **style)
        if curves.budget_mib is not None:
            peak.axhline(curves.budget_mib, color="#666666", linestyle=":", linewidth=1.6, label="the budget")
    loss.set_ylabel("loss (nats per byte)")
    imbalance.set_ylabel("worst layer's max/mean load\nof ranks (1 = level)")
    peak.set_ylabel("worst layer's peak activation\nmemory on one rank (MiB)")
    peak.set_xlabel("step")
    peak.set_ylim(bottom=0)
    for axes in (loss, imbalance, peak):
        axes.grid(alpha=0.3)
        axes.axvline(options.balance_after, color="#999999", linewidth=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    loss.annotate(
        "balancing loss begins",
        (options.balance_after, 1),
        (4, -4),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        va="top",
        fontsize="small",
    )
    loss.legend(frameon=False)
    peak.legend(frameon=False)
    figure.savefig(options.out / "train_moe.png", dpi=130)
    print(f"drawn: {options.out / 'train_moe.png'}")


if __name__ == "__main__":
    main()
