"""Placement: the home ranks of every expert in every layer."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from . import _native
from ._arguments import (
    MOST_RANKS,
    ArrayLike,
    as_numpy,
    called,
    checked_layers,
    choice,
    file_path,
    integers,
    invalid,
    layer_list,
    number,
    public,
)
from .mapping_file import write_mapping

Format = Literal["evenkeel", "sglang", "vllm", "vllm-ascend", "trtllm"]


class Placement:
    """The homes of every expert of every layer. Immutable.

    Args:
        homes: `[L, E]` ranks, or for experts with copies (redundant experts) nested lists `[L][E]` of ranks, the
            owner of the expert's gradient first. numpy, torch or lists.
        num_ranks: P; by default one more than the highest rank.
        layers: `[L]`, each layer's number in the model, counted from 0 including dense layers.

    Raises:
        InvalidArgument: an expert without a home or twice on a rank, or a rank outside 0..P-1.
    """

    __slots__ = ("_native", "_objective", "_bound", "_provenance", "_layer_updates")

    @public
    def __init__(
        self,
        homes: ArrayLike | Sequence[Sequence[Sequence[int]]],
        num_ranks: int | None = None,
        *,
        layers: Sequence[int] | None = None,
    ) -> None:
        lists = _homes_as_lists(homes)
        highest = max((rank for layer in lists for ranks in layer for rank in ranks), default=0)
        # The library reports a negative rank.
        ranks = number(max(highest, 0) + 1 if num_ranks is None else num_ranks, "num_ranks", 1, MOST_RANKS)
        with called("homes", "placement", "experts"):
            native = _native.Placement.of_homes(lists, ranks)
        self._take(native if layers is None else native.numbered(checked_layers(layers)))

    def _take(
        self,
        native: _native.Placement,
        objective: float | None = None,
        bound: float | None = None,
        provenance: dict[str, str] | None = None,
        layer_updates: int | None = None,
    ) -> None:
        self._native = native
        self._objective = objective
        self._bound = bound
        self._provenance = provenance or {}
        self._layer_updates = layer_updates

    @classmethod
    @public
    def contiguous(cls, num_layers: int, num_experts: int, num_ranks: int) -> Placement:
        """The default placement: rank r is home to experts `[r E // P, (r + 1) E // P)`."""
        placement = cls.__new__(cls)
        placement._take(
            _native.Placement.contiguous(
                number(num_layers, "num_layers", 1),
                number(num_experts, "num_experts", 1),
                number(num_ranks, "num_ranks", 1, MOST_RANKS),
            )
        )
        return placement

    @classmethod
    @public
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        num_ranks: int | None = None,
        num_experts: int | None = None,
        layers: Sequence[int] | None = None,
        model: str | os.PathLike[str] | None = None,
    ) -> Placement:
        """Reads a placement file, ours or one in a format of `save`, recognised by content.

        Args:
            num_ranks: P, for formats that do not contain it.
            num_experts: E, for such formats; by default the highest id plus one.
            layers: each layer's number in the model, if the file does not contain it. For a file with all layers of a
                model: which of them to take.
            model: instead of `layers`, the model's config.json or its folder.

        Raises:
            ParseError: the file is no placement, or an expert has no home in it; says where.
            InvalidArgument: an argument is missing, or does not fit the file.
        """
        placement = cls.__new__(cls)
        if num_ranks is None and _native.Placement.needs_ranks(file_path(path, "path")):
            raise invalid("num_ranks", f"is missing, and {os.fspath(path)} does not give it", "the number of ranks")
        placement._take(
            *_native.Placement.read(
                file_path(path, "path"),
                None if num_ranks is None else number(num_ranks, "num_ranks", 1, MOST_RANKS),
                None if num_experts is None else number(num_experts, "num_experts", 1),
                layer_list(layers),
                None if model is None else file_path(model, "model"),
            )
        )
        return placement

    @property
    def num_layers(self) -> int:
        """L, the number of MoE layers."""
        return self._native.num_layers

    @property
    def num_experts(self) -> int:
        """E, the number of logical experts in each layer."""
        return self._native.num_experts

    @property
    def num_ranks(self) -> int:
        """P, the number of ranks."""
        return self._native.num_ranks

    @property
    def layers(self) -> list[int] | None:
        """`[L]`, each layer's number in the model, counted from 0 including dense layers; None if not known."""
        return self._native.layers

    @property
    def has_copies(self) -> bool:
        """Whether some expert has several home ranks."""
        return not self._native.has_single_homes

    @property
    def physical_to_logical(self) -> NDArray[np.int64]:
        """`[L, physical experts]`: the logical expert of each physical expert (one copy on one rank), rank after rank,
        ascending within a rank. If layers have unequal numbers of physical experts, shorter rows end in -1."""
        return self._native.physical()[0]

    @property
    def rank_offsets(self) -> NDArray[np.int64]:
        """`[L, P + 1]`: rank r holds physical experts `[offsets[l, r], offsets[l, r + 1])` of layer l."""
        return self._native.physical()[1]

    @property
    def owners(self) -> NDArray[np.int64]:
        """`[L, E]`: the first home of each expert, which owns its gradient and optimizer state."""
        return self._native.owners()

    @property
    def provenance(self) -> dict[str, str]:
        """Free text from the placement's file: which program made it from which inputs."""
        return dict(self._provenance)

    @public
    def homes(self, layer: int, expert: int) -> list[int]:
        """An expert's home ranks, its owner first.

        Raises:
            InvalidArgument: there is no such layer or expert.
        """
        return self._native.homes(
            number(layer, "layer", 0, self.num_layers - 1), number(expert, "expert", 0, self.num_experts - 1)
        )

    @public
    def save(
        self,
        path: str | os.PathLike[str],
        format: Format = "evenkeel",
        *,
        layers: Sequence[int] | None = None,
        model: str | os.PathLike[str] | None = None,
        num_hidden_layers: int | None = None,
        layer_updates_per_iter: int | None = None,
    ) -> None:
        """Writes a file for a server or trainer to load. It appears whole or not at all.

        Args:
            format: "evenkeel" (what `load` and the command `evenkeel` read), "sglang" (`--init-expert-location`),
                "vllm", "vllm-ascend" (expert maps) or "trtllm" (YAML).
            layers: each layer's number in the model, counted from 0 including dense layers, if the placement does not
                know it. sglang and trtllm need it.
            model: instead of `layers`, the model's config.json or its folder. If the format needs rows for MoE layers
                that the placement lacks, they get experts in order, and a warning names them.
            num_hidden_layers: sglang, trtllm: number of all layers of the model; by default up to the last of `layers`.
            layer_updates_per_iter: trtllm: how many layers TensorRT-LLM itself may rearrange in an iteration; by
                default the number in the file that this placement was loaded from, or 0.

        Raises:
            Unsupported: the format cannot express this placement; says which layer and why.
            InvalidArgument: there is no such format, its server does not load a file with this extension, options
                do not fit, or the file cannot be written.
        """
        choice(format, "format", get_args(Format))
        if format not in ("sglang", "trtllm") and num_hidden_layers is not None:
            raise invalid("num_hidden_layers", "applies only to formats sglang and trtllm", "to leave it out")
        if format != "trtllm" and layer_updates_per_iter is not None:
            raise invalid("layer_updates_per_iter", "applies only to format trtllm", "to leave it out")
        notes = self._native.write(
            file_path(path, "path"),
            format,
            self._objective,
            self._bound,
            self._provenance,
            self._layer_updates,
            layer_list(layers),
            None if model is None else file_path(model, "model"),
            None if num_hidden_layers is None else number(num_hidden_layers, "num_hidden_layers", 1),
            None if layer_updates_per_iter is None else number(layer_updates_per_iter, "layer_updates_per_iter", 0),
        )
        for note in notes:
            warnings.warn(note, stacklevel=2)

    @public
    def save_mapping(self, path: str | os.PathLike[str]) -> None:
        """Writes each expert's rank as a tensor file: one int64 tensor `[L, E]`, the owners.

        A path that ends in `.pt` or `.pth` becomes a PyTorch file of the bare tensor (needs torch), as MoETuner
        saves it. Any other path becomes a safetensors file with the tensor `expert_to_rank`.

        Raises:
            Unsupported: an expert has several homes, or torch is missing.
            InvalidArgument: the file cannot be written.
        """
        write_mapping(self, path)

    def __copy__(self) -> Placement:
        return self  # immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> Placement:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles as a Placement: homes, layer numbers and its file's facts, without a solver's figures."""
        homes = [[self.homes(layer, e) for e in range(self.num_experts)] for layer in range(self.num_layers)]
        details = (self._objective, self._bound, self._provenance, self._layer_updates)
        return _restored, (homes, self.num_ranks, self.layers, details)

    def __eq__(self, other: object) -> bool:
        """Compares homes; layer numbers are ignored."""
        return self._native.same(other._native) if isinstance(other, Placement) else NotImplemented

    def __hash__(self) -> int:
        return hash((self.num_layers, self.num_ranks, self.owners.tobytes()))

    def __repr__(self) -> str:
        copies = int(self.rank_offsets[:, -1].max()) - self.num_experts
        extra = f", {copies} redundant" if copies else ""
        return f"{type(self).__name__}({self.num_layers} layers, {self.num_experts} experts{extra}, {self.num_ranks} ranks)"


