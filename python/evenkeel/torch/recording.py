"""record(): records every choice of a live model's routers as a trace file."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from .._arguments import file_path, instance, invalid, public, unsupported
from ..errors import Unsupported
from .experts import Experts, find_experts
from .generation import Choices, Generation, replaced, require_no_other_generate
from .token_layout import TokenLayout, arguments_by_name
from .trace_writer import TraceWriter

_FORWARD, _GENERATE = "a forward", "generate()"


class Recording:
    """A recording in progress."""

    def __init__(self, model: torch.nn.Module, path: str, weights: bool, metadata: Mapping[str, str]) -> None:
        self.path = path
        """The path of the trace, which appears when the recording ends without an error."""
        self._model = model
        self._experts = find_experts(model)
        self._weights = weights
        self._metadata = metadata
        self._writer: TraceWriter | None = None
        self._recorded: list[Experts] = []  # the layers that the first forward ran
        self._layout: TokenLayout | Generation | None = None  # layout of the current forward
        self._generation: Generation | None = None  # the current call of generate()
        self._listening = contextlib.ExitStack()  # observes that call
        self._choices: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}  # of that forward: ids and weights
        self._lock = threading.Lock()  # guards the fields below, and the writer
        self._running: dict[str, threading.Thread] = {}  # threads in _FORWARD and _GENERATE
        self._closed = False  # whether the block has ended
        self._failure: Unsupported | None = None  # kept, since it may be raised in a thread that is never joined

    @property
    def tokens(self) -> int:
        """The number of recorded tokens; those of generate() count once it has returned."""
        return 0 if self._writer is None else self._writer.tokens

    @contextlib.contextmanager
    def _listen(self) -> Iterator[None]:
        with contextlib.ExitStack() as hooks:
            hooks.enter_context(self._model.register_forward_pre_hook(self._begin_forward, with_kwargs=True))
            hooks.enter_context(self._model.register_forward_hook(self._end_forward))
            hooks.enter_context(self._model.register_forward_hook(lambda *_: self._leave(_FORWARD), always_call=True))
            for experts in self._experts:
                # Runs before other hooks, which may renumber experts for a rank.
                hook = partial(self._take, experts)
                hooks.enter_context(experts.module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True))
            hooks.enter_context(replaced(self._model, "generate", self._generate))
            hooks.enter_context(replaced(self._model, "init_continuous_batching", _refuse_continuous_batching))
            hooks.callback(self._close)  # before the hooks are removed
            yield

    def _enter(self, what: str) -> None:
        """Raises if another thread runs the model: the hooks could not tell the threads' choices apart."""
        with self._lock:
            thread = threading.current_thread()
            for other, its_thread in self._running_elsewhere():
                self._failure = unsupported(
                    f"{what} began in {thread.name} while {other} ran in {its_thread.name}; "
                    "run the model in one thread at a time"
                )
                raise self._failure
            self._running[what] = thread

    def _leave(self, what: str) -> None:
        with self._lock:
            if self._running.get(what) is threading.current_thread():
                del self._running[what]

    def _close(self) -> None:
        with self._lock:
            self._closed = True
            for what, thread in self._running_elsewhere():
                self._listening.close()  # now, since another recording may have begun when that thread ends
                self._failure = unsupported(
                    f"{what} still runs in {thread.name}; join its thread before the block ends"
                )

    def _running_elsewhere(self) -> list[tuple[str, threading.Thread]]:
        here = threading.current_thread()
        return [(what, thread) for what, thread in self._running.items() if thread is not here and thread.is_alive()]

    def _generate(self, original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self._enter(_GENERATE)
        if self._generation is not None:
            raise unsupported("generate() calls itself, as assistant_early_exit and token_healing do; leave them out")
        self._generation = generation = Generation(self._model)
        try:
            with contextlib.ExitStack() as self._listening:
                if not self._closed:
                    self._listening.enter_context(generation.listen())
                result = original(*arguments, **named)
            if not self._closed:
                for choices in generation.sequences(result):
                    self._append(choices, [choices.tokens], generation.continues)
        finally:
            self._generation = None
            self._leave(_GENERATE)
        return generation.as_asked(result)

    # A hook that another thread removes may still run once, without keyword arguments.
    def _begin_forward(self, model: Any, arguments: tuple[Any, ...], named: Any = None) -> None:
        if self._closed or _in_backward():  # checkpointing of the whole model reruns it
            return
        self._enter(_FORWARD)
        if self._generation is None:
            try:
                require_no_other_generate(self._model)
            except Unsupported as failure:
                self._failure = failure
                raise
        self._choices = {}
        given = arguments_by_name(self._model, arguments, named)
        if self._generation is not None:
            self._generation.begin_forward(given)
        self._layout = self._generation or TokenLayout(given)

    def _take(self, experts: Experts, module: Any, arguments: tuple[Any, ...], named: Any = None) -> None:
        if self._closed or _in_backward():  # activation checkpointing reruns layers
            return
        if self._layout is None:
            raise unsupported(
                f"{experts.name} ran outside of {type(self._model).__name__}'s forward; record the module that is "
                "called: if a wrapper's generate() calls the base model, record the base model"
            )
        if experts.name in self._choices:
            raise unsupported(f"{experts.name} runs several times in one forward, but a trace holds one run of it")
        ids, weights = experts.choice(arguments, named)
        self._choices[experts.name] = ids.detach(), weights.detach()

    def _end_forward(self, model: Any, arguments: Any, output: Any) -> None:
        if self._closed or self._running.get(_FORWARD) is not threading.current_thread():
            return
        layout, self._layout = self._layout, None
        if layout is None or not self._choices:
            return
        ran = [experts for experts in self._experts if experts.name in self._choices]
        if self._writer is None:
            self._writer = self._begin_trace(ran)
        if ran != self._recorded:
            odd = {experts.name for experts in ran} ^ {experts.name for experts in self._recorded}
            raise unsupported(f"{min(odd)} ran in some forwards and not in others; record each kind alone")
        ids = _stacked(ran, [self._choices[experts.name][0] for experts in ran])
        _require_ids(ids, ran)
        choices = Choices(topk_ids=ids.numpy().astype(self._writer.ids_type))
        if self._weights:
            weights = [self._choices[experts.name][1].float() for experts in ran]
            choices["topk_weights"] = _stacked(ran, weights).numpy()
        self._choices = {}
        if isinstance(layout, Generation):
            layout.add(choices)
        else:
            kept, lengths = layout.tokens(ids.shape[0])
            self._append(choices.at(kept.numpy()), lengths.numpy(), layout.continues)

    def _append(self, choices: Choices, lengths: ArrayLike, continues: bool) -> None:
        assert self._writer is not None
        if continues and self._writer.has_sequences:
            warnings.warn(
                "a forward goes on from a cache, so the trace will not say where sequences begin, which verdicts need; "
                "record model.generate() without a cache of earlier calls, or forwards of whole sequences",
                stacklevel=2,
            )
            self._writer.forget_sequences()
        with self._lock:
            if not self._closed:
                self._writer.append(choices, np.asarray(lengths))

    def _begin_trace(self, ran: list[Experts]) -> TraceWriter:
        self._recorded = ran
        layers = _layer_numbers(ran)
        counts = [experts.num_experts for experts in ran]
        widths = [self._choices[experts.name][0].shape[-1] for experts in ran]
        for what, values in (("experts", counts), ("choices a token", widths)):
            if len(set(values)) > 1:
                other = next(row for row, value in enumerate(values) if value != values[0])
                raise unsupported(
                    f"{ran[0].name} has {values[0]} {what} and {ran[other].name} {values[other]}; "
                    "a trace has one number for all layers"
                )
        return TraceWriter(self.path, layers, (len(ran), widths[0]), counts[0], self._weights, self._metadata)

    def _finish(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._writer is None or not self.tokens:
            raise invalid("model", "ran no forward while it was recorded", "a model that is called in the recording")
        self._writer.finish()


@public
@contextlib.contextmanager
def record(
    model: torch.nn.Module,
    path: str | os.PathLike[str],
    *,
    weights: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Iterator[Recording]:
    """Records the experts that a model's routers choose, as a trace for all commands and RoutingProfile to read.

        with evenkeel.torch.record(model, "trace.safetensors"):
            model(**batch)                  # or model.generate(...), or steps of training

    It works with every transformers model that has experts modules, and with models built alike. A sequence of the
    trace is a row of a batch, a text of a packed row, or a sequence returned by generate(), including its prompt.
    Left out are tokens that attention_mask marks as padding, and tokens that generate() runs but does not return: rows
    that have ended, losing beams, rejected drafts. A rerun by activation checkpointing is not recorded again. Memory
    holds the choices of one forward, or of one call of generate().

    A forward that continues a cache outside of generate() does not tell which sequences its tokens belong to. They are
    recorded, but the trace then has no sequences, and a UserWarning says so. docs/recording.md has every case.

    Args:
        model: the module that is called: the whole model, or its wrapper (DistributedDataParallel).
        path: the file. It appears whole at the end, or not at all if the recording ends with an error. With several
            processes each writes its own file, and path must contain "{rank}".
        weights: whether to record the routers' weights too; they take 4 bytes per choice.
        metadata: texts by name, stored in the trace.

    Raises:
        InvalidArgument: the model has no experts or is not called, or the file cannot be written.
        Unsupported: layers differ in their numbers of experts or choices, run several times in a forward or only in
            some forwards, or are in two lists of layers; an expert id is out of range; a mask does not say which tokens
            are padding; a generate() does not say which of its tokens it returns, or is not called as the model's
            method; several threads run the model at once, or one still runs it when the block ends.
    """
    instance(model, torch.nn.Module, "model")
    recording = Recording(model, _path_of_rank(path), weights, _checked({} if metadata is None else metadata))
    try:
        with recording._listen():
            yield recording
        recording._finish()
    finally:
        if recording._writer is not None:
            recording._writer.drop()


def _path_of_rank(path: str | os.PathLike[str]) -> str:
    name = file_path(path, "path")
    rank = 0
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank = torch.distributed.get_rank()
        if torch.distributed.get_world_size() > 1 and "{rank}" not in os.path.basename(name):
            raise invalid("path", "is the same for several processes", 'a name with "{rank}" in it')
    name = name.replace("{rank}", str(rank))
    folder = os.path.dirname(name) or "."
    if not os.path.isdir(folder):
        raise invalid("path", f"there is no folder {folder}", "a file in a folder that is there")
    return name


def _checked(metadata: Mapping[str, str]) -> Mapping[str, str]:
    for key, value in instance(metadata, Mapping, "metadata").items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise invalid("metadata", f"{key!r}: {value!r}", "texts as keys and values")
        if key in ("format", "num_experts"):
            raise invalid("metadata", f"key {key} is reserved for record()", "other keys")
    return metadata


def _layer_numbers(ran: list[Experts]) -> list[int] | None:
    stacks = list(dict.fromkeys(experts.stack for experts in ran))
    if len(stacks) > 1:
        raise unsupported(f"experts ran in {stacks[0]} and in {stacks[1]}; record a module that has only one of them")
    layers = [experts.layer for experts in ran]
    numbers = [layer for layer in layers if layer is not None]
    if len(numbers) < len(layers):
        return None
    for before, experts in zip(numbers, ran[1:], strict=False):
        if experts.layer == before:
            raise unsupported(f"layer {before} of {stacks[0]} has two modules of experts, one of them {experts.name}")
    return numbers


def _stacked(experts: list[Experts], choices: list[torch.Tensor]) -> torch.Tensor:
    """`[tokens, layers, k]` on the CPU, in one copy."""
    flat = [each.reshape(-1, each.shape[-1]) for each in choices]
    for each, one in zip(experts, flat, strict=True):
        if one.shape != flat[0].shape:
            raise unsupported(
                f"{experts[0].name} has ids of shape {list(flat[0].shape)}, but {each.name} of {list(one.shape)}"
            )
    device = flat[0].device
    return torch.stack([each.to(device) for each in flat], dim=1).cpu()


def _require_ids(ids: torch.Tensor, experts: list[Experts]) -> None:
    count = experts[0].num_experts
    outside = (ids < -1) | (ids >= count)
    if outside.any():
        token, layer, place = (int(at) for at in outside.nonzero()[0])
        raise unsupported(
            f"{experts[layer].name}: expert id {int(ids[token, layer, place])} of token {token} "
            f"is outside 0..{count - 1}"
        )


def _refuse_continuous_batching(original: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    raise unsupported("continuous batching mixes requests in a forward; record generate() instead")


def _in_backward() -> bool:
    return bool(torch._C._current_graph_task_id() != -1)


__all__ = ["Recording", "record"]
