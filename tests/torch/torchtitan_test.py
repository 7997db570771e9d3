"""A torchtitan model whose routed experts are replaced by ours gives one process's logits and gradients."""

from __future__ import annotations

import contextlib
import unittest
import warnings
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
import torchtitan.tools.utils
from processes import error_message, run_ranks
from torch.distributed.fsdp import FSDPModule
from torch.nn.utils.parametrize import register_parametrization

# Without an accelerator, torchtitan assumes CUDA. It must be set to the CPU before other modules are imported.
torchtitan.tools.utils.device_type, torchtitan.tools.utils.device_module = "cpu", torch.cpu

from torchtitan.components.lora import LoRAConverter  # noqa: E402
from torchtitan.config import CompileConfig, OverrideConfig, ParallelismConfig, TrainingConfig, apply_overrides, derive  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.distributed.activation_checkpoint import FullAC  # noqa: E402
from torchtitan.distributed.utils import get_spmd_context, set_spmd_backend  # noqa: E402
from torchtitan.models.common.attention import ScaledDotProductAttention  # noqa: E402
from torchtitan.models.common.moe import RoutedExperts  # noqa: E402
from torchtitan.models.common.token_dispatcher import AllToAllTokenDispatcher, MinimalAsyncEPTokenDispatcher  # noqa: E402
from torchtitan.models.qwen3 import model_registry, parallelize_qwen3  # noqa: E402

OURS = "evenkeel.torchtitan.balanced_experts"
ALWAYS: dict[str, Any] = {"imbalance_threshold": 0.0, "min_segment": 1}
SLOTS = ALWAYS | {"mode": "slots"}
TOKENS, VOCABULARY = 48, 2048


class PaddingDispatcher(AllToAllTokenDispatcher):
    """Reverses the rows of each place, pads them to a multiple, and adds unused rows at the end, as dispatchers for low
    precision and fixed-size buffers do. Unused rows are NaN."""

    @dataclass(kw_only=True, slots=True)
    class Config(AllToAllTokenDispatcher.Config):
        pad_multiple: int = 8
        unused: int = 16

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.pad_multiple, self.unused = config.pad_multiple, config.unused

    def _permute(self, rows: torch.Tensor, counts: torch.Tensor) -> tuple[Any, ...]:
        _, by_place, indices, here = super()._permute(rows, counts)
        room = (here.clamp(min=1) + self.pad_multiple - 1) // self.pad_multiple * self.pad_multiple
        ends = here.cumsum(0)
        last = (room.cumsum(0) - room + here - 1).repeat_interleave(here)
        at = last - torch.arange(len(rows)) + (ends - here).repeat_interleave(here)
        wide = rows.new_zeros((int(room.sum()) + self.unused, rows.shape[1]))
        wide[len(wide) - self.unused :] = torch.nan
        return (at, indices, rows.shape), wide.index_copy(0, at, by_place), indices, room

    def _unpermute(self, made: torch.Tensor, shape: Any, indices: torch.Tensor) -> torch.Tensor:
        at, indices, of_rows = shape
        back: torch.Tensor = super()._unpermute(made[at], of_rows, indices)
        return back


def make_config(ep: int, tp: int, backend: str, dispatcher: str = "standard") -> tuple[Any, Any]:
    """A small Qwen3-MoE, and how it is spread over ranks."""
    training = SimpleNamespace(seq_len=TOKENS, local_batch_size=1)
    parallelism = ParallelismConfig(expert_parallel_degree=ep, tensor_parallel_degree=tp, spmd_backend=backend)
    config = model_registry("debugmodel_moe", moe_comm_backend=dispatcher).model
    config.layers = config.layers[:2]
    for layer in config.layers:
        layer.attention.inner_attention = ScaledDotProductAttention.Config()  # the other kinds need a compiler or CUDA
        layer.moe.routed_experts.inner_experts.hidden_dim = 64
    config.update_from_config(config=SimpleNamespace(parallelism=parallelism, training=training))
    return config, parallelism


def overridden(config: Any, options: dict[str, Any]) -> Any:
    assert len(apply_overrides(OverrideConfig(imports=[(OURS, options)]), config)) == 2, "both layers"
    return config


