#include "evenkeel/routing/layer_numbers.h"

#include <gtest/gtest.h>

#include "evenkeel/base/error.h"
#include "evenkeel/routing/profile.h"
#include "tests/routing/message.h"

namespace evenkeel {
namespace {

using Rows = std::vector<int>;

TEST(LayerNumbers, AscendAndFitAModel) {
  EXPECT_EQ(message_of<InvalidArgument>([] {
              LayerNumbers({3, 3});
            }),
            "layers: layer 3 after layer 3; allowed: ascending numbers in 0..65535");
  EXPECT_THROW(LayerNumbers({-1}), InvalidArgument);
  EXPECT_THROW(LayerNumbers({65536}), InvalidArgument);
  EXPECT_FALSE(LayerNumbers().known());
}

TEST(LayerNumbers, NameRowsAndFindThem) {
  const LayerNumbers layers({1, 3, 4, 5});
  EXPECT_EQ(layers.number_of(2), 4);
  EXPECT_EQ(layers.row_of(3, 4), 1);
  EXPECT_EQ(layers.row_of(2, 4), std::nullopt);
  EXPECT_EQ(to_text(layers), "1,3-5");
  const LayerNumbers unknown;
  EXPECT_EQ(unknown.number_of(2), 2);
  EXPECT_EQ(unknown.row_of(3, 4), 3);
  EXPECT_EQ(unknown.row_of(4, 4), std::nullopt);
}

TEST(LayerNumbers, PairRowsByNumberWhereBothKnowThem) {
  EXPECT_EQ(paired_rows({"a", LayerNumbers({3, 5}), 2}, {"b", LayerNumbers({2, 3, 4, 5}), 4}, "x"),
            (Rows{1, 3}));
  EXPECT_EQ(message_of<InvalidArgument>([] {
              paired_rows({"a", LayerNumbers({3, 6}), 2}, {"b", LayerNumbers({2, 3, 4, 5}), 4}, "x");
            }),
            "x: b has layers 2-5, but a has layers 3,6; allowed: one with layers 3,6");
}

TEST(LayerNumbers, PairRowsInOrderWhereOneDoesNotKnowThem) {
  EXPECT_EQ(paired_rows({"a", LayerNumbers({3, 5}), 2}, {"b", {}, 2}, "x"), (Rows{0, 1}));
  EXPECT_EQ(paired_rows({"a", {}, 2}, {"b", {}, 2}, "x"), (Rows{0, 1}));
  EXPECT_EQ(message_of<InvalidArgument>([] {
              paired_rows({"a", LayerNumbers({3, 5}), 2}, {"b", {}, 3}, "x");
            }),
            "x: b has 3 layers without numbers, but a has layers 3,5; allowed: the same number of layers, or "
            "layer numbers in both");
}

TEST(LayerNumbers, OfProfilesThatAreAddedAgree) {
  RoutingProfile sum(2, 3, {1, 2, 3, 4, 5, 6}, {});
  RoutingProfile numbered = sum;
  numbered.set_layers(LayerNumbers({4, 7}));
  sum.add(numbered);
  EXPECT_EQ(sum.layers(), LayerNumbers({4, 7}));
  RoutingProfile other = numbered;
  other.set_layers(LayerNumbers({4, 8}));
  EXPECT_EQ(message_of<InvalidArgument>([&] { sum.add(other); }),
            "profiles: layers 4,7 and layers 4,8 cannot be added; allowed: profiles of the same layers");
  EXPECT_EQ(sum.load(LayerId(0), ExpertId(0)), 2);
  EXPECT_THROW(sum.set_layers(LayerNumbers({1, 2, 3})), InvalidArgument);
}

}  // namespace
}  // namespace evenkeel
