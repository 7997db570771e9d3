"""Experts that are frozen, parametrized, adapted by PEFT or clipped by a shared norm give one process's results."""

from __future__ import annotations

import os
import tempfile
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from processes import error_message, run_ranks
from safetensors.torch import load_file
from tiny_models import make
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.nn.utils.parametrize import register_parametrization
from transformers.distributed import DistributedConfig

import evenkeel as ek
import evenkeel.transformers
from evenkeel.torch import weights_fixed
from evenkeel.torch._exchange import Exchange

MOVED: dict[str, Any] = {"min_segment": 1, "imbalance_threshold": 0.0}
STILL: dict[str, Any] = {"imbalance_threshold": 1e6}
WAYS: dict[str, dict[str, Any]] = {
    "exchange": MOVED,
    "budget": MOVED | {"budget": "2MiB"},
    "slots": MOVED | {"mode": "slots"},
    "exchange, nothing moves": STILL,
    "slots, nothing moves": STILL | {"mode": "slots"},
}
TOKENS = 24


class Models:
    """A tiny model spread over ranks, and the same model on this rank alone."""

    def __init__(self, folder: str, model_type: str, ranks: int, ep: int | None = None, **options: Any) -> None:
        evenkeel.transformers.register(**options)
        kind = type(make(model_type)[0])
        config = DistributedConfig(tp_size=1, fsdp_size=ranks, ep_size=ep or ranks, ep_implementation="evenkeel")
        path = os.path.join(folder, model_type)
        self.alone = kind.from_pretrained(path, dtype=torch.float32)
        self.spread: Any = kind.from_pretrained(path, dtype=torch.float32, distributed_config=config)

    def experts(self) -> list[Any]:
        """The experts modules of both models."""
        named = [*self.alone.named_modules(), *self.spread.named_modules()]
        return [module for name, module in named if name.endswith("experts")]

    def require_alike(self, rank: int, ranks: int, names: Callable[[str], bool], moved: bool | None = None) -> None:
        """Checks outputs, and the gradients of the named parameters for the mean of all ranks' losses."""
        ids = torch.randint(1, 64, (ranks, TOKENS), generator=torch.Generator().manual_seed(1))
        made, want = self.spread(ids[rank : rank + 1])[0], self.alone(ids)[0]
        loss = torch.randn(want.shape, generator=torch.Generator().manual_seed(2)) / TOKENS
        (made * loss[rank : rank + 1]).sum().backward()
        (want * loss).sum().div(ranks).backward()
        require_near(made, want[rank : rank + 1], "outputs")
        grads = {name: parameter.grad for name, parameter in self.spread.named_parameters() if names(name)}
        assert grads
        for name, parameter in self.alone.named_parameters():
            if names(name):
                require_near(grads[name], parameter.grad, name)
        if moved is not None:
            assert moved == any(layer.last["transfers"] for layer in evenkeel.transformers.layers(self.spread))


def require_near(made: torch.Tensor | None, want: torch.Tensor | None, name: str) -> None:
    assert made is not None and want is not None, name
    made = made.full_tensor() if isinstance(made, DTensor) else made
    off, most = (made - want).abs().max(), want.abs().max()
    assert most > 0 and off <= 2e-5 * most, f"{name}: off by {off} of {most}"


@contextmanager
def phases() -> Iterator[set[str]]:
    """Collects the phases that this rank exchanges inside the block."""
    found, start = set(), Exchange.start

    def noted(self: Exchange, phase: str, *given: Any) -> Any:
        found.add(phase)
        return start(self, phase, *given)

    with mock.patch.object(Exchange, "start", noted):
        yield found


