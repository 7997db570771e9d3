"""`ExpertSlots`: balance behind any dispatcher, for transports and kernels that are not ours.

Each rank has a few spare expert slots. A step's plan says which experts' weights the slots hold. The router's ids
become places, (rank, expert or slot). The dispatcher knows nothing of balancing and treats slots as further experts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import register_optimizer_step_post_hook

from .. import _native
from .._arguments import instance, invalid, number, public
from .._reading import FilePath
from ..placement import Placement
from ._chunk import Experts
from ._costs import Costs
from ._exchange import to_device
from ._last_step import plural
from ._module import holders_of
from ._options import LayerOptions
from ._phase_range import phase_range
from ._slots import SlotStep, places_of
from .expert_parallel import ExpertParallel, Given, Stock, require_callables

Dispatcher = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, SlotStep], torch.Tensor]


class ExpertSlots(ExpertParallel):
    """One MoE layer on this rank, whose rows another dispatcher carries.

    Args:
        num_experts: E, over all ranks; every rank has equally many.
        slots: how many experts a rank may borrow in a step, at most num_experts. The dispatcher treats slots as
            experts: it must be made for `num_places` = E + P * slots experts, of which each rank has `places_here` = E
            / P + slots.
        planner: "level" or "ep" (nothing moves).
        group, placement, layer, min_segment, imbalance_threshold, costs, topology, name: as for `ExpertParallel`.
    """

    @public
    def __init__(
        self,
        num_experts: int,
        group: dist.ProcessGroup | None = None,
        *,
        slots: int = 4,
        planner: Literal["ep", "level"] = "level",
        placement: Placement | None = None,
        layer: int | None = None,
        min_segment: int = 64,
        imbalance_threshold: float | Literal["auto"] = "auto",
        costs: Costs | None = None,
        topology: FilePath | None = None,
        name: str = "",
    ) -> None:
        slots = number(slots, "slots", 1, 2**31 - 1)  # LayerOptions takes None as no slots
        options = LayerOptions(planner, 1.0, min_segment, imbalance_threshold, None, None, costs, topology, slots)
        self._begin(num_experts, group, options, placement, layer, name)

    def _begin(self, *given: Any) -> None:
        super()._begin(*given)
        natives = np.bincount(self._homes, minlength=self.exchange.ranks)
        if (natives != natives[0]).any():
            why = f"{self.num_experts} experts are at home on {self.exchange.ranks} ranks as {natives.tolist()}"
            raise invalid("num_experts", why, "equally many on each rank, as dispatchers require")
        self.slots = self._layout.borrow_slots
        self.places_here = int(natives[0]) + self.slots
        self.num_places = self.exchange.ranks * self.places_here
        self._held_weights: list[torch.Tensor] = []  # weights in kept slots, `[slots, ...]` each
        self._versions: list[tuple[object, ...]] | None = None
        """Versions of the weights that they were copied from; None if these may have changed."""

    sends_rows = False

    @torch.compiler.disable
    def __call__(  # type: ignore[override]
        self,
        hidden: torch.Tensor,
        top_k_index: torch.Tensor,
        top_k_weights: torch.Tensor,
        experts: Experts,
        weights: Mapping[str, torch.Tensor],
        dispatcher: Dispatcher,
        stock: Stock | None = None,
    ) -> torch.Tensor:
        """Runs a step and returns the dispatcher's result.

        Args:
            hidden, top_k_index, top_k_weights, experts, weights: as for `ExpertParallel`.
            dispatcher: `dispatcher(hidden, places, top_k_weights, run)`. It sends rows to their places, `[tokens, k]`
                in 0..num_places-1, -1 for none; rank r has the places from `r * places_here` on. It calls `run(rows,
                slots)` once on the received rows, sorted by source rank, then by place; `slots` are places minus this
                rank's first place. A row arrives once for each of its places here. The dispatcher returns the output of
                each of this rank's tokens. If it sorts rows by place, it calls `run.sorted(experts, rows, counts)`
                instead, with experts that take the number of rows of each place instead of `slots`. Further tensors by
                row follow as arguments (`run(rows, slots, probs)`) and are passed to the experts after their weights.
            stock: `stock(hidden, top_k_index, top_k_weights)` runs instead of a step in which nothing moves.

        Raises:
            InvalidArgument: as for `ExpertParallel`; and on this rank, if the dispatcher delivers other rows.
            CommError: as `ExpertParallel` does.
        """
        device = getattr(hidden, "device", torch.device("cpu"))
        with self.exchange.step("forward", device):
            require_callables(dispatcher=dispatcher)
            given = self._given(hidden, top_k_index, top_k_weights, experts, weights, stock)
            keeps = self.keeps_slots and not given.wants_gradients()
            ids, tables = self._tables(given, keeps)
        if (stock := given.stock) is not None and not tables.moves:
            return self.exchange.watch("stock", lambda: stock(hidden, top_k_index, top_k_weights), device)
        with self.exchange.step("forward", device):
            names, tensors, held = list(weights), list(weights.values()), self._held_weights if keeps else None
            step = SlotStep(self.exchange, tables, self._layout.transfers > 0, experts, names, tensors, held)
            places = places_of(ids, tables)
        made = self.exchange.watch("dispatcher", lambda: dispatcher(hidden, places, top_k_weights, step), device)
        with self.exchange.step("forward", device):
            step.require_run()
        step.loan.release()  # not after a failure: other ranks may never send what this would wait for
        return made

    def _options_in_words(self) -> str:
        return f"{super()._options_in_words()}, {plural(self.slots, 'slot')} a rank"

    def _changed(self, weights: Sequence[torch.Tensor]) -> bool:
        """Whether slots may hold older values of these weights, as far as torch's version counters tell."""
        before, self._versions = self._versions, [_version(weight) for weight in weights]
        return before != self._versions or any(weight.is_inference() for weight in weights)

    def weights_changed(self) -> None:
        """Notes a change that no tensor version shows: the next step's weights may differ from those in slots."""
        self._versions = None

    def _forget(self) -> None:
        self._layout.forget_slots()
        self._held_weights, self._versions = [], None

    def _tables(self, given: Given, keeps: bool) -> tuple[torch.Tensor, _native.SlotTables]:
        """This rank's ids and their places. The counts of all ranks are all that the host reads of a step."""
        ids, weights = given.ids, list(given.weights.values())
        facts = given.facts() | {"weights_fixed": str(keeps)}
        changed = to_device([self._changed(weights)], ids.device, torch.int32) if keeps else None
        known = self._counts(given, facts, beside=changed)
        every = known.counts
        if keeps and every[:, -1].any():  # weights changed on some rank, so all ranks empty their slots
            self._layout.forget_slots()
            with torch.inference_mode(False):
                self._held_weights = [weight.new_zeros((self.slots, *weight.shape[1:])) for weight in weights]
        of_all = every.reshape(len(every), -1)[:, : self.num_experts + 2]
        cut = self._cut(ids, of_all[:, None])
        with phase_range("plan"):
            tables = cut.slots(keeps)
        self._note(cut.last)
        return ids if known.ids is None else known.ids, tables


