// Traffic of rank pairs, compared with a count that walks every token.
#include "evenkeel/placement/traffic.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "tests/placement/small_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

TEST(SourceCounts, OfATraceWithoutSequencesComeFromEqualBlocks) {
  MemoryTrace trace({.num_layers = 1, .top_k = 1, .num_experts = 5}, {0, 1, 2, 3, 4});
  const SourceCounts counts = source_counts(trace, 2);
  EXPECT_EQ(counts.counts, (std::vector<double>{1, 1, 0, 0, 0, 0, 0, 1, 1, 1}));
}

TEST(SourceCounts, OfChosenRangesAreDealtInTheirOrder) {
  MemoryTrace trace({.num_layers = 1, .top_k = 1, .num_experts = 4}, {0, 1, 2, 3});
  const std::vector<TokenRange> ranges = {{3, 4}, {0, 1}, {1, 2}};
  const SourceCounts counts = source_counts(trace, ranges, 2);
  EXPECT_EQ(counts.counts, (std::vector<double>{0, 1, 0, 1, 1, 0, 0, 0}));
}

TEST(SourceCounts, WithoutATraceAreSpreadEvenlyAndSaySo) {
  const RoutingProfile profile(2, 2, {6, 0, 3, 9}, {});
  const SourceCounts counts = even_source_counts(profile, 3);
  EXPECT_TRUE(counts.estimated);
  EXPECT_EQ(counts.counts, (std::vector<double>{2, 0, 2, 0, 2, 0, 1, 3, 1, 3, 1, 3}));
  EXPECT_EQ(counts.at(LayerId(1), RankId(2), ExpertId(1)), 3);
}

TEST(SourceCounts, NeedARank) {
  MemoryTrace trace({.num_layers = 1, .top_k = 1, .num_experts = 4}, {0, 1});
  EXPECT_EQ(message_of<InvalidArgument>([&] { source_counts(trace, 0); }),
            "num_ranks: is 0; allowed: 1 or more");
  EXPECT_EQ(message_of<InvalidArgument>([&] { even_source_counts(RoutingProfile(1, 2), -1); }),
            "num_ranks: is -1; allowed: 1 or more");
}

TEST(Traffic, OfAPlacementOfAnotherShapeIsRefused) {
  const RoutingProfile profile(3, 4);
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { layer_to_layer_traffic(profile, Placement::contiguous(2, 4, 2), LayerId(0)); }),
            "placement: has 2 layers of 4 experts; allowed: 3 layers of 4 experts, as the profile has");
  const SourceCounts sources = even_source_counts(profile, 2);
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { dispatch_traffic(sources, Placement::contiguous(3, 4, 4), LayerId(0)); }),
            "sources: are for 2 ranks; allowed: 4 ranks, as the placement has");
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { dispatch_traffic(sources, Placement::contiguous(3, 4, 2), LayerId(3)); }),
            "layer: no layer 3; allowed: 0..2");
}

}  // namespace
}  // namespace evenkeel
