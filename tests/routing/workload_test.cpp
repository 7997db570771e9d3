#include "evenkeel/routing/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "evenkeel/base/error.h"
#include "evenkeel/routing/imbalance.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

const std::vector<const char*> all_workloads{"balanced",
                                             "concentrated:0.5:2",
                                             "concentrated:0.5:2:spread",
                                             "zipf:1.1",
                                             "lognormal:1",
                                             "drift",
                                             "collapse",
                                             "w0",
                                             "w1",
                                             "w2",
                                             "w3",
                                             "w4",
                                             "w5",
                                             "w6",
                                             "w7"};
constexpr WorkloadShape shape{.num_ranks = 4, .tokens_per_rank = 512, .num_experts = 32, .top_k = 4};

Routing routing_of(const char* name, WorkloadShape of = shape, std::uint64_t seed = 1,
                   std::uint64_t step = 0) {
  return make_routing(parse_workload(name), of, seed, step);
}

std::vector<std::int32_t> all_ids(const Routing& routing) {
  std::vector<std::int32_t> ids;
  for (const RankRouting& rank : routing.ranks) ids.insert(ids.end(), rank.ids.begin(), rank.ids.end());
  return ids;
}

std::vector<std::int64_t> loads_of(const char* name, WorkloadShape of = shape, std::uint64_t seed = 1,
                                   std::uint64_t step = 0) {
  return routing_of(name, of, seed, step).loads(of.num_experts);
}

std::uint64_t digest(const Routing& routing) {
  std::uint64_t sum = 1469598103934665603u;
  for (std::int32_t id : all_ids(routing)) sum = (sum ^ static_cast<std::uint64_t>(id)) * 1099511628211u;
  return sum;
}

double max_over_mean(const std::vector<std::int64_t>& loads) {
  return imbalance(loads).max_over_mean;
}

// The max/mean of ranks that own equal blocks of experts.
double rank_max_over_mean(const std::vector<std::int64_t>& loads, int ranks) {
  std::vector<std::int64_t> by_rank(static_cast<std::size_t>(ranks));
  for (std::size_t e = 0; e < loads.size(); ++e) by_rank[e * by_rank.size() / loads.size()] += loads[e];
  return max_over_mean(by_rank);
}

TEST(Workload, IsAFunctionOfNameSeedAndStepAlone) {
  for (const char* name : all_workloads) {
    const Routing a = routing_of(name, shape, 5, 3);
    const Routing b = routing_of(name, shape, 5, 3);
    for (std::size_t r = 0; r < a.ranks.size(); ++r) {
      EXPECT_EQ(a.ranks[r].ids, b.ranks[r].ids) << name;
      EXPECT_EQ(a.ranks[r].weights, b.ranks[r].weights) << name;
    }
    EXPECT_EQ(std::string(name) == "w0", all_ids(a) == all_ids(routing_of(name, shape, 6, 3))) << name;
  }
}

TEST(Workload, GivesTheSameTokensToAnyNumberOfRanks) {
  WorkloadShape one = shape;
  one.num_ranks = 1;
  one.tokens_per_rank = 2048;
  for (const char* name : all_workloads)
    EXPECT_EQ(all_ids(routing_of(name)), all_ids(routing_of(name, one))) << name;
}

TEST(Workload, GivesEveryTokenDistinctExpertsInRange) {
  for (const char* name : all_workloads) {
    const bool may_repeat = std::string(name).starts_with("concentrated");
    for (std::uint64_t step : {0U, 3U, 50U}) {
      const auto ids = all_ids(routing_of(name, shape, 2, step));
      for (std::size_t at = 0; at < ids.size(); at += 4) {
        const std::set<std::int32_t> token(ids.begin() + static_cast<std::ptrdiff_t>(at),
                                           ids.begin() + static_cast<std::ptrdiff_t>(at + 4));
        ASSERT_GE(*token.begin(), 0) << name;
        ASSERT_LT(*token.rbegin(), 32) << name;
        if (!may_repeat) {
          ASSERT_EQ(token.size(), 4U) << name << ", token " << at / 4;
        }
      }
    }
  }
}

TEST(Workload, GivesEveryTokenPositiveDescendingWeightsThatAddUpToOne) {
  for (const char* name : all_workloads) {
    for (const RankRouting& rank : routing_of(name).ranks) {
      ASSERT_EQ(rank.weights.size(), rank.ids.size());
      for (std::size_t at = 0; at < rank.weights.size(); at += 4) {
        const auto token = std::span(rank.weights).subspan(at, 4);
        ASSERT_TRUE(std::is_sorted(token.rbegin(), token.rend())) << name;
        ASSERT_GT(token.back(), 0) << name;
        ASSERT_NEAR(std::accumulate(token.begin(), token.end(), 0.0), 1, 1e-6) << name;
      }
    }
  }
}

