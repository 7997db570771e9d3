"""Tells which rows of the experts in a forward are tokens, and which sequence they belong to."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .._arguments import unsupported

_TOKENS = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")
_CACHES = ("cache", "past_key_values")
_SEQUENCE_ENDS = ("cu_seq_lens_q", "cu_seqlens_q", "cu_seqlens")


def arguments_by_name(model: torch.nn.Module, arguments: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call of the model's forward, by name."""
    return dict(zip(inspect.signature(model.forward).parameters, arguments, strict=False)) | dict(named)


def cached_tokens(given: Mapping[str, Any]) -> int:
    """How many tokens each row of the batch has in the forward's cache."""
    for name in _CACHES:
        if hasattr(given.get(name), "get_seq_length"):
            return int(given[name].get_seq_length())
    return 0


class TokenLayout:
    """The layout of one forward's tokens, from the model's named arguments. Raises Unsupported for an unclear mask."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        tokens = next((given[name] for name in _TOKENS if isinstance(given.get(name), torch.Tensor)), None)
        self._shape = tuple(tokens.shape[:2]) if tokens is not None and tokens.dim() >= 2 else None
        mask = given.get("attention_mask")
        if mask is not None and not (isinstance(mask, torch.Tensor) and mask.dim() == 2):
            shape = f" of shape {list(mask.shape)}" if isinstance(mask, torch.Tensor) else ""
            raise unsupported(
                f"a {type(mask).__name__}{shape} as attention_mask; record() needs [batch, length], 0 for padding"
            )
        if mask is not None and (mask < 0).any():
            raise unsupported("attention_mask has numbers below 0; record() needs 0 for padding, 1 for tokens")
        self._mask = None if mask is None else mask.cpu().long()
        self._given = given

    @property
    def continues(self) -> bool:
        """Whether the tokens continue sequences of earlier forwards."""
        wider = self._mask is not None and self._shape is not None and self._mask.shape[1] > self._shape[1]
        return wider or cached_tokens(self._given) > 0

    def tokens(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """For the experts' rows: `[rows]`, whether each is a token; and the number of tokens of each sequence.

        Rows that are not the batch's tokens count as one sequence.
        """
        whole = self._shape is not None and self._shape[0] * self._shape[1] == rows
        if self._shape is None or not whole:
            if self._mask is not None and not self._mask.all():
                shape = list(self._mask.shape)
                raise unsupported(f"attention_mask of shape {shape} does not fit the {rows} rows of the experts")
            return torch.ones(rows, dtype=torch.bool), torch.tensor([rows])
        batch, length = self._shape
        # With a cache, the mask also covers earlier tokens.
        mask = torch.ones(batch, length).long() if self._mask is None else self._mask[:, -length:]
        kept = mask.reshape(-1).bool()
        begins = torch.zeros(int(kept.sum()), dtype=torch.bool)
        begins[:1] = True
        for constant in (torch.arange(batch)[:, None].expand(batch, length), mask, *self._packed(batch, length)):
            begins[1:] |= constant.reshape(-1)[kept].diff() != 0
        begins[1:] |= self._restarts(batch, length, kept)
        ends = torch.tensor([len(begins)])
        return kept, torch.cat([begins.nonzero()[:, 0], ends]).diff()

    def _packed(self, batch: int, length: int) -> list[torch.Tensor]:
        """`[batch, length]`, numbers that change where the next sequence packed into a row begins."""
        found = []
        index = self._given.get("seq_idx")
        if isinstance(index, torch.Tensor):
            found.append(index.cpu().expand(batch, length))
        ends = next((self._given[name] for name in _SEQUENCE_ENDS if name in self._given), None)
        if isinstance(ends, torch.Tensor):
            lengths = ends.cpu().diff()
            if int(ends[-1]) != batch * length:
                raise unsupported(
                    f"cumulative sequence lengths end at {int(ends[-1])}, and the forward has {batch} x {length} tokens"
                )
            found.append(torch.arange(len(lengths)).repeat_interleave(lengths))
        return found

    def _restarts(self, batch: int, length: int, kept: torch.Tensor) -> torch.Tensor:
        """For each token but the first: whether position_ids show that a new sequence begins."""
        positions = self._given.get("position_ids")
        if isinstance(positions, torch.Tensor) and positions.dim() == 3 and positions.shape[0] == 4:
            positions = positions[0]  # Qwen-VL: text positions, followed by those of time, height and width
        if not isinstance(positions, torch.Tensor) or positions.dim() > 2 or positions.shape[-1] != length:
            return torch.tensor(False)
        steps = positions.cpu().expand(batch, length).reshape(-1)[kept].diff()
        # Without a mask, transformers separates attention wherever positions do not increase by one.
        return steps != 1 if self._mask is None else steps <= 0
