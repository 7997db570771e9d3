#include "evenkeel/plan/dispatch.h"

#include <fmt/format.h>

#include <algorithm>

#include "evenkeel/base/error.h"
#include "evenkeel/plan/internal/python_random.h"

namespace evenkeel {

namespace {

using internal::PythonRandom;

constexpr std::uint32_t kSeed = 42;  // as in SGLang's compute_logical_to_rank_dispatch_physical_map()

}  // namespace

CopyRule::CopyRule(const Topology& topology, Dispatch dispatch) : topology_(&topology), dispatch_(dispatch) {
  if (dispatch == Dispatch::fixed)
    of_rank_.assign(static_cast<std::size_t>(topology.num_ranks()), PythonRandom::seeded(kSeed));
}

int CopyRule::nearest(const CopyRanks& copies, int rank) const {
  if (copies.size() == 1) return 0;
  const auto own = std::ranges::lower_bound(copies, rank);
  if (own != copies.end() && *own == rank) return static_cast<int>(own - copies.begin());
  const auto in_node = [&](int copy) { return topology_->same_node(RankId(copy), RankId(rank)); };
  const auto in_all = std::ranges::count_if(copies, in_node);
  if (in_all == 0 || in_all == std::ssize(copies)) return -1;
  return static_cast<int>(std::ranges::find_if(copies, in_node) - copies.begin());
}

// Each rank without a nearest copy deals the copies out to all such ranks, using its own random numbers. It
// then takes the copy that it dealt to itself.
void CopyRule::draw(const CopyRanks& copies, const std::vector<int>& left, std::span<double> shares) {
  const auto count = static_cast<std::uint32_t>(copies.size());
  const auto ranks = static_cast<std::uint32_t>(left.size());
  std::vector<std::uint32_t> dealt;
  for (std::size_t i = 0; i < left.size(); ++i) {
    PythonRandom random(of_rank_[static_cast<std::size_t>(left[i])]);
    dealt.clear();
    for (std::uint32_t k = 0; k < ranks / count * count; ++k) dealt.push_back(k % count);
    for (const std::uint32_t copy : random.sample(count, ranks % count)) dealt.push_back(copy);
    random.shuffle(dealt);
    shares[dealt[i]] += 1.0 / topology_->num_ranks();
  }
}

void CopyRule::skip_to(int layer, const std::vector<CopyRanks>& like) {
  std::size_t physical = 0;
  for (const CopyRanks& ranks : like) physical += ranks.size();
  while (dispatch_ == Dispatch::fixed && next_ < layer)
    shares(round_robin_copies(static_cast<int>(physical), static_cast<int>(like.size()),
                              topology_->num_ranks()));
  next_ = layer;
}

std::vector<std::vector<double>> CopyRule::shares(const std::vector<CopyRanks>& copies) {
  ++next_;
  std::vector<std::vector<double>> all;
  std::vector<int> left;
  for (const CopyRanks& of_expert : copies) {
    std::vector<double>& shares = all.emplace_back(of_expert.size(), 0.0);
    if (of_expert.size() == 1) {
      shares[0] = 1;
      continue;
    }
    left.clear();
    for (int rank = 0; rank < topology_->num_ranks(); ++rank) {
      const int copy = nearest(of_expert, rank);
      if (copy < 0) left.push_back(rank);
      if (copy >= 0) shares[static_cast<std::size_t>(copy)] += 1.0 / topology_->num_ranks();
    }
    if (dispatch_ == Dispatch::fixed) {
      draw(of_expert, left, shares);
    } else {
      const double each = static_cast<double>(left.size()) / topology_->num_ranks();
      for (double& share : shares) share += each / static_cast<double>(shares.size());
    }
  }
  return all;
}

std::vector<CopyRanks> round_robin_copies(int num_physical, int num_experts, int num_ranks) {
  std::vector<CopyRanks> copies(static_cast<std::size_t>(num_experts));
  const int on_rank = std::max(1, num_physical / num_ranks);
  for (int slot = 0; slot < num_physical; ++slot)
    copies[static_cast<std::size_t>(slot % num_experts)].push_back(std::min(slot / on_rank, num_ranks - 1));
  return copies;
}

std::vector<CopyRanks> copies_in(const LayerPlacement& layer) {
  std::vector<CopyRanks> copies;
  for (ExpertId expert : indices<ExpertId>(layer.num_experts())) {
    CopyRanks& ranks = copies.emplace_back();
    for (RankId rank : layer.homes(expert)) ranks.push_back(rank.value());
    std::ranges::sort(ranks);
  }
  return copies;
}

std::string_view name_of(Dispatch dispatch) {
  if (dispatch == Dispatch::even) return "even";
  return dispatch == Dispatch::fixed ? "static" : "nearest";
}

Dispatch parse_dispatch(std::string_view name, const std::string& option) {
  for (const Dispatch dispatch : dispatches)
    if (name == name_of(dispatch)) return dispatch;
  throw InvalidArgument(option, fmt::format("'{}'", name), "even, static, nearest");
}

CopyShares::CopyShares(const Placement& placement, const Topology& topology, Dispatch dispatch)
    : num_experts_(static_cast<std::size_t>(placement.num_experts())), begin_{0} {
  if (placement.num_ranks() != topology.num_ranks())
    throw InvalidArgument("placement", fmt::format("is for {} ranks", placement.num_ranks()),
                          fmt::format("{} ranks, as the topology has", topology.num_ranks()));
  if (dispatch == Dispatch::even) {
    for (int row = 0; row < placement.num_layers(); ++row)
      for (ExpertId expert : indices<ExpertId>(num_experts_)) {
        const std::size_t copies = placement.layer(row).homes(expert).size();
        shares_.insert(shares_.end(), copies, 1.0 / static_cast<double>(copies));
        begin_.push_back(shares_.size());
      }
    return;
  }
  CopyRule rule(topology, dispatch);
  for (int row = 0; row < placement.num_layers(); ++row) {
    const auto copies = copies_in(placement.layer(row));
    rule.skip_to(placement.layers().number_of(row), copies);
    const auto shares = rule.shares(copies);
    for (ExpertId expert : indices<ExpertId>(num_experts_)) {
      const CopyRanks& ranks = copies[expert.offset()];
      for (RankId home : placement.layer(row).homes(expert)) {
        const auto at = std::ranges::lower_bound(ranks, home.value()) - ranks.begin();
        shares_.push_back(shares[expert.offset()][static_cast<std::size_t>(at)]);
      }
      begin_.push_back(shares_.size());
    }
  }
}

CopyShares CopyShares::of_rows(std::span<const int> rows) const {
  CopyShares chosen(num_experts_);
  for (const int row : rows)
    for (ExpertId expert : indices<ExpertId>(num_experts_)) {
      const auto shares = of(row, expert);
      chosen.shares_.insert(chosen.shares_.end(), shares.begin(), shares.end());
      chosen.begin_.push_back(chosen.shares_.size());
    }
  return chosen;
}

std::span<const double> CopyShares::of(int layer, ExpertId expert) const {
  return group_of(shares_, begin_, static_cast<std::size_t>(layer) * num_experts_ + expert.offset());
}

}  // namespace evenkeel
