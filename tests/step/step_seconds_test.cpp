// A step's predicted time, compared with a computation from the raw choices. No possible continuation of a
// step is faster than the step's lower bound.
#include "evenkeel/step/step_seconds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/budget/routed_step.h"

namespace evenkeel::testing {
namespace {

constexpr int kBlocks = 8;
constexpr std::int64_t kUnits = 80;
constexpr std::int64_t kBlockUnits = kUnits / kBlocks;

double uniform(std::mt19937_64& random) {
  return std::uniform_real_distribution<double>(0, 1)(random);
}

// A planned step on 1 to 5 ranks, with costs of which any may dominate.
struct Case {
  explicit Case(std::mt19937_64& random) {
    step = random_step(random, 1 + static_cast<int>(random() % 5), 1 + static_cast<int>(random() % 10),
                       1 + static_cast<int>(random() % 4), 80, random() % 4 == 0);
    plan = random_plan(step, random);
    loads.read(block_table(step, kBlocks, numbers), step.placement, step.tokens(), step.k);
    loads.follow(plan);
    shape.element_bytes = random() % 2 == 0 ? 2 : 4;
    shape.weight_bytes = shape.element_bytes * static_cast<std::int64_t>(1 + random() % 1000);
    shape.gradient_bytes = 4 * shape.weight_bytes / shape.element_bytes;
    pass = random() % 2 == 0 ? StepPass::forward : StepPass::backward;
    transfers = static_cast<std::int64_t>(random() % 4);
    shape.row_outputs = static_cast<std::int64_t>(random() % 100);
    machine = {.flops_per_second = 1e9 * uniform(random),
               .weight_bytes_per_second = 1e9 * uniform(random),
               .overlap = uniform(random),
               .link_bytes_per_second = 1e9 * uniform(random),
               .chunk_seconds = 1e-6 * uniform(random)};
    // Old cost files only have the numbers above.
    if (random() % 2 == 0) return;
    machine.inner_half = 20 * uniform(random);
    machine.products_seconds = 1e-6 * uniform(random);
    machine.link_seconds = 1e-6 * uniform(random);
    machine.ramp_bytes = 1e3 * uniform(random);
  }
  StepSeconds seconds() const { return {pass, step_expert(shape), machine, loads, kUnits, transfers}; }
  bool is_backward() const { return pass == StepPass::backward; }

