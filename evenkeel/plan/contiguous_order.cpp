#include "evenkeel/plan/contiguous_order.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>

#include "evenkeel/base/check.h"
#include "evenkeel/base/error.h"

namespace evenkeel {

namespace {

void require_single_homes(const LayerPlacement& layer, const std::string& where) {
  if (layer.has_single_homes()) return;
  for (ExpertId expert : indices<ExpertId>(layer.num_experts())) {
    if (layer.homes(expert).size() == 1) continue;
    std::vector<int> ranks;
    for (RankId rank : layer.homes(expert)) ranks.push_back(rank.value());
    throw InvalidArgument(
        "placement",
        fmt::format("{}expert {} has copies on ranks {}, but experts in contiguous order have one home each",
                    where, expert.value(), fmt::join(ranks, ", ")),
        "a placement without redundant experts");
  }
}

void require_equal_sizes(const LayerPlacement& layer, const std::string& where) {
  const int experts = layer.num_experts();
  const int ranks = layer.num_ranks();
  if (experts % ranks != 0)
    throw InvalidArgument(
        "placement",
        fmt::format("{}{} experts do not divide evenly over {} ranks, and systems differ in which "
                    "ranks get one more",
                    where, experts, ranks),
        "a number of ranks that divides the experts");
  const auto share = static_cast<std::size_t>(experts / ranks);
  for (RankId rank : indices<RankId>(ranks)) {
    if (layer.natives(rank).size() != share)
      throw InvalidArgument(
          "placement",
          fmt::format("{}rank {} is home to {} experts, but contiguous expert parallelism gives each rank {}",
                      where, rank.value(), layer.natives(rank).size(), share),
          "equally many experts on every rank (--sizes equal)");
  }
}

}  // namespace

std::vector<ExpertId> contiguous_order(const LayerPlacement& layer, const std::string& where) {
  require_single_homes(layer, where);
  require_equal_sizes(layer, where);
  std::vector<ExpertId> order;
  for (RankId rank : indices<RankId>(layer.num_ranks())) {
    const auto natives = layer.natives(rank);
    order.insert(order.end(), natives.begin(), natives.end());
  }
  return order;
}

std::vector<ExpertId> new_ids(std::span<const ExpertId> order) {
  std::vector<ExpertId> ids(order.size(), ExpertId(-1));
  for (std::size_t id = 0; id < order.size(); ++id) {
    EVENKEEL_CHECK(order[id].offset() < order.size() && ids[order[id].offset()] == ExpertId(-1));
    ids[order[id].offset()] = ExpertId(id);
  }
  return ids;
}

}  // namespace evenkeel
