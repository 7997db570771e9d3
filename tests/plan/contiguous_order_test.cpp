// Expert orders that turn a placement into contiguous expert parallelism, and placements without such an
// order.
#include "evenkeel/plan/contiguous_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "evenkeel/base/error.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

std::vector<int> values(const std::vector<ExpertId>& ids) {
  std::vector<int> numbers;
  for (const ExpertId id : ids) numbers.push_back(id.value());
  return numbers;
}

LayerPlacement random_placement(int experts, int ranks, std::mt19937& random) {
  std::vector<std::vector<int>> homes;
  for (int expert = 0; expert < experts; ++expert) homes.push_back({expert % ranks});
  std::ranges::shuffle(homes, random);
  return LayerPlacement(homes, ranks);
}

TEST(ContiguousOrder, NumbersTheNativesOfOneRankAfterThoseOfTheOneBefore) {
  const LayerPlacement layer({{1}, {0}, {0}, {1}, {1}, {0}}, 2);
  EXPECT_EQ(values(contiguous_order(layer)), (std::vector<int>{1, 2, 5, 0, 3, 4}));
  EXPECT_EQ(values(new_ids(contiguous_order(layer))), (std::vector<int>{3, 0, 1, 4, 5, 2}));
}

TEST(ContiguousOrder, OfAContiguousPlacementChangesNothing) {
  const auto order = contiguous_order(LayerPlacement::contiguous(12, 3));
  for (std::size_t id = 0; id < order.size(); ++id) EXPECT_EQ(order[id].offset(), id);
}

TEST(ContiguousOrder, MakesContiguousParallelismThePlacement) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const int ranks = 1 + static_cast<int>(random() % 8);
    const int experts = ranks * (1 + static_cast<int>(random() % 6));
    const LayerPlacement layer = random_placement(experts, ranks, random);
    const auto order = contiguous_order(layer);
    for (int id = 0; id < experts; ++id) {
      const int rank_under_contiguous = id / (experts / ranks);
      EXPECT_EQ(layer.owner(order[static_cast<std::size_t>(id)]).value(), rank_under_contiguous);
    }
    const auto ids = new_ids(order);
    for (std::size_t id = 0; id < order.size(); ++id) EXPECT_EQ(ids[order[id].offset()].offset(), id);
  }
}

TEST(ContiguousOrder, RefusesCopies) {
  const LayerPlacement layer({{0}, {1, 0}}, 2);
  EXPECT_EQ(message_of<InvalidArgument>([&] { contiguous_order(layer); }),
            "placement: expert 1 has copies on ranks 1, 0, but experts in contiguous order have one home "
            "each; allowed: a placement without redundant experts");
}

TEST(ContiguousOrder, RefusesUnequalSizes) {
  const LayerPlacement layer({{0}, {1}, {1}, {1}}, 2);
  EXPECT_EQ(message_of<InvalidArgument>([&] { contiguous_order(layer); }),
            "placement: rank 0 is home to 1 experts, but contiguous expert parallelism gives each rank 2; "
            "allowed: equally many experts on every rank (--sizes equal)");
}

TEST(ContiguousOrder, RefusesRanksThatDoNotDivideTheExperts) {
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { contiguous_order(LayerPlacement::contiguous(8, 3)); }),
      "placement: 8 experts do not divide evenly over 3 ranks, and systems differ in which ranks get one "
      "more; allowed: a number of ranks that divides the experts");
}

TEST(ContiguousOrder, NamesTheLayerThatHasNone) {
  const Placement placement({LayerPlacement::contiguous(2, 2), LayerPlacement({{0}, {0, 1}}, 2)});
  EXPECT_EQ(values(contiguous_order(placement.layer(0))), (std::vector<int>{0, 1}));
  EXPECT_EQ(
      message_of<InvalidArgument>([&] { contiguous_order(placement.layer(1), "layer 1: "); }).substr(0, 31),
      "placement: layer 1: expert 1 ha");
}

}  // namespace
}  // namespace evenkeel