def _restored(
    homes: list[list[list[int]]], num_ranks: int, layers: list[int] | None, details: tuple[Any, ...]
) -> Placement:
    placement = Placement(homes, num_ranks, layers=layers)
    placement._take(placement._native, *details)
    return placement


def _homes_as_lists(homes: ArrayLike) -> list[list[list[int]]]:
    """Converts to [L][E][copies], from one rank or a list of ranks for each expert."""
    if isinstance(homes, list | tuple):
        try:
            ranks_of = [[[*ranks] for ranks in layer] for layer in homes]
        except TypeError:
            pass  # single ranks rather than lists of ranks
        else:
            return [[_ranks(ranks) for ranks in layer] for layer in ranks_of]
    array = as_numpy(homes, "homes")
    if array.ndim not in (2, 3):
        raise invalid(
            "homes", f"shape {list(array.shape)}", "[layers, experts] ranks, or [layers, experts] lists of ranks"
        )
    whole = integers(array, "homes", array.ndim, "")
    lists: list[list[list[int]]] = (whole if array.ndim == 3 else whole[:, :, None]).tolist()
    return [[_ranks(ranks) for ranks in layer] for layer in lists]


def _ranks(ranks: Sequence[int]) -> list[int]:
    return [number(rank, "homes", -(2**31)) for rank in ranks]


__all__ = ["Format", "Placement"]
