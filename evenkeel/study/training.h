// MemFine's three methods (arXiv 2511.21431) and the joint plan over the steps of a training run, of which
// the loads of all experts were recorded.
//
// Of every n-th step one layer is run, forward and backward: the one whose fullest rank has most. Its routing
// is seeded and has exactly those loads, or loads in proportion for another number of tokens.
//
//   whole   method 1   plain ep, unchunked; backward computes the whole forward pass again at once
//   fixed   method 2   plain ep in 8 equal chunks, computed again chunk by chunk
//   mact    method 3   plain ep in as many chunks as memory-aware tuning takes of 1, 2, 4, 8 for the budget
//   joint   ours       spill, chunks and what is kept chosen together, under the same budget
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/study/study_setup.h"

namespace evenkeel {

inline constexpr std::size_t kMethods = 4;
inline constexpr std::array<std::string_view, kMethods> kMethodNames = {"whole", "fixed", "mact", "joint"};

struct TrainingRun {
  std::string file;
  std::int64_t every = 100;
  bool as_recorded = true;  // as many tokens as the file has, instead of the set-up's
};

struct TrainingStep {
  std::int64_t step = 0;
  std::int64_t layer = 0;
  std::int64_t tokens = 0;
  Figures figures;  // the reference is method 1, the candidates are the others

  const CandidateFigures& of(std::size_t method) const {
    return method == 0 ? figures.reference : figures.candidates[method - 1];
  }
  double tokens_per_second(std::size_t method) const {
    return static_cast<double>(tokens) / (1e-3 * of(method).critical_ms);
  }
};

struct Training {
  StudySetup setup;  // as measured: with the file's experts, and the budget
  TrainingRun run;
  std::vector<TrainingStep> steps;

  std::int64_t least_budget() const { return steps.front().of(kMethods - 1).least_budget; }
  // Over all steps.
  double tokens_per_second(std::size_t method) const;
  std::int64_t worst_peak_bytes(std::size_t method) const;
  double recomputed_fraction(std::size_t method) const;  // mean of the steps
  // Steps whose peak is above the budget: there the method would have failed.
  std::int64_t steps_beyond(std::size_t method) const;
};

// Of the set-up the first planner is looked at; its experts are the file's, and its budget, where none is
// given, is half of what method 1 takes at its worst. Throws ParseError for a file without loads [steps,
// layers, experts].
Training measure_training(StudySetup setup, const TrainingRun& run, const RoundProgress& progress);

}  // namespace evenkeel
