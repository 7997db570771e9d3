#include "evenkeel/placement/incremental/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"
#include "evenkeel/placement/incremental/incremental.h"
#include "evenkeel/placement/internal/pool/pool.h"
#include "evenkeel/placement/replicas/replicas.h"
#include "evenkeel/placement/robust/robust.h"

namespace evenkeel {

namespace {

// The sizes of a map, and the rank of each slot.
struct MapSizes {
  explicit MapSizes(const ReplicaProblem& sizes)
      : layers(static_cast<std::size_t>(sizes.num_layers)),
        experts(static_cast<std::size_t>(sizes.num_experts)),
        slots(static_cast<std::size_t>(sizes.num_physical)),
        ranks(static_cast<std::size_t>(sizes.num_ranks)) {}

  std::size_t rank_of(std::size_t slot) const { return slot / (slots / ranks); }

  std::size_t layers;
  std::size_t experts;
  std::size_t slots;
  std::size_t ranks;
};

void require_map(const LiveProblem& problem, const MapSizes& sizes) {
  if (problem.live.empty()) return;
  if (problem.live.size() != sizes.layers * sizes.slots)
    throw InvalidArgument("live", fmt::format("{} numbers", problem.live.size()),
                          fmt::format("{} layers x {} physical experts", sizes.layers, sizes.slots));
  for (std::size_t i = 0; i < problem.live.size(); ++i)
    if (problem.live[i] < 0 || std::cmp_greater_equal(problem.live[i], sizes.experts))
      throw InvalidArgument(
          "live",
          fmt::format("layer {}, slot {}: expert {}", i / sizes.slots, i % sizes.slots, problem.live[i]),
          fmt::format("0..{}", sizes.experts - 1));
}

// Why this layer cannot be the start; empty if it can.
std::string why_no_start(std::span<const std::int32_t> expert_in, const ReplicaProblem& problem) {
  const MapSizes sizes(problem);
  const auto group_size = sizes.experts / static_cast<std::size_t>(problem.num_groups);
  const auto ranks_of_node = sizes.ranks / static_cast<std::size_t>(problem.num_nodes);
  std::vector<std::size_t> last_rank(sizes.experts, sizes.ranks);
  std::vector<std::size_t> node_of_group(static_cast<std::size_t>(problem.num_groups), sizes.ranks);
  for (std::size_t slot = 0; slot < sizes.slots; ++slot) {
    const auto expert = static_cast<std::size_t>(expert_in[slot]);
    const std::size_t rank = sizes.rank_of(slot);
    if (last_rank[expert] == rank) return fmt::format("rank {} holds expert {} twice", rank, expert);
    last_rank[expert] = rank;
    std::size_t& node = node_of_group[expert / group_size];
    if (problem.num_nodes > 1 && node != sizes.ranks && node != rank / ranks_of_node)
      return fmt::format("group {} is on nodes {} and {}", expert / group_size, node, rank / ranks_of_node);
    node = rank / ranks_of_node;
  }
  const auto missing = std::ranges::find(last_rank, sizes.ranks);
  if (missing != last_rank.end()) return fmt::format("no rank holds expert {}", missing - last_rank.begin());
  return "";
}

std::string why_in_full(std::span<const std::int32_t> live, const ReplicaProblem& problem) {
  const MapSizes sizes(problem);
  if (live.empty()) return "no map is in use yet";
  for (std::size_t l = 0; l < sizes.layers; ++l) {
    const std::string why = why_no_start(live.subspan(l * sizes.slots, sizes.slots), problem);
    if (!why.empty()) return fmt::format("in layer {} of the map in use, {}", l, why);
  }
  return "";
}

// [L] max/mean in the worst window; empty if an expert has no slot.
std::vector<double> max_over_mean(std::span<const std::int32_t> map, const LiveProblem& problem,
                                  const MapSizes& sizes) {
  const std::vector<std::int32_t> capacities(sizes.ranks,
                                             static_cast<std::int32_t>(sizes.slots / sizes.ranks));
  std::vector<double> worst(map.empty() ? 0 : sizes.layers, 1.0);
  for (std::size_t l = 0; l < worst.size(); ++l) {
    const auto expert_in = map.subspan(l * sizes.slots, sizes.slots);
    std::vector<std::int32_t> copies;
    internal::count_copies(expert_in, sizes.experts, copies);
    if (std::ranges::count(copies, 0) > 0) return {};
    for (int w = 0; w < problem.num_windows; ++w) {
      const auto loads = problem.of_each.weight.subspan(
          (static_cast<std::size_t>(w) * sizes.layers + l) * sizes.experts, sizes.experts);
      const double total = std::reduce(loads.begin(), loads.end(), 0.0);
      const auto heaviest = internal::heaviest_rank<double>(
          expert_in, capacities, [&](std::size_t e) { return loads[e] / static_cast<double>(copies[e]); });
      if (total > 0) worst[l] = std::max(worst[l], heaviest / total * static_cast<double>(sizes.ranks));
    }
  }
  return worst;
}

int count_moves(std::span<const std::int32_t> live, std::span<const std::int32_t> map,
                const MapSizes& sizes) {
  int moves = 0;
  std::vector<bool> is_held(sizes.ranks * sizes.experts);
  for (std::size_t l = 0; l < sizes.layers; ++l) {
    is_held.assign(is_held.size(), false);
    const auto home = [&](std::span<const std::int32_t> of, std::size_t slot) {
      return sizes.rank_of(slot) * sizes.experts + static_cast<std::size_t>(of[l * sizes.slots + slot]);
    };
    for (std::size_t slot = 0; slot < sizes.slots && !live.empty(); ++slot) is_held[home(live, slot)] = true;
    for (std::size_t slot = 0; slot < sizes.slots; ++slot) {
      moves += is_held[home(map, slot)] ? 0 : 1;
      is_held[home(map, slot)] = true;
    }
  }
  return moves;
}

bool has_load(const LiveProblem& problem, const MapSizes& sizes, std::size_t layer) {
  for (int w = 0; w < problem.num_windows; ++w) {
    const auto loads = problem.of_each.weight.subspan(
        (static_cast<std::size_t>(w) * sizes.layers + layer) * sizes.experts, sizes.experts);
    if (std::ranges::any_of(loads, [](double load) { return load > 0; })) return true;
  }
  return false;
}

// Layers without load, such as SGLang's layers without experts, keep their map if it is a valid start.
void keep_idle_layers(const LiveProblem& problem, const ReplicaProblem& of_each,
                      std::span<const std::int32_t> live, std::span<std::int32_t> map) {
  const MapSizes sizes(of_each);
  for (std::size_t l = 0; l < sizes.layers && !live.empty(); ++l) {
    const auto layer = live.subspan(l * sizes.slots, sizes.slots);
    if (!has_load(problem, sizes, l) && why_no_start(layer, of_each).empty())
      std::ranges::copy(layer, map.subspan(l * sizes.slots).begin());
  }
}

LiveResult place_in_full(const LiveProblem& problem, const ReplicaProblem& of_each,
                         std::span<const std::int32_t> live, std::string why) {
  const MapSizes sizes(of_each);
  ReplicaSolution placed =
      replicate_robustly({.num_recordings = problem.num_windows, .of_each = of_each}).placed;
  keep_idle_layers(problem, of_each, live, placed.physical_to_logical);
  return {.physical_to_logical = {placed.physical_to_logical.begin(), placed.physical_to_logical.end()},
          .moves = count_moves(live, placed.physical_to_logical, sizes),
          .max_over_mean_before = max_over_mean(live, problem, sizes),
          .max_over_mean = placed.max_over_mean,
          .reachable = placed.max_over_mean,
          .placed_in_full = std::move(why)};
}

std::vector<std::int64_t> map_of(const Placement& placement, const MapSizes& sizes) {
  std::vector<std::int64_t> map;
  for (int l = 0; l < placement.num_layers(); ++l)
    for (RankId rank : indices<RankId>(sizes.ranks)) {
      const auto natives = placement.layer(l).natives(rank);
      EVENKEEL_CHECK(natives.size() == sizes.slots / sizes.ranks);
      for (ExpertId expert : natives) map.push_back(expert.value());
    }
  return map;
}

Placement placement_of_map(std::vector<std::int32_t> map, const ReplicaProblem& of_each) {
  const MapSizes sizes(of_each);
  return placement_of({.physical_to_logical = std::move(map),
                       .slots_per_rank = std::vector<std::int32_t>(
                           sizes.ranks, static_cast<std::int32_t>(sizes.slots / sizes.ranks)),
                       .max_over_mean = {},
                       .bound = {}},
                      of_each.num_experts);
}

// A placement that may put groups on other nodes; nothing if it could not be the start of the next call.
std::optional<Placement> place_groups(const LiveProblem& problem, const ReplicaProblem& of_each) {
  std::vector<std::int32_t> map =
      replicate_robustly({.num_recordings = problem.num_windows, .of_each = of_each})
          .placed.physical_to_logical;
  if (!why_in_full(map, of_each).empty()) return std::nullopt;
  return placement_of_map(std::move(map), of_each);
}

// Whether the slots hold the experts in order, whatever the loads. Servers start like this.
bool is_in_order(std::span<const std::int32_t> live, const MapSizes& sizes) {
  for (std::size_t i = 0; i < live.size(); ++i)
    if (std::cmp_not_equal(live[i], i % sizes.slots % sizes.experts)) return false;
  return true;
}

double mean(std::span<const double> of_layers) {
  return std::reduce(of_layers.begin(), of_layers.end(), 0.0) / static_cast<double>(of_layers.size());
}

bool pays(const LiveResult& result, const LiveProblem& problem) {
  return result.moves <= problem.max_moves &&
         mean(result.max_over_mean_before) - mean(result.max_over_mean) >= problem.least_gain;
}

LiveResult move_few(const LiveProblem& problem, const ReplicaProblem& of_each,
                    std::vector<std::int32_t> live) {
  const MapSizes sizes(of_each);
  const Placement current = placement_of_map(std::move(live), of_each);
  IncrementalProblem moving{.current = current,
                            .loads = problem.of_each.weight,
                            .max_moves = problem.max_moves,
                            .num_nodes = of_each.num_nodes,
                            .limits = of_each.limits,
                            .num_recordings = problem.num_windows,
                            .least_gain = problem.least_gain};
  const std::optional<Placement> regrouped =
      of_each.num_nodes > 1 ? place_groups(problem, of_each) : std::nullopt;
  if (regrouped) moving.alternative = &*regrouped;
  IncrementalResult moved = place_incrementally(moving);
  return {.physical_to_logical = map_of(moved.placement, sizes),
          .moves = moved.moves,
          .max_over_mean_before = std::move(moved.max_over_mean_before),
          .max_over_mean = std::move(moved.max_over_mean),
          .reachable = std::move(moved.reachable),
          .placed_in_full = ""};
}

}  // namespace

LiveResult rebalance_live(const LiveProblem& problem) {
  ReplicaProblem of_each = replica_problem_of(problem.of_each);
  of_each.repeats = false;  // a map with an expert twice on a rank could not be the next start
  require_map(problem, MapSizes(of_each));
  std::vector<std::int32_t> live(problem.live.begin(), problem.live.end());
  std::string why = why_in_full(live, of_each);
  if (!why.empty()) return place_in_full(problem, of_each, live, std::move(why));
  if (is_in_order(live, MapSizes(of_each))) {
    LiveResult in_full =
        place_in_full(problem, of_each, live, "the map in use has experts in the order of their numbers");
    if (pays(in_full, problem)) return in_full;
  }
  return move_few(problem, of_each, std::move(live));
}

}  // namespace evenkeel
