"""Collectives between ranks: split sizes are known on the host; each call is one collective of the caller's group."""

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
    """Holds an error that all ranks raise together, so that no rank waits for another and the group can go on."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def invalid_on_all(argument: str, why: str, allowed: str) -> SameOnEveryRank:
    return SameOnEveryRank(invalid(argument, why, allowed))


class Rows(NamedTuple):
    """How many rows this rank sends to each rank, and receives from it."""

    sent: list[int]
    received: list[int]


class Exchange:
    """All-to-alls and all-gathers over one process group, for the layer of this name.

    Each call names its phase. A failure raises a `CommError` with the rank at fault, the phase and the layer.
    """

    def __init__(self, group: dist.ProcessGroup | None, layer: str = "") -> None:
        self.group = group
        self.ranks = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        self.layer = layer
        self.direction = "forward"
        self.nodes: Nodes | None = None
        """Set by the first step of a layer with nodes."""
        self.is_frugal = False
        """Whether rows within a node are passed on to one rank after the other, so that less is held at once."""
        self.sums_in_nodes = False
        """Whether a token's results, and its gradients, are added within a node before they are sent to another."""

    @property
    def process_group(self) -> dist.ProcessGroup:
        group = self.group or dist.group.WORLD
        assert group is not None
        return group

    @contextmanager
    def step(self, direction: str, device: torch.device) -> Iterator[None]:
        """A context: an error within it is reported to the other ranks, which would otherwise wait for this rank.

        `device` is the device of the step's tensors.
        """
        before, self.direction = self.direction, direction  # a checkpoint runs a forward within a backward
        try:
            yield
        except SameOnEveryRank as same:
            same.error.same_on_every_rank = True  # type: ignore[attr-defined]
            raise same.error from None
        except BaseException as error:
            if isinstance(error, CommError) or hasattr(error, "same_on_every_rank"):  # from a checkpoint's forward
                raise
            with suppress(CommError):  # the other ranks have failed too
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
        """`all_to_all` without waiting: read the result only after waiting for it, and keep `rows` alive until then."""
        if out is None:
            out = rows.new_empty((sum(received), *rows.shape[1:]))
        given = _sendable(out), _sendable(rows.contiguous()), list(received), list(sent)
        start = partial(dist.all_to_all_single, *given, group=self.group, async_op=True)
        return out, self._begin(phase, start, rows.device)

    def pass_on(self, phase: str, rows: torch.Tensor, chosen: torch.Tensor, counts: Rows, out: torch.Tensor) -> None:
        """Sends the `chosen` rows to the ranks of this node, by place, and receives theirs into `out`.

        All ranks of the group must call it, since faults are found by comparing the ranks' numbers of collectives.
        """
        for sent, received in self._turns(counts):
            mine = rows.index_select(0, _part(chosen, counts.sent, sent))
            self._within_node(phase, mine, _part(out, counts.received, received), sent, received)
            del mine  # one copy of the rows at a time

    def pass_back(self, phase: str, rows: torch.Tensor, counts: Rows, chosen: torch.Tensor, sums: torch.Tensor) -> None:
        """The reverse of `pass_on`: sends back `rows`, ordered like its `out`, and adds them to the `chosen` rows of
        `sums`."""
        for received, sent in self._turns(counts):
            back = rows.new_empty((sum(received), *rows.shape[1:]))
            self._within_node(phase, _part(rows, counts.received, sent), back, sent, received)
            add_rows(sums, _part(chosen, counts.sent, received), back)
            del back

    def _turns(self, counts: Rows) -> Iterator[Rows]:
        """Yields the counts of each exchange within this rank's node, to and from each place: all, or one place's."""
        assert self.nodes is not None
        size, place, places = self.nodes.size, self.nodes.place, len(self.nodes.mine)
        turns = [range(turn, turn + 1) for turn in range(1, size)] if self.is_frugal else [range(1, size)]
        for turn in turns:  # how many places ahead the receiving ranks are
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
        """Runs collectives of other code. A failure there is reported like one of ours."""
        pending = self._begin(phase, lambda: None, device)
        try:
            with phase_range(phase):
                made = work()
        except _StopRecomputationError:  # a checkpoint has recomputed enough
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
        """Gathers tensors of equal shape into `[P, ...]`."""
        every = mine.new_empty((self.ranks, *mine.shape))
        with phase_range(phase):
            self._begin(phase, lambda: start_gather(every, mine, self.group), mine.device).wait()
        return every

    def _begin(self, phase: str, start: Callable[[], dist.Work | None], device: torch.device) -> Pending:
        return self.faults(device).begin(phase, self.layer, self.direction, start, device.type == "cpu")

    def faults(self, device: torch.device) -> Faults:
        return faults_of(self.group, device)


class HostReads:
    """Counts how often the host has read device tensors in this process; each read waits for the device."""

    count = 0
    bytes = 0


def on_host(device: torch.device) -> bool:
    """Whether the host can read the device's tensors without waiting."""
    return device.type == "cpu"


def to_host(tensor: torch.Tensor) -> np.ndarray:
    """Reads a tensor on the host. No other function of a step reads device results (tools/check_reads.py)."""
    HostReads.count += 1
    HostReads.bytes += tensor.nbytes
    with nullcontext() if on_host(tensor.device) else phase_range("wait for a device"):
        return tensor.cpu().contiguous().numpy()


def to_device(numbers: ArrayLike, device: torch.device, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    """Copies host numbers to the device without waiting for it. If the device is the host, shares an array's memory."""
    made = torch.as_tensor(numbers, dtype=dtype)
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made.to(device)


def gather_numbers(exchange: Exchange, phase: str, mine: Sequence[torch.Tensor]) -> list[np.ndarray]:
    """Collective, with one message and one host read: for each of these tensors of one type, all ranks' `[P, ...]`."""
    every = to_host(exchange.all_gather(phase, torch.cat([each.view(-1) for each in mine])))
    of_each = np.split(every, np.cumsum([each.numel() for each in mine])[:-1], axis=1)
    return [each.reshape(len(every), *own.shape) for each, own in zip(of_each, mine, strict=True)]


def _part(rows: torch.Tensor, counts: Sequence[int], some: Sequence[int]) -> torch.Tensor:
    """From rows laid out by `counts`, the part whose counts are not 0 in `some`; these counts are adjacent."""
    first = next((i for i, count in enumerate(some) if count > 0), 0)
    return rows[sum(counts[:first]) :][: sum(some)]


def add_rows(total: torch.Tensor, rows: torch.Tensor, values: torch.Tensor) -> None:
    """Adds each of these values to its row of the total, in the total's type."""
    total.scatter_add_(0, rows.unsqueeze(-1).expand(-1, total.shape[1]), values.to(total.dtype))


def _sendable(rows: torch.Tensor) -> torch.Tensor:
    """The same memory; float8 is viewed as bytes, since gloo cannot send it."""
    return rows.view(torch.uint8) if rows.is_floating_point() and rows.element_size() == 1 else rows
