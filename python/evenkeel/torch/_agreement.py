"""Checks that all ranks make the same calls, with equal values for arguments that must be equal.

Each pass of a layer begins with one message from every rank: a digest of the call and, in forward, the counts. All
messages of a group are equally long, whatever the layer and the pass. So ranks at different calls can still read each
other's messages; gloo would end a process that receives more than it expects. If digests differ, the ranks exchange
the texts behind them, and all raise the same error.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
import torch.distributed as dist

from .._arguments import invalid
from ._exchange import Exchange, SameOnEveryRank, invalid_on_all, on_host, to_device, to_host

if TYPE_CHECKING:
    from ._cut import Cut

_HEAD = 5
"""32-bit numbers before a message's counts: the digests of the call and of which weights want gradients, two numbers
each, and a flag."""

_SHOWN_CHARACTERS = 160


class _Group:
    """State shared by the layers of one process group."""

    def __init__(self) -> None:
        self.layers = itertools.count()
        self.capacity = 0
        """How many counts a message can hold. Equal on all ranks, since it follows from agreed counts."""


_groups: WeakKeyDictionary[dist.ProcessGroup, _Group] = WeakKeyDictionary()


class Agreed(NamedTuple):
    """What every rank knows about a step after its first message."""

    step: int
    kind: int  # a digest of all values that must be equal on all ranks, except the step
    training: tuple[bool, ...]  # by rank, whether it runs with gradients
    wants: int  # a digest of which weights want gradients, on ranks that run with gradients; 0 without any

    @property
    def without_step(self) -> Agreed:
        """This agreement without its step number: what all steps of its kind have in common."""
        return self._replace(step=0)

    def covers(self, other: Agreed) -> bool:
        """Whether memory for a step of this kind also suffices for a step of the other kind."""
        return self.without_step == other.without_step or (self.kind == other.kind and not any(other.training))


@dataclass
class Known:
    """What the host knows about a step."""

    agreed: Agreed
    counts: np.ndarray  # of all ranks, `[P, ...]`
    cut: Cut | None = None
    """The step's chunks, if known before it: ahead, or from the forward that a checkpoint runs again."""
    ids: torch.Tensor | None = None  # the ids counted in that earlier forward


