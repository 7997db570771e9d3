// The costs of moving work follow the machine's rates; expected values are computed by hand.
#include "evenkeel/cost/spill_costs.h"

#include <gtest/gtest.h>

namespace evenkeel::testing {
namespace {

TEST(SpillCosts, FollowTheRates) {
  // 1,000 weights in bf16: 2,000 bytes. Their gradients have 4,000 bytes, a row has 20.
  const Machine machine{.flops_per_second = 1e6,
                        .weight_bytes_per_second = 1e4,
                        .overlap = 0,
                        .link_bytes_per_second = 1e3,
                        .chunk_seconds = 0.5};
  const ExpertWork expert{.elements = 1000, .bytes = 2000};
  const SpillCosts forward = spill_costs(machine, expert, 20, false);
  EXPECT_DOUBLE_EQ(forward.seconds_per_assignment, 0.002 + 0.04);
  EXPECT_DOUBLE_EQ(forward.seconds_per_transfer, 2 * (2.0 + 0.6));
  EXPECT_DOUBLE_EQ(forward.seconds_per_step, 2 * 0.5);
  const SpillCosts both = spill_costs(machine, expert, 20, true);
  EXPECT_DOUBLE_EQ(both.seconds_per_assignment, 0.006 + 0.08);
  EXPECT_DOUBLE_EQ(both.seconds_per_transfer, 2 * (2.0 + 1.2 + 4.0 + 1.2));
  EXPECT_DOUBLE_EQ(both.seconds_per_step, 2 * 1.0);
}

}  // namespace
}  // namespace evenkeel::testing
