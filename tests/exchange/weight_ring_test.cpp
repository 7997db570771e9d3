// Where borrowed weights lie when fewer fit than are borrowed.
#include "evenkeel/exchange/weight_ring.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

namespace evenkeel {
namespace {

using Experts = std::vector<std::int32_t>;

struct Schedule {
  std::vector<RingUse> uses;
  RingCounts counts;
};

Schedule schedule(const Experts& experts, int places) {
  std::vector<RingPlace> room(static_cast<std::size_t>(places));
  Experts next(experts.size());
  Schedule made{std::vector<RingUse>(experts.size()), {}};
  made.counts = schedule_ring(experts.data(), static_cast<int>(experts.size()), places, room.data(),
                              next.data(), made.uses.data());
  return made;
}

Experts random_uses(std::mt19937_64& random) {
  Experts experts(random() % 13);
  const std::uint64_t kinds = 1 + random() % 6;
  for (std::int32_t& expert : experts) expert = static_cast<std::int32_t>(random() % kinds);
  return experts;
}

// By trying every choice: what lies there is a set, since places are alike.
int least_sent(const Experts& experts, std::size_t places) {
  std::map<std::set<std::int32_t>, int> costs{{{}, 0}};
  for (std::int32_t expert : experts) {
    std::map<std::set<std::int32_t>, int> after;
    const auto offer = [&](std::set<std::int32_t> held, int cost) {
      const auto [found, is_new] = after.try_emplace(std::move(held), cost);
      if (!is_new) found->second = std::min(found->second, cost);
    };
    for (const auto& [held, cost] : costs) {
      std::set<std::int32_t> with = held;
      with.insert(expert);
      if (held.contains(expert) || held.size() < places) {
        offer(with, cost + (held.contains(expert) ? 0 : 1));
        continue;
      }
      for (std::int32_t gone : held) {
        std::set<std::int32_t> without = with;
        without.erase(gone);
        offer(without, cost + 1);
      }
    }
    costs = std::move(after);
  }
  int least = costs.begin()->second;
  for (const auto& each : costs) least = std::min(least, each.second);
  return least;
}

TEST(WeightRing, HasEveryExpertInItsPlaceAtEachOfItsUses) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 2000; ++trial) {
    const Experts experts = random_uses(random);
    const int places = 1 + static_cast<int>(random() % 5);
    const Schedule made = schedule(experts, places);
    std::map<int, std::int32_t> lies;
    std::map<int, int> last_use;
    std::set<std::int32_t> seen;
    RingCounts counts;
    for (std::size_t i = 0; i < experts.size(); ++i) {
      const RingUse& use = made.uses[i];
      ASSERT_LT(use.place, places);
      if (use.sent) {
        const int freed = last_use.contains(use.place) ? last_use[use.place] : -1;
        ASSERT_EQ(use.free_after, freed) << "trial " << trial;
        lies[use.place] = experts[i];
        ++counts.sent;
        counts.sent_again += seen.contains(experts[i]) ? 1 : 0;
      }
      ASSERT_EQ(lies[use.place], experts[i]) << "trial " << trial << ", use " << i;
      last_use[use.place] = static_cast<int>(i);
      seen.insert(experts[i]);
    }
    ASSERT_EQ(made.counts.sent, counts.sent);
    ASSERT_EQ(made.counts.sent_again, counts.sent_again);
  }
}

TEST(WeightRing, SendsAsSeldomAsAnyChoiceOfPlacesCan) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 1000; ++trial) {
    const Experts experts = random_uses(random);
    const int places = 1 + static_cast<int>(random() % 4);
    ASSERT_EQ(schedule(experts, places).counts.sent, least_sent(experts, static_cast<std::size_t>(places)))
        << "trial " << trial;
  }
}

TEST(WeightRing, SendsEachExpertOnceWhereAllFit) {
  const Schedule made = schedule({4, 7, 9, 4, 7, 9, 9, 4}, 3);
  EXPECT_EQ(made.counts.sent, 3);
  EXPECT_EQ(made.counts.sent_again, 0);
}

TEST(WeightRing, HasAsManyPlacesAsARankHasExpertsOrAsTheBytesAllow) {
  EXPECT_EQ(ring_places(128, 8, 1000, 10), 16);
  EXPECT_EQ(ring_places(9, 8, 1000, 10), 2);
  EXPECT_EQ(ring_places(128, 8, 79, 10), 7);
  EXPECT_EQ(ring_places(128, 8, 0, 10), 1);
}

}  // namespace
}  // namespace evenkeel
