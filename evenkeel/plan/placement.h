// The homes of every expert: the ranks that hold its weights. For one layer and for all layers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/base/index.h"
#include "evenkeel/routing/layer_numbers.h"

namespace evenkeel {

// The homes of the experts of one layer. An expert has at least one home; the first owns its gradient and
// optimizer state, the others hold copies (redundant experts). Immutable.
class LayerPlacement {
 public:
  // The homes used if no placement is given: rank r is home to experts [floor(r E / P), floor((r + 1) E /
  // P)). Throws InvalidArgument unless num_experts >= 1 and num_ranks >= 1.
  static LayerPlacement contiguous(int num_experts, int num_ranks);

  // homes[e] lists the ranks of expert e, its owner first. Throws InvalidArgument if a list is empty, repeats
  // a rank, or names a rank outside 0..num_ranks-1.
  LayerPlacement(const std::vector<std::vector<int>>& homes, int num_ranks);

  int num_experts() const { return static_cast<int>(home_begin_.size()) - 1; }
  int num_ranks() const { return static_cast<int>(native_begin_.size()) - 1; }

  std::span<const RankId> homes(ExpertId expert) const {
    return group_of(homes_, home_begin_, expert.offset());
  }
  RankId owner(ExpertId expert) const { return homes_[home_begin_[expert.offset()]]; }
  bool is_home(ExpertId expert, RankId rank) const {
    const auto all = homes(expert);
    return std::find(all.begin(), all.end(), rank) != all.end();
  }
  // True if every expert has only one home.
  bool has_single_homes() const { return homes_.size() + 1 == home_begin_.size(); }

  // The experts at home on a rank, ascending.
  std::span<const ExpertId> natives(RankId rank) const {
    return group_of(natives_, native_begin_, rank.offset());
  }

  // The number of experts on the rank that is home to the most. O(P).
  int most_natives() const {
    std::size_t most = 0;
    for (RankId rank : indices<RankId>(num_ranks())) most = std::max(most, natives(rank).size());
    return static_cast<int>(most);
  }

  // The number of experts at home on a rank that another rank owns.
  int num_copies(RankId rank) const {
    return static_cast<int>(
        std::ranges::count_if(natives(rank), [&](ExpertId expert) { return owner(expert) != rank; }));
  }

  friend bool operator==(const LayerPlacement&, const LayerPlacement&) = default;

 private:
  std::vector<std::size_t> home_begin_;  // [E + 1] into homes_
  std::vector<RankId> homes_;
  std::vector<std::size_t> native_begin_;  // [P + 1] into natives_
  std::vector<ExpertId> natives_;
};

// One LayerPlacement per MoE layer, all of the same experts and ranks.
class Placement {
 public:
  static Placement contiguous(int num_layers, int num_experts, int num_ranks);
  // Throws InvalidArgument if there is no layer, layers differ in experts or ranks, or the number of layer
  // numbers is neither 0 nor that of layers.
  explicit Placement(std::vector<LayerPlacement> layers, LayerNumbers numbers = {});

  int num_layers() const { return static_cast<int>(layers_.size()); }
  int num_experts() const { return layers_.front().num_experts(); }
  int num_ranks() const { return layers_.front().num_ranks(); }
  // Throws InvalidArgument if there is no such layer.
  const LayerPlacement& layer(int layer) const;
  // The layers' numbers in the model, if the source gave them.
  const LayerNumbers& layers() const { return numbers_; }
  // The same homes under other layer numbers.
  Placement numbered(LayerNumbers numbers) const { return Placement(layers_, std::move(numbers)); }
  // The row of this placement for layer `layer` of `loads`. `layer` may be missing if `loads` has only one
  // layer. Layers are matched by number if both sides have numbers. Else they are matched row by row, and
  // both need equally many rows. A placement of one layer without a number fits any layer. Throws
  // InvalidArgument, naming both sides, if they do not match, or if `layer` is missing or unknown.
  int row_for(const NumberedRows& loads, std::optional<int> layer, const std::string& name) const;
  // This placement's homes for each layer of `wanted`. Layers are matched by number if possible, otherwise
  // row by row. Throws InvalidArgument about `argument`, naming both sides, if a layer is missing here
  // (paired_rows()).
  Placement paired_with(const NumberedRows& wanted, const std::string& name,
                        const std::string& argument) const;

 private:
  std::vector<LayerPlacement> layers_;
  LayerNumbers numbers_;
};

}  // namespace evenkeel
