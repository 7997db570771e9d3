"""A transformers model whose experts stay balanced and within a budget, over all processes of torchrun.

usage: torchrun --nproc-per-node 2 examples/balanced_model.py [--model PATH] [--budget 64MiB]

Without --model it makes a small random Qwen3-MoE. Prints the loss of a few steps and how often weights moved.
"""

import argparse
import tempfile

import torch
import torch.distributed as dist
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM
from transformers.distributed import DistributedConfig

import evenkeel.transformers


def make_model(path: str) -> None:
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=256,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_experts=16,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--budget", default="64MiB")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    dist.init_process_group("gloo" if not torch.cuda.is_available() else "nccl")
    rank, ranks = dist.get_rank(), dist.get_world_size()

    evenkeel.transformers.register(min_segment=16, imbalance_threshold=1.05, budget=options.budget)
    with tempfile.TemporaryDirectory() as folder:
        shared = [options.model or folder]
        dist.broadcast_object_list(shared)
        path = shared[0]
        if options.model is None and rank == 0:
            make_model(path)
        dist.barrier()
        model = AutoModelForCausalLM.from_pretrained(
            path, distributed_config=DistributedConfig(fsdp_size=ranks, ep_size=ranks, ep_implementation="evenkeel")
        )
        dist.barrier()

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(options.steps):
        ids = torch.randint(0, 256, (1, 256), generator=torch.Generator().manual_seed(step * ranks + rank))
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
