#include "evenkeel/plan/nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "evenkeel/base/error.h"

namespace evenkeel {

Nodes::Nodes(std::span<const int> node_of_rank) : node_of_rank_(node_of_rank.begin(), node_of_rank.end()) {
  for (int rank = 0; rank < static_cast<int>(node_of_rank.size()); ++rank) {
    const int node = node_of_rank[static_cast<std::size_t>(rank)];
    if (node < 0 || node >= static_cast<int>(node_of_rank.size()))
      throw InvalidArgument("nodes", fmt::format("rank {} is on node {}", rank, node),
                            "nodes numbered from 0 without gaps");
    if (static_cast<std::size_t>(node) >= members_.size())
      members_.resize(static_cast<std::size_t>(node) + 1);
    std::vector<RankId>& members = members_[static_cast<std::size_t>(node)];
    index_in_node_.push_back(static_cast<int>(members.size()));
    members.emplace_back(rank);
  }
  for (std::size_t node = 0; node < members_.size(); ++node)
    if (members_[node].empty() || std::ssize(members_[node]) > kMostRanks)
      throw InvalidArgument("nodes", fmt::format("node {} has {} ranks", node, members_[node].size()),
                            fmt::format("1..{}", kMostRanks));
  two_levels_ =
      members_.size() > 1 && std::ranges::any_of(members_, [](const auto& of) { return of.size() > 1; });
}

bool Nodes::make_two_levels(std::span<const int> node_of_rank) {
  std::map<int, int> ranks;
  for (const int node : node_of_rank) ++ranks[node];
  const auto most = std::ranges::max_element(ranks, {}, [](const auto& node) { return node.second; });
  return ranks.size() > 1 && most->second > 1 && most->second <= kMostRanks;
}

void Nodes::find_senders(std::span<const Transfer> transfers, std::vector<RankId>& senders) const {
  // the first borrower, by expert, lender and the borrower's node
  std::map<std::tuple<ExpertId, RankId, int>, RankId> first;
  senders.clear();
  for (const Transfer& transfer : transfers) {
    senders.push_back(transfer.from);
    if (!may_forward(transfer.from, transfer.to)) continue;
    const auto [found, is_first] =
        first.try_emplace({transfer.expert, transfer.from, node_of(transfer.to)}, transfer.to);
    if (!is_first) senders.back() = found->second;
  }
}

}  // namespace evenkeel
