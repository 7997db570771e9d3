"""keep_plans(): a checkpoint's recomputation in backward reuses the plans of its forward, without a message."""

from __future__ import annotations

import threading

from .._arguments import invalid
from ._agreement import Known

_here = threading.local()  # `plans`: the Plans whose context this thread is in


class Plans:
    """One checkpoint's plans, recorded while it runs forward and replayed while it runs again."""

    def __init__(self, kept: list[tuple[object, Known]], again: bool) -> None:
        self._kept, self.again = kept, again
        self._next = 0
        self._before: Plans | None = None

    def __enter__(self) -> None:
        self._next, self._before = 0, within()
        _here.plans = self

    def __exit__(self, *_: object) -> None:
        _here.plans = self._before

    def take(self, layer: object) -> Known:
        at, self._next = self._next, self._next + 1
        if at >= len(self._kept) or self._kept[at][0] is not layer:
            raise invalid("checkpoint", "backward runs other layers than forward did", "the same, in the same order")
        return self._kept[at][1]

    def keep(self, layer: object, known: Known) -> None:
        self._kept.append((layer, known))


def within() -> Plans | None:
    found: Plans | None = getattr(_here, "plans", None)
    return found


def keep_plans() -> tuple[Plans, Plans]:
    """A `context_fn` for `torch.utils.checkpoint.checkpoint(use_reentrant=False)`. Our layers then read nothing when
    they are recomputed in backward, since the counts of all ranks are kept on the host. Use it on every rank.

    With transformers: `model.activation_checkpointing_enable({"use_reentrant": False, "context_fn": keep_plans})`.
    """
    kept: list[tuple[object, Known]] = []
    return Plans(kept, again=False), Plans(kept, again=True)


__all__ = ["keep_plans"]
