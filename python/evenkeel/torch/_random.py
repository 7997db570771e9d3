"""The random numbers that experts draw (dropout): the same again where a chunk is computed again, and none for a probe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

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
        with torch.random.fork_rng(self.devices, device_type=self.kind):
            self.restore()
            yield


def undisturbed(like: torch.Tensor) -> AbstractContextManager[None]:
    """What is drawn within it is drawn again after it."""
    devices = [] if like.device.type == "cpu" else [like.get_device()]
    return torch.random.fork_rng(devices, device_type=like.device.type)