class LowRank(nn.Module):
    """Adds B A to each expert's W; A and B are replicated if W is a DTensor."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        experts, out, width = weight.shape
        random = torch.Generator().manual_seed(3)

        def parameter(*shape: int) -> nn.Parameter:
            made = torch.randn(shape, generator=random) / 4
            if isinstance(weight, DTensor):
                made = distribute_tensor(made, weight.device_mesh, [Replicate()] * weight.device_mesh.ndim)
            return nn.Parameter(made)

        self.a, self.b = parameter(experts, 2, width), parameter(experts, out, 2)

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        return weight + self.b @ self.a


def frozen(rank: int, ranks: int, folder: str, way: str) -> None:
    models = Models(folder, "qwen3_moe", ranks, **WAYS[way])
    for module in models.experts():
        module.requires_grad_(False)
    with phases() as found:
        models.require_alike(rank, ranks, lambda name: "gate." in name or "q_proj" in name, moved=True)
    assert "weights" in found and "weight gradients" not in found, found


def parametrized(rank: int, ranks: int, folder: str, way: str) -> None:
    models = Models(folder, "mixtral", ranks, **WAYS[way])
    for module in models.experts():
        register_parametrization(module, "gate_up_proj", LowRank(module.gate_up_proj))
    models.require_alike(rank, ranks, lambda name: "experts" in name, moved="moves" not in way)


def shared_norm(rank: int, ranks: int, folder: str, way: str) -> None:
    models = Models(folder, "muse_spark_text", ranks, **WAYS[way])
    models.require_alike(rank, ranks, lambda name: "experts" in name, moved="moves" not in way)


def changed(rank: int, ranks: int, folder: str) -> None:
    """Slots must not keep adapted weights, since nothing reports that the adapter has changed."""
    models = Models(folder, "mixtral", ranks, **WAYS["slots"])
    for module in models.experts():
        register_parametrization(module, "gate_up_proj", LowRank(module.gate_up_proj))
    ids = torch.randint(1, 64, (1, TOKENS), generator=torch.Generator().manual_seed(rank))
    with torch.no_grad(), weights_fixed(models.spread):
        for _ in range(2):
            require_near(models.spread(ids)[0], models.alone(ids)[0], "outputs")
            for module in models.experts():
                module.parametrizations.gate_up_proj[0].b.mul_(2)


def all_of_two(rank: int, ranks: int, folder: str) -> None:
    for way in ("exchange", "slots"):
        frozen(rank, ranks, folder, way)
    for way in ("exchange", "budget", "slots", "exchange, nothing moves"):
        parametrized(rank, ranks, folder, way)
    for way in ("budget", "slots", "slots, nothing moves"):
        shared_norm(rank, ranks, folder, way)
    changed(rank, ranks, folder)


def adapted(rank: int, ranks: int, folder: str, model_type: str, ep: int, way: str, checkpointed: bool) -> None:
    """Checks PEFT's LoRA on the parameters of experts and on attention."""
    from peft import LoraConfig, get_peft_model

    models = Models(folder, model_type, ranks, ep, **WAYS[way])
    mesh = models.spread.get_input_embeddings().weight.device_mesh
    targets = ["experts.gate_up_proj", "experts.down_proj"]
    config = LoraConfig(r=2, target_modules=["q_proj"], target_parameters=targets, init_lora_weights=False)
    torch.manual_seed(5)
    models.alone = get_peft_model(models.alone, config)
    torch.manual_seed(5 + rank)  # adapters start different on every rank
    models.spread = get_peft_model(models.spread, config)
    message = error_message(lambda: models.spread(torch.ones((1, 4), dtype=torch.int64)), ek.errors.InvalidArgument)
    assert "allowed: to call evenkeel.transformers.share_adapters(model)" in message, message
    evenkeel.transformers.share_adapters(models.spread)
    for name, module in models.spread.named_modules():
        if "lora_" in name and isinstance(module, nn.Linear) and ".experts." not in name:
            dist.broadcast(module.weight.detach(), 0)
            fully_shard(module, mesh=mesh)
    if checkpointed:
        models.spread.activation_checkpointing_enable()
        models.spread.enable_input_require_grads()
        models.spread.train()
    models.require_alike(rank, ranks, lambda name: "lora" in name, moved=True)
    saved = os.path.join(folder, f"{way}-{rank}")
    models.spread.save_pretrained(saved)
    whole = dict(models.alone.named_parameters())
    for name, made in load_file(os.path.join(saved, "adapter_model.safetensors")).items():
        require_near(made, whole[name.replace(".weight", ".default.weight")], name)
    merged = models.spread.merge_and_unload()
    ids = torch.arange(1, TOKENS).unsqueeze(0)
    with torch.no_grad():
        require_near(merged(ids)[0], models.alone(ids)[0], "merged outputs")


def all_adapted(rank: int, ranks: int, folder: str) -> None:
    adapted(rank, ranks, folder, "mixtral", 2, "budget", checkpointed=True)
    adapted(rank, ranks, folder, "gpt_oss", 2, "slots", checkpointed=False)


class AdaptersTest(unittest.TestCase):
    folder: str

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        for model_type in ("qwen3_moe", "mixtral", "gpt_oss", "muse_spark_text"):
            make(model_type)[0].save_pretrained(os.path.join(cls.folder, model_type))

    def test_frozen_parametrized_and_norm_sharing_experts(self) -> None:
        run_ranks(2, all_of_two, self.folder)

    @unittest.skipUnless(find_spec("peft"), "peft is not installed")
    def test_lora_of_experts_is_one_adapter_on_all_ranks(self) -> None:
        run_ranks(4, all_adapted, self.folder)

    def test_a_model_without_adapters_of_experts_is_refused(self) -> None:
        with self.assertRaisesRegex(ek.errors.InvalidArgument, "model: has no adapters of experts; allowed: a PEFT"):
            evenkeel.transformers.share_adapters(nn.Linear(2, 2))


if __name__ == "__main__":
    unittest.main()
