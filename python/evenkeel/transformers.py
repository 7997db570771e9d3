"""Balanced expert parallelism for transformers models with an expert-parallel plan (transformers >= 5.23).

    import evenkeel.transformers
    evenkeel.transformers.register(planner="level", budget="4GiB")
    model = AutoModelForCausalLM.from_pretrained(
        path, distributed_config=DistributedConfig(fsdp_size=8, ep_size=8, ep_implementation="evenkeel")
    )

The model's own experts compute every row, with their own kernels. Without a budget, a step in which nothing moves is
the framework's own all-to-all, to the bit.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.nn.utils.parametrize import is_parametrized
from torch.utils.hooks import RemovableHandle

from ._arguments import choice, instance, invalid, public
from ._reading import FilePath
from ._versions import needs
from .placement import Placement
from .step_plan import Planner
from .torch import ExpertParallel, metrics
from .torch._adapters import by_rank, require_shared
from .torch._adapters import share_adapters as share_adapters
from .torch._chunk import Weights, wide
from .torch._compiled import call_in_graph, number_of
from .torch._costs import Costs
from .torch._exchange import Exchange
from .torch._module import holders_of, layer_of_module, shared_weights, weights_of, with_weights
from .torch._names import name_at_first_forward
from .torch._nodes import NodesOfRanks
from .torch._options import LayerOptions, budget_bytes, slots_of
from .torch.slots import ExpertSlots, layer_with

with needs("transformers", "5.23 or later"):
    from transformers import PreTrainedModel
    from transformers.distributed.expert_parallel import AllToAllEP, EPImplementation, EPImplementationInterface
    from transformers.trainer_callback import TrainerCallback

if TYPE_CHECKING:
    from transformers import Trainer

NAME = "evenkeel"

_made = itertools.count()
"""Numbers the experts modules of this process as they are made. Errors use the number until the model runs."""

_unused: list[RemovableHandle] = []
"""The hook that warns of a model without our layers; set by register() until a model has ours."""


@public
def register(
    name: str = NAME,
    *,
    planner: Planner = "level",
    placement: Placement | None = None,
    capacity_factor: float = 1.0,
    min_segment: int = 64,
    imbalance_threshold: float | Literal["auto"] = "auto",
    budget: int | str | None = None,
    chunk_bins: Sequence[int] | None = None,
    costs: Costs | None = None,
    topology: FilePath | None = None,
    nodes: NodesOfRanks | None = None,
    sum_in_nodes: bool = False,
    mode: Literal["exchange", "slots"] = "exchange",
    slots: int | None = None,
    dispatcher: type[EPImplementation] | None = None,
) -> None:
    """Registers our implementation as `ep_implementation=name`, for models loaded from now on.

    Warns once if a model with an expert-parallel plan runs before any model was loaded with our implementation.

    Args:
        name: the value of `DistributedConfig.ep_implementation`; it must not be registered already.
        placement: always refused, with the advice to permute the checkpoint by it instead (`evenkeel permute`). Homes
            are then contiguous, as transformers needs.
        budget: bytes, "4GiB" or "auto".
        planner, capacity_factor, min_segment, imbalance_threshold, chunk_bins, costs, topology, nodes, sum_in_nodes: as
            for `evenkeel.torch.ExpertParallel`; nodes are those of the ranks that share the experts.
        mode: "exchange": our own exchange sends rows. "slots": another dispatcher sends them, to experts and borrow
            slots (`evenkeel.torch.ExpertSlots`); refuses budget, chunk_bins, nodes, capacity_factor and "least-loaded".
        slots: with mode="slots", how many experts a rank may borrow in a step; 4 if None.
        dispatcher: with mode="slots", the `EPImplementation` that sends the rows: transformers' `AllToAllEP`, or a
            class that calls its `experts_forward(rows, ids, weights)` once, with each row's id below
            `num_local_experts`.

    Raises:
        InvalidArgument: an option is out of range or of the other mode, or the name is taken.
    """
    _require_free(instance(name, str, "name"))
    choice(mode, "mode", ("exchange", "slots"))
    _check_dispatcher(mode, dispatcher)
    if placement is not None:
        raise invalid(
            "placement",
            "transformers gives each rank a contiguous range of experts, so the checkpoint must hold the placement",
            "to leave it out, and to load what `evenkeel permute CHECKPOINT --placement FILE -o DIR` writes",
        )
    limit, borrow_slots = budget_bytes(budget), slots_of(mode, slots)
    decided = planner, capacity_factor, min_segment, imbalance_threshold
    options = LayerOptions(*decided, limit, chunk_bins, costs, topology, borrow_slots, nodes, sum_in_nodes)

    class Evenkeel(EvenkeelEP if mode == "exchange" else SlotsEP):  # type: ignore[misc]
        layer_options = options
        stock = dispatcher or AllToAllEP

    EPImplementationInterface.register(name, Evenkeel)
    if not _unused:
        _unused.append(nn.modules.module.register_module_forward_pre_hook(_warn_if_not_ours))


def _check_dispatcher(mode: str, dispatcher: object) -> None:
    if dispatcher is None:
        return
    if mode != "slots":
        why = 'applies only to mode="slots"; mode is "exchange"'
        raise invalid("dispatcher", why, 'mode="slots", or to leave it out')
    if not (isinstance(dispatcher, type) and issubclass(dispatcher, EPImplementation)):
        raise invalid("dispatcher", f"is {dispatcher!r}", "a class of transformers' EPImplementation")


def _require_free(name: str) -> None:
    implementations = EPImplementationInterface()
    if name in implementations and not issubclass(implementations[name], EvenkeelEP):
        raise invalid(
            "name",
            f'"{name}" is {implementations[name].__name__}, which would be replaced',
            f'a name of your own, such as "{NAME}"',
        )


def _warn_if_not_ours(module: nn.Module, arguments: object) -> None:
    """Runs before any module's forward: warns if it is an expert-parallel model and no model has our layers yet."""
    if torch.compiler.is_compiling():
        return
    model = getattr(module, "_orig_mod", module)  # without the wrapper of torch.compile
    if not isinstance(model, PreTrainedModel) or "ep_dispatch_experts" not in (model.ep_plan or {}).values():
        return
    _end_watch()
    if holders_of(model, ExpertParallel):
        return
    config = getattr(model.config, "distributed_config", None)
    loaded_with = "no distributed_config"
    if config is not None:
        loaded_with = f"ep_size={config.ep_size}, ep_implementation={config.ep_implementation!r}"
    warnings.warn(
        f"{type(model).__name__} runs without evenkeel, though evenkeel.transformers.register() was called: it is not "
        f"balanced, and no budget holds. It was loaded with {loaded_with}; evenkeel needs an ep_size above 1 and "
        f"ep_implementation={NAME!r}, or the name that was registered",
        stacklevel=4,  # the model's caller
    )


