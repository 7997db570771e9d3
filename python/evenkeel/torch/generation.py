"""Assembles the routing of the sequences that transformers' model.generate() returns from the forwards that it runs.

Forwards of generate() also run tokens that are not returned: rows that have ended, losing beams, rejected drafts. So
choices are kept until generate() returns; then those of the returned tokens are selected. Two methods of the model add
what a forward's arguments lack: prepare_inputs_for_generation() gets the padding mask, even if a static cache replaces
it later, and the stopping criteria say which rows have ended.

    prompt, padded on the left      P P a b c       columns 0..4, run at once or in chunks
    after one token was chosen                d     column 5, run by the next forward
    ...                                         e   the last token is never run
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from .._arguments import unsupported
from ..errors import Unsupported
from .token_layout import cached_tokens

_EMBEDDED = _LOST = -1


class Choices(dict[str, NDArray[Any]]):
    """Routers' choices `[..., layers, k]` by their names in a trace: topk_ids, and topk_weights if recorded."""

    @property
    def tokens(self) -> int:
        return len(self["topk_ids"])

    def at(self, index: Any) -> Choices:
        return Choices({name: array[index] for name, array in self.items()})

    def of_shape(self, *tokens: int) -> Choices:
        return Choices({name: array.reshape(*tokens, *array.shape[-2:]) for name, array in self.items()})

    @staticmethod
    def joined(parts: Sequence[Choices]) -> Choices:
        return Choices({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


@dataclass(frozen=True)
class _Forward:
    """One forward: some columns of every row."""

    step: int  # how many times tokens had been chosen before
    start: int  # its first column
    tokens: torch.Tensor  # `[rows, length]`, ids; _EMBEDDED for a token given as an embedding
    real: torch.Tensor  # `[rows, length]`, false where a token is padding

    @property
    def end(self) -> int:
        return self.start + self.tokens.shape[1]


class Generation:
    """One call of generate()."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._config: Any = None  # transformers' generation config of this call
        self._unasked_output = False  # whether we made generate() return more than its caller asked for
        self._prepared_length = 0  # number of ids from which the next forward was prepared
        self._ids_begin = 0  # the column of the first id: not 0 after embeddings, or after a cache
        self._mask: torch.Tensor | None = None  # [rows, columns], for the next forward
        self._forwards: list[_Forward] = []
        self._choices: list[Choices] = []  # of each forward: [rows, length, layers, k]
        self._lengths: list[int] = []  # columns after each step
        self._ended: list[torch.Tensor] = []  # [rows] after each step

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """A context that observes what generate() tells about its forwards."""
        with (
            replaced(self._model, "_get_stopping_criteria", self._criteria),
            replaced(self._model, "prepare_inputs_for_generation", self._prepare),
        ):
            yield

    def _criteria(self, original: Callable[..., Any], **named: Any) -> Any:
        self._config = named["generation_config"]
        self._config.disable_compile = True  # hooks may not run in compiled code
        if self._config.num_beams > 1 and not self._config.return_dict_in_generate:
            self._config.return_dict_in_generate = self._unasked_output = True  # the dict has the beams' indices
        criteria = original(**named)
        generation = self

        class Watched(type(criteria)):  # type: ignore[misc]
            def __call__(self, input_ids: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
                ended: torch.Tensor = super().__call__(input_ids, *arguments, **named)
                generation._lengths.append(generation._ids_begin + input_ids.shape[1])
                generation._ended.append(ended)
                return ended

        return Watched(criteria)

    def _prepare(self, original: Callable[..., Any], input_ids: torch.Tensor, *arguments: Any, **named: Any) -> Any:
        self._prepared_length = input_ids.shape[1]
        self._mask = named.get("attention_mask")
        return original(input_ids, *arguments, **named)

    def begin_forward(self, given: Mapping[str, Any]) -> None:
        """Takes a forward's arguments. Raises Unsupported if they do not tell which tokens generate() returns."""
        if self._config is None:
            raise self._unsupported("is not that of transformers and does not say which sequences have ended")
        ids, embeddings = given.get("input_ids"), given.get("inputs_embeds")
        if isinstance(ids, torch.Tensor) and ids.dim() == 2:
            tokens = ids.cpu()
        elif ids is None and isinstance(embeddings, torch.Tensor):
            tokens = torch.full(embeddings.shape[:2], _EMBEDDED)
        else:
            raise self._unsupported("runs a forward without input_ids of shape [rows, length]")
        start = self._start(given)
        real = torch.ones(tokens.shape, dtype=torch.bool)
        if self._mask is not None:
            real = self._mask[:, start : start + tokens.shape[1]].cpu().bool()
            if real.shape != tokens.shape:
                raise self._unsupported(
                    f"runs columns {start}..{start + tokens.shape[1] - 1}, which its attention_mask of shape "
                    f"{list(self._mask.shape)} does not cover"
                )
        forward = _Forward(len(self._lengths), start, tokens, real)
        if not self._forwards:
            self._ids_begin = forward.end - self._prepared_length
        self._forwards.append(forward)

    def _start(self, given: Mapping[str, Any]) -> int:
        if not self._forwards:
            return cached_tokens(given)
        if self._lengths:
            return self._lengths[-1] - 1 if self._config.use_cache else 0
        if self._config.prefill_chunk_size is None:
            raise self._several_forwards()
        return self._forwards[-1].end

    @property
    def continues(self) -> bool:
        """Whether the sequences continue a cache from before this call."""
        return bool(self._forwards) and self._forwards[0].start > 0

    def add(self, choices: Choices) -> None:
        """Takes the choices of the last begun forward, `[rows * length, layers, k]`."""
        rows, length = self._forwards[-1].tokens.shape
        if choices.tokens != rows * length:
            raise self._unsupported(f"runs {rows} x {length} tokens, but its experts get {choices.tokens} rows")
        self._choices.append(choices.of_shape(rows, length))

    def sequences(self, result: Any) -> Iterator[Choices]:
        """The choices of each returned sequence, `[tokens, layers, k]`. Raises Unsupported if other tokens were run."""
        if not self._forwards:
            return
        returned = getattr(result, "sequences", result)
        if not isinstance(returned, torch.Tensor) or not self._ended:
            raise self._unsupported(f"returns a {type(result).__name__}, or never asks its stopping criteria")
        returned = returned.cpu()
        for sequence, rows in zip(returned, self._rows_of(returned, result), strict=True):
            yield self._put_together(sequence, rows[rows != _LOST].tolist())

    def as_asked(self, result: Any) -> Any:
        """What generate() would have returned without recording."""
        return result.sequences if self._unasked_output else result

    def _rows_of(self, returned: torch.Tensor, result: Any) -> torch.Tensor:
        """`[sequences, steps]`: the row in which each token of a sequence was chosen; _LOST after its end."""
        beams = getattr(result, "beam_indices", None)
        if beams is not None:
            return torch.as_tensor(beams).cpu()
        ended = torch.stack(self._ended, dim=1).cpu().long()
        if len(ended) != len(returned):
            raise self._unsupported(f"runs {len(ended)} rows and returns {len(returned)} sequences")
        had_ended = ended.cumsum(dim=1) - ended
        return torch.arange(len(ended))[:, None].where(had_ended == 0, _LOST)

    def _put_together(self, sequence: torch.Tensor, rows: list[int]) -> Choices:
        begin, end = self._forwards[0].start, self._lengths[len(rows) - 1] - 1
        ran = torch.full((end,), -1)  # the last forward that ran each column; columns of rejected drafts are run again
        for number, forward in enumerate(self._forwards):
            if forward.step >= len(rows):  # with synced_gpus, a rank whose rows have ended runs on for the others
                break
            if forward.step > 0 and forward.step == self._forwards[number - 1].step:
                raise self._several_forwards()
            ran[forward.start : forward.end] = number
        if (ran[begin:] < 0).any():
            raise self._unsupported("returns tokens that it did not run")
        tokens: list[torch.Tensor] = []
        choices: list[Choices] = []
        first = begin
        for number, length in zip(*ran[begin:].unique_consecutive(return_counts=True), strict=True):
            forward = self._forwards[number]
            at = rows[forward.step], slice(first - forward.start, first - forward.start + int(length))
            tokens.append(forward.tokens[at])
            choices.append(self._choices[number].at(at).at(forward.real[at].numpy()))
            first += int(length)
        self._require_same(torch.cat(tokens), begin, sequence[: end - self._ids_begin])
        return Choices.joined(choices)

    def _require_same(self, tokens: torch.Tensor, begin: int, returned: torch.Tensor) -> None:
        """Raises unless the tokens run, from column `begin` on, equal those returned, as far as both are ids."""
        tokens = tokens[max(self._ids_begin - begin, 0) :]
        returned = returned[max(begin - self._ids_begin, 0) :]
        if tokens.shape != returned.shape or (tokens != returned)[tokens != _EMBEDDED].any():
            raise self._unsupported("runs other tokens than it returns")

    def _several_forwards(self) -> Unsupported:
        return self._unsupported("runs several forwards for one token, as guidance_scale does")

    def _unsupported(self, what: str) -> Unsupported:
        return unsupported(
            f"generate() of {type(self._model).__name__} {what}; record forwards of whole sequences instead"
        )


@contextlib.contextmanager
def replaced(model: Any, name: str, instead: Callable[..., Any]) -> Iterator[None]:
    """Redirects calls of a model's method to `instead(method, ...)`. Does nothing if it has no such method."""
    original = getattr(model, name, None)
    if original is None:
        yield
        return
    before = vars(model).get(name)
    setattr(model, name, functools.update_wrapper(functools.partial(instead, original), original))
    try:
        yield
    finally:
        if before is None:
            delattr(model, name)
        else:
            setattr(model, name, before)


def require_no_other_generate(model: torch.nn.Module) -> None:
    """Raises if another generate() of transformers than the replaced `model.generate` runs this forward.

    Only the call stack tells: another model's generate(), or a reference to generate() from before it was replaced,
    calls the same forward.
    """
    frame = sys._getframe()
    while frame := frame.f_back:  # type: ignore[assignment]
        if frame.f_globals.get("__name__") != "transformers.generation.utils":
            continue
        caller = frame.f_locals.get("self")
        if not isinstance(caller, torch.nn.Module):
            continue
        if "encoder" in frame.f_code.co_name:  # runs once, on the prompt
            return
        if caller is model:
            raise unsupported(
                f"generate() of {type(model).__name__} is not followed; call model.generate() of the recorded model"
            )
        if any(module is model for module in caller.modules()):
            kind = type(caller).__name__
            raise unsupported(
                f"generate() of a {kind} runs the recorded {type(model).__name__}; record the {kind} instead"
            )
