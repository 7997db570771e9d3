// Summarizes a comparison: how figures vary over steps, and a sentence for each method.
//
// Answer    Each step's seconds are compared with plain EP's, or its max/mean if seconds are not known. The
//           gain gets two bounds at an error probability of 0.5 %. A method pays if both bounds are above 0,
//           and does not pay if both are below 0. Otherwise there is not enough data. Computing bounds takes
//           20 steps or more (placement/evaluate/blocks.h).
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
  int from = 0, to = 0;  // ranks, counted over all groups
  double bytes = 0;      // average over steps
};

struct MethodSummary {
  Spread max_over_mean;
  std::optional<Spread> seconds;
  PhaseSeconds parts{};                  // average over steps
  std::optional<double> speedup;         // of the average step, compared with ep
  std::optional<double> share_of_ideal;  // speedup relative to max/mean under ep
  // Averages over steps; empty if the layer's sizes are not known.
  std::optional<double> rows, bytes_within, bytes_across, weight_bytes;
  std::optional<double> copy_bytes;  // weights of copies in all layers, on the rank that has the most
  double moved_bytes = 0;
  std::optional<RankPair> worst_pair;
  double transfers = 0;  // average over steps
  std::optional<std::int64_t> peak_bytes;
  std::optional<int> steps_over_budget;
  int most_chunks = 1;
  double recomputed = 0;  // share of all assignments that backward recomputes

  enum class Answer { is_reference, pays, does_not_pay, not_enough_data };
  Answer answer = Answer::is_reference;
  std::optional<double> break_even_tokens;  // tokens per step from which the method is predicted to be faster
  std::string sentence;
};
const char* name_of(MethodSummary::Answer answer);  // such as "does_not_pay"
std::string text_of(MethodSummary::Answer answer);  // such as "does not pay"

// One summary for each method.
std::vector<MethodSummary> summaries_of(const Comparison& comparison, std::optional<std::int64_t> budget);

}  // namespace evenkeel
