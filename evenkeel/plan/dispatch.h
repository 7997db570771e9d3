// Rules for which copy of an expert computes an assignment. Servers differ in their rule, and the rule
// decides how level their ranks are.
//
//   even     an expert's load is split evenly over its copies.
//   nearest  a rank uses its own copy if it has one. If not, it uses the first copy in its node, if some
//            copies are in the node but not all. Otherwise its assignments are spread evenly over all copies.
//   fixed    as nearest, but where `nearest` spreads evenly over all copies, a rank draws one copy at the
//            start and keeps it.
//
// Sources     SGLang 0.5.23: srt/eplb/expert_location.py, whose random draws are repeated exactly. Other
//             servers' rules, and the options that choose the rule in SGLang:
//             docs/servers.md#which-copy-a-token-goes-to.
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
// Throws InvalidArgument for an unknown name; the message names `option` and lists the valid names.
Dispatch parse_dispatch(std::string_view name, const std::string& option = "dispatch");

// The share of each expert's load that each of its copies computes.
//
// Cost  O(copies x ranks). For `fixed`, each rank also makes O(copies) random draws for each rank.
class CopyShares {
 public:
  // The random draws of `fixed` continue from layer to layer. If the placement has layer numbers, draws are
  // also made for the layers that it leaves out, as if they were filled like SGLang's (round_robin_copies()).
  // Throws InvalidArgument unless placement and topology have the same number of ranks.
  CopyShares(const Placement& placement, const Topology& topology, Dispatch dispatch);

  // Keeps the shares of these rows of the placement only, in this order.
  CopyShares of_rows(std::span<const int> rows) const;

  // The shares of the expert's copies, in the order of its homes; they add up to 1.
  std::span<const double> of(int layer, ExpertId expert) const;

 private:
  explicit CopyShares(std::size_t num_experts) : num_experts_(num_experts), begin_{0} {}

  std::size_t num_experts_;
  std::vector<std::size_t> begin_;  // [L x E + 1] into shares_
  std::vector<double> shares_;
};

// The ranks of an expert's copies, ascending.
using CopyRanks = std::vector<int>;

// The rules other than `even`, applied to one layer after the other.
class CopyRule {
 public:
  CopyRule(const Topology& topology, Dispatch dispatch);

  // Makes the draws for the layers before this one that a file leaves out. SGLang fills such layers by
  // round_robin_copies(), with as many copies in total as `like` has.
  void skip_to(int layer, const std::vector<CopyRanks>& like);
  // For each expert, the share of each of its copies. Call it for one layer after the other, in the order of
  // the server's file.
  std::vector<std::vector<double>> shares(const std::vector<CopyRanks>& copies);

 private:
  // The index of the copy that the rank takes, or -1 if no copy is nearest.
  int nearest(const CopyRanks& copies, int rank) const;
  void draw(const CopyRanks& copies, const std::vector<int>& left, std::span<double> shares);

  const Topology* topology_;
  Dispatch dispatch_;
  std::vector<std::mt19937> of_rank_;  // one generator for each rank
  int next_ = 0;                       // number of the model's next layer
};

// The copies of a round-robin layer: slot s holds expert s mod E.
std::vector<CopyRanks> round_robin_copies(int num_physical, int num_experts, int num_ranks);

// Each expert's copies in a layer.
std::vector<CopyRanks> copies_in(const LayerPlacement& layer);

// A placement, and the share of the load that each copy computes in service.
struct ServedPlacement {
  Placement homes;
  CopyShares shares;
};

}  // namespace evenkeel
