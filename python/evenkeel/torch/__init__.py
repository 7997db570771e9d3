"""Balanced, bounded, exact expert parallelism for PyTorch. Imported on request: `import evenkeel.torch`."""

from .expert_parallel import ExpertParallel, SpillCosts

__all__ = ["ExpertParallel", "SpillCosts"]