  RoutedStep step;
  StepPlan plan;
  std::vector<std::int32_t> numbers;
  BlockLoads loads;
  ChunkShape shape;
  StepPass pass = StepPass::forward;
  Machine machine;
  std::int64_t transfers = 0;
};

// Cuts a step into runs of blocks. Some of the first chunks may be kept.
std::vector<Chunk> random_chunks(std::mt19937_64& random) {
  std::vector<Chunk> chunks;
  bool kept = random() % 2 == 0;
  for (std::int64_t begin = 0; begin < kUnits;) {
    const auto rest = static_cast<std::uint64_t>((kUnits - begin) / kBlockUnits);
    const std::int64_t end = begin + kBlockUnits * (1 + static_cast<std::int64_t>(random() % rest));
    chunks.push_back({begin, end, kept});
    kept = kept && random() % 3 != 0;
    begin = end;
  }
  return chunks;
}

// The sizes of the segments that a rank computes in the step.
std::vector<double> segment_sizes(const StepPlan& plan, RankId rank) {
  std::vector<double> sizes;
  for (ExpertId expert : indices<ExpertId>(plan.num_experts()))
    for (const Segment& segment : plan.segments(expert))
      if (segment.rank == rank) sizes.push_back(static_cast<double>(segment.size()));
  return sizes;
}

// Each expert takes the longer of its arithmetic and its weight reads, plus the part of the shorter that does
// not overlap. Relative to forward, backward has twice the operations, reads weights once, and reads and
// writes an f32 gradient. Recomputing adds two of the three products.
double expected(const Case& of, const Chunk& chunk, std::span<const ChunkLoad> dealt) {
  const double again = of.is_backward() && !chunk.kept ? 2.0 / 3 : 0;
  const double elements = static_cast<double>(of.shape.weight_bytes / of.shape.element_bytes);
  const double weights = static_cast<double>(of.shape.weight_bytes);
  const double padded = elements + of.machine.inner_half * static_cast<double>(of.shape.row_outputs);
  const double operations = 2 * padded * (of.is_backward() ? 2 + again : 1);
  const double bytes = weights * (1 + again) + (of.is_backward() ? 2 * 4 * elements : 0);
  double slowest = 0;
  for (RankId rank : indices<RankId>(of.step.ranks())) {
    const std::vector<double> sizes = segment_sizes(of.plan, rank);
    const double all = std::accumulate(sizes.begin(), sizes.end(), 0.0);
    double sum = 0;
    for (const double size : sizes) {
      const double rows = static_cast<double>(dealt[rank.offset()].positions_here) * size / all;
      const auto [shorter, longer] =
          std::minmax({rows * operations / of.machine.flops_per_second,
                       std::min(rows, 1.0) * bytes / of.machine.weight_bytes_per_second});
      sum += longer + (1 - of.machine.overlap) * shorter;
    }
    slowest = std::max(slowest, sum);
  }
  return slowest + of.machine.chunk_seconds + of.machine.products_seconds;
}

double expected_transfer_seconds(const Machine& machine, double bytes) {
  if (bytes == 0) return 0;
  const double ramp = machine.ramp_bytes * bytes / (machine.ramp_bytes + bytes);
  return machine.link_seconds + (bytes + ramp) / machine.link_bytes_per_second;
}

TEST(StepSeconds, FollowsFromWhatTheSlowestRankComputesInEachChunk) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 2000; ++round) {
    const Case problem(random);
    const std::vector<Chunk> chunks = random_chunks(random);
    const auto dealt = dealt_loads(problem.step, problem.plan, chunks, kUnits);
    const std::int64_t transfer_bytes =
        problem.shape.weight_bytes + (problem.is_backward() ? problem.shape.gradient_bytes : 0);
    double sum =
        expected_transfer_seconds(problem.machine, static_cast<double>(problem.transfers * transfer_bytes));
    for (std::size_t c = 0; c < chunks.size(); ++c) {
      const double wanted = expected(problem, chunks[c], dealt[c]);
      ASSERT_NEAR(problem.seconds().of(chunks[c]), wanted, 1e-12 * wanted) << "round " << round;
      sum += wanted;
    }
    ASSERT_NEAR(problem.seconds().of_all(chunks), sum, 1e-12 * sum) << "round " << round;
  }
}

// The prediction made before a step is cut.
TEST(StepSeconds, OfEqualChunksIsThatOfTheChunksWhereEveryBlockHasTheSameLoad) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    Case problem(random);
    if (!problem.step.placement.has_single_homes()) continue;  // with copies, shares of a block are rounded
    const auto id = static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(problem.step.experts()));
    for (auto& ids : problem.step.ids) ids.assign(static_cast<std::size_t>(kUnits * problem.step.k), id);
    problem.plan = plain_plan(problem.step);
    problem.loads.read(block_table(problem.step, kBlocks, problem.numbers), problem.step.placement,
                       problem.step.tokens(), problem.step.k);
    problem.loads.follow(problem.plan);
    for (std::int64_t count : {1, 2, 4, 8}) {
      std::vector<Chunk> chunks;
      for (std::int64_t i = 0; i < count; ++i)
        chunks.push_back({kUnits * i / count, kUnits * (i + 1) / count});
      const double wanted = problem.seconds().of_all(chunks);
      ASSERT_NEAR(problem.seconds().of_equal(count), wanted, 1e-12 * wanted) << "round " << round;
    }
  }
}

}  // namespace
}  // namespace evenkeel::testing
