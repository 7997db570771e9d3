"""evenkeel with PyTorch, in the processes that run a model. Imported only on request, since torch loads slowly."""

import torch as torch  # first, so that without torch the error is about torch

from ._live_bytes import LiveBytes
from ._metrics import metrics
from .checkpointing import keep_plans
from .expert_parallel import Budgets, ExpertParallel, Machine, SpillCosts
from .recording import Recording, record
from .routes_ahead import routes_ahead
from .slots import ExpertSlots, weights_fixed

__all__ = [
    "Budgets",
    "ExpertParallel",
    "ExpertSlots",
    "LiveBytes",
    "Machine",
    "Recording",
    "SpillCosts",
    "keep_plans",
    "metrics",
    "record",
    "routes_ahead",
    "weights_fixed",
]
