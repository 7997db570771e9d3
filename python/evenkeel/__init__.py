"""evenkeel keeps Mixture-of-Experts models balanced across devices.

    import evenkeel as ek

    profile = ek.RoutingProfile("trace.safetensors")
    step = ek.plan([49000, 1000, 1000, 1000], ranks=4, planner="level")

Arrays go in as numpy arrays, torch tensors or lists and come out as numpy arrays. Every error is an `evenkeel.Error`
with its data by name.
"""

from .errors import BudgetTooSmall, CommError, Error, Infeasible, InvalidArgument, ParseError, Unsupported
from .placement import Placement
from .profile import Imbalance, RoutingProfile
from .step_plan import Segment, StepPlan, Transfer, plan

__all__ = [
    "BudgetTooSmall",
    "CommError",
    "Error",
    "Imbalance",
    "Infeasible",
    "InvalidArgument",
    "ParseError",
    "Placement",
    "RoutingProfile",
    "Segment",
    "StepPlan",
    "Transfer",
    "Unsupported",
    "plan",
]
