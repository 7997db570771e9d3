#include "evenkeel/placement/whole_groups.h"

#include <fmt/format.h>

#include <utility>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/place_options.h"

namespace evenkeel {

namespace {

bool are_whole(const LayerPlacement& layer, int num_groups, int num_parts) {
  const int group_size = layer.num_experts() / num_groups;
  const int part_size = layer.num_ranks() / num_parts;
  for (ExpertId expert : indices<ExpertId>(layer.num_experts())) {
    const ExpertId first(expert.value() / group_size * group_size);
    if (layer.owner(expert).value() / part_size != layer.owner(first).value() / part_size) return false;
  }
  return true;
}

bool are_whole(const Placement& placement, int num_groups, int num_parts) {
  for (int layer = 0; layer < placement.num_layers(); ++layer)
    if (!are_whole(placement.layer(layer), num_groups, num_parts)) return false;
  return true;
}

void require_keeps_groups(const PlaceOptions& options, const std::string& model) {
  const auto refuse = [&](const char* option, const char* value, const char* allowed) {
    throw InvalidArgument(
        option, fmt::format("{} may split groups of experts, and permute needs them whole: {}", value, model),
        fmt::format("{}, or groups 1, which lets experts of a group go anywhere", allowed));
  };
  if (options.objective == PlaceOptions::Objective::joint) refuse("objective", "joint", "two-stage");
  if (options.solver == PlaceOptions::Solver::exact) refuse("solver", "exact", "fast");
}

}  // namespace

std::optional<int> parts_for_groups(int num_groups, int num_ranks) {
  if (num_groups % num_ranks == 0) return num_ranks;
  if (num_ranks % num_groups == 0) return num_groups;
  return std::nullopt;
}

Topology with_parts_as_nodes(const Topology& topology, int num_parts) {
  Topology::Description parts = topology.description();
  const int ranks = topology.num_ranks();
  if (topology.has_uniform_links() && ranks > 1 && parts.links.empty())
    parts.within = parts.across = topology.link(RankId(0), RankId(1));
  else if (parts.links.empty())
    for (RankId from : indices<RankId>(ranks))
      for (RankId to : indices<RankId>(ranks))
        parts.links.push_back(from == to ? Link{} : topology.link(from, to));
  for (int rank = 0; rank < ranks; ++rank)
    parts.node_of_rank[static_cast<std::size_t>(rank)] = rank / (ranks / num_parts);
  return Topology(std::move(parts));
}

std::string keep_groups_whole(const RoutingGroups& groups, int num_experts, int num_ranks,
                              PlaceOptions& options) {
  const bool can_be_permuted = options.redundant_experts == 0 && options.sizes == ClusterSizes::equal &&
                               num_experts % num_ranks == 0 && num_ranks > 1;
  if (!groups.bind() || !can_be_permuted) return "";
  const std::string model =
      fmt::format("the model's router first chooses {} of {} groups of experts", groups.chosen, groups.count);
  const std::optional<int> parts = parts_for_groups(groups.count, num_ranks);
  if (!parts)
    return fmt::format(
        "{}, and {} ranks cannot hold them whole: permute refuses this placement. It accepts one for a "
        "number of ranks that divides {} or is a multiple of it",
        model, num_ranks, groups.count);
  if (options.from && options.from->num_experts() == num_experts && options.from->num_ranks() == num_ranks &&
      !are_whole(*options.from, groups.count, *parts))
    return fmt::format(
        "{}, and the placement to start from splits groups: permute refuses it, and any placement made "
        "from it",
        model);
  require_keeps_groups(options, model);
  options.num_groups = groups.count;
  options.whole_groups = true;
  return fmt::format(
      "{}: the experts of a group stay together, as permute needs; groups 1 lets them go anywhere, for "
      "servers that leave the router as it is",
      model);
}

}  // namespace evenkeel
