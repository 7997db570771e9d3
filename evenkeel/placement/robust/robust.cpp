#include "evenkeel/placement/robust/robust.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/level_search.h"
#include "evenkeel/placement/internal/pool/pool.h"

namespace evenkeel {

namespace internal {

namespace {

// Ranks at most 1 part in 2^11 above the mean count as level, as for one recording.
constexpr float kLevel = 1.0F + 0x1p-11F;

// Solves one layer: chooses the experts that get copies, assigns groups to nodes and copies to ranks, and
// finds a lower bound.
class RobustLayer {
 public:
  // Reads only the sizes. `capacities` [P] are the slots of each rank.
  RobustLayer(const ReplicaProblem& sizes, std::span<const std::int32_t> capacities, const Deadline& deadline)
      : num_experts_(static_cast<std::size_t>(sizes.num_experts)),
        num_groups_(static_cast<std::size_t>(sizes.num_groups)),
        capacities_(capacities),
        deadline_(deadline),
        nodes_(nodes_of(capacities, num_groups_ > 1 ? static_cast<std::size_t>(sizes.num_nodes) : 1)),
        experts_of_(nodes_.size()),
        found_(static_cast<std::size_t>(sizes.num_physical)) {}

  // Takes the loads of this layer in each recording, [W, E]. A recording without load is ignored.
  void read(std::span<const double> loads) {
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

  // Searches from scratch. If the placement `of_sum` is better than the result, also searches from `of_sum`.
  // Writes the result to `of_sum`.
  void solve(std::span<std::int32_t> of_sum) {
    if (deadline_.passed()) return;
    const auto before = static_cast<float>(std::ranges::max(max_over_mean(of_sum)));
    const bool found = search_alone();
    if (found && heaviest_ < before) {
      std::ranges::copy(found_, of_sum.begin());
      return;
    }
    search_from(of_sum);
  }

  // Two bounds. No copy of an expert may exceed the bound in any recording, so its largest share tells how
  // many copies it needs. The other bound is slot_bound() of each recording alone.
  double bound() const {
    const double total = std::reduce(peaks_.begin(), peaks_.end(), 0.0);
    if (total <= 0) return 1;
    const auto num_slots = static_cast<int>(found_.size());
    const double scale = fixed_scale(total);
    std::vector<FixedLoad> fixed(num_experts_);
    to_fixed(peaks_, scale, fixed);
    CopyCounts counts;
    counts.choose(fixed, num_slots, std::numeric_limits<std::int32_t>::max());
    double bound = std::max(1.0, static_cast<double>(counts.largest_copy()) / scale);
    for (std::size_t w = 0; w < shares_.size() / num_experts_; ++w) {
      to_fixed(std::span(shares_).subspan(w * num_experts_, num_experts_), scale, fixed);
      const FixedLoad whole = std::reduce(fixed.begin(), fixed.end(), FixedLoad{0});
      const FixedLoad found =
          slot_bound({fixed, capacities_, num_slots}, static_cast<FixedLoad>(bound * scale), whole);
      bound = std::max(bound, static_cast<double>(found) / scale);
    }
    return std::max(1.0, bound * (1 - kBoundRounding));
  }

  // max/mean in each recording, [W].
  std::vector<double> max_over_mean(std::span<const std::int32_t> expert_in) const {
    std::vector<std::int32_t> copies;
    count_copies(expert_in, num_experts_, copies);
    std::vector<double> heaviest;
    for (std::size_t w = 0; w < shares_.size() / num_experts_; ++w) {
      const auto most = heaviest_rank<double>(expert_in, capacities_, [&](std::size_t e) {
        return shares_[w * num_experts_ + e] / static_cast<double>(copies[e]);
      });
      heaviest.push_back(most > 0 ? most : 1);
    }
    return heaviest;
  }

 private:
  // Searches from scratch. Returns false if some node has too few distinct experts.
  bool search_alone() {
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

  // Assigns equally many groups to each node, so that the nodes are level. Returns false if the groups do not
  // divide evenly.
  bool group_nodes() {
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
    const LevelAnswer found = level_copies({local_, blocks_, capacities}, once, kLevel, deadline_);
    std::size_t slot = 0;
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
      experts_of_[n].clear();
      for (std::int32_t k = 0; k < capacities[n]; ++k) {
        const auto group = static_cast<std::size_t>(found.expert_in[slot++]);
        for (std::size_t e = group * size; e < (group + 1) * size; ++e)
          experts_of_[n].push_back(static_cast<std::int32_t>(e));
      }
    }
    return true;
  }

  void take_lanes(std::span<const std::int32_t> experts) {
    local_.clear();
    for (std::int32_t expert : experts) {
      const auto of_expert = std::span(lanes_).subspan(static_cast<std::size_t>(expert) * blocks_, blocks_);
      local_.insert(local_.end(), of_expert.begin(), of_expert.end());
    }
  }

  bool search_node(const NodeSlots& node, std::span<const std::int32_t> experts) {
    take_lanes(experts);
    const LevelAnswer found = level_pool({local_, blocks_, node.ranks_of(capacities_)}, heaviest_, deadline_);
    if (found.expert_in.empty()) return false;
    heaviest_ = std::max(heaviest_, found.heaviest);
    for (std::size_t slot = 0; slot < node.num_slots; ++slot)
      found_[node.first_slot + slot] = experts[static_cast<std::size_t>(found.expert_in[slot])];
    return true;
  }

  // Searches node by node, so that groups stay on their nodes. A node in which a rank must hold an expert
  // twice is left as it is.
  void search_from(std::span<std::int32_t> expert_in) {
    for (const NodeSlots& node : nodes_) {
      const auto capacities = node.ranks_of(capacities_);
      const auto slots = node.slots_of(expert_in);
      const std::vector<std::int32_t> experts = number_experts(slots);
      if (std::ranges::max(capacities) <= std::ssize(experts)) {
        take_lanes(experts);
        const LevelAnswer found = level_from({local_, blocks_, capacities}, slots, kLevel, deadline_);
        std::ranges::copy(found.expert_in, slots.begin());
      }
      for (std::int32_t& e : slots) e = experts[static_cast<std::size_t>(e)];
    }
  }

  std::size_t num_experts_;
  std::size_t num_groups_;
  std::span<const std::int32_t> capacities_;
  const Deadline& deadline_;
  std::vector<NodeSlots> nodes_;

  std::vector<double> shares_;  // [W, E]; 1 is the mean load of a rank
  std::vector<double> peaks_;   // [E] the largest share over the recordings
  std::size_t blocks_ = 1;
  std::vector<Lanes> lanes_;                           // [E, blocks]
  std::vector<std::vector<std::int32_t>> experts_of_;  // [nodes]
  std::vector<std::int32_t> found_;                    // [slots]
  float heaviest_ = 0;                                 // largest load of a rank in the placement found_
  std::vector<Lanes> local_;
};

std::size_t numbers_of_recording(const ReplicaProblem& sizes) {
  return static_cast<std::size_t>(sizes.num_layers) * static_cast<std::size_t>(sizes.num_experts);
}

void require_recordings(const RobustProblem& problem) {
  const ReplicaProblem& each = problem.of_each;
  if (problem.num_recordings < 1)
    throw InvalidArgument("num_recordings", fmt::format("is {}", problem.num_recordings), "1 or more");
  if (each.num_layers < 1 || each.num_experts < 1 ||
      each.loads.size() != static_cast<std::size_t>(problem.num_recordings) * numbers_of_recording(each))
    throw InvalidArgument("loads", fmt::format("{} numbers", each.loads.size()),
                          fmt::format("{} recordings x {} layers x {} experts", problem.num_recordings,
                                      each.num_layers, each.num_experts));
  const auto experts = static_cast<std::size_t>(each.num_experts);
  for (std::size_t i = 0; i < each.loads.size(); ++i)
    if (!std::isfinite(each.loads[i]) || each.loads[i] < 0)
      throw InvalidArgument(
          "loads",
          fmt::format("recording {}, layer {}, expert {}: {}", i / numbers_of_recording(each),
                      i % numbers_of_recording(each) / experts, i % experts, each.loads[i]),
          "0 or more, finite");
}

std::vector<double> sum_of_recordings(const ReplicaProblem& of_all) {
  std::vector<double> sum(numbers_of_recording(of_all), 0);
  for (std::size_t i = 0; i < of_all.loads.size(); ++i) sum[i % sum.size()] += of_all.loads[i];
  return sum;
}

// The loads of one layer, [W, E].
std::vector<double> loads_of_layer(const ReplicaProblem& of_all, std::size_t layer) {
  const auto experts = static_cast<std::size_t>(of_all.num_experts);
  std::vector<double> loads;
  for (std::size_t at = layer * experts; at < of_all.loads.size(); at += numbers_of_recording(of_all)) {
    const auto row = of_all.loads.subspan(at, experts);
    loads.insert(loads.end(), row.begin(), row.end());
  }
  return loads;
}

// With groups there is another bound: that of replicate() for each recording alone.
double bound_of_groups(const RobustProblem& problem, std::span<const double> loads,
                       const Deadline& deadline) {
  ReplicaProblem alone = problem.of_each;
  alone.num_layers = 1;
  const auto experts = static_cast<std::size_t>(alone.num_experts);
  double bound = 1;
  for (std::size_t w = 0; w < loads.size() / experts && !deadline.passed(); ++w) {
    alone.loads = loads.subspan(w * experts, experts);
    alone.limits = deadline.left();
    bound = std::max(bound, replicate(alone).bound.front());
  }
  return bound;
}

// The mean over layers of max/mean, in the recording where this mean is largest.
double worst_mean(std::span<const double> max_over_mean, std::size_t layers) {
  double worst = 0;
  for (std::size_t w = 0; w < max_over_mean.size() / layers; ++w) {
    const auto of_recording = max_over_mean.subspan(w * layers, layers);
    worst = std::max(worst, std::reduce(of_recording.begin(), of_recording.end(), 0.0));
  }
  return worst / static_cast<double>(layers);
}

}  // namespace

}  // namespace internal

RobustSolution replicate_robustly(const RobustProblem& problem) {
  using namespace internal;
  require_recordings(problem);
  const auto recordings = static_cast<std::size_t>(problem.num_recordings);
  const auto layers = static_cast<std::size_t>(problem.of_each.num_layers);
  const Deadline deadline(problem.of_each.limits);
  const std::vector<double> sum = sum_of_recordings(problem.of_each);
  ReplicaProblem of_sum = problem.of_each;
  of_sum.loads = sum;
  const ReplicaSolution first = replicate(of_sum);

  RobustSolution solution{.placed = first, .max_over_mean = {}};
  solution.max_over_mean.resize(recordings * layers);
  std::vector<double> of_first(solution.max_over_mean.size());
  RobustLayer layer(problem.of_each, first.slots_per_rank, deadline);
  const auto slots = static_cast<std::size_t>(problem.of_each.num_physical);
  for (std::size_t l = 0; l < layers; ++l) {
    const std::vector<double> loads = loads_of_layer(problem.of_each, l);
    const auto expert_in = std::span(solution.placed.physical_to_logical).subspan(l * slots, slots);
    layer.read(loads);
    const std::vector<double> before = layer.max_over_mean(expert_in);
    layer.solve(expert_in);
    const std::vector<double> after = layer.max_over_mean(expert_in);
    for (std::size_t w = 0; w < recordings; ++w) {
      of_first[w * layers + l] = before[w];
      solution.max_over_mean[w * layers + l] = after[w];
    }
    double bound = layer.bound();
    if (problem.of_each.num_groups > 1) bound = std::max(bound, bound_of_groups(problem, loads, deadline));
    solution.placed.bound[l] = bound;
  }
  // No layer's worst recording has become worse. But layers may have different worst recordings, so the mean
  // over layers of one recording may still be worse.
  if (worst_mean(solution.max_over_mean, layers) > worst_mean(of_first, layers)) {
    solution.placed.physical_to_logical = first.physical_to_logical;
    solution.max_over_mean = std::move(of_first);
  }
  for (std::size_t l = 0; l < layers; ++l) {
    double worst = 0;
    for (std::size_t w = 0; w < recordings; ++w)
      worst = std::max(worst, solution.max_over_mean[w * layers + l]);
    solution.placed.max_over_mean[l] = worst;
    solution.placed.bound[l] = std::min(solution.placed.bound[l], worst);
  }
  return solution;
}

}  // namespace evenkeel
