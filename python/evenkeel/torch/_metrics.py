"""A model's layers in numbers, for plots and logs."""

from __future__ import annotations

from collections import Counter

from torch import nn

from .._arguments import instance, invalid, public
from ._last_step import Numbers, numbers_of
from ._module import holders_of
from ._names import place_of
from .expert_parallel import ExpertParallel

_MORE_IS_BETTER = {"predicted_gain_seconds"}


@public
def metrics(model: nn.Module | ExpertParallel) -> Numbers:
    """Numbers of each layer's last step, such as "evenkeel/model.layers.3.mlp.experts/max_over_mean".

    The step is the layer's last one with gradients, or its last one at all if none had gradients. Before its first step
    a layer has no numbers. A layer's name is the one in error messages, or its place in the model if it has no name.
    "evenkeel/mean/..." and "evenkeel/worst/..." are over all layers. All ranks of a layer's group get the same numbers,
    without communication and without a read from a device.

    Names under a layer:
        max_over_mean, max_over_mean_home: of the ranks' assignments, as computed and as if nothing had moved.
        transfers: number of experts' weights sent, over all ranks.
        chunks: number of chunks of the step.
        lacked_memory: 1 if work stayed at home that would have moved without the budget, else 0.
        rows_between_nodes, rows_within_nodes, weights_between_nodes, weights_within_nodes: sent by forward between and
            within nodes, over all ranks; only if the layer has nodes.
        budget_bytes, least_bytes: the budget, and the least that runs every routing; only with a budget.
        predicted_gain_seconds: the worst rank's saving in one forward and backward, or in forward alone, by
            `layer.costs`, without the cost of moving; only if there are costs.

    Args:
        model: a model with layers, as attributes of its modules or by `evenkeel.transformers`; or one layer.

    Raises:
        InvalidArgument: the model has no layers.
    """
    by_layer = {name: _numbers(layer) for name, layer in _by_name(model).items()}
    made = {f"evenkeel/{name}/{what}": number for name, of in by_layer.items() for what, number in of.items()}
    return made | _over_all([numbers for numbers in by_layer.values() if numbers])


def _by_name(model: nn.Module | ExpertParallel) -> dict[str, ExpertParallel]:
    if isinstance(model, ExpertParallel):
        return {model.exchange.layer or "layer": model}
    paths = {module: path for path, module in instance(model, nn.Module, "model").named_modules()}
    found = {layer: _place(paths[module], module, layer) for module, layer in holders_of(model, ExpertParallel)}
    if not found:
        why = f"{type(model).__name__} has no evenkeel layer"
        right = "a model with ExpertParallel or ExpertSlots, or loaded with evenkeel.transformers"
        raise invalid("model", why, right)
    times = Counter(layer.exchange.layer for layer in found)
    own = {layer: layer.exchange.layer for layer in found if layer.exchange.layer and times[layer.exchange.layer] == 1}
    return {own.get(layer, place): layer for layer, place in found.items()}


def _place(path: str, module: nn.Module, layer: ExpertParallel) -> str:
    attribute = next((name for name, value in vars(module).items() if value is layer), "")
    return ".".join(filter(None, (place_of(path), attribute)))


def _numbers(layer: ExpertParallel) -> Numbers:
    last = layer.last_training or layer.last
    if last is None:
        return {}
    made = numbers_of(last, layer.costs)
    if layer.budget is not None:
        made |= {"budget_bytes": layer.budget, "least_bytes": layer._budget.least}
    return made


def _over_all(layers: list[Numbers]) -> Numbers:
    made: Numbers = {}
    for what in dict.fromkeys(what for numbers in layers for what in numbers):
        every = [numbers[what] for numbers in layers if what in numbers]
        made[f"evenkeel/mean/{what}"] = sum(every) / len(every)
        made[f"evenkeel/worst/{what}"] = min(every) if what in _MORE_IS_BETTER else max(every)
    return made


__all__ = ["metrics"]
