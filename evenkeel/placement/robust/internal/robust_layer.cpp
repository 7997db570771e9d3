#include "evenkeel/placement/robust/internal/robust_layer.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace evenkeel::internal {

namespace {

// Ranks this little above the mean are level: 1 part in 2^11, as for one recording.
constexpr float kLevel = 1.0F + 0x1p-11F;
// The most that floating-point rounding can add to a bound, as a part of it.
constexpr double kRounding = 1e-12;

}  // namespace

RobustLayer::RobustLayer(const ReplicaProblem& sizes, std::span<const std::int32_t> capacities,
                         const Deadline& deadline)
    : num_experts_(static_cast<std::size_t>(sizes.num_experts)),
      num_groups_(static_cast<std::size_t>(sizes.num_groups)),
      capacities_(capacities),
      deadline_(deadline) {
  lay_out_nodes(sizes);
  experts_of_.resize(nodes_.size());
  found_.resize(static_cast<std::size_t>(sizes.num_physical));
}

void RobustLayer::lay_out_nodes(const ReplicaProblem& sizes) {
  const auto count = static_cast<std::size_t>(num_groups_ > 1 ? sizes.num_nodes : 1);
  std::size_t slot = 0;
  for (std::size_t n = 0; n < count; ++n) {
    Node node{.first_rank = n * capacities_.size() / count, .first_slot = slot};
    node.num_ranks = (n + 1) * capacities_.size() / count - node.first_rank;
    const auto capacities = capacities_.subspan(node.first_rank, node.num_ranks);
    node.num_slots = static_cast<std::size_t>(std::reduce(capacities.begin(), capacities.end()));
    slot += node.num_slots;
    nodes_.push_back(node);
  }
}

void RobustLayer::read(std::span<const double> loads) {
  const std::size_t recordings = loads.size() / num_experts_;
  blocks_ = Lanes::blocks_for(recordings);
  shares_.assign(loads.size(), 0);
  peaks_.assign(num_experts_, 0);
  lanes_.assign(num_experts_ * blocks_, Lanes{});
  for (std::size_t w = 0; w < recordings; ++w) {
    const auto of_recording = loads.subspan(w * num_experts_, num_experts_);
    const double total = std::reduce(of_recording.begin(), of_recording.end(), 0.0);
    if (total <= 0) continue;
    for (std::size_t e = 0; e < num_experts_; ++e) {
      const double share = of_recording[e] / total * static_cast<double>(capacities_.size());
      shares_[w * num_experts_ + e] = share;
      peaks_[e] = std::max(peaks_[e], share);
      lanes_[e * blocks_ + w / Lanes::kWidth].of[w % Lanes::kWidth] = static_cast<float>(share);
    }
  }
}

void RobustLayer::solve(std::span<std::int32_t> of_sum) {
  if (deadline_.passed()) return;
  const float before = heaviest_load(of_sum);
  const bool found = search_alone();
  if (found && heaviest_ < before) {
    std::ranges::copy(found_, of_sum.begin());
    return;
  }
  search_from(of_sum);
}

// Copies and ranks from nothing. False where some node was too narrow for distinct experts.
bool RobustLayer::search_alone() {
  heaviest_ = kLevel;
  if (nodes_.size() == 1) {
    experts_of_[0].resize(num_experts_);
    std::iota(experts_of_[0].begin(), experts_of_[0].end(), 0);
  } else if (!group_nodes()) {
    return false;
  }
  for (std::size_t n = 0; n < nodes_.size(); ++n)
    if (!search_node(nodes_[n], experts_of_[n])) return false;
  return true;
}

// Groups to nodes, equally many to each, level over nodes. False where they are not equally many.
bool RobustLayer::group_nodes() {
  const std::size_t size = num_experts_ / num_groups_;
  if (num_groups_ % nodes_.size() != 0) return false;
  const std::vector<std::int32_t> capacities(nodes_.size(),
                                             static_cast<std::int32_t>(num_groups_ / nodes_.size()));
  local_.assign(num_groups_ * blocks_, Lanes{});
  const auto per_rank = static_cast<float>(nodes_.size()) / static_cast<float>(capacities_.size());
  for (std::size_t e = 0; e < num_experts_; ++e)
    for (std::size_t b = 0; b < blocks_; ++b) {
      Lanes& of_group = local_[e / size * blocks_ + b];
      of_group = of_group + lanes_[e * blocks_ + b] * Lanes::all(per_rank);
    }
  const std::vector<std::int32_t> once(num_groups_, 1);
  search_.fill({local_, blocks_, capacities}, once);
  search_.level(kLevel, deadline_);
  std::size_t slot = 0;
  for (std::size_t n = 0; n < nodes_.size(); ++n) {
    experts_of_[n].clear();
    for (std::int32_t k = 0; k < capacities[n]; ++k) {
      const auto group = static_cast<std::size_t>(search_.expert_in()[slot++]);
      for (std::size_t e = group * size; e < (group + 1) * size; ++e)
        experts_of_[n].push_back(static_cast<std::int32_t>(e));
    }
  }
  return true;
}

