// The planning kernel, which uses many lanes, makes exactly the plan that one lane makes on the host.
#include <gtest/gtest.h>

#include "evenkeel/balance/cuda/planner.h"
#include "evenkeel/device/cuda/stream.h"
#include "tests/balance/cases.h"
#include "tests/balance/cuda/host_plan.h"
#include "tests/support/device_memory.h"
#include "tests/support/gpu.h"

namespace evenkeel::testing {
namespace {

using Kind = PlannerOptions::Kind;

class Integers {
 public:
  explicit Integers(std::vector<std::int32_t>& host) : host_(host), device_(host.size()) { device_.poison(); }
  std::int32_t* data() const { return device_.data(); }
  void read() { host_ = device_.read(); }

 private:
  std::vector<std::int32_t>& host_;
  DeviceMemory<std::int32_t> device_;
};

FlatPlan plan_on_gpu(const Counts& counts, const LayerPlacement& placement, const PlannerOptions& options,
                     int parts) {
  const cuda::PlacementTables tables(placement);
  const cuda::PlacementView sizes = tables.view();
  const DeviceMemory<std::int32_t> homes(tables.integers());
  // Each part but the last gets one assignment, the last part gets the rest: the kernel must sum the parts.
  const std::size_t pairs = counts.rows().size();
  std::vector<std::int32_t> by_part(pairs * static_cast<std::size_t>(parts));
  for (std::size_t i = 0; i < pairs; ++i) {
    auto rest = static_cast<std::int32_t>(counts.rows()[i]);
    for (std::size_t part = 0; part + 1 < static_cast<std::size_t>(parts) && rest > 0; ++part, --rest)
      by_part[part * pairs + i] = 1;
    by_part[by_part.size() - pairs + i] += rest;
  }
  const DeviceMemory<std::int32_t> device_counts{std::span<const std::int32_t>(by_part)};
  FlatPlan plan(sizes.num_experts, sizes.num_slots, sizes.num_ranks);
  std::vector<std::int32_t> transfers(1), fell_back_to_ep(1);
  Integers begin(plan.segment_begin), rank(plan.segment_rank), end(plan.segment_end),
      expert(plan.transfer_expert), from(plan.transfer_from), to(plan.transfer_to), loads(plan.rank_loads),
      count(transfers), way(fell_back_to_ep);
  CudaStream stream;
  static_cast<void>(stream.native());
  const cuda::CudaPlanner planner(tables.view_at(homes.data()), cuda::rules_of(options));
  const DeviceMemory<std::int32_t> workspace(pairs);
  planner.plan(device_counts.data(), parts, nullptr, workspace.data(),
               {begin.data(), rank.data(), end.data(), expert.data(), from.data(), to.data(), count.data(),
                loads.data(), way.data()},
               stream);
  stream.synchronize();
  for (Integers* each : {&begin, &rank, &end, &expert, &from, &to, &loads, &count, &way}) each->read();
  plan.num_transfers = transfers[0];
  plan.fell_back_to_ep = fell_back_to_ep[0];
  return plan;
}

// Compares the used parts of the arrays.
void expect_same(const FlatPlan& actual, const FlatPlan& expected, const std::string& what) {
  ASSERT_EQ(actual.segment_begin, expected.segment_begin) << what;
  const auto first = [](const std::vector<std::int32_t>& all, int n) {
    return std::vector<std::int32_t>(all.begin(), all.begin() + n);
  };
  const int segments = expected.segment_begin.back(), transfers = expected.num_transfers;
  ASSERT_EQ(actual.num_transfers, transfers) << what;
  ASSERT_EQ(first(actual.segment_rank, segments), first(expected.segment_rank, segments)) << what;
  ASSERT_EQ(first(actual.segment_end, segments), first(expected.segment_end, segments)) << what;
  ASSERT_EQ(first(actual.transfer_expert, transfers), first(expected.transfer_expert, transfers)) << what;
  ASSERT_EQ(first(actual.transfer_to, transfers), first(expected.transfer_to, transfers)) << what;
  ASSERT_EQ(first(actual.transfer_from, transfers), first(expected.transfer_from, transfers)) << what;
  ASSERT_EQ(actual.rank_loads, expected.rank_loads) << what;
  ASSERT_EQ(actual.fell_back_to_ep, expected.fell_back_to_ep) << what;
}

TEST(CudaPlanner, MakesThePlansThatTheHostMakes) {
  SKIP_WITHOUT_GPU();
  std::mt19937_64 random(1);
  for (int i = 0; i < 300; ++i) {
    const bool large = i % 10 == 0;
    Case c = random_case(
        random, {.max_ranks = large ? 64 : 12, .max_experts = large ? 384 : 60, .copies = i % 3 == 1});
    for (std::int64_t& load : c.loads) load %= 100000;
    const Counts counts = with_random_sources(random, c);
    const LayerPlacement placement = c.placement();
    for (Kind kind : {Kind::ep, Kind::least_loaded, Kind::level}) {
      const PlannerOptions options{kind, 1000, draw(random, 0, 200), i % 2 == 0 ? 0 : 1300};
      expect_same(plan_on_gpu(counts, placement, options, 1 + i % 3),
                  plan_on_host(counts, placement, options),
                  "case " + std::to_string(i) + " planner " + std::to_string(static_cast<int>(kind)));
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace evenkeel::testing
