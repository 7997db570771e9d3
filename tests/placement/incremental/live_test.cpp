// From the map in use to the next one: which moves are worthwhile, and when everything is placed from
// scratch. Results are recomputed by walking the slots.
#include "evenkeel/placement/incremental/live.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <string>

#include "evenkeel/base/error.h"
#include "tests/placement/replicas/replica_cases.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using Map = std::vector<std::int64_t>;

// A model whose map was made for different loads than those of the windows.
struct ServedModel {
  int layers = 1;
  int experts = 1;
  int slots_of_rank = 1;
  int ranks = 1;
  int nodes = 1;
  int groups = 1;
  int windows = 1;
  std::vector<double> loads = {};  // [W, L, E]
  Map live = {};

  int slots() const { return slots_of_rank * ranks; }
  EplbProblem of_each() const { return {layers, experts, loads, slots(), groups, nodes, ranks}; }
  LiveProblem problem(int max_moves = 1 << 20, double least_gain = 0) const {
    return {windows, of_each(), live, max_moves, least_gain};
  }
  std::size_t rank_of(std::size_t slot) const { return slot / static_cast<std::size_t>(slots_of_rank); }
  std::span<const double> window(int w, int layer) const {
    return std::span(loads).subspan(static_cast<std::size_t>((w * layers + layer) * experts),
                                    static_cast<std::size_t>(experts));
  }
  std::span<const std::int64_t> of_layer(const Map& map, int layer) const {
    return std::span(map).subspan(static_cast<std::size_t>(layer * slots()),
                                  static_cast<std::size_t>(slots()));
  }
};

void draw_loads(std::mt19937_64& random, ServedModel& model) {
  model.loads.clear();
  for (int i = 0; i < model.windows * model.layers; ++i)
    for (double load : replica_loads(random, model.experts)) model.loads.push_back(load);
}

ServedModel random_model(int seed) {
  std::mt19937_64 random(static_cast<std::uint64_t>(seed));
  ServedModel model;
  model.nodes = seed % 2 == 0 ? 1 : 2;
  model.groups = model.nodes * draw_int(random, 1, 3);
  model.ranks = model.nodes * draw_int(random, 1, 4);
  model.experts = model.groups * draw_int(random, 1, 6);
  const int least = (model.experts + model.ranks - 1) / model.ranks;
  const int most = model.experts / model.nodes;  // with more slots a rank would hold an expert twice
  model.slots_of_rank = std::min(most, least + draw_int(random, 0, 2));
  model.layers = draw_int(random, 1, 3);
  model.windows = 1;
  draw_loads(random, model);
  model.live = rebalance_live(model.problem()).physical_to_logical;
  model.windows = draw_int(random, 1, 4);
  draw_loads(random, model);
  return model;
}

// The max/mean of a layer in its worst window.
double max_over_mean(const ServedModel& model, const Map& map, int layer) {
  const auto experts = model.of_layer(map, layer);
  double worst = 1;
  for (int w = 0; w < model.windows; ++w) {
    const auto loads = model.window(w, layer);
    std::vector<double> of_rank(static_cast<std::size_t>(model.ranks), 0.0);
    for (std::size_t slot = 0; slot < experts.size(); ++slot)
      of_rank[model.rank_of(slot)] += loads[static_cast<std::size_t>(experts[slot])] /
                                      static_cast<double>(std::ranges::count(experts, experts[slot]));
    const double total = std::reduce(loads.begin(), loads.end(), 0.0);
    if (total > 0) worst = std::max(worst, std::ranges::max(of_rank) / total * model.ranks);
  }
  return worst;
}

std::set<std::pair<std::size_t, std::int64_t>> homes(const ServedModel& model, const Map& map, int layer) {
  std::set<std::pair<std::size_t, std::int64_t>> found;
  const auto experts = model.of_layer(map, layer);
  for (std::size_t slot = 0; slot < experts.size(); ++slot)
    found.insert({model.rank_of(slot), experts[slot]});
  return found;
}

int count_moves(const ServedModel& model, const Map& map) {
  int moves = 0;
  for (int l = 0; l < model.layers; ++l) {
    const auto before = homes(model, model.live, l);
    for (const auto& home : homes(model, map, l)) moves += before.contains(home) ? 0 : 1;
  }
  return moves;
}

