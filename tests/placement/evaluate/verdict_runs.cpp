#include "tests/placement/evaluate/verdict_runs.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "evenkeel/placement/evaluate/hold_out.h"
#include "evenkeel/placement/evaluate/judge_placed.h"
#include "evenkeel/placement/evaluate/provenance.h"

namespace evenkeel::verdict_runs {

namespace {

using Random = std::mt19937_64;

std::vector<double> popularity(const Truth& truth) {
  const int of_rank = truth.experts / truth.ranks;
  const double others = (truth.ranks - truth.max_over_mean) / (truth.ranks - 1);
  std::vector<double> all(static_cast<std::size_t>(truth.experts), others / truth.experts);
  std::fill_n(all.begin(), of_rank, truth.max_over_mean / truth.experts);
  return all;
}

std::vector<double> of_sequence(const Truth& truth, std::vector<double> shares, Random& random) {
  if (std::isinf(truth.concentration)) return shares;
  for (double& share : shares)
    share = std::gamma_distribution<double>(share * truth.experts * truth.concentration)(random);
  return shares;
}

// Adds `count` assignments drawn from a multinomial distribution, expert by expert.
void add_assignments(std::int64_t count, const std::vector<double>& shares, std::span<std::int64_t> loads,
                     Random& random) {
  double left = 0;
  for (double share : shares) left += share;
  for (std::size_t expert = 0; expert < shares.size() && count > 0; ++expert) {
    const bool last = expert + 1 == shares.size() || shares[expert] >= left;
    const std::int64_t drawn = last ? count
                                    : std::binomial_distribution<std::int64_t>(
                                          count, std::clamp(shares[expert] / left, 0., 1.))(random);
    loads[expert] += drawn;
    count -= drawn;
    left -= shares[expert];
  }
}

// The total loads of `sequences` random sequences with `length` tokens each.
RoutingProfile drawn_profile(const Truth& truth, std::int64_t sequences, std::int64_t length,
                             Random& random) {
  const auto experts = static_cast<std::size_t>(truth.experts);
  std::vector<std::int64_t> loads(static_cast<std::size_t>(truth.layers) * experts, 0);
  for (std::int64_t sequence = 0; sequence < sequences; ++sequence)
    for (std::size_t layer = 0; layer < static_cast<std::size_t>(truth.layers); ++layer)
      add_assignments(length * truth.top_k, of_sequence(truth, popularity(truth), random),
                      std::span(loads).subspan(layer * experts, experts), random);
  return RoutingProfile(truth.layers, truth.experts, std::move(loads), {});
}

RoutingProfile sum_of(const std::vector<RoutingProfile>& parts) {
  RoutingProfile sum = parts.front();
  for (std::size_t i = 1; i < parts.size(); ++i) sum.add(parts[i]);
  return sum;
}

StepModel model_of(const Truth& truth) {
  return {.assignment_us = 0.1,
          .assignments_per_step = 4096.0 * truth.top_k,
          .expert_bytes = 1,
          .link_gigabytes_per_s = 1,
          .top_k = truth.top_k};
}

constexpr double kHorizon = 1e9;

}  // namespace

Recording draw(const Truth& truth, std::int64_t tokens, std::uint64_t seed) {
  Random random(seed);
  const std::int64_t length = std::min<std::int64_t>(500, tokens / Recording::num_blocks);
  Recording recording{.name = "drawn"};
  for (int block = 0; block < Recording::num_blocks; ++block)
    recording.sequence_blocks.push_back(
        drawn_profile(truth, tokens / length / Recording::num_blocks, length, random));
  recording.profile = sum_of(recording.sequence_blocks);
  return recording;
}

Recording draw_steps(const Truth& truth, std::int64_t tokens, std::uint64_t seed) {
  Random random(seed);
  Recording recording{.name = "drawn"};
  const std::int64_t of_step = std::max<std::int64_t>(10, tokens / 200);
  for (std::int64_t step = 0; step < tokens / of_step; ++step)
    recording.steps.push_back(drawn_profile(truth, 1, of_step, random));
  recording.profile = sum_of(recording.steps);
  return recording;
}

Verdict verdict_on_own(const Truth& truth, const Recording& recording) {
  const Topology topology = Topology::uniform(1, truth.ranks);
  const std::span<const Recording> own(&recording, 1);
  const PlaceResult placed = place(recording.profile, topology);
  const auto held_out = hold_out(own, PlacedFor::recordings, topology, {}, placed.solve_ms);
  return *judge_placed({}, {.name = "placed", .placement = placed.placement}, {own, {}, held_out}, topology,
                       model_of(truth), kHorizon)
              .verdict;
}

Verdict verdict_on_fresh(const Truth& truth, const Recording& made_from, const Recording& judge) {
  const Topology topology = Topology::uniform(1, truth.ranks);
  const PlaceResult placed = place(made_from.profile, topology);
  return evaluate(
             {judge},
             {{.name = "placed", .placement = placed.placement, .made_from = {digest_of(made_from.profile)}}},
             {}, topology, model_of(truth), kHorizon)
      .verdict;
}

}  // namespace evenkeel::verdict_runs
