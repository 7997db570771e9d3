#include "evenkeel/placement/incremental/copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel {

namespace {

void add_free_slots(std::vector<std::int32_t>& slots, int wanted, int num_experts, const Topology& topology) {
  for (int held = std::reduce(slots.begin(), slots.end()); held < wanted; ++held) {
    std::optional<std::size_t> fewest;
    for (RankId rank : indices<RankId>(slots.size()))
      if (slots[rank.offset()] < std::min(num_experts, topology.capacity(rank).value_or(num_experts)) &&
          (!fewest || slots[rank.offset()] < slots[*fewest]))
        fewest = rank.offset();
    if (!fewest) return;
    ++slots[*fewest];
  }
}

// Solves again without a limit on moves, to tell how many moves all copies would take.
std::string describe_moves_for_all(IncrementalProblem problem, std::int64_t asked) {
  problem.max_moves = std::numeric_limits<int>::max();
  const internal::Deadline deadline(problem.limits);
  const IncrementalResult all = place_incrementally(problem);
  if (deadline.passed()) return "time ran out before it was known how many moves all of them need";
  const std::int64_t made = num_copies(all.placement);
  if (made >= asked) return fmt::format("all of them need {} moves", all.moves);
  return fmt::format(
      "with {} moves there would be {} of them; the others have no free slot or make no rank lighter",
      all.moves, made);
}

}  // namespace

std::int64_t num_copies(const Placement& placement) {
  std::int64_t copies = 0;
  for (int layer = 0; layer < placement.num_layers(); ++layer)
    for (ExpertId expert : indices<ExpertId>(placement.num_experts()))
      copies += std::ssize(placement.layer(layer).homes(expert)) - 1;
  return copies;
}

std::vector<std::int32_t> slots_for_copies(const Placement& from, int redundant_experts,
                                           const Topology& topology) {
  const int wanted = from.num_experts() + redundant_experts;
  std::vector<std::int32_t> slots;
  for (int layer = 0; layer < from.num_layers(); ++layer) {
    std::vector<std::int32_t> of_layer;
    for (RankId rank : indices<RankId>(from.num_ranks()))
      of_layer.push_back(static_cast<std::int32_t>(from.layer(layer).natives(rank).size()));
    const int held = std::reduce(of_layer.begin(), of_layer.end());
    if (redundant_experts > 0 && held > wanted)
      throw InvalidArgument("from", fmt::format("has {} physical experts in layer {}", held, layer),
                            fmt::format("at most {}: {} experts and {} redundant ones", wanted,
                                        from.num_experts(), redundant_experts));
    if (redundant_experts > 0) add_free_slots(of_layer, wanted, from.num_experts(), topology);
    slots.insert(slots.end(), of_layer.begin(), of_layer.end());
  }
  return slots;
}

std::string describe_missing_copies(const IncrementalProblem& problem, const Placement& placed,
                                    int redundant_experts) {
  const std::int64_t asked = std::int64_t{redundant_experts} * placed.num_layers();
  const std::int64_t made = num_copies(placed);
  if (made >= asked) return "";
  return fmt::format(
      "only {} of the {} requested redundant experts, over all layers, were placed: at most {} moves were "
      "allowed, and they went where they gain most; {}",
      made, asked, problem.max_moves, describe_moves_for_all(problem, asked));
}

}  // namespace evenkeel
