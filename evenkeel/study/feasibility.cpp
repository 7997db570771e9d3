// Checks whether an experiment fits into memory, before anything large is allocated.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/machine_memory.h"
#include "evenkeel/compute/cpu/expert_ffn.h"
#include "evenkeel/layer/chunk_shape.h"
#include "evenkeel/study/experiment.h"
#include "evenkeel/study/internal/experiment_rank.h"

namespace evenkeel {

namespace {

std::vector<Budget> budgets_of(const ExperimentSetup& setup) {
  std::vector<Budget> budgets = {setup.reference.budget};
  for (const Candidate& candidate : setup.candidates)
    if (std::ranges::find(budgets, candidate.budget) == budgets.end()) budgets.push_back(candidate.budget);
  return budgets;
}

std::string text_of(double bytes) {
  constexpr double kMost = 9e18;
  return format_bytes(static_cast<std::int64_t>(std::min(bytes, kMost)));
}

}  // namespace

// Computes in double, because sizes that the options allow can overflow an integer.
void require_memory(const ExperimentSetup& setup, std::int64_t tokens) {
  const ExpertShape& expert = setup.shape.expert;
  const double elements =
      static_cast<double>(expert.elements()) * static_cast<double>(setup.shape.num_experts);
  const auto type_bytes = static_cast<double>(bytes_of(expert.type));
  const double passes = setup.backward ? 2 : 1;
  const double weights = elements * type_bytes;
  const double packed = weights * passes * static_cast<double>(budgets_of(setup).size());
  const double gradients = setup.backward ? elements * sizeof(float) : 0;
  // Inputs and results in the layer's type, and the router's output for each token.
  const double rows =
      static_cast<double>(tokens) * (static_cast<double>(expert.hidden) * 2 * passes * type_bytes +
                                     static_cast<double>(setup.shape.top_k) * 8);
  const double needed = weights + packed + gradients + rows;
  const FreeMemory free = free_memory();
  if (needed <= static_cast<double>(free.bytes)) return;
  throw Unsupported(
      fmt::format("this takes at least {} of memory (weights {}, packed for products {}, gradients {}, rows "
                  "{}), and {} {}",
                  text_of(needed), text_of(weights), text_of(packed), text_of(gradients), text_of(rows),
                  free.because, text_of(static_cast<double>(free.bytes))));
}

void require_budgets(const ExperimentSetup& setup, std::int64_t max_tokens) {
  const std::int64_t tokens = std::max<std::int64_t>(max_tokens, 1);  // as layers, which use at least 1
  const auto experts = make_cpu_expert_ffn(setup.shape.expert, setup.backward);
  for (const Budget& budget : budgets_of(setup)) {
    if (!budget.is_given()) continue;
    const std::int64_t least = least_budget(
        budget_shape(setup.shape, setup.placement, *experts, internal::layer_options(setup, budget, tokens)));
    if (budget.bytes < least) throw BudgetTooSmall(budget.bytes, least, "the steps of a layer");
  }
}

}  // namespace evenkeel
