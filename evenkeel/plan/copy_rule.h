// The rules of Dispatch other than even, for one layer after the other.
#pragma once

#include <random>
#include <span>
#include <vector>

#include "evenkeel/plan/dispatch.h"

namespace evenkeel {

// The ranks of an expert's copies, ascending.
using CopyRanks = std::vector<int>;

class CopyRule {
 public:
  CopyRule(const Topology& topology, Dispatch dispatch);

  // Draws for the layers before this one that a file leaves out, as SGLang fills them: dealt round, with as
  // many copies in all as `like` has.
  void skip_to(int layer, const std::vector<CopyRanks>& like);
  // The part of each copy, for each expert. Layers come in the order of the server's file.
  std::vector<std::vector<double>> shares(const std::vector<CopyRanks>& copies);

 private:
  // The place of the copy that the rank takes, or -1 where all are left.
  int nearest(const CopyRanks& copies, int rank) const;
  void draw(const CopyRanks& copies, const std::vector<int>& left, std::span<double> shares);

  const Topology* topology_;
  Dispatch dispatch_;
  std::vector<std::mt19937> of_rank_;  // each rank draws for itself
  int next_ = 0;                       // the model's layer that the server comes to
};

// Slot s holds expert s mod E.
std::vector<CopyRanks> dealt_round(int num_physical, int num_experts, int num_ranks);

// Each expert's copies in a layer.
std::vector<CopyRanks> copies_in(const LayerPlacement& layer);

}  // namespace evenkeel
