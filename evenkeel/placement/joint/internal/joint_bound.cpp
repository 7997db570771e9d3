#include "evenkeel/placement/joint/internal/joint_bound.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

namespace {

// Load of the heaviest expert, plus the lightest experts that its rank must hold as well.
double least_heaviest(const PlacementProblem& problem, int least_size, LayerId layer) {
  const auto loads = problem.profile.loads(layer);
  std::vector<std::int64_t> ascending(loads.begin(), loads.end());
  std::ranges::sort(ascending);
  const int others = std::max(0, least_size - 1);
  double heaviest = static_cast<double>(ascending.back());
  for (int i = 0; i < others; ++i) heaviest += static_cast<double>(ascending[static_cast<std::size_t>(i)]);
  return heaviest;
}

// `heaviest`: some rank has at least this load.
double compute_bound_ms(const PlacementProblem& problem, LayerId layer, double heaviest) {
  double speed = 0;
  double fastest = 0;
  for (RankId rank : indices<RankId>(problem.topology.num_ranks())) {
    speed += problem.topology.speed(rank);
    fastest = std::max(fastest, problem.topology.speed(rank));
  }
  const double all = static_cast<double>(problem.profile.total_load(layer));
  return std::max(all / speed, heaviest / fastest) * problem.cost.assignment_us * 1e-3;
}

// Sum of the k largest of n numbers, which are `stride` apart.
double largest_sum(const std::int64_t* first, std::size_t stride, std::size_t n, std::size_t k,
                   std::vector<std::int64_t>& scratch) {
  scratch.clear();
  for (std::size_t i = 0; i < n; ++i) scratch.push_back(first[i * stride]);
  std::nth_element(scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(k - 1), scratch.end(),
                   std::greater{});
  return static_cast<double>(
      std::accumulate(scratch.begin(), scratch.begin() + static_cast<std::ptrdiff_t>(k), std::int64_t{0}));
}

double leaving_transitions(const PlacementProblem& problem, std::size_t most_size, LayerId layer,
                           const Deadline& deadline) {
  const auto counts = problem.profile.transitions(layer);
  const auto E = static_cast<std::size_t>(problem.profile.num_experts());
  double by_senders = 0;
  double by_receivers = 0;
  std::vector<std::int64_t> scratch;
  for (std::size_t e = 0; e < E; ++e) {
    if (deadline.passed()) return 0;
    by_senders += largest_sum(&counts[e * E], 1, E, most_size, scratch);
    by_receivers += largest_sum(&counts[e], E, E, most_size, scratch);
  }
  const double all = static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  return std::max(0.0, all - std::min(by_senders, by_receivers));
}

double leaving_assignments(const PlacementProblem& problem, LayerId layer, const Deadline& deadline) {
  double leaving = 0;
  for (ExpertId expert : indices<ExpertId>(problem.profile.num_experts())) {
    if (deadline.passed()) return 0;
    double all = 0;
    double largest = 0;
    for (RankId source : indices<RankId>(problem.topology.num_ranks())) {
      const double count = problem.sources.at(layer, source, expert);
      all += count;
      largest = std::max(largest, count);
    }
    leaving += all - largest;
  }
  return leaving;
}

// All links together.
struct AllLinks {
  double bandwidth = 0;
  double least_latency = 0;
  double most_latency = 0;

  explicit AllLinks(const Topology& topology) {
    if (topology.num_ranks() == 1) return;
    least_latency = topology.link(RankId(0), RankId(1)).latency_us;
    for (RankId from : indices<RankId>(topology.num_ranks()))
      for (RankId to : indices<RankId>(topology.num_ranks())) {
        if (from == to) continue;
        const Link link = topology.link(from, to);
        bandwidth += link.gigabytes_per_s;
        least_latency = std::min(least_latency, link.latency_us);
        most_latency = std::max(most_latency, link.latency_us);
      }
  }
};

// The least time in which all pairs together can send `leaving` assignments.
double exchange_bound_ms(const PlacementProblem& problem, const AllLinks& links, double leaving) {
  if (problem.topology.num_ranks() == 1) return 0;
  return std::max(links.most_latency * 1e-3,
                  links.least_latency * 1e-3 + leaving * sent_ms(problem.cost, {links.bandwidth}));
}

// `heaviest` [L]: in each layer some rank has at least this load. No rank has more than most_size experts.
JointBound bound_of(const PlacementProblem& problem, const std::vector<double>& heaviest,
                    std::size_t most_size, const Deadline& deadline) {
  const bool dispatch = problem.traffic == TrafficModel::dispatch_combine;
  const int layers = problem.profile.num_layers();
  const AllLinks links(problem.topology);
  JointBound bound;
  for (LayerId layer : indices<LayerId>(layers)) {
    bound.compute_ms.push_back(compute_bound_ms(problem, layer, heaviest[layer.offset()]));
    bound.total_ms += bound.compute_ms.back();
  }
  for (LayerId layer : indices<LayerId>(dispatch ? layers : layers - 1)) {
    const double leaving = dispatch ? leaving_assignments(problem, layer, deadline)
                                    : leaving_transitions(problem, most_size, layer, deadline);
    bound.exchange_ms.push_back(exchange_bound_ms(problem, links, leaving));
    bound.total_ms += (dispatch ? 2 : 1) * bound.exchange_ms.back();
  }
  return bound;
}

}  // namespace

JointBound joint_bound(const PlacementProblem& problem, const Deadline& deadline) {
  const SizeRule rule = size_rule(problem);
  const int least_size = std::ranges::min(rule.in_layer.least);
  // The other ranks hold at least their least number of experts.
  const int left =
      problem.profile.num_experts() - std::reduce(rule.in_layer.least.begin(), rule.in_layer.least.end());
  const int most_size =
      std::min(std::ranges::max(rule.in_layer.most), left + std::ranges::max(rule.in_layer.least));
  std::vector<double> heaviest;
  for (LayerId layer : indices<LayerId>(problem.profile.num_layers()))
    heaviest.push_back(least_heaviest(problem, least_size, layer));
  return bound_of(problem, heaviest, static_cast<std::size_t>(most_size), deadline);
}

JointBound joint_bound_of_copies(const PlacementProblem& problem, int most_slots,
                                 std::span<const double> least_max_over_mean, const Deadline& deadline) {
  std::vector<double> heaviest;
  for (LayerId layer : indices<LayerId>(problem.profile.num_layers()))
    heaviest.push_back(least_max_over_mean[layer.offset()] *
                       static_cast<double>(problem.profile.total_load(layer)) / problem.topology.num_ranks());
  return bound_of(problem, heaviest, static_cast<std::size_t>(most_slots), deadline);
}

}  // namespace evenkeel::internal
