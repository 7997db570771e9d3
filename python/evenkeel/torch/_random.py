"""The random numbers that experts draw (dropout): the same again where a chunk is computed again, and none for a probe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.utils.checkpoint import get_device_states, set_device_states


class RandomState:
    """Where the generators of the host and of a tensor's device are now."""

    def __init__(self, like: torch.Tensor) -> None:
        self.kind = like.device.type
        self.host = torch.get_rng_state()
        self.devices, self.states = get_device_states(like)

    def restore(self) -> None:
        torch.set_rng_state(self.host)
        if self.devices:
            set_device_states(self.devices, self.states, device_type=self.kind)

    @contextmanager
    def again(self) -> Iterator[None]:
        """Within it the numbers are those drawn from here; after it, what they would have been without."""
        now = RandomState(torch.empty(0, device=self.kind))
        self.restore()
        try:
            yield
        finally:
            now.restore()


@contextmanager
def undisturbed(like: torch.Tensor) -> Iterator[None]:
    """What is drawn within it is drawn again after it."""
    before = RandomState(like)
    try:
        yield
    finally:
        before.restore()
