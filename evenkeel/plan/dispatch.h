// Which copy of an expert computes an assignment. Servers have different rules, which decide how level their
// ranks are.
//
//   even     an expert's load is split evenly over its copies.
//   nearest  a rank's assignments go to its own copy; else to the first copy in its node, unless the node has
//            all copies; else evenly to all.
//   fixed    as nearest, but instead of "evenly to all" a rank draws one copy at the start and keeps it.
//
// Sources     SGLang 0.5.23: srt/eplb/expert_location.py, whose random draws are repeated exactly. What other
//             servers do, and what decides it in SGLang: docs/servers.md#which-copy-a-token-goes-to.
// Assumption  tokens are spread evenly over ranks.
#pragma once

#include <array>
#include <cstddef>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/plan/placement.h"
#include "evenkeel/topology/topology.h"

namespace evenkeel {

enum class Dispatch { even, fixed, nearest };

inline constexpr std::array dispatches = {Dispatch::even, Dispatch::fixed, Dispatch::nearest};
// "even", "static", "nearest".
std::string_view name_of(Dispatch dispatch);
// Throws InvalidArgument about `option`, which lists the names.
Dispatch parse_dispatch(std::string_view name, const std::string& option = "dispatch");

// The share of each expert's load that each of its copies computes.
//
// Cost  O(copies x ranks); for `fixed`, as many random draws for each rank.
class CopyShares {
 public:
  // The random draws of `fixed` continue from layer to layer. Where the placement has layer numbers, layers
  // that it leaves out draw too, as if they were filled like SGLang's (round_robin_copies()). Throws
  // InvalidArgument unless placement and topology have the same number of ranks.
  CopyShares(const Placement& placement, const Topology& topology, Dispatch dispatch);

  // The shares of these rows of the placement, in their order.
  CopyShares of_rows(std::span<const int> rows) const;

  // The shares of the expert's homes, in their order; they add up to 1.
  std::span<const double> of(int layer, ExpertId expert) const;

 private:
  explicit CopyShares(std::size_t num_experts) : num_experts_(num_experts), begin_{0} {}

  std::size_t num_experts_;
  std::vector<std::size_t> begin_;  // [L x E + 1] into shares_
  std::vector<double> shares_;
};

// The ranks of an expert's copies, ascending.
using CopyRanks = std::vector<int>;

// The rules other than even, for one layer after the other.
class CopyRule {
 public:
  CopyRule(const Topology& topology, Dispatch dispatch);

  // Makes the draws of the layers before this one that a file leaves out. SGLang fills these by
  // round_robin_copies(), with as many copies in all as `like` has.
  void skip_to(int layer, const std::vector<CopyRanks>& like);
  // The share of each copy, for each expert. Call it for one layer after the other, in the order of the
  // server's file.
  std::vector<std::vector<double>> shares(const std::vector<CopyRanks>& copies);

 private:
  // The index of the copy that the rank takes, or -1 if no copy is nearest.
  int nearest(const CopyRanks& copies, int rank) const;
  void draw(const CopyRanks& copies, const std::vector<int>& left, std::span<double> shares);

  const Topology* topology_;
  Dispatch dispatch_;
  std::vector<std::mt19937> of_rank_;  // each rank draws for itself
  int next_ = 0;                       // the model's layer that comes next
};

// The copies of a round-robin layer: slot s holds expert s mod E.
std::vector<CopyRanks> round_robin_copies(int num_physical, int num_experts, int num_ranks);

// Each expert's copies in a layer.
std::vector<CopyRanks> copies_in(const LayerPlacement& layer);

// A placement, and the share of load that each copy computes when it is served.
struct ServedPlacement {
  Placement homes;
  CopyShares shares;
};

}  // namespace evenkeel
