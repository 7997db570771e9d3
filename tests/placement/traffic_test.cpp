// Traffic of rank pairs, held to a count that walks every token.
#include "evenkeel/placement/traffic.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "tests/placement/small_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

void expect_near(const RankTraffic& traffic, const RankTraffic& expected) {
  ASSERT_EQ(traffic.size(), expected.size());
  for (std::size_t i = 0; i < traffic.size(); ++i) EXPECT_NEAR(traffic[i], expected[i], 1e-9) << "pair " << i;
}

// Adds 1 to each way from a home of `from` to a home of `to`, in equal parts.
void add_ways(RankTraffic& traffic, int num_ranks, std::span<const RankId> from, std::span<const RankId> to) {
  for (RankId a : from)
    for (RankId b : to)
      traffic[static_cast<std::size_t>(a.value() * num_ranks + b.value())] +=
          1.0 / static_cast<double>(from.size() * to.size());
}

TEST(LayerToLayerTraffic, IsWhatWalkingEveryTokenCounts) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const SmallTrace trace = random_trace(random);
    const int ranks = 1 + static_cast<int>(seed % 5);
    const Placement placement =
        random_placement(random, trace.num_layers, trace.num_experts, ranks, seed % 2 == 0);
    const RoutingProfile profile = profile_trace(*trace.reader());
    for (int layer = 0; layer + 1 < trace.num_layers; ++layer) {
      RankTraffic expected(static_cast<std::size_t>(ranks * ranks), 0.0);
      for (std::int64_t token = 0; token < trace.num_tokens(); ++token)
        for (int i = 0; i < trace.top_k; ++i)
          for (int j = 0; j < trace.top_k; ++j) {
            const std::int32_t from = trace.id(token, layer, i);
            const std::int32_t to = trace.id(token, layer + 1, j);
            if (from != no_expert && to != no_expert)
              add_ways(expected, ranks, placement.layer(layer).homes(ExpertId(from)),
                       placement.layer(layer + 1).homes(ExpertId(to)));
          }
      expect_near(layer_to_layer_traffic(profile, placement, LayerId(layer)), expected);
    }
  }
}

TEST(DispatchTraffic, IsWhatWalkingEveryTokenOfSequencesDealtInTurnCounts) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const SmallTrace trace = random_trace(random);
    const int ranks = 1 + static_cast<int>(seed % 5);
    const Placement placement =
        random_placement(random, trace.num_layers, trace.num_experts, ranks, seed % 2 == 0);
    const SourceCounts sources = source_counts(*trace.reader(), ranks);
    EXPECT_FALSE(sources.estimated);
    for (int layer = 0; layer < trace.num_layers; ++layer) {
      RankTraffic expected(static_cast<std::size_t>(ranks * ranks), 0.0);
      for (std::size_t sequence = 0; sequence + 1 < trace.sequences.size(); ++sequence)
        for (std::int64_t token = trace.sequences[sequence]; token < trace.sequences[sequence + 1]; ++token)
          for (int i = 0; i < trace.top_k; ++i)
            if (const std::int32_t id = trace.id(token, layer, i); id != no_expert) {
              const RankId source(static_cast<int>(sequence) % ranks);
              add_ways(expected, ranks, std::span(&source, 1), placement.layer(layer).homes(ExpertId(id)));
            }
      expect_near(dispatch_traffic(sources, placement, LayerId(layer)), expected);
    }
  }
}

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
            "sources: are of 2 ranks; allowed: 4, as the placement has");
  EXPECT_EQ(message_of<InvalidArgument>(
                [&] { dispatch_traffic(sources, Placement::contiguous(3, 4, 2), LayerId(3)); }),
            "layer: no layer 3; allowed: 0..2");
}

}  // namespace
}  // namespace evenkeel
