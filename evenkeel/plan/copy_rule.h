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

  // The part of each copy, for each expert. Layers come in the order of the server's file.
  std::vector<std::vector<double>> shares(const std::vector<CopyRanks>& copies);

 private:
  // The place of the copy that the rank takes, or -1 where all are left.
  int nearest(const CopyRanks& copies, int rank) const;
  void draw(const CopyRanks& copies, const std::vector<int>& left, std::span<double> shares);

  const Topology* topology_;
  Dispatch dispatch_;
  std::vector<std::mt19937> of_rank_;  // each rank draws for itself
};

// As SGLang fills the layers that a file is not about: slot s holds expert s mod E.
std::vector<CopyRanks> dealt_round(int num_physical, int num_experts, int num_ranks);

// Each expert's copies in a layer.
std::vector<CopyRanks> copies_in(const LayerPlacement& layer);

}  // namespace evenkeel
