"""Records a model's routing, places its experts by it, permutes the checkpoint accordingly and runs the model again.

usage: place_a_model.py [--model FOLDER] [--text FILE] [--ranks N] [--output FOLDER] [--evenkeel COMMAND]

Without --model it makes a tiny random Qwen3-MoE. Without --text it runs random tokens, whose routing says nothing about
real traffic. Needs evenkeel's command, its Python package, torch and transformers.
"""

import argparse
import subprocess
import tempfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3MoeConfig, Qwen3MoeForCausalLM

import evenkeel as ek
import evenkeel.torch


def main():
    options = parse_options()
    with tempfile.TemporaryDirectory() as scratch:
        work = options.output or Path(scratch)
        work.mkdir(parents=True, exist_ok=True)
        checkpoint = options.model or save_tiny_model(work / "model")
        model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
        batches = read_batches(options.text, checkpoint, model.config.get_text_config().vocab_size)

        before, logits = record(model, batches, work / "trace.safetensors")
        placement = ek.place(before, ranks=options.ranks)
        placement.save(work / "placement.json")
        permute(options.evenkeel, checkpoint, work / "placement.json", work / "placed")

        placed = AutoModelForCausalLM.from_pretrained(work / "placed").eval()
        after, same_logits = record(placed, batches, work / "placed.safetensors")

    print(f"largest rank load / mean load, contiguous experts on {options.ranks} ranks, mean of layers:")
    print(f"  as it was  {imbalance(before, options.ranks):.3f}")
    print(f"  placed     {imbalance(after, options.ranks):.3f}")
    difference = max(float((a - b).abs().max()) for a, b in zip(logits, same_logits, strict=True))
    largest = max(float(a.abs().max()) for a in logits)
    print(f"logits differ by {difference:.1e} at most, and the largest is {largest:.1f}")
    if difference > 1e-3 * largest:
        raise SystemExit("the placed model is not the same model")


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, help="a checkpoint in transformers' format")
    parser.add_argument("--text", type=Path, help="what the model reads while it is recorded")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--output", type=Path, help="where trace, placement and placed checkpoint stay")
    parser.add_argument("--evenkeel", default="evenkeel", help="the command")
    return parser.parse_args()


def save_tiny_model(folder):
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        num_experts=16,
        num_experts_per_tok=2,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    return folder


def read_batches(text, checkpoint, vocabulary, batch=4, length=128):
    if text is None:
        return list(torch.randint(0, vocabulary, (4, batch, length), generator=torch.Generator().manual_seed(1)))
    tokens = AutoTokenizer.from_pretrained(checkpoint)(text.read_text(), return_tensors="pt")["input_ids"][0]
    rows = tokens[: len(tokens) // length * length].view(-1, length)
    return list(rows.split(batch))


def record(model, batches, path):
    with evenkeel.torch.record(model, path), torch.no_grad():
        logits = [model(input_ids=batch).logits.float() for batch in batches]
    return ek.RoutingProfile(path), logits


def permute(command, checkpoint, placement, output):
    subprocess.run([command, "permute", checkpoint, "--placement", placement, "-o", output], check=True)


def imbalance(profile, ranks):
    loads = profile.loads.reshape(profile.num_layers, ranks, -1).sum(axis=2)
    return float((loads.max(axis=1) / loads.mean(axis=1)).mean())


if __name__ == "__main__":
    main()
