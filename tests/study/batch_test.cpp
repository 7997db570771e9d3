// A workload's batch is the same for any number of ranks that share it.
#include "evenkeel/study/batch.h"

#include <gtest/gtest.h>

namespace evenkeel {
namespace {

TEST(BatchOfWorkload, HasTheSameTokensForAnyNumberOfRanks) {
  const Batch one = batch_of_workload("zipf:1.2", {1, 96, 16, 2}, 7);
  for (const int ranks : {2, 4, 8}) {
    const Batch shared = batch_of_workload("zipf:1.2", {ranks, 96 / ranks, 16, 2}, 7);
    EXPECT_EQ(shared.experts, one.experts) << ranks << " ranks";
    EXPECT_EQ(shared.on_one_rank().first_token, one.first_token) << ranks << " ranks";
  }
}

}  // namespace
}  // namespace evenkeel
