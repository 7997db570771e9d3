"""RoutingProfile: loads and transitions, in a size that does not grow with the trace."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import ArrayLike, checked_layers, choice, file_path, instance, integers, invalid, number, public
from ._reading import Reading

Format = Literal["safetensors", "npz", "json"]

_adding = threading.Lock()
"""Held by add(). Readers need no lock, since a profile's native object is replaced but never changed."""


class Imbalance(NamedTuple):
    """How uneven loads are, in three measures, by layer. Perfectly even loads have 1, 1 and 0."""

    max_over_mean: NDArray[np.float64]
    """`[L]`, max / mean."""
    mean_over_max: NDArray[np.float64]
    """`[L]`, mean / max."""
    relative_excess: NDArray[np.float64]
    """`[L]`, (max - mean) / mean."""


class RoutingProfile:
    """Loads and transitions of a model's routing, from which placements are made.

    Read from a file, recognised by content: a profile (safetensors, npz, JSON); a routing trace (safetensors, npz,
    npy), counted in bounded memory; or another system's recording: SGLang's expert distribution (.pt), TensorRT-LLM's
    statistics, Megatron-LM's router traces, UltraEP's load traces, matrices of counts. Or made from arrays:

        RoutingProfile("trace.safetensors")
        RoutingProfile(loads=loads, transitions=transitions)

    Args:
        path: a file, or the folder that holds a recording in several files.
        loads: `[L, E]` whole numbers, the assignments of each expert in each layer. numpy, torch or lists. Every row
            is an MoE layer, even one without load.
        transitions: `[L - 1, E, E]`: entry [l, a, b] counts, over all tokens, the pairs of an assignment to expert a in
            layer l and an assignment to expert b in layer l + 1. Without them a placement only balances loads.
        num_experts: E, for a file that does not contain it and whose highest expert may never be chosen.
        axes: the order of dimensions of an array without a name, such as "tokens,layers,k" or "layers,experts". If it
            is needed but missing, the error lists the possible orders (docs/formats.md#arrays-without-a-name).
        columns: instead of `axes`, the names of a table's columns, such as "layer,k..." or "layer,expert,count".
        as_: "counts" or "trace": short for the usual order of either.
        layers: `[L]`, each layer's number in the model, counted from 0 including dense layers, if the file does not
            contain it. Numbers in the file must agree.
        model: instead of `layers`, the model's config.json or its folder.

    Raises:
        ParseError: the file is not one of these; says where and why.
        InvalidArgument: shapes do not fit, a number is negative, or the total is above 2^63 - 1.
    """

    __slots__ = ("_axes", "_native", "_notes")

    @public
    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        loads: ArrayLike | None = None,
        transitions: ArrayLike | None = None,
        num_experts: int | None = None,
        axes: str | None = None,
        columns: str | None = None,
        as_: Literal["counts", "trace"] | None = None,
        layers: Sequence[int] | None = None,
        model: str | os.PathLike[str] | None = None,
    ) -> None:
        self._notes: list[str] = []
        self._axes: str | None = None
        how = Reading(num_experts, axes, columns, as_, layers, model)
        if (path is None) == (loads is None):
            raise invalid("path", "a profile comes from a file or from loads", "one of the two")
        if path is not None:
            if transitions is not None:
                raise invalid("transitions", "cannot be combined with path: the file has its own", "to leave it out")
            read = how.read(path)
            self._native, self._notes, self._axes = read.profile, read.notes, read.axes or None
            return
        how.refuse("applies only to a file, but loads are given", but=("num_experts", "layers"))
        counted = integers(loads, "loads", 2, "[layers, experts]")
        if 0 in counted.shape:
            raise invalid("loads", f"shape {list(counted.shape)}", "[layers, experts], each 1 or more")
        pairs = (
            None if transitions is None else integers(transitions, "transitions", 3, "[layers - 1, experts, experts]")
        )
        if num_experts is not None and number(num_experts, "num_experts", 1) != counted.shape[1]:
            raise invalid("num_experts", str(num_experts), f"{counted.shape[1]}, as loads say, or to leave it out")
        self._native = _native.RoutingProfile.of_arrays(counted, pairs)
        if layers is not None:
            self._native.set_layers(checked_layers(layers))

    @property
    def num_layers(self) -> int:
        """L, the number of MoE layers."""
        return self._native.num_layers

    @property
    def num_experts(self) -> int:
        """E, the number of experts in each layer."""
        return self._native.num_experts

    @property
    def layers(self) -> list[int] | None:
        """`[L]`, each layer's number in the model, counted from 0 including dense layers; None if not known."""
        return self._native.layers

    @property
    def notes(self) -> list[str]:
        """What the reader interpreted or left out, and why; one sentence each."""
        return list(self._notes)

    @property
    def axes(self) -> str | None:
        """How an array without a name was read; None if the file names its arrays."""
        return self._axes

    @property
    def loads(self) -> NDArray[np.int64]:
        """`[L, E]`, a copy: assignments of each expert in each layer."""
        return self._native.loads()

    @property
    def transitions(self) -> NDArray[np.int64] | None:
        """`[L - 1, E, E]`, a copy, or None if they were not counted."""
        return self._native.transitions()

    @property
    def imbalance(self) -> Imbalance:
        """Imbalance of the experts' loads, layer by layer."""
        return Imbalance(*self._native.imbalance())

    @public
    def add(self, other: RoutingProfile) -> None:
        """Adds the profile of another trace of the same model. Layer numbers known to one profile hold for both.

        Thread-safe: readers see the profile either before or after.

        Raises:
            InvalidArgument: layers, layer numbers, experts or the presence of transitions differ. Changes nothing then.
        """
        added = instance(other, RoutingProfile, "other")._native
        with _adding:
            self._native = self._native.plus(added)

    @public
    def save(self, path: str | os.PathLike[str], format: Format | None = None) -> None:
        """Writes the profile; the file appears whole or not at all.

        Args:
            format: "safetensors", "npz" or "json"; by default the name's extension.

        Raises:
            InvalidArgument: there is no such format, or the file cannot be written.
        """
        name = file_path(path, "path")
        ending = name.rpartition(".")[2] if format is None else format
        self._native.write(name, choice(ending, "format", get_args(Format)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.loads, self.transitions, self.layers, self._notes)

    def __eq__(self, other: object) -> bool:
        """Compares counts; layer numbers are ignored."""
        return self._native.same(other._native) if isinstance(other, RoutingProfile) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # mutable by add()

    def __repr__(self) -> str:
        worst = self.imbalance.max_over_mean.max()
        pairs = "" if self._native.has_transitions else ", no transitions"
        return (
            f"RoutingProfile({self.num_layers} layers, {self.num_experts} experts{pairs}, "
            f"worst expert {worst:.3g}x the mean)"
        )


def _restored(
    loads: ArrayLike, transitions: ArrayLike | None, layers: list[int] | None, notes: list[str]
) -> RoutingProfile:
    profile = RoutingProfile(loads=loads, transitions=transitions, layers=layers)
    profile._notes = notes
    return profile


def of_native(native: _native.RoutingProfile) -> RoutingProfile:
    profile = RoutingProfile.__new__(RoutingProfile)
    profile._native = native
    profile._notes, profile._axes = [], None
    return profile


__all__ = ["Imbalance", "RoutingProfile"]
