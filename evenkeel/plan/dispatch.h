// Which copy of an expert computes an assignment: a server's rule, which decides how level its ranks are.
//
//   even     an expert's load is split evenly over its copies.
//   nearest  a rank's assignments go to its own copy; else to the first copy in its node, unless the node has
//            all of them; else evenly to all.
//   fixed    as nearest, but where all copies are left, a rank takes one for good, drawn at the start.
//
// Sources     SGLang 0.5.23: srt/eplb/expert_location.py, whose draws are repeated bit by bit. What other
//             servers do, and what decides it in SGLang: docs/servers.md#which-copy-a-token-goes-to.
// Assumption  tokens are spread evenly over ranks.
#pragma once

#include <array>
#include <cstddef>
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
// Throws InvalidArgument, which calls it `option` and names those there are.
Dispatch parse_dispatch(std::string_view name, const std::string& option = "dispatch");

// The part of each expert's load that each of its copies computes.
//
// Cost  O(copies x ranks), and for `fixed` as many draws for each rank.
class CopyShares {
 public:
  // The draws of `fixed` go on from layer to layer: where the placement has layer numbers, layers that it
  // leaves out count as SGLang fills them, dealt round. Throws InvalidArgument where the topology has another
  // number of ranks.
  CopyShares(const Placement& placement, const Topology& topology, Dispatch dispatch);

  // The same of these rows of the placement, in their order.
  CopyShares of_rows(std::span<const int> rows) const;

  // Of the expert's homes, in their order; they add up to 1.
  std::span<const double> of(int layer, ExpertId expert) const;

 private:
  explicit CopyShares(std::size_t num_experts) : num_experts_(num_experts), begin_{0} {}

  std::size_t num_experts_;
  std::vector<std::size_t> begin_;  // [L x E + 1] into shares_
  std::vector<double> shares_;
};

// A placement, and the parts of loads that its copies compute when it is served.
struct ServedPlacement {
  Placement homes;
  CopyShares shares;
};

}  // namespace evenkeel
