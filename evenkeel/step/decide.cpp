#include "evenkeel/step/decide.h"

#include <algorithm>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/step/internal/one_plan.h"

namespace evenkeel {

StepDecider::StepDecider(ByteModel& model, const DecisionOptions& options, int num_ranks)
    : options_(options),
      plain_planner_(make_planner({PlannerOptions::Kind::ep})),
      ways_(std::make_unique<internal::OnePlan>(model, options_, num_ranks)),
      model_(model) {}

StepDecider::~StepDecider() = default;

void StepDecider::decide(const StepInputs& in, StepDecision& decision) {
  if (in.pass == StepPass::forward) in.planner->plan(in.counts, in.homes, decision.plan);
  if (!in.homes.has_single_homes()) plain_plan_.begin(in.homes);  // takes its memory before it is wanted
  ways_->read(in);
  ways_->follow(decision.plan, in.homes);
  decision.reason = reason_of_plan(decision.plan.spilled());
  if (in.pass == StepPass::forward)
    decide_forward(in, decision);
  else
    decide_backward(in, decision);
  decision.workspace = model_.workspaces();
  EVENKEEL_CHECK(in.holds_borrowed || !decision.chunks.empty());
}

// Of what the planner's plan does not keep, backward may go under plain EP.
void StepDecider::decide_forward(const StepInputs& in, StepDecision& decision) {
  if (ways_->keeps() && ways_->cuts_exactly()) {
    ways_->find_kept_whole();
    if (take_best(0, decision)) return;
  }
  const bool keep_all = options_.memory.recompute == Recompute::none && options_.with_backward;
  double rest = ways_->rest();
  ways_->find_forward(keep_all, rest);
  const internal::Way given{{}, ways_->best().seconds, ways_->best().left};
  take_best(rest, decision);
  const bool fits = !decision.chunks.empty();
  const bool settled =
      fits && (options_.memory.keep_plan || (decision.chunks.size() == 1 && given.left == 0));
  if (decision.plan.spilled() && !settled) {
    follow_plain(in);
    rest = std::min(rest, ways_->rest());
    ways_->find_forward(keep_all, rest);
    if (fits) decision.seconds = given.seconds_with(rest);
    take_plain_if_faster(in, rest, decision);
  }
  // There may be memory for all of this step between what is kept of others, but not in one piece.
  if (!keep_all || !decision.chunks.empty()) return;
  ways_->find_forward(false, rest);
  take_best(rest, decision);
}

void StepDecider::decide_backward(const StepInputs& in, StepDecision& decision) {
  ways_->find_backward();
  take_best(0, decision);
  if (in.holds_borrowed || !decision.plan.spilled() || decision.chunks.size() == 1) return;
  if (options_.memory.keep_plan && !decision.chunks.empty()) return;
  follow_plain(in);
  ways_->find_backward();
  take_plain_if_faster(in, 0, decision);
}

// False if nothing fits.
bool StepDecider::take_best(double rest, StepDecision& decision) {
  internal::Way& best = ways_->best();
  decision.chunks.swap(best.chunks);
  decision.seconds = best.seconds_with(rest);
  return !decision.chunks.empty();
}

void StepDecider::take_plain_if_faster(const StepInputs& in, double rest, StepDecision& decision) {
  const internal::Way& plain = ways_->best();
  const bool fits = !decision.chunks.empty();
  if (fits && (plain.chunks.empty() || plain.seconds_with(rest) >= decision.seconds)) return;
  decision.reason = fits ? StepReason::plain_is_faster : StepReason::no_memory;
  take_best(rest, decision);
  plain_planner_->plan(in.counts, in.homes, decision.plan);
}

// Where each expert has one home, plain EP needs no plan to be known.
void StepDecider::follow_plain(const StepInputs& in) {
  if (in.homes.has_single_homes()) return ways_->stay_home(in.counts);
  plain_planner_->plan(in.counts, in.homes, plain_plan_);
  ways_->follow(plain_plan_, in.homes);
}

}  // namespace evenkeel