TEST(Workload, HasTheTokensAskedFor) {
  for (const char* name : all_workloads) {
    const Routing routing = routing_of(name);
    std::int64_t total = 0;
    for (const RankRouting& rank : routing.ranks) {
      total += rank.num_tokens;
      EXPECT_EQ(rank.ids.size(), static_cast<std::size_t>(rank.num_tokens) * 4) << name;
      if (std::string(name) != "w4") {
        EXPECT_EQ(rank.num_tokens, 512) << name;
      }
    }
    EXPECT_EQ(total, 2048) << name;
  }
}

// If these numbers change, recorded measurements are no longer comparable with new ones.
TEST(Workload, IsTheSameOnEveryMachineAndInEveryVersion) {
  const std::vector<std::pair<const char*, std::uint64_t>> golden{
      {"balanced", 7991875795784130393u},
      {"concentrated:0.5:2", 7737002634079214635u},
      {"concentrated:0.5:2:spread", 18094234869443018016u},
      {"zipf:1.1", 367151241898204917u},
      {"lognormal:1", 5285351087798501902u},
      {"drift", 4931048783036986775u},
      {"collapse", 17443219784584790766u},
      {"w0", 4572630202393658243u},
      {"w1", 3313780966253643307u},
      {"w2", 685535780721954116u},
      {"w3", 4372501016474130511u},
      {"w4", 10422821547191421252u},
      {"w5", 2987496954487900904u},
      {"w6", 6483571417078894763u},
      {"w7", 10477980761098128735u}};
  for (const auto& [name, expected] : golden)
    EXPECT_EQ(digest(routing_of(name, shape, 5, 3)), expected) << name;
}

TEST(Workload, BalancedLoadsDifferByAtMostOne) {
  for (int experts : {1, 4, 6, 7, 32, 100}) {
    for (int k = 1; k <= std::min(experts, 6); ++k) {
      const auto loads =
          loads_of("balanced", {.num_ranks = 3, .tokens_per_rank = 37, .num_experts = experts, .top_k = k});
      const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
      EXPECT_LE(*most - *least, 1) << experts << " experts, top-" << k;
    }
  }
}

TEST(Workload, ConcentratedHasExactShares) {
  const WorkloadShape paper{.num_ranks = 8, .tokens_per_rank = 2048, .num_experts = 128, .top_k = 4};
  for (double share : {0.3, 0.5, 0.8, 0.95}) {
    for (int hot : {1, 4, 16}) {
      const Workload workload{.kind = Workload::Kind::concentrated, .share = share, .hot_experts = hot};
      const auto loads = make_routing(workload, paper, 1, 0).loads(128);
      const auto in_hot = std::accumulate(loads.begin(), loads.begin() + hot, std::int64_t{0});
      EXPECT_EQ(in_hot, std::llround(share * 65536)) << share << " in " << hot;
      for (auto part : {std::span(loads).first(static_cast<std::size_t>(hot)),
                        std::span(loads).subspan(static_cast<std::size_t>(hot))}) {
        const auto [least, most] = std::minmax_element(part.begin(), part.end());
        EXPECT_LE(*most - *least, 1) << share << " in " << hot;
      }
    }
  }
}

TEST(Workload, ConcentratedSpreadHeatsSeededExpertsThatStayOverSteps) {
  const auto hot_set = [](std::uint64_t seed, std::uint64_t step) {
    const auto loads = loads_of("concentrated:0.9:4:spread", shape, seed, step);
    std::set<std::size_t> hot;
    for (std::size_t e = 0; e < loads.size(); ++e)
      if (loads[e] > 1000) hot.insert(e);
    return hot;
  };
  EXPECT_EQ(hot_set(1, 0).size(), 4U);
  EXPECT_EQ(hot_set(1, 0), hot_set(1, 9));
  EXPECT_NE(hot_set(1, 0), hot_set(2, 0));
  EXPECT_NE(hot_set(1, 0), (std::set<std::size_t>{0, 1, 2, 3}));
}

TEST(Workload, ConcentratedMayPutMoreChoicesInATokenThanThereAreExperts) {
  const auto loads =
      loads_of("concentrated:1:1", {.num_ranks = 2, .tokens_per_rank = 8, .num_experts = 1, .top_k = 4});
  EXPECT_EQ(loads, std::vector<std::int64_t>{64});
}

