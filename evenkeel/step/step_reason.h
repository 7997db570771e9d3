// The reason for the plan that a step runs under.
#pragma once

#include <string_view>

namespace evenkeel {

enum class StepReason {
  as_planned,       // work moves as the planner decided
  nothing_moves,    // the planner's plan moves nothing
  no_memory,        // plain EP: the planner's plan does not fit into every rank's memory
  plain_is_faster,  // plain EP: predicted to take less time in this memory
  no_slots,         // plain EP: a rank would borrow more experts than it has borrow slots
};

// The reason if a planner's own plan is used: one of the first two.
constexpr StepReason reason_of_plan(bool spilled) {
  return spilled ? StepReason::as_planned : StepReason::nothing_moves;
}

// True if plain EP runs in place of a planner's plan that moves work.
constexpr bool fell_back_to_ep(StepReason reason) {
  return reason != StepReason::as_planned && reason != StepReason::nothing_moves;
}

constexpr std::string_view name_of(StepReason reason) {
  switch (reason) {
    case StepReason::as_planned:
      return "as planned";
    case StepReason::nothing_moves:
      return "nothing moves";
    case StepReason::no_memory:
      return "ep: no memory";
    case StepReason::plain_is_faster:
      return "ep: faster";
    case StepReason::no_slots:
      return "ep: no slots";
  }
  return "";
}

}  // namespace evenkeel
