"""What experts' outputs depend on besides their inputs: random numbers (dropout) and autocast, the same where they run again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.utils.checkpoint import get_device_states, set_device_states


class RecomputeContext:
    """Where the generators of the host and of a tensor's device are now, and its autocast."""

    def __init__(self, like: torch.Tensor) -> None:
        self.kind = like.device.type
        self.autocast = torch.get_autocast_dtype(self.kind), torch.is_autocast_enabled(self.kind)
        self.host = torch.get_rng_state()
        self.devices, self.states = get_device_states(like)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Within it the numbers are those drawn from here; after it, what they would have been without."""
        with torch.autocast(self.kind, *self.autocast), torch.random.fork_rng(self.devices, device_type=self.kind):
            torch.set_rng_state(self.host)
            if self.devices:
                set_device_states(self.devices, self.states, device_type=self.kind)
            yield


def preserve_random_state(like: torch.Tensor) -> AbstractContextManager[None]:
    """What is drawn within it is drawn again after it."""
    devices = [] if like.device.type == "cpu" else [like.get_device()]
    return torch.random.fork_rng(devices, device_type=like.device.type)