TEST(Workload, ConcentratedThatDoesNotFitTheExpertsSaysSo) {
  const WorkloadShape four{.num_ranks = 1, .tokens_per_rank = 4, .num_experts = 4, .top_k = 1};
  EXPECT_EQ(message_of<InvalidArgument>([&] { routing_of("concentrated:0.5:5", four); }),
            "scenario: concentrated:0.5:5 has 5 hot experts, but there are only 4; allowed: N in 1..4");
  EXPECT_EQ(message_of<InvalidArgument>([&] { routing_of("concentrated:0.5:4", four); }),
            "scenario: concentrated:0.5:4 makes all 4 experts hot, so none is left for the other "
            "assignments; allowed: N "
            "in 1..3, or F = 1");
  EXPECT_NO_THROW(routing_of("concentrated:1:4", four));
}

// With top-1, a token's choice is drawn directly from the popularity.
TEST(Workload, ZipfLoadsFollowTheirLaw) {
  const WorkloadShape top_1{.num_ranks = 1, .tokens_per_rank = 200000, .num_experts = 10, .top_k = 1};
  auto loads = loads_of("zipf:1", top_1);
  std::sort(loads.rbegin(), loads.rend());
  double harmonic = 0;
  for (int i = 1; i <= 10; ++i) harmonic += 1.0 / i;
  for (int i = 0; i < 10; ++i) {
    const double expected = 200000 / (harmonic * (i + 1));
    EXPECT_NEAR(static_cast<double>(loads[static_cast<std::size_t>(i)]), expected, 5 * std::sqrt(expected))
        << i;
  }
}

TEST(Workload, ZipfWithExponentZeroIsUniformAndASteepOneStillEnds) {
  EXPECT_LT(max_over_mean(loads_of("zipf:0")), 1.25);
  EXPECT_EQ(loads_of("zipf:32", {.num_ranks = 1, .tokens_per_rank = 100, .num_experts = 8, .top_k = 8}),
            std::vector<std::int64_t>(8, 100));
}

TEST(Workload, LognormalSpreadsAsItsSigmaSays) {
  const WorkloadShape wide{.num_ranks = 1, .tokens_per_rank = 2000000, .num_experts = 500, .top_k = 1};
  const auto loads = loads_of("lognormal:0.7", wide);
  double mean = 0, square = 0;
  for (auto load : loads) mean += std::log(static_cast<double>(load)) / 500;
  for (auto load : loads) square += std::pow(std::log(static_cast<double>(load)) - mean, 2) / 500;
  EXPECT_NEAR(std::sqrt(square), 0.7, 0.07);
}

TEST(Workload, DriftMovesItsHotSetOnePlaceAStep) {
  const WorkloadShape large{.num_ranks = 4, .tokens_per_rank = 2048, .num_experts = 128, .top_k = 4};
  const auto hot_set = [&](std::uint64_t step) {
    const auto loads = loads_of("drift", large, 1, step);
    std::set<std::size_t> hot;
    for (std::size_t e = 0; e < loads.size(); ++e)
      if (loads[e] > 3 * 256) hot.insert(e);
    return hot;
  };
  const auto first = hot_set(0);
  EXPECT_EQ(first.size(), 8U);
  for (std::uint64_t step = 1; step <= 9; ++step) {
    std::set<std::size_t> both;
    const auto now = hot_set(step);
    std::set_intersection(first.begin(), first.end(), now.begin(), now.end(),
                          std::inserter(both, both.end()));
    EXPECT_EQ(both.size(), step >= 8 ? 0 : 8 - step) << step;
  }
  EXPECT_EQ(hot_set(128), first);
}

TEST(Workload, CollapseEndsWithEveryTokenOnTheSameExperts) {
  double before = 1;
  for (std::uint64_t step : {0U, 2U, 4U, 8U, 16U}) {
    const double now = max_over_mean(loads_of("collapse", shape, 1, step));
    EXPECT_GT(now, before) << step;
    before = now;
  }
  EXPECT_NEAR(max_over_mean(loads_of("collapse", shape, 1, 200)), 8, 0.01);
}

TEST(Workload, W0IsRoundRobin) {
  const auto ids = all_ids(routing_of("w0"));
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], static_cast<std::int32_t>(i % 32));
}

