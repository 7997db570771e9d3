#include "tests/plan/deal_oracle.h"

#include <algorithm>
#include <numeric>

namespace evenkeel::testing {

namespace {

int between(std::mt19937& random, int least, int most) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

struct Assignment {
  std::size_t source;
  std::size_t index;
};

}  // namespace

Counts Choices::counts() const {
  Counts counts(num_ranks(), num_experts);
  for (std::size_t rank = 0; rank < ids.size(); ++rank)
    for (std::int32_t id : ids[rank])
      if (id >= 0)
        ++counts.rows()[rank * static_cast<std::size_t>(num_experts) + static_cast<std::size_t>(id)];
  counts.sum_loads();
  return counts;
}

Choices random_choices(std::mt19937& random, int ranks) {
  Choices choices{between(random, 1, 24), between(random, 1, 5), {}};
  const int hot = between(random, 0, choices.num_experts - 1);
  const int heat = between(random, 0, 2) * 45;  // percent of assignments to `hot`
  for (int rank = 0; rank < ranks; ++rank) {
    const int tokens = between(random, 0, 4) == 0 ? 0 : between(random, 1, 60);
    auto& ids = choices.ids.emplace_back();
    for (int a = 0; a < tokens * choices.k; ++a) {
      const int draw = between(random, 0, 99);
      ids.push_back(draw < heat ? hot : draw < 95 ? between(random, 0, choices.num_experts - 1) : -1);
    }
  }
  return choices;
}

LayerPlacement random_placement(std::mt19937& random, int experts, int ranks, bool copies) {
  std::vector<std::vector<int>> homes;
  for (int expert = 0; expert < experts; ++expert) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    std::ranges::shuffle(all, random);
    all.resize(static_cast<std::size_t>(copies ? between(random, 1, ranks) : 1));
    homes.push_back(all);
  }
  return LayerPlacement(homes, ranks);
}

void fill_random_plan(std::mt19937& random, const Counts& counts, const LayerPlacement& placement,
                      StepPlan& plan) {
  plan.begin(placement);
  for (ExpertId expert : indices<ExpertId>(counts.num_experts())) {
    plan.begin_expert(expert);
    for (std::int64_t left = counts.load(expert); left > 0;) {
      const std::int64_t count = between(random, 1, static_cast<int>(left));
      plan.give(RankId(between(random, 0, counts.num_ranks() - 1)), count);
      left -= count;
    }
  }
}

std::vector<std::vector<int>> destinations(const Choices& choices, const StepPlan& plan) {
  std::vector<std::vector<int>> to;
  for (const auto& ids : choices.ids) to.emplace_back(ids.size(), -1);
  for (int expert = 0; expert < choices.num_experts; ++expert) {
    std::vector<Assignment> all;
    for (std::size_t source = 0; source < choices.ids.size(); ++source)
      for (std::size_t i = 0; i < choices.ids[source].size(); ++i)
        if (choices.ids[source][i] == expert) all.push_back({source, i});
    // One seat for each assignment that a segment takes.
    std::vector<int> seats;
    for (const Segment& segment : plan.segments(ExpertId(expert)))
      seats.insert(seats.end(), static_cast<std::size_t>(segment.size()), segment.rank.value());
    for (const Assignment& each : all) {
      const auto seat = std::ranges::find(seats, static_cast<int>(each.source));
      if (seat == seats.end()) continue;
      to[each.source][each.index] = *seat;
      seats.erase(seat);
    }
    for (const Assignment& each : all) {
      if (to[each.source][each.index] >= 0) continue;
      to[each.source][each.index] = seats.front();
      seats.erase(seats.begin());
    }
  }
  return to;
}

}  // namespace evenkeel::testing