double mean(const std::vector<double>& values) {
  return std::reduce(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

bool is_in_order(const ServedModel& model) {
  for (int slot = 0; slot < model.slots() * model.layers; ++slot)
    if (model.live[static_cast<std::size_t>(slot)] != slot % model.slots() % model.experts) return false;
  return true;
}

template <class Check>
void for_random_models(int count, Check check) {
  for (int seed = 0; seed < count; ++seed) {
    const ServedModel model = random_model(seed);
    if (is_in_order(model)) continue;  // a map in order may be replaced in full
    SCOPED_TRACE("seed " + std::to_string(seed));
    check(model, seed);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(LiveRebalancing, SaysOfItsMapWhatTheSlotsSay) {
  for_random_models(400, [](const ServedModel& model, int seed) {
    const LiveResult result = rebalance_live(model.problem(seed % 20));
    ASSERT_EQ(result.placed_in_full, "");
    EXPECT_EQ(result.moves, count_moves(model, result.physical_to_logical));
    EXPECT_LE(result.moves, seed % 20);
    for (int l = 0; l < model.layers; ++l) {
      const auto layer = static_cast<std::size_t>(l);
      EXPECT_NEAR(result.max_over_mean_before[layer], max_over_mean(model, model.live, l), 1e-9);
      EXPECT_NEAR(result.max_over_mean[layer], max_over_mean(model, result.physical_to_logical, l), 1e-9);
      EXPECT_LE(result.max_over_mean[layer], result.max_over_mean_before[layer] + 1e-9);
      EXPECT_LE(result.reachable[layer], result.max_over_mean[layer] + 1e-9);
    }
  });
}

TEST(LiveRebalancing, EveryExpertHasASlotOnceARankAndItsGroupOneNodeAndItIsAsLevelAsAnythingInReach) {
  for_random_models(400, [](const ServedModel& model, int) {
    const LiveResult result = rebalance_live(model.problem());
    for (std::size_t l = 0; l < result.reachable.size(); ++l)
      EXPECT_NEAR(result.max_over_mean[l], result.reachable[l], 1e-9);
    for (int l = 0; l < model.layers; ++l) {
      const auto found = homes(model, result.physical_to_logical, l);
      EXPECT_EQ(std::ssize(found), model.slots());
      std::set<std::int64_t> placed;
      std::set<std::pair<std::int64_t, std::size_t>> nodes_of_groups;
      for (const auto& [rank, expert] : found) {
        placed.insert(expert);
        nodes_of_groups.insert({expert / (model.experts / model.groups),
                                rank / static_cast<std::size_t>(model.ranks / model.nodes)});
      }
      EXPECT_EQ(std::ssize(placed), model.experts);
      EXPECT_TRUE(model.nodes == 1 || std::ssize(nodes_of_groups) == model.groups);
    }
  });
}

TEST(LiveRebalancing, MovesNothingUnlessTheLeastGainIsInReachAndLeavesAtMostHalfOfIt) {
  int kept = 0;
  int moved = 0;
  for_random_models(400, [&](const ServedModel& model, int seed) {
    const double least_gain = 0.02 * (1 + seed % 10);
    const LiveResult result = rebalance_live(model.problem(1 << 20, least_gain));
    const double gain = mean(result.max_over_mean_before) - mean(result.reachable);
    if (gain < least_gain - 1e-12) {
      EXPECT_EQ(count_moves(model, result.physical_to_logical), 0);
      ++kept;
    } else {
      EXPECT_LE(mean(result.max_over_mean) - mean(result.reachable), least_gain / 2 + 1e-12);
      ++moved;
    }
  });
  EXPECT_GT(kept, 20);
  EXPECT_GT(moved, 20);
}

TEST(LiveRebalancing, ALeastGainSavesMostMovesWhereLittleHasChanged) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> load(0, 1);
  std::normal_distribution<double> drift(1, 0.05);
  ServedModel model{.layers = 4, .experts = 64, .slots_of_rank = 9, .ranks = 8};
  for (int i = 0; i < model.layers * model.experts; ++i) model.loads.push_back(load(random));
  model.live = rebalance_live(model.problem()).physical_to_logical;
  for (double& each : model.loads) each *= drift(random);
  const LiveResult all = rebalance_live(model.problem());
  const LiveResult few = rebalance_live(model.problem(1 << 20, 0.01));
  EXPECT_GT(few.moves, 0);
  EXPECT_LT(few.moves, all.moves / 2);
  EXPECT_LE(mean(few.max_over_mean), mean(all.max_over_mean) + 0.005);
}

TEST(LiveRebalancing, ExpertsInOrderArePlacedInFullWhereThatPaysAndTheMovesAreAllowed) {
  ServedModel model{.experts = 8, .slots_of_rank = 3, .ranks = 4};
  for (int slot = 0; slot < model.slots(); ++slot) model.live.push_back(slot % 8);
  model.loads = {9, 1, 2, 3, 4, 5, 6, 20};
  const LiveResult in_full = rebalance_live(model.problem());
  EXPECT_EQ(in_full.placed_in_full, "the map in use has experts in the order of their numbers");
  EXPECT_EQ(in_full.moves, count_moves(model, in_full.physical_to_logical));
  EXPECT_EQ(rebalance_live(model.problem(in_full.moves - 1)).placed_in_full, "");
  EXPECT_LE(rebalance_live(model.problem(in_full.moves - 1)).moves, in_full.moves - 1);
  EXPECT_EQ(rebalance_live(model.problem(1 << 20, 5)).moves, 0);
  std::swap(model.live[0], model.live[1]);
  EXPECT_EQ(rebalance_live(model.problem()).placed_in_full, "");
}

// Two nodes of two ranks, four groups of two experts. The heavy groups 0 and 1 are on the same node.
TEST(LiveRebalancing, GroupsGoToOtherNodesWhereNothingElseHelps) {
  ServedModel model{.experts = 8, .slots_of_rank = 2, .ranks = 4, .nodes = 2, .groups = 4};
  model.live = {1, 0, 2, 3, 4, 5, 6, 7};
  model.loads = {4, 4, 4, 4, 1, 1, 1, 1};
  const LiveResult result = rebalance_live(model.problem());
  EXPECT_EQ(result.placed_in_full, "");
  EXPECT_DOUBLE_EQ(result.max_over_mean_before[0], 1.6);
  EXPECT_DOUBLE_EQ(result.max_over_mean[0], 1);
  EXPECT_EQ(result.moves, 6);  // nodes swap a group (4 moves), and ranks move an expert on each node
  EXPECT_EQ(result.moves, count_moves(model, result.physical_to_logical));
}

TEST(LiveRebalancing, SaysWhyItPlacesInFull) {
  ServedModel model{.experts = 4, .slots_of_rank = 3, .ranks = 2};
  model.loads = {4, 3, 2, 1};
  const auto why = [&](Map live) {
    model.live = std::move(live);
    const LiveResult result = rebalance_live(model.problem(0));
    EXPECT_EQ(homes(model, result.physical_to_logical, 0).size(), 6U);
    EXPECT_TRUE(model.live.empty() || result.moves == count_moves(model, result.physical_to_logical));
    return result.placed_in_full;
  };
  EXPECT_EQ(why({1, 0, 2, 3, 0, 1}), "");
  EXPECT_EQ(why({}), "no map is in use yet");
  EXPECT_EQ(why({0, 1, 0, 2, 3, 1}), "in layer 0 of the map in use, rank 0 holds expert 0 twice");
  EXPECT_EQ(why({0, 1, 2, 0, 1, 2}), "in layer 0 of the map in use, no rank holds expert 3");
  model.nodes = model.groups = 2;
  model.slots_of_rank = 2;
  model.live = {0, 2, 1, 3};
  EXPECT_EQ(rebalance_live(model.problem()).placed_in_full,
            "in layer 0 of the map in use, group 0 is on nodes 0 and 1");
}

TEST(LiveRebalancing, MeasuresTheMapInUseInFullToo) {
  ServedModel model{.experts = 4, .slots_of_rank = 3, .ranks = 2};
  model.loads = {4, 4, 1, 1};
  model.live = {0, 1, 0, 2, 3, 3};
  const LiveResult result = rebalance_live(model.problem());
  EXPECT_THAT(result.max_over_mean_before, testing::ElementsAre(testing::DoubleEq(8 / 5.0)));
  EXPECT_NEAR(result.max_over_mean[0], max_over_mean(model, result.physical_to_logical, 0), 1e-12);
  model.live = {0, 1, 0, 2, 2, 0};
  EXPECT_THAT(rebalance_live(model.problem()).max_over_mean_before, testing::IsEmpty());
}

// Only layers with a gain are changed; the other layers keep the same experts on each rank.
TEST(LiveRebalancing, ALayerWithoutLoadKeepsItsExperts) {
  ServedModel model{.layers = 2, .experts = 4, .slots_of_rank = 2, .ranks = 2};
  model.live = {1, 0, 2, 3, 1, 0, 2, 3};
  model.loads = {0, 0, 0, 0, 5, 5, 1, 1};
  const LiveResult result = rebalance_live(model.problem());
  EXPECT_EQ(homes(model, result.physical_to_logical, 0), homes(model, model.live, 0));
  EXPECT_EQ(result.moves, 2);
  model.live = {0, 1, 2, 3, 0, 1, 2, 3};
  const LiveResult in_full = rebalance_live(model.problem());
  EXPECT_EQ(in_full.placed_in_full, "the map in use has experts in the order of their numbers");
  EXPECT_EQ(homes(model, in_full.physical_to_logical, 0), homes(model, model.live, 0));
  EXPECT_EQ(in_full.moves, count_moves(model, in_full.physical_to_logical));
}

TEST(LiveRebalancing, SaysWhatIsWrong) {
  ServedModel model{.experts = 4, .slots_of_rank = 2, .ranks = 2};
  model.live = {0, 1, 2, 3};
  model.loads = {4, 3, 2, 1};
  const auto message = [](const LiveProblem& problem) {
    return message_of<InvalidArgument>([&] { rebalance_live(problem); });
  };
  EXPECT_NO_THROW(rebalance_live(model.problem()));
  EXPECT_EQ(message(model.problem(1, -0.5)), "least_gain: -0.5; allowed: 0 or more, finite");
  model.live = {0, 1, 2, 4};
  EXPECT_EQ(message(model.problem()), "live: layer 0, slot 3: expert 4; allowed: 0..3");
  model.live = {0, 1, 2};
  EXPECT_EQ(message(model.problem()), "live: 3 numbers; allowed: 1 layers x 4 physical experts");
  model.live = {0, 1, 2, 3};
  model.loads[2] = -1;
  EXPECT_THAT(message(model.problem()), testing::HasSubstr("layer 0, expert 2: -1"));
  EXPECT_THAT(message({1, {1, 4, model.loads, 5, 2, 1, 2}, model.live}),
              testing::HasSubstr("5 is not a multiple of num_gpus = 2"));
}

}  // namespace
}  // namespace evenkeel
