#include "evenkeel/study/experiment.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/base/cores.h"
#include "evenkeel/comm/thread/run_ranks.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/study/internal/experiment_rank.h"
#include "evenkeel/study/internal/turns.h"

namespace evenkeel {

namespace {

using internal::Measurement;
using internal::StepSamples;

// Plain ep depends only on its budget, so its other options make no difference.
bool is_plain_reference(const ExperimentSetup& setup, const Candidate& candidate) {
  return setup.reference.is_plain() && candidate.is_plain() && candidate.budget == setup.reference.budget;
}

// A candidate that equals the reference is not measured again.
Figures figures_of(const ExperimentSetup& setup, const std::vector<Candidate>& slots,
                   const StepSamples& samples) {
  const auto of_slot = [&](std::size_t slot) {
    CandidateFigures figures = internal::figures_of(samples, slot, setup.where.node_of_rank);
    figures.candidate = slots[slot];
    return figures;
  };
  Figures figures;
  figures.reference = of_slot(internal::kReference);
  figures.control = internal::control_of(samples);
  std::size_t next = internal::kFirstCandidate;
  for (const Candidate& candidate : setup.candidates) {
    const std::size_t slot = is_plain_reference(setup, candidate) ? internal::kReference : next++;
    figures.candidates.push_back(of_slot(slot));
    if (setup.timelines) figures.timelines.push_back({samples.records(slot), samples.plan(slot).transfers});
  }
  return figures;
}

}  // namespace

std::string describe(const MoeShape& shape) {
  const ExpertShape& expert = shape.expert;
  return fmt::format("{} experts, top-{}, {} x {} {} {}", shape.num_experts, shape.top_k, expert.hidden,
                     expert.intermediate, name_of(expert.activation), name_of(expert.type));
}

std::int64_t CandidateFigures::worst_peak_bytes() const {
  return peak_bytes.empty() ? 0 : std::ranges::max(peak_bytes);
}

std::vector<Figures> measure(const ExperimentSetup& setup, const std::vector<Batch>& batches,
                             const Inspect& inspect, const RoundProgress& progress) {
  const int ranks = setup.placement.num_ranks();
  Measurement what{setup, batches, inspect, progress};
  what.slots = {setup.reference, setup.reference};
  std::ranges::copy_if(setup.candidates, std::back_inserter(what.slots),
                       [&](const Candidate& candidate) { return !is_plain_reference(setup, candidate); });
  std::vector<StepSamples> samples;
  if (setup.where.comm != nullptr) {
    EVENKEEL_CHECK(setup.where.comm->size() == ranks);
    samples = internal::run_rank(*setup.where.comm, what);
  } else {
    if (const int cores = usable_cores(); ranks > cores)
      what.experts = internal::in_turns(make_cpu_expert_ffn(setup.shape.expert, setup.backward), cores);
    run_ranks(ranks,
              [&](Communicator& comm) {
                std::vector<StepSamples> mine = internal::run_rank(comm, what);
                if (comm.rank() == RankId(0)) samples = std::move(mine);
              },
              {.deadline_seconds = kStudyDeadlineSeconds});
  }

  std::vector<Figures> figures(batches.size());
  for (std::size_t batch = 0; batch < batches.size(); ++batch)
    if (setup.rounds > 0) figures[batch] = figures_of(setup, what.slots, samples[batch]);
  return figures;
}

Figures measure(const ExperimentSetup& setup, const Batch& batch, const RoundProgress& progress) {
  return std::move(measure(setup, std::vector{batch}, {}, progress).front());
}

}  // namespace evenkeel