def _end_watch() -> None:
    while _unused:
        _unused.pop().remove()


@public
def layers(model: nn.Module) -> list[ExpertParallel]:
    """The expert-parallel layers of a model that was loaded with our implementation, in the model's order. A layer's
    `last` tells about its last step, its `budgets()` about possible budgets."""
    return [layer for _, layer in holders_of(instance(model, nn.Module, "model"), ExpertParallel)]


@public
def report_metrics(trainer: Trainer, *, per_layer: bool = False) -> None:
    """Adds `evenkeel.torch.metrics` to a Trainer's reports to wandb, tensorboard and others, whenever it logs a loss.

    It puts a callback before all others, since they run in order: one in `callbacks=[...]` would run after the reports.

    Args:
        trainer: a Trainer whose model has our layers.
        per_layer: also report each layer's numbers, not only their means and worst values.

    Raises:
        InvalidArgument: the model has no layers of ours.
    """
    handler = getattr(trainer, "callback_handler", None)
    if handler is None:
        raise invalid("trainer", f"is a {type(trainer).__name__}", "a transformers Trainer")
    metrics(trainer.model)  # type: ignore[arg-type]  # refuses None
    handler.callbacks = [_Metrics(per_layer), *(each for each in handler.callbacks if not isinstance(each, _Metrics))]


class _Metrics(TrainerCallback):  # type: ignore[misc]
    def __init__(self, per_layer: bool) -> None:
        self.per_layer = per_layer

    def on_log(self, args: Any, state: Any, control: Any, **beside: Any) -> None:
        logs = beside["logs"]
        if "loss" in logs:  # skips logs of evaluations, which go to their caller
            found, over_all = metrics(beside["model"]).items(), ("evenkeel/mean/", "evenkeel/worst/")
            logs.update((name, number) for name, number in found if self.per_layer or name.startswith(over_all))


