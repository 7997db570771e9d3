// What a comparison comes to: spreads over steps, and a sentence for each method.
//
// Answer   by what a step takes, or where seconds are not known by max/mean, step by step against plain EP:
//          it pays where the gain is above 0 but for a chance of 0.5 %, does not where it is below, and else
//          there is not enough data. 20 steps or more are needed for bounds (placement/evaluate/blocks.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "evenkeel/sim/compare.h"

namespace evenkeel {

struct Spread {
  double mean = 0, median = 0, p95 = 0, p99 = 0, worst = 0;
};
Spread spread_of(std::vector<double> values);

struct RankPair {
  int from = 0, to = 0;  // ranks of all groups
  double bytes = 0;      // in a step, mean
};

struct MethodSummary {
  Spread max_over_mean;
  std::optional<Spread> seconds;
  PhaseSeconds parts{};                  // of a step, mean
  std::optional<double> speedup;         // over ep, of the mean step
  std::optional<double> share_of_ideal;  // of max/mean under ep
  // In a step, mean; where the layer is known.
  std::optional<double> rows, bytes_within, bytes_across, weight_bytes;
  std::optional<double> copy_bytes;  // weights of copies on the rank with the most, all layers
  double moved_bytes = 0;
  std::optional<RankPair> worst_pair;
  double transfers = 0;  // in a step, mean
  std::optional<std::int64_t> peak_bytes;
  std::optional<int> steps_over_budget;
  int most_chunks = 1;
  double recomputed = 0;  // the part of all assignments, mean

  enum class Answer { is_reference, pays, does_not_pay, not_enough_data };
  Answer answer = Answer::is_reference;
  std::optional<double> break_even_tokens;  // tokens a step from which on it is predicted to be faster
  std::string sentence;
};
const char* name_of(MethodSummary::Answer answer);  // "does_not_pay"
std::string text_of(MethodSummary::Answer answer);  // "does not pay"

// By method.
std::vector<MethodSummary> summaries_of(const Comparison& comparison, std::optional<std::int64_t> budget);

}  // namespace evenkeel
