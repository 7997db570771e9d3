"""One layer's routes that are known before its step: the ids to use, and the counts of all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from .._arguments import invalid
from ._agreement import Agreed, Agreement, Known
from ._cut import Cut
from ._exchange import invalid_on_all

if TYPE_CHECKING:
    from .expert_parallel import ExpertParallel


class LayerAhead:
    """`routed` `[tokens, k]` are the ids that the router shall choose; this rank's layer gets some of the tokens."""

    def __init__(
        self, layer: ExpertParallel, name: str, routed: torch.Tensor, replay: bool, keeps_missing: bool
    ) -> None:
        self.layer, self.name, self.routed = layer, name, routed
        self.replay, self.keeps_missing = replay, keeps_missing
        self.counts: np.ndarray | None = None
        """Counts of all ranks; None if the step itself must count, since some token has no ids."""
        self.cut: Cut | None = None
        """The step's chunks, if known."""
        self.kind: Agreed | None = None
        """The kind of step that the chunks are for; None for any kind."""
        self.is_whole = True
        """Whether every choice on every rank is an expert. A framework's own step may not support missing ones."""
        self.found: torch.Tensor | None = None
        """On the device, over the calls so far: the first token whose router chose other experts, and their number."""
        self.facts = ""  # the values of the last call that must be equal on all ranks
        self._forced = False
        self._hidden: torch.Tensor | None = None
        """`[tokens, 5]`, a fingerprint of each row of the forward, by which a checkpoint's second run is recognised."""

    def ids(self) -> torch.Tensor:
        return self.routed[self.layer.own_tokens(len(self.routed))].to(torch.int64)

    def top_k(
        self, input: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True, **more: Any
    ) -> Any:
        """Replaces `torch.topk` of the router's scores; None if the call is not about such scores."""
        scores, tokens, last = input, self.routed.shape[0], input.dim() - 1
        shape = (*scores.shape[:-1], k)
        if k != self.routed.shape[1] or dim not in (-1, last) or scores.shape[-1:] != (self.layer.num_experts,):
            return None
        if scores.shape[:-1].numel() != tokens:
            return None
        routed = self.routed.to(scores.device, torch.int64)
        ids = routed.clamp(min=0)
        if self.keeps_missing and self.counts is None:
            ids = torch.where(_without(routed), scores.topk(k, dim, largest, sorted, **more)[1].view_as(ids), ids)
        ids = ids.view(shape)
        self._forced = True
        return torch.return_types.topk((scores.gather(-1, ids), ids))  # type: ignore[attr-defined]

    def carried_out(self, ids: torch.Tensor, hidden: torch.Tensor, again: bool) -> torch.Tensor:
        """The ids that the step shall use instead of `ids`. Also compares the two. `again`: within backward."""
        ahead = self.ids().to(ids.device)
        if ahead.shape != ids.shape:
            chose = f"its router on this rank chose {list(ids.shape)}"
            why = f"has ids {list(ahead.shape)} for layer {self.name}, but {chose}"
            raise invalid("routed_experts", why, "[tokens, layers, k], for the tokens that this rank runs")
        if self.replay and not self._forced:
            raise invalid(
                "replay",
                f"cannot force the ids of layer {self.name}: its router calls no torch.topk with k={ids.shape[1]} on "
                f"[tokens, {self.layer.num_experts}], is compiled, or runs again in a checkpoint inside its module",
                "an uncompiled router that calls torch.topk, and checkpoints of whole modules; or replay=False",
            )
        self._forced = False
        in_any_order = (ahead.sort(-1).values == ids.sort(-1).values).all(-1)
        same = in_any_order | _without(ahead)[:, 0]
        if self.replay:
            same |= ((ahead == ids) | (ahead < 0)).all(-1)
        number = (same & self._matches_forward(hidden, again)).to(torch.int32)
        found = torch.stack([number.cumprod(0).sum(), len(ids) - number.sum()]).to(torch.int32)
        before = self.found
        self.found = found if before is None else torch.where(before[1] > 0, before, found)
        own_order = in_any_order.unsqueeze(-1)
        return torch.where(own_order | _without(ahead) if self.keeps_missing else own_order, ids, ahead)

    def _matches_forward(self, hidden: torch.Tensor, again: bool) -> torch.Tensor:
        """`[tokens]`: whether each row equals that of the block's forward, as it must in a rerun in backward."""
        rows = _row_fingerprints(hidden.detach())
        if not again and self._hidden is not None:
            raise invalid_on_all(
                "routes_ahead", f"runs layer {self.name} forward twice in one block", "a block for each forward"
            )
        if not again:
            self._hidden = rows
        if self._hidden is None:
            why = f"backward runs layer {self.name} again in a block that did not run its forward"
            raise invalid_on_all("routes_ahead", why, "each backward within the block of its forward")
        other = (rows - self._hidden).abs() > 0.05  # false for NaN, from a row of equal numbers
        return ~other.any(-1)

    def known(self, agreement: Agreement, facts: dict[str, str], wants: str | None) -> Known | None:
        """What the step's message would tell; None if the message must be sent."""
        self.facts = repr((facts, wants))
        if self.counts is None:
            return None
        agreed = agreement.of_known(facts, wants)
        fits = self.kind is None or self.kind.covers(agreed)
        return Known(agreed, self.counts, self.cut if fits else None)


def _row_fingerprints(hidden: torch.Tensor) -> torch.Tensor:
    """Fingerprints `[tokens, 5]`: each row, normalised by its mean and deviation, projected on four waves; and the
    mean over the deviation."""
    width = hidden.shape[-1]
    places, lengths = torch.arange(width, device=hidden.device), torch.arange(2, 6, device=hidden.device)
    waves = (places[:, None] * lengths.sqrt()).cos()
    along = (hidden @ (waves - waves.mean(0)).to(hidden.dtype)).float()
    spread, common = hidden.std(-1, correction=0, keepdim=True).float(), hidden.mean(-1, keepdim=True).float()
    return torch.cat([along / (spread * width**0.5), common / (spread + 0.05 * common.abs())], dim=-1)


class Forced(TorchFunctionMode):
    """A context in which the router of this layer chooses the ids known ahead."""

    def __init__(self, ahead: LayerAhead) -> None:
        super().__init__()
        self.ahead = ahead

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.topk, torch.Tensor.topk):
            made = self.ahead.top_k(*args, **kwargs or {})
            if made is not None:
                return made
        return func(*args, **kwargs or {})


def _without(ids: torch.Tensor) -> torch.Tensor:
    """`[tokens, 1]`: whether the token has no id."""
    return (ids < 0).all(-1, keepdim=True)
