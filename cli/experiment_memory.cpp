#include "cli/experiment_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "evenkeel/base/bytes.h"
#include "evenkeel/base/error.h"
#include "evenkeel/base/machine_memory.h"

namespace evenkeel::cli {

namespace {

// In double: sizes that the options allow have more bytes than an integer holds.
double budgets_of(const ExperimentSetup& setup) {
  std::vector<Budget> budgets = {setup.reference.budget};
  for (const Candidate& candidate : setup.candidates)
    if (std::ranges::find(budgets, candidate.budget) == budgets.end()) budgets.push_back(candidate.budget);
  return static_cast<double>(budgets.size());
}

std::string text_of(double bytes) {
  constexpr double kMost = 9e18;
  return format_bytes(static_cast<std::int64_t>(std::min(bytes, kMost)));
}

}  // namespace

void require_memory(const ExperimentSetup& setup, std::int64_t tokens) {
  const ExpertShape& expert = setup.shape.expert;
  const auto experts = static_cast<double>(setup.shape.num_experts);
  const auto elements = static_cast<double>(expert.elements()) * experts;
  const auto type_bytes = static_cast<double>(bytes_of(expert.type));
  const double passes = setup.backward ? 2 : 1;
  const double weights = elements * type_bytes;
  const double packed = weights * passes * budgets_of(setup);
  const double gradients = setup.backward ? elements * sizeof(float) : 0;
  // Inputs and results, of the type; what the router says of each token.
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

}  // namespace evenkeel::cli
