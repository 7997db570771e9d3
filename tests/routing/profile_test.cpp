#include "evenkeel/routing/profile.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

struct RandomTrace {
  int tokens, layers, k, experts;
  std::vector<std::int32_t> ids;

  explicit RandomTrace(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    tokens = static_cast<int>(random() % 200);
    layers = 1 + static_cast<int>(random() % 5);
    k = 1 + static_cast<int>(random() % 4);
    experts = 1 + static_cast<int>(random() % 20);
    for (int i = 0; i < tokens * layers * k; ++i)
      ids.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(experts + 1)) - 1);
  }
  std::int32_t id(int t, int l, int j) const {
    return ids[static_cast<std::size_t>((t * layers + l) * k + j)];
  }
  MemoryTrace reader() const {
    return MemoryTrace({.num_layers = layers, .top_k = k, .num_experts = experts}, ids);
  }
};

// Counts by the definitions, one pair of assignments at a time, in maps.
TEST(Profile, EqualsACountOfEveryPairByDefinition) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const RandomTrace trace(seed);
    std::map<std::tuple<int, int>, std::int64_t> loads;
    std::map<std::tuple<int, int, int>, std::int64_t> pairs;
    for (int l = 0; l < trace.layers; ++l) {
      for (int t = 0; t < trace.tokens; ++t) {
        for (int i = 0; i < trace.k; ++i) {
          if (trace.id(t, l, i) < 0) continue;
          ++loads[{l, trace.id(t, l, i)}];
          for (int j = 0; l + 1 < trace.layers && j < trace.k; ++j)
            if (trace.id(t, l + 1, j) >= 0) ++pairs[{l, trace.id(t, l, i), trace.id(t, l + 1, j)}];
        }
      }
    }
    MemoryTrace reader = trace.reader();
    const RoutingProfile profile = profile_trace(reader);
    for (int l = 0; l < trace.layers; ++l) {
      for (int a = 0; a < trace.experts; ++a) {
        const auto load = loads[{l, a}];
        EXPECT_EQ(profile.load(LayerId(l), ExpertId(a)), load) << "seed " << seed;
        for (int b = 0; l + 1 < trace.layers && b < trace.experts; ++b) {
          const auto at = static_cast<std::size_t>(a * trace.experts + b);
          const auto count = pairs[{l, a, b}];
          EXPECT_EQ(profile.transitions(LayerId(l))[at], count) << "seed " << seed;
        }
      }
    }
  }
}

TEST(Profile, OfTwoTracesIsTheSumOfTheirs) {
  const RandomTrace whole(7);
  const std::size_t row = static_cast<std::size_t>(whole.layers * whole.k);
  const std::size_t cut = static_cast<std::size_t>(whole.tokens) / 3 * row;
  const MemoryTrace::Shape shape{.num_layers = whole.layers, .top_k = whole.k, .num_experts = whole.experts};
  MemoryTrace all = whole.reader();
  MemoryTrace first(shape, {whole.ids.begin(), whole.ids.begin() + static_cast<std::ptrdiff_t>(cut)});
  MemoryTrace second(shape, {whole.ids.begin() + static_cast<std::ptrdiff_t>(cut), whole.ids.end()});
  RoutingProfile sum = profile_trace(first);
  sum.add(profile_trace(second));
  EXPECT_EQ(sum, profile_trace(all));
}

// One layer has no transitions, whether tokens were counted without them or only loads were given.
TEST(Profile, OfOneLayerIsAddedWhateverItSaysOfTransitions) {
  RoutingProfile counted(1, 3, false);
  const RoutingProfile loads(1, 3, {4, 5, 6}, {});
  ASSERT_NE(counted.has_transitions(), loads.has_transitions());
  counted.add(loads);
  EXPECT_TRUE(std::ranges::equal(counted.loads(), loads.loads()));
  RoutingProfile sum = loads;
  sum.add(counted);
  EXPECT_EQ(sum.total_load(LayerId(0)), 30);
}