def _version(weight: torch.Tensor) -> tuple[object, ...]:
    """A value that changes with the storage and with each change of it that torch counts. Holds the storage weakly."""
    count = 0 if weight.is_inference() else weight._version
    view = weight.data_ptr(), weight.shape, weight.stride(), weight.dtype
    return StorageWeakRef(weight.untyped_storage()), count, *view


@contextmanager
def weights_fixed(model: nn.Module | ExpertSlots) -> Iterator[None]:
    """A context in which steps without gradients keep borrowed weights in their slots for the following steps.

    Decoding then sends few weights: a slot is refilled only if otherwise the fullest rank would exceed 1.01 times the
    mean. Each layer holds its slots until the context ends. Every rank must enter and leave at the same step. Changing
    a weight in place, as an optimizer does, or replacing it by another tensor empties the slots. Changes that torch
    does not count, by `.data` or another library's kernels, are not allowed within the context.

    Args:
        model: a model with `ExpertSlots`, as attributes of its modules or by `evenkeel.transformers`; or one such
            layer.

    Raises:
        InvalidArgument: the model has none.
    """
    if isinstance(model, ExpertSlots):
        layers = [model]
    else:
        layers = [layer for _, layer in holders_of(instance(model, nn.Module, "model"), ExpertSlots)]
    if not layers:
        raise invalid("model", f"{type(model).__name__} has no layer with slots", "one whose layers are ExpertSlots")
    for layer in layers:
        layer._fixed += 1

    def changed(*_: object) -> None:
        """Versions may not show an optimizer's step: a gathered weight has the same version each time."""
        for layer in layers:
            layer.weights_changed()

    try:
        with register_optimizer_step_post_hook(changed):
            yield
    finally:
        for layer in layers:
            layer._fixed -= 1
            if not layer._fixed:
                layer._forget()


def layer_with(options: LayerOptions, num_experts: int, group: dist.ProcessGroup | None, name: str) -> ExpertParallel:
    """Makes a framework's layer, of the class that fits its options."""
    made: ExpertParallel = object.__new__(ExpertParallel if options.slots is None else ExpertSlots)
    made._begin(num_experts, group, options, None, None, name)
    return made


__all__ = ["ExpertSlots", "weights_fixed"]
