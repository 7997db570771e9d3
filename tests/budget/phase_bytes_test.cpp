// A chunk needs the bytes of its most demanding phase. The test counts assignment by assignment; the library
// must reach the same bytes from block counts alone.
#include "evenkeel/budget/phase_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "evenkeel/budget/block_loads.h"
#include "tests/budget/routed_step.h"

namespace evenkeel::testing {
namespace {

constexpr int kBlocks = 4;
constexpr std::int64_t kUnits = 40;

// [P][blocks][E]
std::vector<std::int64_t> counts_by_block(const RoutedStep& step) {
  const auto experts = static_cast<std::size_t>(step.experts()), blocks = std::size_t{kBlocks};
  std::vector<std::int64_t> counts(step.ids.size() * blocks * experts);
  for (std::size_t rank = 0; rank < step.ids.size(); ++rank) {
    const auto tokens = step.ids[rank].size() / static_cast<std::size_t>(step.k);
    for (std::size_t block = 0; block < blocks; ++block)
      for (std::size_t token = tokens * block / blocks; token < tokens * (block + 1) / blocks; ++token)
        for (std::size_t place = 0; place < static_cast<std::size_t>(step.k); ++place) {
          const std::int32_t id = step.ids[rank][token * static_cast<std::size_t>(step.k) + place];
          if (id >= 0) ++counts[(rank * blocks + block) * experts + static_cast<std::size_t>(id)];
        }
  }
  return counts;
}

TEST(MeasuredBytes, AreThoseOfTheMostDemandingPhase) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const RoutedStep step =
        random_step(random, 1 + static_cast<int>(random() % 6), 1 + static_cast<int>(random() % 10),
                    1 + static_cast<int>(random() % 4), 40, false);
    const StepPlan plan = random_plan(step, random);
    std::vector<std::int32_t> numbers(
        static_cast<std::size_t>(BlockTable::count(step.ranks(), step.experts(), kBlocks)), -1);
    const BlockTable table(numbers, step.ranks(), step.experts(), kBlocks);
    table.fill_counts(counts_by_block(step), step.placement);
    BlockLoads loads;
    loads.read(table, step.placement, step.tokens(), step.k);
    loads.follow(plan);
    ForeignLoads foreign(step.ranks());
    foreign.read(plan, step.placement);

    const auto some = [&] { return static_cast<std::int64_t>(random() % 100); };
    std::vector<PhaseBytes> phases(1 + random() % 3);
    for (PhaseBytes& phase : phases)
      phase = {some(), some(), some(), some(), some(), some(), some(), some(), some()};
    const MeasuredBytes bytes(phases);
    const Chunk whole[] = {{0, kUnits}};
    const auto dealt = dealt_loads(step, plan, whole, kUnits);
    for (RankId rank : indices<RankId>(step.ranks())) {
      const ChunkLoad& load = dealt[0][rank.offset()];
      std::int64_t borrowed = 0, lent = 0, most = 0;
      for (const Transfer& transfer : plan.transfers()) {
        borrowed += transfer.to == rank ? 1 : 0;
        lent += transfer.from == rank ? 1 : 0;
      }
      for (const PhaseBytes& p : phases)
        most = std::max(most, p.fixed + p.per_token * load.tokens + p.per_assignment * load.assignments +
                                  p.per_sent * (load.assignments - load.assignments_kept) +
                                  p.per_received * (load.positions_here - load.assignments_kept) +
                                  p.per_position * load.positions_here + p.per_borrowed * borrowed +
                                  p.per_lent * lent + p.per_summed * borrowed);
      ASSERT_EQ(bytes.bytes(ChunkUse::forward, loads.load(rank, 0, kBlocks), foreign.loads()[rank.offset()]),
                most);
    }
  }
}

}  // namespace
}  // namespace evenkeel::testing
