"""evenkeel keeps Mixture-of-Experts models balanced across devices.

    import evenkeel as ek

    placement = ek.place(ek.RoutingProfile("trace.safetensors"), ranks=8, nodes=2)
    placement.save("init_expert_location.json", format="sglang", model="config.json")

    step = ek.plan([49000, 1000, 1000, 1000], ranks=4)

Functions take numpy arrays, torch tensors or lists, and return numpy arrays (`rebalance_experts` returns tensors for
a tensor, as EPLB does). Every error is an `evenkeel.Error` with its data by name.
"""

from ._native import version as __version__
from .comparing import Comparison, compare
from .device_memory import memory
from .eplb import rebalance_experts
from .errors import BudgetTooSmall, CommError, Error, Infeasible, InvalidArgument, ParseError, Unsupported
from .evaluating import Evaluation, evaluate, read_steps
from .placement import Placement
from .placing import HeldOut, PlacementQuality, PlaceResult, PlaceVerdict, has_exact_solver, place, source_counts
from .profile import Imbalance, RoutingProfile
from .step_plan import LayerPlans, PredictedStep, Segment, StepPlan, Transfer, plan, plan_layers

__all__ = [
    "BudgetTooSmall",
    "CommError",
    "Comparison",
    "Error",
    "Evaluation",
    "HeldOut",
    "Imbalance",
    "Infeasible",
    "InvalidArgument",
    "LayerPlans",
    "ParseError",
    "PlaceResult",
    "PlaceVerdict",
    "Placement",
    "PlacementQuality",
    "PredictedStep",
    "RoutingProfile",
    "Segment",
    "StepPlan",
    "Transfer",
    "Unsupported",
    "__version__",
    "compare",
    "evaluate",
    "has_exact_solver",
    "memory",
    "place",
    "plan",
    "plan_layers",
    "read_steps",
    "rebalance_experts",
    "source_counts",
]
