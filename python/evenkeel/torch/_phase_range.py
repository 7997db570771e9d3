"""Names a step's phases in the timelines of torch.profiler."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

_NONE = nullcontext()


def phase_range(phase: str) -> AbstractContextManager[object]:
    """A named range for the profiler. Costs next to nothing if no profiler runs."""
    if not torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
        return _NONE
    return torch.profiler.record_function(f"evenkeel: {phase}")
