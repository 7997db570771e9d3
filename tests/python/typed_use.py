"""Type-checked, not run: what a caller with strict types may rely on."""

from typing import assert_type

import numpy as np
from numpy.typing import NDArray

import evenkeel as ek

profile = ek.RoutingProfile(loads=[[1, 2]])
assert_type(profile.loads, NDArray[np.int64])
assert_type(profile.transitions, NDArray[np.int64] | None)
assert_type(profile.imbalance.max_over_mean, NDArray[np.float64])

placement = ek.Placement.load("placement.json")
assert_type(placement.homes(0, 1), list[int])
placement.save("location.json", format="sglang")

step = ek.plan([1, 2], ranks=2, planner="level", placement=placement)
assert_type(step.segments[0][0].rank, int)
assert_type(step.rank_loads, NDArray[np.int64])
assert_type(step.predicted, ek.PredictedStep | None)

plans = ek.plan_layers(profile, ranks=2, layers=[0])
assert_type(plans[0], ek.StepPlan)
assert_type(plans.transfers, NDArray[np.int64])

placed = ek.place(profile, ranks=2, solver="exact")
assert_type(placed.objective, dict[str, float])
assert_type(placed.after.crossing, float | None)
assert_type(ek.place([profile, profile], ranks=2, across="sum").per_recording[0][1].max_over_mean_mean, float)
assert_type(ek.evaluate(profile, placed, ranks=2)["verdict"]["break_even_steps"], float | None)
assert_type(ek.evaluate(profile, placed, ranks=2)["notes"], list[str])
judged = ek.place("counts.npz", ranks=2, judge=[profile, "later.npz"], horizon=9)
assert_type(judged.verdict, ek.PlaceVerdict | None)
assert_type(judged.held_out, ek.HeldOut | None)
assert_type(judged.judged[0][1].max_over_mean_mean, float)
if judged.judged_verdict is not None:
    assert_type(judged.judged_verdict["measured_on"], str | None)
    assert_type(judged.judged_verdict["tokens_needed"], int | None)
    assert_type(judged.judged_verdict["notes"], list[str])
compared = ek.compare("trace.npz", ranks=8, methods=["level", "eplb:8"], budget="2GiB")
assert_type(compared.methods[0]["verdict"]["break_even_tokens"], float | None)
assert_type(compared.notes, list[str])
assert_type(compared.steps["level"]["seconds"], NDArray[np.float64] | NDArray[np.int64])
assert_type(ek.rebalance_experts(np.ones((2, 4)), 8, 1, 1, 4)[0], NDArray[np.int64])

try:
    ek.plan([1], ranks=0)
except ek.InvalidArgument as error:
    assert_type(error.data, dict[str, int | float | str])
