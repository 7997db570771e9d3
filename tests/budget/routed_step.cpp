#include "tests/budget/routed_step.h"

#include <algorithm>
#include <set>

#include "evenkeel/balance/planner.h"
#include "evenkeel/budget/shares.h"
#include "evenkeel/plan/deal.h"

namespace evenkeel::testing {

namespace {

std::int64_t below(std::mt19937_64& random, std::int64_t n) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
}

using Ids = std::span<const std::int32_t>;

Counts counts_of(int experts, std::span<const Ids> ids) {
  Counts counts(static_cast<int>(ids.size()), experts);
  for (std::size_t rank = 0; rank < ids.size(); ++rank)
    for (std::int32_t id : ids[rank])
      if (id >= 0) ++counts.rows()[rank * static_cast<std::size_t>(experts) + static_cast<std::size_t>(id)];
  counts.sum_loads();
  return counts;
}

// The rank that computes each of the assignments; -1 if none does.
std::vector<int> destinations(int experts, Ids ids, const Deal& deal) {
  std::vector<int> to(ids.size(), -1);
  for (ExpertId expert : indices<ExpertId>(experts)) {
    auto piece = deal.pieces(expert).begin();
    std::int64_t left = deal.pieces(expert).empty() ? 0 : piece->count;
    for (std::size_t a = 0; a < ids.size(); ++a) {
      if (ids[a] != expert.value()) continue;
      while (left == 0) left = (++piece)->count;
      to[a] = piece->rank.value();
      --left;
    }
  }
  return to;
}

// `whole` is the step's plan, `plan` the chunk's plan.
std::vector<ChunkLoad> chunk_loads(const RoutedStep& step, std::span<const Ids> ids, const Counts& counts,
                                   const StepPlan& whole, const StepPlan& plan) {
  const auto ranks = static_cast<std::size_t>(step.ranks());
  std::vector<ChunkLoad> loads(ranks);
  std::vector<std::set<int>> computes(ranks), own_runs(ranks);
  for (std::size_t source = 0; source < ranks; ++source) {
    Deal deal;
    deal.make(counts, plan, RankId(static_cast<int>(source)));
    const std::vector<int> to = destinations(step.experts(), ids[source], deal);
    ChunkLoad& own = loads[source];
    const auto k = static_cast<std::size_t>(step.k);
    own.tokens = static_cast<std::int64_t>(ids[source].size() / k);
    for (std::size_t token = 0; token * k < to.size(); ++token) {
      std::set<int> visits;
      for (std::size_t a = token * k; a < (token + 1) * k; ++a) {
        if (to[a] < 0) continue;
        const auto there = static_cast<std::size_t>(to[a]);
        ++own.assignments;
        if (there == source) ++own.assignments_kept;
        if (there == source && whole.splits(ExpertId(ids[source][a]), step.placement)) {
          ++own.own_split;
          own_runs[there].insert(ids[source][a]);
        }
        ++loads[there].positions_here;
        computes[there].insert(ids[source][a]);
        visits.insert(to[a]);
      }
      for (int rank : visits) {
        ++loads[static_cast<std::size_t>(rank)].rows_here;
        if (static_cast<std::size_t>(rank) == source) continue;
        ++loads[static_cast<std::size_t>(rank)].rows_received;
        ++own.rows_elsewhere;
      }
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    loads[rank].groups = static_cast<std::int64_t>(computes[rank].size());
    loads[rank].own_runs = static_cast<std::int64_t>(own_runs[rank].size());
  }
  return loads;
}

}  // namespace

std::vector<std::int64_t> RoutedStep::tokens() const {
  std::vector<std::int64_t> all;
  for (const auto& rank : ids) all.push_back(static_cast<std::int64_t>(rank.size()) / k);
  return all;
}

Counts RoutedStep::counts() const {
  const std::vector<Ids> all(ids.begin(), ids.end());
  return counts_of(experts(), all);
}

RoutedStep random_step(std::mt19937_64& random, int ranks, int experts, int k, std::int64_t most_tokens,
                       bool copies) {
  std::vector<std::vector<int>> homes(static_cast<std::size_t>(experts));
  for (auto& of_expert : homes) {
    for (int rank = 0; rank < ranks; ++rank) of_expert.push_back(rank);
    std::ranges::shuffle(of_expert, random);
    of_expert.resize(static_cast<std::size_t>(copies ? 1 + below(random, ranks) : 1));
  }
  RoutedStep step{k, LayerPlacement(homes, ranks), {}};
  const std::int64_t kind = below(random, 6);
  const auto hot = static_cast<std::int32_t>(below(random, experts));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t tokens = below(random, 4) == 0 ? 0 : below(random, most_tokens + 1);
    std::vector<std::int32_t>& ids = step.ids.emplace_back();
    for (std::int64_t a = 0; a < tokens * k; ++a) {
      auto id = static_cast<std::int32_t>(below(random, experts));
      if (kind == 1 && below(random, 10) > 0) id = hot;
      if (kind == 2) id = static_cast<std::int32_t>((hot + a % k) % experts);
      if (kind == 3) id = below(random, 2) == 0 ? -1 : id;
      if (kind == 4) id = static_cast<std::int32_t>(a * experts / std::max<std::int64_t>(tokens * k, 1));
      if (kind == 5) id = rank % 2 == 0 ? hot : id;
      ids.push_back(id);
    }
  }
  return step;
}

BlockTable block_table(const RoutedStep& step, int blocks, std::vector<std::int32_t>& numbers) {
  constexpr std::int32_t kUnfilled = -7;
  numbers.assign(static_cast<std::size_t>(BlockTable::count(step.ranks(), step.experts(), blocks)),
                 kUnfilled);
  const BlockTable table(numbers, step.ranks(), step.experts(), blocks);
  for (RankId rank : indices<RankId>(step.ranks()))
    table.fill(rank, step.ids[rank.offset()], step.k, step.placement);
  return table;
}

std::vector<std::vector<ChunkLoad>> dealt_loads(const RoutedStep& step, const StepPlan& plan,
                                                std::span<const Chunk> chunks, std::int64_t units) {
  ChunkShares shares;
  shares.begin(plan);
  StepPlan chunk_plan;
  std::vector<std::vector<ChunkLoad>> loads;
  for (const Chunk& chunk : chunks) {
    std::vector<Ids> part;
    for (const auto& ids : step.ids) {
      const auto tokens = static_cast<std::int64_t>(ids.size()) / step.k;
      const std::int64_t first = tokens * chunk.begin / units;
      const std::int64_t end = tokens * chunk.end / units;
      part.push_back(Ids(ids).subspan(static_cast<std::size_t>(first * step.k),
                                      static_cast<std::size_t>((end - first) * step.k)));
    }
    const Counts counts = counts_of(step.experts(), part);
    shares.next(counts, step.placement, chunk_plan);
    loads.push_back(chunk_loads(step, part, counts, plan, chunk_plan));
  }
  return loads;
}

StepPlan random_plan(const RoutedStep& step, std::mt19937_64& random) {
  using Kind = PlannerOptions::Kind;
  const Kind kinds[] = {Kind::ep, Kind::least_loaded, Kind::level};
  const PlannerOptions options{kinds[below(random, 3)], 1000 + below(random, 300), below(random, 6), 1000};
  StepPlan plan;
  make_planner(options)->plan(step.counts(), step.placement, plan);
  return plan;
}

StepPlan plain_plan(const RoutedStep& step) {
  StepPlan plan;
  make_planner({PlannerOptions::Kind::ep})->plan(step.counts(), step.placement, plan);
  return plan;
}

}  // namespace evenkeel::testing
