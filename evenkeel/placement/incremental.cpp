#include "evenkeel/placement/incremental.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/internal/deadline.h"
#include "evenkeel/placement/internal/fresh_layer.h"
#include "evenkeel/placement/internal/layer_homes.h"
#include "evenkeel/placement/internal/move_budget.h"
#include "evenkeel/placement/internal/relief.h"

namespace evenkeel {

namespace {

// A layer this close to even is left alone.
constexpr double kEvenEnough = 1 + 1e-4;
// The state of an offer that is no step of the path.
constexpr auto kFresh = static_cast<std::size_t>(-1);

void require_sizes(const IncrementalProblem& p) {
  const Placement& current = p.current;
  const auto wanted =
      static_cast<std::size_t>(current.num_layers()) * static_cast<std::size_t>(current.num_experts());
  if (p.loads.size() != wanted)
    throw InvalidArgument("loads", fmt::format("{} numbers", p.loads.size()),
                          fmt::format("{} layers x {} experts", current.num_layers(), current.num_experts()));
  for (std::size_t i = 0; i < wanted; ++i)
    if (!std::isfinite(p.loads[i]) || p.loads[i] < 0)
      throw InvalidArgument(
          "loads",
          fmt::format("layer {}, expert {}: {}", i / static_cast<std::size_t>(current.num_experts()),
                      i % static_cast<std::size_t>(current.num_experts()), p.loads[i]),
          "0 or more, finite");
  if (p.max_moves < 0) throw InvalidArgument("max_moves", fmt::format("{}", p.max_moves), "0 or more");
  if (p.num_nodes < 1 || p.num_nodes > current.num_ranks())
    throw InvalidArgument("num_nodes", fmt::format("{} nodes of {} ranks", p.num_nodes, current.num_ranks()),
                          "1..ranks");
  if (!p.slots_per_rank.empty() &&
      p.slots_per_rank.size() !=
          static_cast<std::size_t>(current.num_layers()) * static_cast<std::size_t>(current.num_ranks()))
    throw InvalidArgument("slots_per_rank", fmt::format("{} numbers", p.slots_per_rank.size()),
                          fmt::format("{} layers x {} ranks", current.num_layers(), current.num_ranks()));
}

// What one layer can become, and how it gets there.
class LayerChoices {
 public:
  LayerChoices(const IncrementalProblem& problem, int layer, std::span<const std::int32_t> node_of_rank,
               const internal::Deadline& deadline)
      : before_(problem.current.layer(layer)),
        loads_(problem.loads.subspan(
            static_cast<std::size_t>(layer) * static_cast<std::size_t>(before_.num_experts()),
            static_cast<std::size_t>(before_.num_experts()))),
        total_(std::reduce(loads_.begin(), loads_.end(), 0.0)) {
    if (!std::isfinite(total_))
      throw InvalidArgument("loads", fmt::format("those of layer {} add up to {}", layer, total_),
                            "a finite total");
    read_slots(problem, layer);
    offers_.push_back({0, max_over_mean(LayerHomes(before_, loads_)), 0});
    if (problem.max_moves == 0 || offers_[0].value <= kEvenEnough || deadline.passed()) return;
    walk(problem.max_moves, node_of_rank, deadline);
    if (!deadline.passed()) offer_fresh(node_of_rank, deadline);
    keep_useful(offers_);
  }

  const std::vector<MoveOffer>& offers() const { return offers_; }

  LayerPlacement take(const MoveOffer& offer) const {
    if (offer.state == kFresh) return fresh_.front();
    if (offer.state == 0) return before_;
    LayerHomes homes(before_, loads_);
    for (std::size_t s = 0; s < offer.state; ++s) steps_[s].apply(homes);
    return LayerPlacement(homes.listed(before_), before_.num_ranks());
  }

 private:
  double max_over_mean(const LayerHomes& homes) const {
    if (total_ <= 0) return 1;
    return homes.heaviest_load() / total_ * static_cast<double>(homes.num_ranks());
  }