def build(config: Any) -> Any:
    torch.manual_seed(0)
    model = config.build()
    model.init_states()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_b" in name:
                parameter.fill_(0.01)
        for layer in model.layers.values():
            for parameter in layer.moe.routed_experts.inner_experts.parameters():
                parameter.mul_(8)  # so that logits depend on the experts
            if layer.moe.expert_bias_E is not None:
                layer.moe.expert_bias_E[0] = 100  # all tokens choose this expert
    return model


def spread(config: Any, parallelism: Any, ranks: int) -> tuple[Any, Any]:
    """The model over all ranks, and the context in which torchtitan's trainer runs a step."""
    set_spmd_backend(parallelism.spmd_backend)
    dims = ParallelDims.from_config(parallelism, ranks)
    dims.build_mesh()
    model = parallelize_qwen3(
        build(config),
        parallel_dims=dims,
        training=TrainingConfig(mixed_precision_param="float32"),
        parallelism=parallelism,
        compile_config=CompileConfig(),
        ac_config=FullAC.Config(),
        dump_folder="",
        skip_dp=parallelism.spmd_backend == "spmd_types",  # torch 2.13 has no FSDP for such parameters
    )
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)  # gloo supports no other reduction
    return model, get_spmd_context(parallel_dims=dims, spmd_typechecking=False)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    made: torch.Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return made


def run(model: Any, ids: torch.Tensor, context: Any = contextlib.nullcontext) -> torch.Tensor:
    with context():
        logits = whole(model(ids))
        F.cross_entropy(logits.flatten(0, 1), ids.flatten(), reduction="sum").backward()
    return logits.detach()


def batch(rows: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (rows, TOKENS), generator=torch.Generator().manual_seed(1))


def changed(config: Any, kind: str) -> Any:
    """The model with another dispatcher, with all tokens at one expert, or with torchtitan's LoRA on attention."""
    if kind == "lora":
        return LoRAConverter(LoRAConverter.Config(rank=2, target_modules=["wo"])).convert(config)
    for layer in config.layers:
        experts = layer.moe.routed_experts
        if kind == "padding":
            experts.token_dispatcher = derive(experts.token_dispatcher, PaddingDispatcher.Config)
        if kind == "collapsed":
            layer.moe.router.top_k = experts.token_dispatcher.top_k = 1
            layer.moe.router.route_norm = False  # score / score: the router's gradient would be rounding
            layer.moe.load_balance_coeff = 1e-3  # creates a bias for each expert
    return config


