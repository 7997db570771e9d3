"""What travels between ranks: split sizes known on the host, one collective of the caller's group a call."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

_gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)  # renamed in torch 2.13


class Exchange:
    """All-to-alls and all-gathers over one process group."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.ranks = dist.get_world_size(group)
        self.rank = dist.get_rank(group)

    def all_to_all(
        self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int], out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Rows of dimension 0: the first `sent[0]` go to rank 0, and so on; those from rank 0 come first."""
        out, work = self.start(rows, sent, received, out)
        if work is not None:
            work.wait()
        return out

    def start(
        self, rows: torch.Tensor, sent: Sequence[int], received: Sequence[int], out: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, dist.Work | None]:
        """The same without waiting: the result may be read once the work is waited for. `rows` must live till then."""
        if out is None:
            out = rows.new_empty((sum(received), *rows.shape[1:]))
        work = dist.all_to_all_single(
            out, rows.contiguous(), list(received), list(sent), group=self.group, async_op=True
        )
        return out, work

    def all_gather(self, mine: torch.Tensor) -> torch.Tensor:
        """`[P, ...]` of equal shapes."""
        every = mine.new_empty((self.ranks * mine.numel(),))
        _gather(every, mine.reshape(-1).contiguous(), group=self.group)
        return every.view(self.ranks, *mine.shape)
