#include "evenkeel/study/study_setup.h"

#include <utility>

namespace evenkeel {

ExperimentSetup experiment_of(const StudySetup& setup) {
  ExperimentSetup experiment{setup.shape,
                             LayerPlacement::contiguous(setup.shape.num_experts, setup.ranks),
                             nullptr,
                             setup.backward,
                             setup.pairs,
                             plain_ep(setup.budget),
                             candidates_of(setup.planners, setup.budget)};
  experiment.where = setup.where;
  return experiment;
}

ExperimentSetup experiment_of(const StudySetup& setup, const LayerInputs& inputs, const Candidate& reference,
                              std::vector<Candidate> candidates, int rounds) {
  ExperimentSetup experiment = experiment_of(setup);
  experiment.inputs = &inputs;
  experiment.reference = reference;
  experiment.candidates = std::move(candidates);
  experiment.rounds = rounds;
  return experiment;
}

LayerInputs seeded_inputs(const StudySetup& setup, std::int64_t tokens) {
  ExperimentSetup one_layer = experiment_of(setup);
  one_layer.candidates.clear();
  require_memory(one_layer, tokens);
  return seeded_inputs(setup.shape.expert, setup.shape.num_experts, tokens, setup.seed, setup.backward);
}

Batch scenario_batch(const StudySetup& setup, const std::string& scenario) {
  return batch_of_workload(scenario, {setup.ranks, setup.tokens, setup.shape.num_experts, setup.shape.top_k},
                           setup.seed);
}

}  // namespace evenkeel
