"""Which rows that the experts of a forward get are tokens, and of which sequence."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..errors import Unsupported

_TOKENS = ("input_ids", "inputs_embeds", "decoder_input_ids", "decoder_inputs_embeds")


class TokenLayout:
    """How the tokens of one forward lie, as the model's arguments say.

    Args:
        shape: [batch, length], where an argument says it.
        mask: `[batch, past + length]`, zero where a token is padding.
    """

    def __init__(self, shape: tuple[int, int] | None, mask: torch.Tensor | None) -> None:
        self._shape = shape
        self._mask = mask

    @staticmethod
    def of_call(model: torch.nn.Module, arguments: Sequence[Any], named: Mapping[str, Any]) -> TokenLayout:
        """As the arguments of a model's forward say it."""
        names = inspect.signature(model.forward).parameters
        given = dict(zip(names, arguments, strict=False)) | dict(named)
        tokens = next((given[name] for name in _TOKENS if isinstance(given.get(name), torch.Tensor)), None)
        mask = given.get("attention_mask")
        if mask is not None and not (isinstance(mask, torch.Tensor) and mask.dim() == 2):
            shape = f" of shape {list(mask.shape)}" if isinstance(mask, torch.Tensor) else ""
            why = f"a {type(mask).__name__}{shape} as attention_mask; [batch, length] says which tokens are padding"
            raise Unsupported(why, {"why": why})
        return TokenLayout(tuple(tokens.shape[:2]) if tokens is not None and tokens.dim() >= 2 else None, mask)

    def tokens(self, rows: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Of the experts' rows: `[rows]`, whether each is a token; and how many each sequence has.

        Where the rows are not the batch's tokens, they are one sequence.
        """
        whole = self._shape is not None and self._shape[0] * self._shape[1] == rows
        if self._mask is None or bool(self._mask.all()):
            lengths = [self._shape[1]] * self._shape[0] if whole and self._shape is not None else [rows]
            return torch.ones(rows, dtype=torch.bool), torch.tensor(lengths)
        if not whole or self._shape is None:
            why = f"attention_mask of shape {list(self._mask.shape)} for {rows} rows of the experts"
            raise Unsupported(why, {"why": why})
        # With a cache the mask speaks of earlier tokens too.
        kept = self._mask[:, self._mask.shape[1] - self._shape[1] :].bool().cpu()
        return kept.reshape(-1), kept.sum(dim=1)