TEST(Profile, WithoutTransitionsHasTheSameLoads) {
  const RandomTrace trace(3);
  MemoryTrace reader = trace.reader();
  const RoutingProfile lean = profile_trace(reader, {.transitions = false});
  EXPECT_FALSE(lean.has_transitions());
  EXPECT_TRUE(std::ranges::equal(lean.loads(), profile_trace(reader).loads()));
  EXPECT_THROW(lean.transitions(LayerId(0)), InvalidArgument);
}

TEST(Profile, TransitionsTooBigForTheMachineAreUnsupportedAndSayTheWayOut) {
  MemoryTrace trace({.num_layers = 3, .top_k = 1, .num_experts = 60000}, {0, 0, 0}, {}, {}, "t");
  EXPECT_EQ(message_of<Unsupported>([&] { profile_trace(trace); }),
            "t: transitions of 3 layers of 60000 experts take 53.6 GiB, more than the 4.0 GiB allowed; "
            "profile without "
            "transitions, or allow more");
  EXPECT_EQ(profile_trace(trace, {.transitions = false}).load(LayerId(2), ExpertId(0)), 1);
}

TEST(Profile, ATotalAboveTheLargestIntegerIsRefusedAndChangesNothing) {
  RoutingProfile profile(1, 2, {most - 1, 0}, {});
  EXPECT_EQ(message_of<InvalidArgument>([&] {
              profile.add(RoutingProfile(1, 2, {1, 1}, {}));
            }),
            "loads: the totals of the added profiles, 9223372036854775806 and 2, have a sum above 2^63-1; "
            "allowed: at most 2^63-1 in all");
  EXPECT_EQ(profile, RoutingProfile(1, 2, {most - 1, 0}, {}));
  profile.add(RoutingProfile(1, 2, {0, 1}, {}));
  const std::vector<std::int32_t> one_more{0};
  EXPECT_THROW(profile.add_tokens(one_more, 1), InvalidArgument);
  EXPECT_THROW(RoutingProfile(2, 1, {most, 1}, {}), InvalidArgument);
}

TEST(Profile, OfAnotherModelCannotBeAdded) {
  RoutingProfile profile(2, 4);
  EXPECT_EQ(message_of<InvalidArgument>([&] { profile.add(RoutingProfile(2, 5)); }),
            "profiles: 2 layers of 4 experts and 2 layers of 5 experts cannot be added; allowed: profiles of "
            "one model");
  EXPECT_THROW(profile.add(RoutingProfile(3, 4)), InvalidArgument);
  EXPECT_THROW(profile.add(RoutingProfile(2, 4, false)), InvalidArgument);
}

TEST(Profile, OfNumbersThatDoNotFitIsInvalid) {
  EXPECT_THROW(RoutingProfile(0, 4), InvalidArgument);
  EXPECT_THROW(RoutingProfile(1, 0), InvalidArgument);
  EXPECT_THROW(RoutingProfile(1, 2, {1}, {}), InvalidArgument);
  EXPECT_THROW(RoutingProfile(1, 2, {1, -1}, {}), InvalidArgument);
  EXPECT_THROW(RoutingProfile(2, 1, {1, 1}, {1, 2}), InvalidArgument);
  EXPECT_THROW(RoutingProfile(2, 2).loads(LayerId(2)), InvalidArgument);
  EXPECT_THROW(RoutingProfile(2, 2).transitions(LayerId(1)), InvalidArgument);
  EXPECT_THROW(RoutingProfile().add_tokens({}, 1), InvalidArgument);
  EXPECT_THROW(RoutingProfile(2, 2).add_tokens(std::vector<std::int32_t>{0, 2}, 1), InvalidArgument);
  EXPECT_THROW(RoutingProfile(2, 2).add_tokens(std::vector<std::int32_t>{0}, 1), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel
