"""Trains a model on its own samples, with the experts that it chose while sampling.

usage: torchrun --nproc-per-node 2 examples/replay_routes.py [--folder DIR]

A small random Qwen3-MoE samples with generate() while its routing is recorded. It then trains two steps with the
recorded experts; after the first step, its routers would choose other experts. Experts are borrowed in slots, and
within layers the host never waits for evenkeel. --folder keeps the model and the recordings.
"""

import argparse
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from balanced_model import make_model
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.distributed import DistributedConfig

import evenkeel.torch
import evenkeel.transformers


def sample(model: PreTrainedModel, trace: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Four sequences `[4, 24]`, and the experts `[4, 23, layers, k]` of all tokens but the last, which never runs."""
    prompts = torch.randint(0, 256, (4, 8), generator=torch.Generator().manual_seed(dist.get_rank()))
    with evenkeel.torch.record(model, trace), torch.no_grad():
        tokens = model.generate(prompts, max_new_tokens=16, min_new_tokens=16, do_sample=True, pad_token_id=0)
    ids = load_file(trace.format(rank=dist.get_rank()))["topk_ids"]
    return tokens, ids.view(4, 23, *ids.shape[1:])


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    logits = model(tokens[:, :-1], use_cache=False).logits
    return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def step(model: PreTrainedModel, optimizer: torch.optim.Optimizer, tokens: torch.Tensor, ids: torch.Tensor) -> None:
    with evenkeel.torch.routes_ahead(model, ids):
        loss = loss_of(model, tokens)
        loss.backward()
    mean = loss.detach() / dist.get_world_size()
    dist.all_reduce(mean)
    router = model.model.layers[0].mlp.gate.weight.grad.full_tensor().norm()
    moved = sum(layer.last["transfers"] for layer in evenkeel.transformers.layers(model))
    if dist.get_rank() == 0:
        print(
            f"loss {mean:.6f}, gradient of the first router {router:.6f}; weights that travelled: {moved}", flush=True
        )
    optimizer.step()
    optimizer.zero_grad()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder")
    options = parser.parse_args()
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    evenkeel.transformers.register(mode="slots", slots=2, min_segment=1, imbalance_threshold=1.05)
    with tempfile.TemporaryDirectory() as scratch:
        shared = [options.folder or scratch]
        dist.broadcast_object_list(shared)
        folder = Path(shared[0])
        if rank == 0:
            make_model(str(folder / "model"))
        dist.barrier()
        model = AutoModelForCausalLM.from_pretrained(
            folder / "model",
            distributed_config=DistributedConfig(fsdp_size=ranks, ep_size=ranks, ep_implementation="evenkeel"),
        )
        # Made before the first forward: after that, FSDP may hold whole parameters, whose updates would be lost.
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        torch.manual_seed(rank)
        tokens, ids = sample(model, str(folder / "trace.{rank}.safetensors"))
        save_file({"tokens": tokens.contiguous(), "ids": ids}, folder / f"sampled.{rank}.safetensors")
        for _ in range(2):
            step(model, optimizer, tokens, ids)
        try:
            with evenkeel.torch.routes_ahead(model, ids, replay=False), torch.no_grad():
                loss_of(model, tokens)
        except evenkeel.InvalidArgument as error:
            if rank == 0:
                print(f"without replay: {error}")
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
