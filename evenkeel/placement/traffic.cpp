#include "evenkeel/placement/traffic.h"

#include <fmt/format.h>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/problem_check.h"

namespace evenkeel {

namespace {

// Adds the assignments to each expert, `to_expert` [E], to those of the experts' ranks, `to_rank` [P].
void add_to_homes(std::span<const double> to_expert, const LayerPlacement& homes, std::span<double> to_rank) {
  for (ExpertId expert : indices<ExpertId>(homes.num_experts())) {
    const double assignments = to_expert[expert.offset()];
    if (assignments == 0) continue;
    const auto of_expert = homes.homes(expert);
    const double share = assignments / static_cast<double>(of_expert.size());
    for (RankId rank : of_expert) to_rank[rank.offset()] += share;
  }
}

SourceCounts no_counts(const TraceInfo& info, int num_ranks) {
  if (num_ranks < 1) throw InvalidArgument("num_ranks", fmt::format("is {}", num_ranks), "1 or more");
  if (info.num_experts < 1)
    throw InvalidArgument("num_experts", fmt::format("{} does not say how many experts there are", info.name),
                          "to set it, or to read the file with open_trace()");
  SourceCounts counts{.num_layers = info.num_layers, .num_ranks = num_ranks, .num_experts = info.num_experts};
  counts.counts.assign(static_cast<std::size_t>(info.num_layers) * static_cast<std::size_t>(num_ranks) *
                           static_cast<std::size_t>(info.num_experts),
                       0.0);
  return counts;
}

void add_range(TraceReader& trace, TokenRange range, RankId source, SourceCounts& counts) {
  const auto layers = static_cast<std::size_t>(counts.num_layers);
  const auto ranks = static_cast<std::size_t>(counts.num_ranks);
  const auto experts = static_cast<std::size_t>(counts.num_experts);
  const auto top_k = static_cast<std::size_t>(trace.info().top_k);
  for (TraceBatches batches(trace, range); batches.next();) {
    const auto ids = batches.ids();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] == no_expert) continue;
      const std::size_t layer = i / top_k % layers;
      counts.counts[(layer * ranks + source.offset()) * experts + static_cast<std::size_t>(ids[i])] += 1;
    }
  }
}

}  // namespace

RankTraffic layer_to_layer_traffic(const RoutingProfile& profile, const Placement& placement, LayerId layer) {
  internal::require_fit("profile", profile.num_layers(), profile.num_experts(), placement);
  const auto transitions = profile.transitions(layer);
  const LayerPlacement& senders = placement.layer(layer.value());
  const LayerPlacement& receivers = placement.layer(layer.value() + 1);
  const auto experts = static_cast<std::size_t>(profile.num_experts());
  const auto ranks = static_cast<std::size_t>(placement.num_ranks());
  std::vector<double> to_expert(ranks * experts, 0.0);  // [P, E]
  for (ExpertId from : indices<ExpertId>(experts)) {
    const auto row = transitions.subspan(from.offset() * experts, experts);
    const auto copies = static_cast<double>(senders.homes(from).size());
    for (RankId rank : senders.homes(from)) {
      double* sums = &to_expert[rank.offset() * experts];
      for (std::size_t to = 0; to < experts; ++to) sums[to] += static_cast<double>(row[to]) / copies;
    }
  }
  RankTraffic traffic(ranks * ranks, 0.0);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    add_to_homes(std::span(to_expert).subspan(rank * experts, experts), receivers,
                 std::span(traffic).subspan(rank * ranks, ranks));
  return traffic;
}

RankTraffic dispatch_traffic(const SourceCounts& sources, const Placement& placement, LayerId layer) {
  internal::require_fit("traffic's source", sources.num_layers, sources.num_experts, placement);
  if (sources.num_ranks != placement.num_ranks())
    throw InvalidArgument("sources", fmt::format("are for {} ranks", sources.num_ranks),
                          fmt::format("{} ranks, as the placement has", placement.num_ranks()));
  if (layer.value() < 0 || layer.value() >= sources.num_layers)
    throw InvalidArgument("layer", fmt::format("no layer {}", layer.value()),
                          fmt::format("0..{}", sources.num_layers - 1));
  const auto experts = static_cast<std::size_t>(sources.num_experts);
  const auto ranks = static_cast<std::size_t>(sources.num_ranks);
  RankTraffic traffic(ranks * ranks, 0.0);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    add_to_homes(std::span(sources.counts).subspan((layer.offset() * ranks + rank) * experts, experts),
                 placement.layer(layer.value()), std::span(traffic).subspan(rank * ranks, ranks));
  return traffic;
}

int num_exchanges(const PlacementProblem& problem) {
  return problem.profile.num_layers() - (problem.traffic == TrafficModel::layer_to_layer ? 1 : 0);
}

RankTraffic exchange_traffic(const PlacementProblem& problem, const Placement& placement, LayerId exchange) {
  return problem.traffic == TrafficModel::layer_to_layer
             ? layer_to_layer_traffic(problem.profile, placement, exchange)
             : dispatch_traffic(problem.sources, placement, exchange);
}

SourceCounts source_counts(TraceReader& trace, int num_ranks) {
  const TraceInfo& info = trace.info();
  std::vector<TokenRange> ranges;
  if (info.sequence_offsets.size() > 1) {
    for (std::size_t i = 0; i + 1 < info.sequence_offsets.size(); ++i)
      ranges.push_back({info.sequence_offsets[i], info.sequence_offsets[i + 1]});
  } else {
    for (std::int64_t rank = 0; rank < num_ranks; ++rank)
      ranges.push_back({rank * info.num_tokens / num_ranks, (rank + 1) * info.num_tokens / num_ranks});
  }
  return source_counts(trace, ranges, num_ranks);
}

SourceCounts source_counts(TraceReader& trace, std::span<const TokenRange> ranges, int num_ranks) {
  SourceCounts counts = no_counts(trace.info(), num_ranks);
  for (std::size_t i = 0; i < ranges.size(); ++i)
    add_range(trace, ranges[i], RankId(i % static_cast<std::size_t>(num_ranks)), counts);
  return counts;
}

SourceCounts even_source_counts(const RoutingProfile& profile, int num_ranks) {
  if (num_ranks < 1) throw InvalidArgument("num_ranks", fmt::format("is {}", num_ranks), "1 or more");
  SourceCounts counts{.num_layers = profile.num_layers(),
                      .num_ranks = num_ranks,
                      .num_experts = profile.num_experts(),
                      .estimated = true};
  counts.counts.reserve(profile.loads().size() * static_cast<std::size_t>(num_ranks));
  for (LayerId layer : indices<LayerId>(profile.num_layers())) {
    std::vector<double> of_rank;
    for (std::int64_t load : profile.loads(layer)) of_rank.push_back(static_cast<double>(load) / num_ranks);
    for (int rank = 0; rank < num_ranks; ++rank)
      counts.counts.insert(counts.counts.end(), of_rank.begin(), of_rank.end());
  }
  return counts;
}

}  // namespace evenkeel
