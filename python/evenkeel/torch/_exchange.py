"""What travels between ranks: split sizes known on the host, one collective of the caller's group a call."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike
from torch.utils.checkpoint import _StopRecomputationError

from .._arguments import invalid
from ..errors import CommError
from ._faults import Faults, Pending, faults_of, is_of_backend, start_gather
from ._phase_range import phase_range

if TYPE_CHECKING:
    from ._nodes import Nodes


class SameOnEveryRank(Exception):
    """Holds an error that all ranks raise alike: none waits for another, and the group goes on."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def invalid_on_all(argument: str, why: str, allowed: str) -> SameOnEveryRank:
    return SameOnEveryRank(invalid(argument, why, allowed))


class Rows(NamedTuple):
    """How many go to each rank from this one, and come from it."""

    sent: list[int]
    received: list[int]


class Exchange:
    """All-to-alls and all-gathers over one process group, for the layer of this name.

    Each call says its phase. A failure is a `CommError` with the rank at fault, the phase and the layer.
    """

    def __init__(self, group: dist.ProcessGroup | None, layer: str = "") -> None:
        self.group = group
        self.ranks = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        self.layer = layer
        self.direction = "forward"
        self.nodes: Nodes | None = None
        """Where the layer is given nodes, from its first step on."""
        self.is_frugal = False
        """Whether what is passed on within a node goes to one rank after the other, so that less is held at once."""
        self.sums_in_nodes = False
        """Whether a token's results, and its gradients, are added in a node before they leave it."""

    @property
    def process_group(self) -> dist.ProcessGroup:
        group = self.group or dist.group.WORLD
        assert group is not None
        return group

    @contextmanager
    def step(self, direction: str, device: torch.device) -> Iterator[None]:
        """Within it, an error of this rank's own is told to the others, which would wait for it.

        `device` is that of its tensors.
        """
        before, self.direction = self.direction, direction  # a checkpoint runs a forward within a backward
        try:
            yield
        except SameOnEveryRank as same:
            same.error.same_on_every_rank = True  # type: ignore[attr-defined]
            raise same.error from None
        except BaseException as error:
            if isinstance(error, CommError) or hasattr(error, "same_on_every_rank"):  # of a checkpoint's forward
                raise
            with suppress(CommError):  # the others are gone
                self.faults(device).failed_here(error)
            raise
        finally:
            self.direction = before

    def all_to_all(
        self,
        phase: str,
        rows: torch.Tensor,
        sent: Sequence[int],
        received: Sequence[int],
        out: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Exchanges rows of dimension 0: the first `sent[0]` go to rank 0, and so on.

        In the result the rows from rank 0 come first.
        """
        with phase_range(phase):
            out, pending = self.start(phase, rows, sent, received, out)
            pending.wait()
        return out

    def start(
        self,
        phase: str,
        rows: torch.Tensor,
        sent: Sequence[int],
        received: Sequence[int],
        out: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, Pending]:
        """The same without waiting: the result may be read once it is waited for. `rows` must live till then."""
        if out is None:
            out = rows.new_empty((sum(received), *rows.shape[1:]))
        given = _sendable(out), _sendable(rows.contiguous()), list(received), list(sent)
        start = partial(dist.all_to_all_single, *given, group=self.group, async_op=True)
        return out, self._begin(phase, start, rows.device)

    def pass_on(self, phase: str, rows: torch.Tensor, chosen: torch.Tensor, counts: Rows, out: torch.Tensor) -> None:
        """The `chosen` of these rows to the ranks of this rank's node, by their places, and theirs into `out`.

        All ranks of the group call it alike, since a fault is found by how many collectives each has come to.
        """
        for sent, received in self._turns(counts):
            mine = rows.index_select(0, _part(chosen, counts.sent, sent))
            self._within_node(phase, mine, _part(out, counts.received, received), sent, received)
            del mine  # one copy of the rows at a time

    def pass_back(self, phase: str, rows: torch.Tensor, counts: Rows, chosen: torch.Tensor, sums: torch.Tensor) -> None:
        """The way back of `pass_on`: `rows` lie as its `out`, and are added to the `chosen` of `sums`."""
        for received, sent in self._turns(counts):
            back = rows.new_empty((sum(received), *rows.shape[1:]))
            self._within_node(phase, _part(rows, counts.received, sent), back, sent, received)
            add_rows(sums, _part(chosen, counts.sent, received), back)
            del back

    def _turns(self, counts: Rows) -> Iterator[Rows]:
        """What is passed on at a time, to and from the places of this rank's node."""
        assert self.nodes is not None
        size, place, places = self.nodes.size, self.nodes.place, len(self.nodes.mine)
        turns = [range(turn, turn + 1) for turn in range(1, size)] if self.is_frugal else [range(1, size)]
        for turn in turns:  # how far ahead the ranks are that get something from here
            sent = [count * ((i - place) % places in turn) for i, count in enumerate(counts.sent)]
            received = [count * ((place - i) % places in turn) for i, count in enumerate(counts.received)]
            yield Rows(sent, received)

    def _within_node(
        self, phase: str, rows: torch.Tensor, out: torch.Tensor, sent: list[int], received: list[int]
    ) -> None:
        assert self.nodes is not None
        phase, group = f"{phase} within nodes", self.nodes.group
        start = partial(
            dist.all_to_all_single, _sendable(out), _sendable(rows), received, sent, group=group, async_op=True
        )
        with phase_range(phase):
            self._begin(phase, start if group is not None else lambda: None, rows.device).wait()

    def watch(self, phase: str, work: Callable[[], torch.Tensor], device: torch.device) -> torch.Tensor:
        """Collectives of somebody else's: what fails there is named as ours is."""
        pending = self._begin(phase, lambda: None, device)
        try:
            with phase_range(phase):
                made = work()
        except _StopRecomputationError:  # a checkpoint has what it wanted
            pending.done()
            raise
        except BaseException as error:
            faults = self.faults(device)
            if is_of_backend(error):
                raise faults.error(pending.began, error) from error
            faults.failed_here(error)
            raise
        finally:
            pending.done()
        if getattr(made, "grad_fn", None) is not None:
            made.register_hook(lambda _: pending.faults.enter_backward(phase, self.layer))
        return made

    def all_gather(self, phase: str, mine: torch.Tensor) -> torch.Tensor:
        """`[P, ...]` of equal shapes."""
        every = mine.new_empty((self.ranks, *mine.shape))
        with phase_range(phase):
            self._begin(phase, lambda: start_gather(every, mine, self.group), mine.device).wait()
        return every

    def _begin(self, phase: str, start: Callable[[], dist.Work | None], device: torch.device) -> Pending:
        return self.faults(device).begin(phase, self.layer, self.direction, start, device.type == "cpu")

    def faults(self, device: torch.device) -> Faults:
        return faults_of(self.group, device)


class HostReads:
    """What the host has read of a device's tensors in this process, waiting for the device each time."""

    count = 0
    bytes = 0


def on_host(device: torch.device) -> bool:
    """Whether the host reads its tensors without waiting."""
    return device.type == "cpu"


def to_host(tensor: torch.Tensor) -> np.ndarray:
    """A read of the host. No other function of a step reads what a device made (tools/check_reads.py)."""
    HostReads.count += 1
    HostReads.bytes += tensor.nbytes
    with nullcontext() if on_host(tensor.device) else phase_range("wait for a device"):
        return tensor.cpu().contiguous().numpy()


def to_device(numbers: ArrayLike, device: torch.device, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Numbers of the host, without waiting for the device; arrays are shared where it is the host."""
    made = torch.as_tensor(numbers, dtype=dtype)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made.to(device)


def gather_numbers(exchange: Exchange, phase: str, mine: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """Collective, and read by the host: of each of this rank's tensors of one type, `[P, ...]`; all by one message."""
    every = to_host(exchange.all_gather(phase, torch.cat([each.view(-1) for each in mine])))
    of_each = np.split(every, np.cumsum([each.numel() for each in mine])[:-1], axis=1)
    return [each.reshape(len(every), *own.shape) for each, own in zip(of_each, mine, strict=True)]


def _part(rows: torch.Tensor, counts: Sequence[int], some: Sequence[int]) -> torch.Tensor:
    """Rows that lie by these counts, from the first of `some` on as many as these say."""
    first = next((i for i, count in enumerate(some) if count > 0), 0)
    return rows[sum(counts[:first]) :][: sum(some)]


def add_rows(total: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """Each of these values to its row of the total, in the total's type."""
    total.scatter_add_(0, rows.unsqueeze(-1).expand(-1, total.shape[1]), values.to(total.dtype))


def _sendable(rows: torch.Tensor) -> torch.Tensor:
    """The same memory; float8 as bytes, since gloo sends no such type."""
    return rows.view(torch.uint8) if rows.is_floating_point() and rows.element_size() == 1 else rows