class Agreement:
    """One layer's part in the agreement; `options` are the layer's options by name."""

    def __init__(self, exchange: Exchange, options: Mapping[str, object]) -> None:
        self.exchange = exchange
        self._options = {name: repr(value) for name, value in options.items()}
        self._of_options = _digest(self._options.values())
        self._given = exchange.layer
        """The name given at construction, equal on all ranks. The layer's place in a model is only for messages."""
        self._number = next(_state_of(exchange).layers)
        self._steps = 0
        self._types: dict[int, torch.dtype] = {}  # of the experts' outputs, by the kind of step

    def forward(
        self, facts: Mapping[str, str], wants: str | None, counts: torch.Tensor, what: str = "forward"
    ) -> Known:
        """Collective: exchanges the `counts` of all ranks.

        `facts`, by argument name, must be equal on all ranks. `wants` says which weights want gradients; None means
        that this rank runs without gradients, in which ranks may differ. `what` names the call.

        Raises:
            InvalidArgument: on every rank, if a fact differs between ranks.
            CommError: on every rank, if ranks are at different calls.
        """
        mine = self.of_known(facts, wants)
        digests = _digest([self._call(mine.step, what, self._given), str(mine.kind)]), mine.wants
        state = _state_of(self.exchange)
        fit = counts.numel() <= state.capacity
        every = to_host(self._gather("counts", digests, wants is not None, counts if fit else counts[:0]))
        calls, wanted, flags = _heads(every)
        some = {digest for digest in wanted if digest}
        if len(some) > 1 or len(set(calls)) > 1:
            facts = {**self._options, **facts} | ({} if wants is None else {"weights.requires_grad": wants})
            place = self._call(mine.step, what, self.exchange.layer)
            raise self._difference("counts", place, facts, counts.device)
        of_all = every[:, _HEAD : _HEAD + counts.numel()]
        if not fit:
            of_all = to_host(self.exchange.all_gather("counts", counts))
            state.capacity = counts.numel()
        agreed = mine._replace(training=flags, wants=max(some, default=0))
        return Known(agreed, of_all.reshape(len(every), *counts.shape).copy())

    def of_known(self, facts: Mapping[str, str], wants: str | None) -> Agreed:
        """Begins a step whose counts are known before it. Whether facts are equal on all ranks is checked later."""
        self._steps += 1
        kind = _digest([str(self._of_options), *facts.values()])
        training = (wants is not None,) * self.exchange.ranks
        return Agreed(self._steps, kind, training, 0 if wants is None else _digest([wants]))

    def backward(self, agreed: Agreed, lacks: bool, device: torch.device) -> bool:
        """Collective: whether any rank `lacks` what its forward kept; then all ranks must compute it again.

        On a GPU it returns `lacks` without a message: like the GPU's collectives, it relies on ranks making the same
        calls.

        Raises:
            CommError: on every rank, if ranks are at different calls.
        """
        if not on_host(device):
            return lacks
        without = [rank for rank, training in enumerate(agreed.training) if not training]
        call, place = (self._call(agreed.step, "backward", name) for name in (self._given, self.exchange.layer))
        if without:
            place += f", which rank{'s' * (len(without) > 1)} {', '.join(map(str, without))} ran without gradients"
        nothing = torch.empty(0, dtype=torch.int32, device=device)
        every = to_host(self._gather("agreement", (_digest([call]), 0), lacks, nothing))
        calls, _, flags = _heads(every)
        if len(set(calls)) > 1:
            raise self._difference("agreement", place, {}, device, without)
        return any(flags)

    def require_type(self, agreed: Agreed, outputs: torch.Tensor) -> None:
        """Checks that the experts' outputs, which are sent, have one type. Collective at the first step of a kind.

        Raises:
            InvalidArgument: on every rank, if types differ at the first step; later, on the rank whose type changes.
        """
        if self.exchange.ranks == 1:
            return
        known = self._types.get(agreed.kind)
        if known is not None and outputs.dtype != known:
            why = f"returned {outputs.dtype} on rank {self.exchange.rank}, but {known} on all ranks in earlier steps"
            raise invalid("experts", why, "outputs of one type on every rank and in every step")
        if known is None:
            types = self.texts("types", str(outputs.dtype), outputs.device)
            if len(set(types)) > 1:
                raise _unequal("experts", types, "outputs of one type on every rank")
            self._types[agreed.kind] = outputs.dtype

    def _call(self, step: int, direction: str, name: str) -> str:
        layer = f"layer {name} (number {self._number})" if name else f"layer number {self._number}"
        return f"step {step} of {layer}, {direction}"

    def _gather(self, phase: str, digests: tuple[int, int], flag: bool, counts: torch.Tensor) -> torch.Tensor:
        """Gathers messages `[P, message]`. Each has room for the most counts that any layer of the group has sent."""
        message = counts.new_zeros(_HEAD + _state_of(self.exchange).capacity)
        message[:_HEAD] = to_device([*np.array(digests).view(np.int32), flag], counts.device, torch.int32)
        message[_HEAD : _HEAD + counts.numel()] = counts.reshape(-1)
        return self.exchange.all_gather(phase, message)

    def _difference(
        self, phase: str, place: str, facts: Mapping[str, str], device: torch.device, without: Sequence[int] = ()
    ) -> Exception:
        """Collective: returns the same error on all ranks, which says in what they differ.

        `without` are ranks that cannot reach this pass, since their forward ran without gradients.
        """
        shown = {name: _shortened(value) for name, value in facts.items()}
        mine = json.dumps({"place": place, "without": without, "facts": shown})
        every = [json.loads(text) for text in self.texts(phase, mine, device)]
        places = [each["place"] for each in every]
        if len(set(places)) > 1:
            missing = [rank for each in every for rank in each["without"] if places[rank] != each["place"]]
            first, second, outlier = _differing_ranks(places)
            why = (
                f"ranks {first} and {second} are at different calls (rank {first}: {places[first]}; rank {second}: "
                f"{places[second]}), and every rank must make the same layers and the same calls in one order"
            )
            return self.exchange.faults(device).end(min(missing, default=outlier), why)
        for name in dict.fromkeys(itertools.chain(*(each["facts"] for each in every))):
            values = [each["facts"].get(name) for each in every]
            if len({value for value in values if value is not None}) > 1:
                return _unequal(name, values, "the same on every rank of the group")
        raise AssertionError("digests differ, and no value does")

    def texts(self, phase: str, text: str, device: torch.device) -> list[str]:
        """Collective: gathers a text from each rank."""
        mine = to_device([*text.encode()], device, torch.uint8)
        lengths = to_host(self.exchange.all_gather(phase, to_device([len(mine)], device)))
        padded = mine.new_zeros(lengths.max())
        padded[: len(mine)] = mine
        every = to_host(self.exchange.all_gather(phase, padded))
        return [row[:length].tobytes().decode() for row, (length,) in zip(every, lengths, strict=True)]


def _state_of(exchange: Exchange) -> _Group:
    return _groups.setdefault(exchange.process_group, _Group())


def _heads(every: np.ndarray) -> tuple[list[int], list[int], tuple[bool, ...]]:
    """From all ranks' messages: the digests of calls, the digests of which weights want gradients, and the flags."""
    calls, wants = np.ascontiguousarray(every[:, : _HEAD - 1]).view(np.int64).T
    return calls.tolist(), wants.tolist(), tuple(flag != 0 for flag in every[:, _HEAD - 1].tolist())


def _digest(words: Iterable[str]) -> int:
    """A 63-bit digest, never 0."""
    found = hashlib.blake2b("\0".join(words).encode(), digest_size=8).digest()
    return 1 + int.from_bytes(found, "little") % (2**63 - 1)


def _differing_ranks(values: Sequence[str | None]) -> tuple[int, int, int]:
    """Two ranks in ascending order, one with the most common value and one with another. The third number is the rank
    with the other value if more than half of the ranks have the common one, else -1."""
    given = [rank for rank, value in enumerate(values) if value is not None]
    common, times = Counter(values[rank] for rank in given).most_common(1)[0]
    one = next(rank for rank in given if values[rank] == common)
    other = next(rank for rank in given if values[rank] != common)
    return min(one, other), max(one, other), other if 2 * times > len(given) else -1


def _unequal(name: str, values: Sequence[str | None], allowed: str) -> SameOnEveryRank:
    first, second, _ = _differing_ranks(values)
    has = f"rank {first} has {values[first]}, rank {second} has {values[second]}"
    return invalid_on_all(name, f"is not the same on ranks {first} and {second}: {has}", allowed)


def _shortened(text: str) -> str:
    """Leaves out the middle of a long text and adds a digest, since two texts may differ only there."""
    half = _SHOWN_CHARACTERS // 2
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:half]} ... {text[-half:]} (digest {_digest([text]):x})"
