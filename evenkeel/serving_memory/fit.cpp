#include <algorithm>
#include <limits>
#include <ranges>

#include "evenkeel/serving_memory/serving.h"

namespace evenkeel {

namespace {

ServingStage stage_of(const ServingModel& serving, int stage) {
  ServingStage made{.stage = stage,
                    .has_experts = serving.layout().has_experts(stage),
                    .weights = serving.weights(stage),
                    .sequence_bytes = serving.sequence_bytes(stage)};
  made.weight_bytes = total_bytes(made.weights);
  const std::int64_t sequences = serving.setup().sequences;
  made.cache_bytes =
      made.sequence_bytes > most_bytes / sequences ? most_bytes : made.sequence_bytes * sequences;
  return made;
}

// Bytes that the MoE layers of a stage take in a routing case.
std::int64_t of_experts(const ServingStage& stage, const RoutingCase& routing) {
  return stage.has_experts ? routing.workspace_bytes + routing.borrowed_bytes : 0;
}

std::int64_t total(const ServingStage& stage, const RoutingCase& routing) {
  return stage.weight_bytes + stage.cache_bytes + of_experts(stage, routing);
}

// Writes a case's results over all stages into `routing`.
void judge(RoutingCase& routing, const ServingModel& serving, const std::vector<ServingStage>& stages,
           std::int64_t available_bytes) {
  routing.total_bytes = 0;
  routing.cache_tokens = std::numeric_limits<std::int64_t>::max();
  for (const ServingStage& stage : stages) {
    routing.total_bytes = std::max(routing.total_bytes, total(stage, routing));
    const std::int64_t left =
        std::max<std::int64_t>(0, available_bytes - stage.weight_bytes - of_experts(stage, routing));
    __extension__ const auto tokens = __int128{left} * serving.setup().context;
    if (stage.sequence_bytes > 0)
      routing.cache_tokens =
          static_cast<std::int64_t>(std::min<__int128>(routing.cache_tokens, tokens / stage.sequence_bytes));
  }
  routing.fits = routing.total_bytes <= available_bytes;
}

}  // namespace

ServingFit fit_serving(const ServingModel& serving, std::int64_t available_bytes,
                       std::optional<std::int64_t> received, std::vector<RoutingCase> recorded) {
  ServingFit fit;
  for (int stage = 0; stage < serving.layout().num_stages(); ++stage)
    fit.stages.push_back(stage_of(serving, stage));
  const auto judged = [&](RoutingCase routing) {
    judge(routing, serving, fit.stages, available_bytes);
    return routing;
  };
  const std::int64_t even = serving.even_rows(), worst = serving.worst_rows();
  fit.cases = {judged(serving.routing("even", even)), judged(serving.routing("worst", worst))};
  if (received) fit.cases.push_back(judged(serving.routing("given", *received)));
  fit.judged = fit.cases.size() > 2 ? 2 : 1;
  const auto in_chunks = [&](std::int64_t chunks) {
    return judged(serving.routing("worst, in chunks", worst, chunks));
  };
  // Counts up to the most useful one, with which each chunk has one token of every replica.
  const auto counts = std::views::iota(std::int64_t{1}, serving.setup().tokens + 1);
  const auto fewest =
      std::ranges::partition_point(counts, [&](auto count) { return !in_chunks(count).fits; });
  if (fewest != counts.begin() && fewest != counts.end()) fit.cases.push_back(in_chunks(*fewest));
  if (serving.setup().parallel.expert > 1)
    fit.cases.push_back(judged(serving.routing(
        "worst, spilled", even, 1, serving.setup().slots.value_or(serving.slots_for_any_routing()))));
  std::ranges::transform(recorded, std::back_inserter(fit.cases), judged);
  for (ServingStage& stage : fit.stages) {
    stage.total_bytes = total(stage, fit.judged_case());
    stage.fits = stage.total_bytes <= available_bytes;
  }
  const auto tightest = std::ranges::max_element(fit.stages, {}, &ServingStage::total_bytes);
  fit.tightest = tightest->stage;
  fit.fits = tightest->fits;
  return fit;
}

}  // namespace evenkeel