void RobustLayer::take_lanes(std::span<const std::int32_t> experts) {
  local_.clear();
  for (std::int32_t expert : experts) {
    const auto of_expert = std::span(lanes_).subspan(static_cast<std::size_t>(expert) * blocks_, blocks_);
    local_.insert(local_.end(), of_expert.begin(), of_expert.end());
  }
}

bool RobustLayer::search_node(const Node& node, std::span<const std::int32_t> experts) {
  take_lanes(experts);
  const auto capacities = capacities_.subspan(node.first_rank, node.num_ranks);
  if (!pool_.solve({local_, blocks_, capacities}, heaviest_, deadline_)) return false;
  heaviest_ = std::max(heaviest_, pool_.heaviest_load());
  for (std::size_t slot = 0; slot < node.num_slots; ++slot)
    found_[node.first_slot + slot] = experts[static_cast<std::size_t>(pool_.expert_in()[slot])];
  return true;
}

float RobustLayer::heaviest_load(std::span<const std::int32_t> expert_in) const {
  return static_cast<float>(std::ranges::max(max_over_mean(expert_in)));
}

// Node by node, as groups stay where they are. A placement with an expert twice on a rank stays as it is.
void RobustLayer::search_from(std::span<std::int32_t> expert_in) {
  for (const Node& node : nodes_) {
    const auto capacities = capacities_.subspan(node.first_rank, node.num_ranks);
    const auto slots = expert_in.subspan(node.first_slot, node.num_slots);
    std::vector<std::int32_t> experts(slots.begin(), slots.end());
    std::ranges::sort(experts);
    experts.erase(std::ranges::unique(experts).begin(), experts.end());
    if (static_cast<std::size_t>(std::ranges::max(capacities)) > experts.size()) continue;
    take_lanes(experts);
    std::vector<std::int32_t> local_ids;
    for (std::int32_t expert : slots)
      local_ids.push_back(
          static_cast<std::int32_t>(std::ranges::lower_bound(experts, expert) - experts.begin()));
    search_.start_at({local_, blocks_, capacities}, local_ids);
    search_.level(kLevel, deadline_);
    for (std::size_t slot = 0; slot < slots.size(); ++slot)
      slots[slot] = experts[static_cast<std::size_t>(search_.expert_in()[slot])];
  }
}

std::vector<double> RobustLayer::max_over_mean(std::span<const std::int32_t> expert_in) const {
  std::vector<double> copies(num_experts_, 0);
  for (std::int32_t e : expert_in) ++copies[static_cast<std::size_t>(e)];
  std::vector<double> heaviest;
  for (std::size_t w = 0; w < shares_.size() / num_experts_; ++w) {
    const auto share = std::span(shares_).subspan(w * num_experts_, num_experts_);
    double most = 0;
    std::size_t slot = 0;
    for (std::int32_t capacity : capacities_) {
      double load = 0;
      for (std::int32_t k = 0; k < capacity; ++k, ++slot) {
        const auto e = static_cast<std::size_t>(expert_in[slot]);
        load += share[e] / copies[e];
      }
      most = std::max(most, load);
    }
    heaviest.push_back(most > 0 ? most : 1);
  }
  return heaviest;
}

// No copy of an expert is above the bound in any recording, so it has as many as its largest share needs; and
// what SlotBound finds of each recording alone.
double RobustLayer::bound() {
  const double total = std::reduce(peaks_.begin(), peaks_.end(), 0.0);
  if (total <= 0) return 1;
  const auto num_slots = static_cast<int>(found_.size());
  const double scale = fixed_scale(total);
  fixed_.resize(num_experts_);
  to_fixed(peaks_, scale, fixed_);
  counts_.choose(fixed_, num_slots, std::numeric_limits<std::int32_t>::max());
  double bound = std::max(1.0, static_cast<double>(counts_.largest_copy()) / scale);
  for (std::size_t w = 0; w < shares_.size() / num_experts_; ++w) {
    to_fixed(std::span(shares_).subspan(w * num_experts_, num_experts_), scale, fixed_);
    const FixedLoad whole = std::reduce(fixed_.begin(), fixed_.end(), FixedLoad{0});
    const FixedLoad found =
        slot_bound_.find({fixed_, capacities_, num_slots}, static_cast<FixedLoad>(bound * scale), whole);
    bound = std::max(bound, static_cast<double>(found) / scale);
  }
  return std::max(1.0, bound * (1 - kRounding));
}

}  // namespace evenkeel::internal
