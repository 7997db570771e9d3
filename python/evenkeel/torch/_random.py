"""Restores what experts depend on besides their inputs, random numbers (dropout) and autocast, for a rerun."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch.utils.checkpoint import get_device_states, set_device_states


class RecomputeContext:
    """The state of the host's and a tensor's device's random generators, and of autocast."""

    def __init__(self, like: torch.Tensor) -> None:
        self.kind = like.device.type
        self.autocast = torch.get_autocast_dtype(self.kind), torch.is_autocast_enabled(self.kind)
        self.host = torch.get_rng_state()
        self.devices, self.states = get_device_states(like)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """A context in which random numbers repeat from this state. Afterwards they continue as if it had not run."""
        with torch.autocast(self.kind, *self.autocast), torch.random.fork_rng(self.devices, device_type=self.kind):
            torch.set_rng_state(self.host)
            if self.devices:
                set_device_states(self.devices, self.states, device_type=self.kind)
            yield


def preserve_random_state(like: torch.Tensor) -> AbstractContextManager[None]:
    """A context: random numbers drawn within it do not change those drawn after it."""
    devices = [] if like.device.type == "cpu" else [like.get_device()]
    return torch.random.fork_rng(devices, device_type=like.device.type)
