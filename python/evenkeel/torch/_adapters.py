"""PEFT adapters of experts that are spread over ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from weakref import WeakSet

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

from .._arguments import instance, invalid, public
from ._module import layer_of_module


@public
def share_adapters(model: nn.Module) -> None:
    """Makes PEFT's adapters fit experts that are spread over ranks. Collective; call it before making the optimizer.

    PEFT makes adapters for all experts, on each rank separately. Afterwards every rank holds those of the first rank,
    whole, as replicated DTensors. Each step uses a rank's part of them; their gradients are over all ranks' tokens.

    Args:
        model: the result of `get_peft_model` for a model that was loaded with our implementation.

    Raises:
        InvalidArgument: no expert of the model has an adapter.
    """
    wrappers = _wrappers(instance(model, nn.Module, "model"))
    if not wrappers:
        raise invalid("model", "has no adapters of experts", "a PEFT model whose `target_parameters` name experts")
    for experts, around in wrappers.items():
        mesh: DeviceMesh = next(experts.parameters()).device_mesh  # type: ignore[attr-defined]
        everywhere = [Replicate()] * mesh.ndim
        for module, name, parameter in _plain_parameters(around):
            shared = nn.Parameter(distribute_tensor(parameter.detach(), mesh, everywhere))
            shared.register_hook(lambda grad, everywhere=everywhere: grad.redistribute(placements=everywhere))
            setattr(module, name, shared.requires_grad_(parameter.requires_grad))
        if experts not in _adapted:
            _adapted.add(experts)
            _adapt_gathered(experts, mesh, around)


_adapted: WeakSet[nn.Module] = WeakSet()  # experts whose parameters are gathered before they are adapted


def _adapt_gathered(experts: nn.Module, mesh: DeviceMesh, around: Sequence[Any]) -> None:
    """Gives PEFT the experts' parameters as FSDP gathers and casts them: DTensors on the adapters' mesh, without
    gradients."""
    names = list(dict.fromkeys(wrapper.parameter_name for wrapper in around))
    before: list[dict[str, Any]] = []

    def gather(*_: object) -> None:
        before.append({name: experts._parameters[name] for name in names})
        if any(parameter.requires_grad for parameter in before[-1].values()):
            why = "trains experts' own parameters beside their adapters"
            raise invalid("model", why, "to freeze the experts' own parameters")
        if isinstance(experts, FSDPModule):
            experts.unshard()
        for name in names:
            here: Any = experts._parameters[name]
            whole = DTensor.from_local(here.to_local().detach(), mesh, by_rank(mesh, Replicate()), run_check=False)
            experts._parameters[name] = nn.Parameter(whole, requires_grad=False)

    def put_back(*_: object) -> None:
        experts._parameters.update(before.pop())

    around[0].register_forward_pre_hook(gather)
    around[0].register_forward_hook(put_back, always_call=True)


def _wrappers(model: nn.Module) -> dict[nn.Module, list[nn.Module]]:
    """Our experts modules that PEFT has wrapped, each with its wrappers, the outermost first."""
    found: dict[nn.Module, list[nn.Module]] = {}
    module: Any
    for module in model.modules():
        base = module.get_base_layer() if hasattr(module, "parameter_name") else None
        if isinstance(base, nn.Module) and base in layer_of_module:
            found.setdefault(base, []).append(module)
    return found


def _plain_parameters(around: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """The wrappers' parameters that are not yet shared between ranks, each with its module."""
    inside = [child for wrapper in around for name, child in wrapper.named_children() if name != "base_layer"]
    for module in (module for child in inside for module in child.modules()):
        for name, parameter in module.named_parameters(recurse=False):
            if not isinstance(parameter, DTensor):
                yield module, name, parameter


def require_shared(model: nn.Module) -> None:
    """Checked before a first step, since torch's error would name neither the adapters nor the remedy."""
    if any(True for around in _wrappers(model).values() for _ in _plain_parameters(around)):
        right = "to call evenkeel.transformers.share_adapters(model) before its optimizer is made"
        raise invalid("model", "has adapters of experts that ranks do not share", right)


def by_rank(mesh: DeviceMesh, beside: Any) -> list[Any]:
    """DTensor placements of experts on a mesh: sharded over dimension `ep`, and `beside` on the other dimensions."""
    return [Shard(0) if name == "ep" else beside for name in mesh.mesh_dim_names or ()]
