"""Trains the measured model, and makes its checkpoint with the experts placed for two nodes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from text import Requests, draw, kind, kinds_of_text
from torch import nn
from transformers import AutoModelForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

import evenkeel as ek

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
import train_moe
from place_a_model import permute, record

WITHIN_GIGABYTES_PER_S = 2.0
"""Roughly the rate of loopback; it only has to be far above the link's rate."""
ASSIGNMENT_US = 5.0
"""Roughly the time of one assignment's products on a shared core; used only by `joint`."""
RECORDED_SEQUENCES, BATCH = 128, 8


def train(folder: Path, steps: int) -> Path:
    """Trains a checkpoint of examples/train_moe.py's sizes; an existing one is reused."""
    if (folder / "config.json").exists():
        return folder
    torch.manual_seed(0)
    model, texts = Qwen3MoeForCausalLM(config()), kinds_of_text("placed")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95))
    for step in range(steps):
        ids = draw(texts, [0, 1] * train_moe.SEQUENCES, train_moe.LENGTH, seed=step)
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 or step == steps - 1:
            print(f"training: step {step}, loss {loss.item():.2f}", file=sys.stderr)
    model.save_pretrained(folder)
    return folder


def config() -> Qwen3MoeConfig:
    made = Qwen3MoeConfig(
        vocab_size=train_moe.VOCABULARY,
        hidden_size=train_moe.HIDDEN,
        moe_intermediate_size=train_moe.WIDTH,
        num_hidden_layers=train_moe.LAYERS,
        num_attention_heads=train_moe.HEADS,
        num_key_value_heads=train_moe.HEADS,
        head_dim=train_moe.HIDDEN // train_moe.HEADS,
        num_experts=train_moe.EXPERTS,
        num_experts_per_tok=train_moe.TOP_K,
        norm_topk_prob=True,
        output_router_logits=True,  # the loss then includes the balancing term
        router_aux_loss_coef=0.001,
    )
    made._experts_implementation = "grouped_mm"
    return made


def write_placed(
    checkpoint: Path,
    work: Path,
    link: dict[str, float],
    ranks: int,
    requests: Requests,
    objective: Any,
    traffic: Any,
    *,
    command: str,
) -> dict[str, Any]:
    """Writes work/placed, the checkpoint placed from its own routing; returns the placement's quality."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint).eval()
    kinds = [
        kind(requests, i % ranks, ranks, i // ranks) for i in range(RECORDED_SEQUENCES)
    ]  # as `place` deals sequences
    recorded = draw(kinds_of_text("placed"), kinds, train_moe.LENGTH, seed=2**40)
    trace = work / "trace.safetensors"
    profile, _ = record(model, recorded.split(BATCH), trace)
    (work / "topology.json").write_text(json.dumps(topology(link, ranks)))
    made = ek.place(
        profile,
        topology=work / "topology.json",
        objective=objective,
        traffic=traffic,
        sources=ek.source_counts(trace, ranks) if traffic == "dispatch-combine" else None,
        **(
            {"assignment_us": ASSIGNMENT_US, "assignment_bytes": 4 * model.config.hidden_size}
            if objective == "joint"
            else {}
        ),
    )
    made.save(work / "placement.json")
    shutil.rmtree(work / "placed", ignore_errors=True)  # left by an earlier run in this folder
    permute(command, checkpoint, work / "placement.json", work / "placed")
    return {
        "objective": objective,
        "traffic": traffic,
        "recorded_tokens": recorded.numel(),
        "before": quality(made.before),
        "after": quality(made.after),
    }


def topology(link: dict[str, float], ranks: int) -> dict[str, Any]:
    return {
        "format": "evenkeel.topology.v1",
        "num_nodes": 2,
        "ranks_per_node": ranks // 2,
        "within": {"gigabytes_per_s": WITHIN_GIGABYTES_PER_S},
        "across": {"gigabytes_per_s": link["mbit_per_s"] / 8000, "latency_us": 1000 * link["delay_ms"]},
    }


def quality(of: ek.PlacementQuality) -> dict[str, float]:
    assert of.crossing_between_nodes is not None and of.total is not None
    return {"max_over_mean": of.max_over_mean_mean, "across_nodes": of.crossing_between_nodes / of.total}