def compare(
    rank: int, ranks: int, options: dict[str, Any], ep: int, tp: int, backend: str, kind: str = "as it is"
) -> None:
    """Fails if logits or gradients differ from one process, or if nothing moved."""
    config, parallelism = make_config(ep, tp, backend)
    config = changed(config, kind)
    alone = build(config)
    model, context = spread(overridden(config, options), parallelism, ranks)
    ids = batch(ranks // tp)
    mine = slice(rank // tp, rank // tp + 1)
    made, want = run(model, ids[mine], context), run(alone, ids)[mine]
    # torchtitan's experts multiply in bfloat16, and sums are rounded at other points.
    assert (made - want).abs().max() <= 5e-3 * want.abs().max(), f"logits off by {(made - want).abs().max()}"
    layers = [layer.moe.routed_experts.layer for layer in model.layers.values()]
    happened = "chunks" if "budget" in options else "transfers"
    assert [layer.exchange.layer for layer in layers] == [f"layers.{i}.moe.routed_experts" for i in range(2)]
    assert all(layer.last[happened] > (happened == "chunks") for layer in layers), [layer.last for layer in layers]
    for layer, single in zip(model.layers.values(), alone.layers.values(), strict=True):
        tokens = whole(layer.moe.tokens_per_expert_E)
        dist.all_reduce(tokens)
        # The model counts experts, not places. Checkpointing counts them twice, and so does each tensor-parallel rank.
        assert torch.equal(tokens, 2 * tp * single.moe.tokens_per_expert_E), tokens
    for (name, parameter), (_, single) in zip(model.named_parameters(), alone.named_parameters(), strict=True):
        assert parameter.requires_grad == single.requires_grad == (kind != "lora" or "lora" in name), name
        if not parameter.requires_grad:
            continue
        assert parameter.grad is not None and single.grad is not None, name
        grad, reference = whole(parameter.grad), single.grad
        if backend == "spmd_types":  # gradients before data parallelism adds them
            if "inner_experts" in name:
                reference = reference[rank * len(grad) : (rank + 1) * len(grad)]
            else:
                dist.all_reduce(grad)
        error = float((grad - reference).abs().max() / reference.abs().max())
        assert error < 1e-2, f"{name}: off by {error}"


def nothing_moves(rank: int, ranks: int, options: dict[str, Any]) -> None:
    """If nothing may move, logits and gradients are torchtitan's own to the bit."""
    made = []
    for ours in (False, True):
        config, parallelism = make_config(ranks, 1, "partial_dtensor")
        if ours:
            config = overridden(config, options | {"imbalance_threshold": 1e6})
        model, context = spread(config, parallelism, ranks)
        logits = run(model, batch(ranks)[rank : rank + 1], context)
        made.append([logits, *(whole(parameter.grad) for parameter in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*made, strict=True))


def alone(rank: int, ranks: int) -> list[str]:
    """Our warnings if every rank has all experts."""
    config, parallelism = make_config(1, 1, "partial_dtensor")
    model, context = spread(overridden(config, {}), parallelism, ranks)
    with warnings.catch_warnings(record=True) as caught:
        run(model, batch(ranks)[rank : rank + 1], context)
    return [str(each.message) for each in caught if "evenkeel" in str(each.message)]


def refusals(rank: int, ranks: int) -> list[str]:
    """Errors of wrong overrides: another dispatcher, a wrong option, experts that are not torchtitan's."""

    class Theirs(RoutedExperts):
        @dataclass(kw_only=True, slots=True)
        class Config(RoutedExperts.Config):
            pass

    others, _ = make_config(2, 1, "partial_dtensor")
    for layer in others.layers:
        layer.moe.routed_experts = derive(layer.moe.routed_experts, Theirs.Config)
    buffered, _ = make_config(2, 1, "partial_dtensor")
    static, _ = make_config(2, 1, "partial_dtensor", "hybridep")
    for layer in buffered.layers:
        experts = layer.moe.routed_experts
        experts.token_dispatcher = derive(experts.token_dispatcher, MinimalAsyncEPTokenDispatcher.Config)
    for layer in static.layers:
        layer.moe.routed_experts.token_dispatcher.non_blocking_capacity_factor = 1.0
    messages = []
    for config, options in (
        (make_config(2, 1, "partial_dtensor", "deepep")[0], {}),
        (make_config(2, 1, "partial_dtensor")[0], {"planner": "best"}),
        (make_config(2, 1, "partial_dtensor")[0], {"budget": "much"}),
        (others, {}),
        (buffered, {"mode": "slots"}),
        (static, {"mode": "slots"}),
        (make_config(2, 1, "partial_dtensor")[0], {"mode": "slots", "budget": "4GiB"}),
        (make_config(2, 1, "partial_dtensor")[0], {"slots": 4}),
        (make_config(2, 1, "partial_dtensor")[0], {"planner": "ep", "topology": "2x8xh100"}),
    ):
        messages.append(error_message(lambda: overridden(config, options), ValueError))  # noqa: B023
    layer = overridden(make_config(3, 1, "partial_dtensor")[0], {}).layers[0].moe.routed_experts.build()
    mesh = SimpleNamespace(get_optional_mesh=lambda name: SimpleNamespace(size=lambda: 3))
    return [*messages, error_message(lambda: layer.parallelize(mesh), ValueError)]


def parametrized(rank: int, ranks: int) -> str:
    """The layer's error for experts whose weights are computed."""
    config, parallelism = make_config(ranks, 1, "partial_dtensor")
    model, context = spread(overridden(config, {}), parallelism, ranks)
    for layer in model.layers.values():
        experts = layer.moe.routed_experts.inner_experts
        register_parametrization(experts, next(iter(experts._parameters)), torch.nn.Identity())
    with context():
        return error_message(lambda: model(batch(1)), ValueError)


class TorchtitanTest(unittest.TestCase):
    def test_logits_and_gradients(self) -> None:
        for ranks, options, ep, tp, backend in (
            (2, ALWAYS, 2, 1, "partial_dtensor"),
            (2, ALWAYS | {"budget": "5MiB"}, 2, 1, "partial_dtensor"),
            (4, ALWAYS, 2, 1, "partial_dtensor"),  # experts over half of the ranks
            (2, ALWAYS, 2, 2, "partial_dtensor"),  # tensor-parallel ranks share a batch
            (2, ALWAYS, 2, 1, "spmd_types"),  # plain tensors
        ):
            with self.subTest(ranks=ranks, options=options, tp=tp, backend=backend):
                run_ranks(ranks, compare, options, ep, tp, backend)

    def test_a_step_in_which_nothing_moves_is_torchtitans_own(self) -> None:
        for options in ({}, {"mode": "slots"}):
            run_ranks(2, nothing_moves, options)

    def test_slots_over_torchtitans_own_dispatcher(self) -> None:
        for ranks, slots, ep, tp, backend, kind in (
            (2, 2, 2, 1, "partial_dtensor", "as it is"),
            (4, 1, 4, 1, "partial_dtensor", "as it is"),
            (4, 16, 4, 1, "partial_dtensor", "as it is"),  # as many slots as home experts
            (4, 2, 2, 1, "partial_dtensor", "as it is"),
            (2, 2, 2, 2, "partial_dtensor", "as it is"),
            (2, 1, 2, 1, "partial_dtensor", "collapsed"),
            (4, 2, 4, 1, "partial_dtensor", "collapsed"),
        ):
            with self.subTest(ranks=ranks, slots=slots, ep=ep, tp=tp, backend=backend, kind=kind):
                run_ranks(ranks, compare, SLOTS | {"slots": slots}, ep, tp, backend, kind)

    def test_torchtitans_lora_of_attention_and_frozen_experts(self) -> None:
        for options in (ALWAYS, SLOTS):
            run_ranks(2, compare, options, 2, 1, "partial_dtensor", "lora")

    def test_parametrized_experts_are_refused(self) -> None:
        for message in run_ranks(2, parametrized):
            self.assertEqual(
                message, "inner_experts: have parametrized weights; allowed: plain parameters: merge them first"
            )

    def test_slots_over_a_dispatcher_of_ones_own_that_pads(self) -> None:
        for ranks, slots in ((2, 1), (4, 2)):
            with self.subTest(ranks=ranks, slots=slots):
                options = SLOTS | {"slots": slots}
                run_ranks(ranks, compare, options, ranks, 1, "partial_dtensor", "padding")

    def test_experts_that_are_not_spread_are_spoken_of_once(self) -> None:
        for messages in run_ranks(2, alone):
            self.assertEqual(len(messages), 1)
            self.assertIn("has nothing to balance: expert_parallel_degree is 1", messages[0])

    def test_a_misspelt_option_is_an_error_of_ours(self) -> None:
        with self.assertRaisesRegex(ValueError, "'bugdet' is no argument of balanced_experts.*did you mean 'budget'"):
            overridden(make_config(2, 1, "partial_dtensor")[0], {"bugdet": "4GiB"})

    def test_what_is_refused(self) -> None:
        dispatcher, option, size, experts, buffer, static, budget, slots, links, degree = run_ranks(1, refusals)[0]
        self.assertIn('DeepEPTokenDispatcher.Config, which mode="exchange" would replace', dispatcher)
        self.assertIn(
            'allowed: torchtitan\'s own all-to-all (moe_comm_backend="standard"), or mode="slots"', dispatcher
        )
        self.assertIn("MinimalAsyncEPTokenDispatcher.Config, whose one buffer in a process", buffer)
        self.assertIn("non_blocking_capacity_factor: keeps counts from the host", static)
        self.assertIn('budget: cuts a step into chunks, which mode="slots" cannot do', budget)
        self.assertIn('slots: applies only to mode="slots"; mode is "exchange"', slots)
        self.assertIn("topology: planner ep does not use links", links)
        self.assertEqual(option, "planner: 'best'; allowed: ep, least-loaded, level")
        self.assertIn('budget: "much" is not a size', size)
        self.assertEqual(degree, "expert_parallel_degree: is 3; allowed: a divisor of 64, the number of experts")
        self.assertIn("Theirs.Config, whose forward this would replace; allowed: torchtitan's RoutedExperts", experts)


if __name__ == "__main__":
    unittest.main()