class EvenkeelEP(EPImplementation):  # type: ignore[misc]
    """The expert-parallel implementation of one experts module, by transformers' interface."""

    layer_options = LayerOptions()
    stock: type[EPImplementation] = AllToAllEP

    def __init__(self, experts: Any, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        self.experts, self.names = experts, list(experts._parameters)
        self._shares = any("." in name for name, _ in experts.named_parameters())
        self._original = self.stock(experts, ep_mesh, tp_mesh)
        self.layer = layer_with(
            self.layer_options, experts.num_experts * ep_mesh.size(), ep_mesh.get_group(), name=str(next(_made))
        )
        self.layer.own_tokens = self._own_tokens  # type: ignore[method-assign]
        layer_of_module[experts] = self.layer
        name_at_first_forward(experts, self.layer.exchange, require_shared)
        self._number = number_of(self)
        _end_watch()

    def __call__(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        if torch.compiler.is_compiling() and not self._shares and not is_parametrized(self.experts):
            weights = [each for each in self.experts._parameters.values() if each is not None]
            return call_in_graph(self._number, hidden_states, top_k_index, top_k_weights, weights)
        return self._uncompiled(hidden_states, top_k_index, top_k_weights)

    @torch.compiler.disable
    def _uncompiled(self, hidden: torch.Tensor, index: torch.Tensor, top_k_weights: torch.Tensor) -> torch.Tensor:
        return self._eager(hidden, index, top_k_weights, self._weights(), with_stock=True)

    def in_graph(
        self, hidden: torch.Tensor, index: torch.Tensor, top_k_weights: torch.Tensor, weights: list[torch.Tensor]
    ) -> torch.Tensor:
        """The same in a compiled graph, without `stock`, which reads the module's parameters: they differ there."""
        self._require_no_buffers()
        names = (name for name, each in self.experts._parameters.items() if each is not None)
        return self._eager(hidden, index, top_k_weights, dict(zip(names, weights, strict=True)), with_stock=False)

    def _eager(
        self, hidden: torch.Tensor, index: torch.Tensor, top_k_weights: torch.Tensor, weights: Weights, with_stock: bool
    ) -> torch.Tensor:
        if self.tp_mesh.size() > 1:
            return self._slices(hidden, index, top_k_weights, weights)
        stock = self._stock(weights) if with_stock else None
        return self.layer(hidden, index, top_k_weights, self._run, weights, stock)

    def _own_tokens(self, tokens: int) -> slice:
        """This rank's slice of the tokens: ranks of a TP group hold the same tokens, as in `AllToAllEP`."""
        size = -(-tokens // self.tp_mesh.size())
        return slice(self.tp_mesh.get_local_rank() * size, (self.tp_mesh.get_local_rank() + 1) * size)

    def _stock(self, weights: Weights) -> Callable[..., torch.Tensor]:
        """The framework's implementation, for a step in which nothing moves."""
        if not self._shares and not is_parametrized(self.experts):
            return self._original  # type: ignore[no-any-return]
        stock = copy.copy(self._original)
        stock.experts_forward = partial(self._forward, weights)
        return stock  # type: ignore[no-any-return]

    def _weights(self) -> Weights:
        """The weights to send with experts. Computed here, once a step, so that autograd passes on their gradients."""
        self._require_no_buffers()
        experts = self.experts
        weights = {name: self._at_home(weight) for name, weight in weights_of(experts, self.names).items()}
        for name, weight in shared_weights(experts).items():
            used = _Shared.apply(weight, self.layer.exchange) if torch.is_grad_enabled() else weight
            weights[name] = used.expand(experts.num_experts, *weight.shape)
        return weights

    def _require_no_buffers(self) -> None:
        """Refuses buffers by expert: only weights are sent when an expert is borrowed."""
        for name, buffer in self.experts.named_buffers():
            of_each = buffer.dim() > 0 and len(buffer) == self.experts.num_experts
            if of_each and not name.startswith("parametrizations."):
                raise invalid(
                    "experts", f"have a buffer of each expert, {name}", "parameters, since buffers do not move"
                )

    def _at_home(self, weight: torch.Tensor) -> torch.Tensor:
        """This rank's part of a tensor computed from sharded weights, gathered with FSDP's gradient scaling."""
        if not isinstance(weight, DTensor):
            return weight
        mesh = weight.device_mesh
        whole = weight.redistribute(placements=by_rank(mesh, Replicate()))
        made: torch.Tensor = whole.to_local(grad_placements=by_rank(mesh, Partial()))
        batches = mesh.size() // self.tp_mesh.size()
        if made.requires_grad and batches > 1:
            made.register_hook(lambda grad: grad / batches)
        return made

    def _slices(
        self, hidden: torch.Tensor, index: torch.Tensor, top_k_weights: torch.Tensor, weights: Weights
    ) -> torch.Tensor:
        parts = [
            DTensor.from_local(tensor, self.tp_mesh, [Replicate()], run_check=False)
            .redistribute(self.tp_mesh, [Shard(0)])
            .to_local()
            for tensor in (hidden, index, top_k_weights)
        ]
        made = self.layer(*parts, self._run, weights)
        whole = DTensor.from_local(
            made.contiguous(),
            self.tp_mesh,
            [Shard(0)],
            shape=torch.Size((len(hidden), made.size(-1))),
            stride=(made.size(-1), 1),
        )
        out: torch.Tensor = whole.full_tensor()
        return out

    def _run(self, rows: torch.Tensor, slots: torch.Tensor, weights: Weights) -> torch.Tensor:
        """Runs each row at its one expert, without a top-k weight."""
        return self._forward(weights, rows, slots.unsqueeze(-1), rows.new_ones((len(rows), 1)))

    def _forward(self, weights: Weights, *rows: torch.Tensor) -> torch.Tensor:
        """Runs the module's own forward with these weights."""
        made: torch.Tensor = type(self.experts).forward(with_weights(self.experts, weights), *rows)
        return made


class _Shared(torch.autograd.Function):
    """A weight shared by the experts of all ranks: its gradient is the sum over ranks."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, exchange: Exchange) -> torch.Tensor:  # type: ignore[override]
        ctx.exchange = exchange
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:  # type: ignore[override]
        with ctx.exchange.step("backward", grad.device):
            every = ctx.exchange.all_gather("shared gradients", grad)
            return every.sum(dim=0, dtype=wide(grad.dtype)).to(grad.dtype), None


class SlotsEP(EvenkeelEP):
    """EvenkeelEP over another implementation, which treats borrowed experts as further experts of its own."""

    layer: ExpertSlots

    def __init__(self, experts: Any, ep_mesh: DeviceMesh, tp_mesh: DeviceMesh) -> None:
        super().__init__(experts, ep_mesh, tp_mesh)
        self.layer.allows_missing = False  # transformers' dispatchers do not support it
        self._with_slots = self.stock(experts, ep_mesh, tp_mesh)
        self._with_slots.num_local_experts = self.layer.places_here  # type: ignore[assignment]

    def _eager(
        self, hidden: torch.Tensor, index: torch.Tensor, top_k_weights: torch.Tensor, weights: Weights, with_stock: bool
    ) -> torch.Tensor:
        own = self._own_tokens(len(hidden))

        def carry(_: torch.Tensor, places: torch.Tensor, __: torch.Tensor, run: Any) -> torch.Tensor:
            def experts_forward(rows: torch.Tensor, ids: torch.Tensor, ones: torch.Tensor) -> torch.Tensor:
                if ids.shape != (len(rows), 1):
                    raise invalid(
                        "dispatcher",
                        f"passes ids of shape {list(ids.shape)} to the experts",
                        f"[{len(rows)}, 1], an id a row",
                    )
                made: torch.Tensor = run(rows, ids.squeeze(-1))
                return made

            stock, all_places = copy.copy(self._with_slots), index.clone()
            all_places[own] = places
            stock.experts_forward = experts_forward
            made: torch.Tensor = stock(hidden, all_places, top_k_weights)
            return made

        stock = self._stock(weights)

        def unchanged(*_: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = stock(hidden, index, top_k_weights)
            return made

        if is_parametrized(self.experts) or isinstance(self.experts, FSDPModule):  # whose changes no version shows
            self.layer.weights_changed()
        parts = (tensor[own] for tensor in (hidden, index, top_k_weights))
        return self.layer(*parts, self._run, weights, carry, unchanged if with_stock else None)