// Three of four tokens choose k of the w hot experts; the fourth chooses k of all E experts. So a hot expert
// is chosen by 3/4 k/w + 1/4 k/E of the tokens, which gives max/mean = 3/4 E/w + 1/4.
TEST(Workload, W1AndW2HeatAQuarterOfTheExpertsByTheSameFactor) {
  WorkloadShape many = shape;
  many.tokens_per_rank = 100000;  // 50,000 assignments per expert on average, with noise of about 1/250
  for (const char* name : {"w1", "w2"}) {
    const auto loads = loads_of(name, many);
    for (std::size_t e = 0; e < 32; ++e) {
      EXPECT_NEAR(static_cast<double>(loads[e]) / 50000, e < 8 ? 3.25 : 0.25, 0.025)
          << name << ", expert " << e;
    }
  }
  EXPECT_NE(all_ids(routing_of("w1")), all_ids(routing_of("w2")));
}

TEST(Workload, W3HasTheHeatOfW2OnRanksThatAreEven) {
  EXPECT_NEAR(max_over_mean(loads_of("w3")), max_over_mean(loads_of("w2")), 0.2);
  EXPECT_NEAR(rank_max_over_mean(loads_of("w2"), 4), 3.25, 0.1);
  EXPECT_NEAR(rank_max_over_mean(loads_of("w3"), 4), 1, 0.05);
}

TEST(Workload, W4HasRaggedSourcesAndEvenDestinations) {
  for (int ranks : {1, 2, 3, 8}) {
    WorkloadShape of = shape;
    of.num_ranks = ranks;
    const Routing routing = routing_of("w4", of);
    std::int64_t total = 0;
    for (std::size_t r = 0; r < routing.ranks.size(); ++r) {
      total += routing.ranks[r].num_tokens;
      if (r > 0) {
        EXPECT_GT(routing.ranks[r].num_tokens, routing.ranks[r - 1].num_tokens);
      }
    }
    EXPECT_EQ(total, ranks * 512);
    if (ranks > 1) {
      EXPECT_EQ(routing.ranks[0].num_tokens, 0);
    }
    EXPECT_NEAR(static_cast<double>(routing.max_tokens()), ranks > 1 ? 1024 : 512, 1);
    EXPECT_LT(max_over_mean(routing.loads(32)), 1.35);
  }
}

TEST(Workload, W5NeverChoosesTheLowerHalf) {
  const auto loads = loads_of("w5");
  EXPECT_EQ(std::accumulate(loads.begin(), loads.begin() + 16, std::int64_t{0}), 0);
  EXPECT_GT(*std::min_element(loads.begin() + 16, loads.end()), 400);
  EXPECT_EQ(message_of<InvalidArgument>([] {
              routing_of("w5", {.num_ranks = 1, .tokens_per_rank = 1, .num_experts = 4, .top_k = 3});
            }),
            "top_k: w5 uses 2 of 4 experts, fewer than top-3; allowed: at most 2");
}

TEST(Workload, W6MovesItsHotSetByItsWidthEveryThreeSteps) {
  for (std::uint64_t step = 0; step < 15; ++step) {
    const auto loads = loads_of("w6", shape, 1, step);
    const std::size_t first = step / 3 * 8 % 32;
    for (std::size_t e = 0; e < 32; ++e)
      EXPECT_EQ(loads[e] > 512, e >= first && e < first + 8) << "step " << step << ", expert " << e;
  }
}

TEST(Workload, W7BurstsInEveryFourthStep) {
  for (std::uint64_t step = 0; step < 9; ++step) {
    const double heat = max_over_mean(loads_of("w7", shape, 1, step));
    // Half of the tokens choose among a quarter of the experts, so max/mean is 1/2 * 4 + 1/2.
    EXPECT_NEAR(heat, step % 4 == 3 ? 2.5 : 1, 0.25) << step;
  }
}

TEST(Workload, ShapesThatCannotBeAreInvalid) {
  const auto refusal = [](WorkloadShape of) {
    return message_of<InvalidArgument>([&] { routing_of("balanced", of); });
  };
  EXPECT_EQ(refusal({.num_ranks = 0}), "ranks: 0 ranks; allowed: 1 or more");
  EXPECT_EQ(refusal({.tokens_per_rank = -1}), "tokens: -1 tokens a rank; allowed: 0 or more");
  EXPECT_EQ(refusal({.num_experts = 0}), "experts: 0 experts; allowed: 1..65536");
  EXPECT_EQ(refusal({.top_k = 0}), "top_k: top-0; allowed: 1 or more");
  EXPECT_EQ(refusal({.num_experts = 2, .top_k = 3}),
            "top_k: balanced gives each token distinct experts, but top-3 is more than the 2 experts; "
            "allowed: 1..2");
}

}  // namespace
}  // namespace evenkeel
