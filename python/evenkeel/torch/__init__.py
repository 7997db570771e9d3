"""evenkeel with PyTorch, in the processes that run a model. Imported only on request, since torch takes seconds.

import evenkeel.torch

with evenkeel.torch.record(model, "trace.safetensors"):
    model(**batch)
"""

import torch as torch  # whoever lacks it reads so here, before anything else

from .recording import Recording, record

__all__ = ["Recording", "record"]