  void read_slots(const IncrementalProblem& problem, int layer) {
    const auto ranks = static_cast<std::size_t>(before_.num_ranks());
    for (RankId rank : indices<RankId>(ranks)) {
      const auto held = static_cast<std::int32_t>(before_.natives(rank).size());
      const std::int32_t slots =
          problem.slots_per_rank.empty()
              ? held
              : problem.slots_per_rank[static_cast<std::size_t>(layer) * ranks + rank.offset()];
      if (slots < held)
        throw InvalidArgument(
            "slots_per_rank",
            fmt::format("layer {}: rank {} holds {} experts in {} slots", layer, rank.value(), held, slots),
            "as many slots as homes, or more");
      slots_.push_back(slots);
      free_.push_back(slots - held);
    }
  }

  void walk(int max_moves, std::span<const std::int32_t> node_of_rank, const internal::Deadline& deadline) {
    LayerHomes homes(before_, loads_);
    Relief relief(homes, node_of_rank, free_);
    const std::size_t most_steps = 4 * loads_.size() + 4 * slots_.size();
    while (steps_.size() < most_steps && max_over_mean(homes) > kEvenEnough && !deadline.passed() &&
           relief.step(max_moves - homes.moves())) {
      steps_.push_back(relief.last());
      offers_.push_back({homes.moves(), max_over_mean(homes), steps_.size()});
    }
  }

  void offer_fresh(std::span<const std::int32_t> node_of_rank, const internal::Deadline& deadline) {
    auto lists = fresh_homes(before_, loads_, slots_, node_of_rank, deadline);
    if (lists.empty()) return;
    LayerHomes homes(before_, loads_);
    for (std::size_t e = 0; e < lists.size(); ++e) {
      for (std::int32_t rank : lists[e])
        if (!homes.holds(static_cast<std::size_t>(rank), e)) homes.add(static_cast<std::size_t>(rank), e);
      for (RankId rank : before_.homes(ExpertId(e)))
        if (std::ranges::find(lists[e], rank.value()) == lists[e].end()) homes.remove(rank.offset(), e);
    }
    offers_.push_back({homes.moves(), max_over_mean(homes), kFresh});
    fresh_.emplace_back(homes.listed(before_), before_.num_ranks());
  }

  const LayerPlacement& before_;
  std::span<const double> loads_;
  double total_;
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> free_;
  std::vector<ReliefStep> steps_;
  std::vector<LayerPlacement> fresh_;  // one or none
  std::vector<MoveOffer> offers_;
};

std::vector<std::int32_t> nodes_of_ranks(int num_ranks, int num_nodes) {
  std::vector<std::int32_t> node_of_rank;
  for (std::int64_t n = 0; n < num_nodes; ++n)
    node_of_rank.resize(static_cast<std::size_t>((n + 1) * num_ranks / num_nodes),
                        static_cast<std::int32_t>(n));
  return node_of_rank;
}

}  // namespace

IncrementalResult place_incrementally(const IncrementalProblem& problem) {
  require_sizes(problem);
  const auto node_of_rank = nodes_of_ranks(problem.current.num_ranks(), problem.num_nodes);
  const internal::Deadline deadline(problem.limits);
  std::vector<LayerChoices> choices;
  std::vector<std::vector<MoveOffer>> offers;
  for (int l = 0; l < problem.current.num_layers(); ++l) {
    choices.emplace_back(problem, l, node_of_rank, deadline);
    offers.push_back(choices.back().offers());
  }
  const std::vector<std::size_t> taken = spend_moves(offers, problem.max_moves, deadline);
  std::vector<LayerPlacement> layers;
  std::vector<int> moves_of_layer;
  std::vector<double> before;
  std::vector<double> after;
  for (std::size_t l = 0; l < choices.size(); ++l) {
    const MoveOffer& offer = offers[l][taken[l]];
    layers.push_back(choices[l].take(offer));
    moves_of_layer.push_back(offer.moves);
    before.push_back(offers[l].front().value);
    after.push_back(offer.value);
  }
  const int moves = std::reduce(moves_of_layer.begin(), moves_of_layer.end());
  return {Placement(std::move(layers)), moves, std::move(moves_of_layer), std::move(before),
          std::move(after)};
}

}  // namespace evenkeel
