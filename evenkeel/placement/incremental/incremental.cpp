#include "evenkeel/placement/incremental/incremental.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "evenkeel/base/error.h"
#include "evenkeel/placement/incremental/internal/fresh_layer.h"
#include "evenkeel/placement/incremental/internal/layer_homes.h"
#include "evenkeel/placement/incremental/internal/move_budget.h"
#include "evenkeel/placement/incremental/internal/rank_matching.h"
#include "evenkeel/placement/incremental/internal/relief.h"
#include "evenkeel/placement/internal/deadline.h"

namespace evenkeel {

namespace internal {

namespace {

// A layer this close to even is not changed.
constexpr double kEvenEnough = 1 + 1e-4;
// Values of MoveOffer::state for offers of a whole placement, which are no steps of the path.
constexpr auto kFresh = static_cast<std::size_t>(-1);
constexpr auto kAlternative = static_cast<std::size_t>(-2);
// Moves end once at most this part of least_gain is left to gain, so that small noise does not start new
// moves.
constexpr double kLeftToGain = 0.5;

void require_sizes(const IncrementalProblem& p) {
  const Placement& current = p.current;
  const auto wanted = static_cast<std::size_t>(std::max(p.num_recordings, 1)) *
                      static_cast<std::size_t>(current.num_layers()) *
                      static_cast<std::size_t>(current.num_experts());
  if (p.num_recordings < 1 || p.loads.size() != wanted)
    throw InvalidArgument("loads",
                          fmt::format("{} numbers for {} recordings", p.loads.size(), p.num_recordings),
                          fmt::format("{} layers x {} experts for each recording, one or more",
                                      current.num_layers(), current.num_experts()));
  for (std::size_t i = 0; i < wanted; ++i)
    if (!std::isfinite(p.loads[i]) || p.loads[i] < 0)
      throw InvalidArgument("loads",
                            fmt::format("layer {}, expert {}: {}",
                                        i / static_cast<std::size_t>(current.num_experts()) %
                                            static_cast<std::size_t>(current.num_layers()),
                                        i % static_cast<std::size_t>(current.num_experts()), p.loads[i]),
                            "0 or more, finite");
  if (p.max_moves < 0) throw InvalidArgument("max_moves", fmt::format("{}", p.max_moves), "0 or more");
  if (p.num_nodes < 1 || p.num_nodes > current.num_ranks())
    throw InvalidArgument("num_nodes", fmt::format("{} nodes for {} ranks", p.num_nodes, current.num_ranks()),
                          fmt::format("1..{}", current.num_ranks()));
  if (!p.slots_per_rank.empty() &&
      p.slots_per_rank.size() !=
          static_cast<std::size_t>(current.num_layers()) * static_cast<std::size_t>(current.num_ranks()))
    throw InvalidArgument("slots_per_rank", fmt::format("{} numbers", p.slots_per_rank.size()),
                          fmt::format("{} layers x {} ranks", current.num_layers(), current.num_ranks()));
  if (p.alternative != nullptr && current.num_ranks() % p.num_nodes != 0)
    throw InvalidArgument("num_nodes", fmt::format("{} nodes for {} ranks", p.num_nodes, current.num_ranks()),
                          fmt::format("a divisor of {}, if an alternative is given", current.num_ranks()));
  if (!std::isfinite(p.least_gain) || p.least_gain < 0)
    throw InvalidArgument("least_gain", fmt::format("{}", p.least_gain), "0 or more, finite");
  if (p.alternative != nullptr && (p.alternative->num_layers() != current.num_layers() ||
                                   p.alternative->num_experts() != current.num_experts() ||
                                   p.alternative->num_ranks() != current.num_ranks()))
    throw InvalidArgument("alternative",
                          fmt::format("{} layers x {} experts on {} ranks", p.alternative->num_layers(),
                                      p.alternative->num_experts(), p.alternative->num_ranks()),
                          fmt::format("{} layers x {} experts on {} ranks, as the current placement has",
                                      current.num_layers(), current.num_experts(), current.num_ranks()));
}

// The loads of a layer in each recording, [W, E], relative to the mean load of a rank.
std::vector<double> shares_of_ranks(const IncrementalProblem& problem, int layer) {
  const auto experts = static_cast<std::size_t>(problem.current.num_experts());
  const auto layers = static_cast<std::size_t>(problem.current.num_layers());
  std::vector<double> shares;
  for (std::size_t w = 0; w < problem.loads.size() / (layers * experts); ++w) {
    const auto row = problem.loads.subspan((w * layers + static_cast<std::size_t>(layer)) * experts, experts);
    const double total = std::reduce(row.begin(), row.end(), 0.0);
    if (!std::isfinite(total))
      throw InvalidArgument("loads", fmt::format("the loads of layer {} add up to {}", layer, total),
                            "a finite total");
    for (double load : row) shares.push_back(total > 0 ? load / total * problem.current.num_ranks() : 0);
  }
  return shares;
}

// The states that one layer can get, and the moves that lead there.
class LayerChoices {
 public:
  LayerChoices(const IncrementalProblem& problem, int layer, std::span<const std::int32_t> node_of_rank,
               const Deadline& deadline)
      : before_(problem.current.layer(layer)), loads_(shares_of_ranks(problem, layer)) {
    read_slots(problem, layer);
    offers_.push_back({0, max_over_mean(LayerHomes(before_, loads_)), 0});
    if (problem.max_moves == 0 || offers_[0].value <= kEvenEnough || deadline.passed()) return;
    walk(problem.max_moves, node_of_rank, deadline);
    if (!deadline.passed()) offer_fresh(node_of_rank, deadline);
    if (problem.alternative != nullptr)
      offer_alternative(problem.alternative->layer(layer), problem.num_nodes);
    keep_useful(offers_);
  }

  const std::vector<MoveOffer>& offers() const { return offers_; }

  LayerPlacement take(const MoveOffer& offer) const {
    if (offer.state == kFresh) return fresh_.front();
    if (offer.state == kAlternative) return alternative_.front();
    if (offer.state == 0) return before_;
    LayerHomes homes(before_, loads_);
    for (std::size_t s = 0; s < offer.state; ++s) steps_[s].apply(homes);
    return LayerPlacement(homes.listed(before_), before_.num_ranks());
  }

 private:
  static double max_over_mean(const LayerHomes& homes) {
    const double heaviest = homes.heaviest_load();
    return heaviest > 0 ? heaviest : 1;
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
        throw InvalidArgument("slots_per_rank",
                              fmt::format("layer {}: rank {} holds {} experts, but has {} slots", layer,
                                          rank.value(), held, slots),
                              "at least as many slots as experts on the rank");
      slots_.push_back(slots);
      free_.push_back(slots - held);
    }
  }

  void walk(int max_moves, std::span<const std::int32_t> node_of_rank, const Deadline& deadline) {
    LayerHomes homes(before_, loads_);
    const std::size_t most_steps = 4 * homes.num_experts() + 4 * slots_.size();
    while (steps_.size() < most_steps && max_over_mean(homes) > kEvenEnough && !deadline.passed()) {
      const auto step = best_relief(homes, node_of_rank, free_, max_moves - homes.moves());
      if (!step) return;
      step->apply(homes);
      for (const auto& home : step->added) --free_[home.rank];
      for (const auto& home : step->removed) ++free_[home.rank];
      steps_.push_back(*step);
      offers_.push_back({homes.moves(), max_over_mean(homes), steps_.size()});
    }
  }

  void offer_fresh(std::span<const std::int32_t> node_of_rank, const Deadline& deadline) {
    auto lists = fresh_homes(before_, loads_, slots_, node_of_rank, deadline);
    if (!lists.empty()) fresh_.push_back(offer_whole(lists, kFresh));
  }

  void offer_alternative(const LayerPlacement& made, int num_nodes) {
    for (RankId rank : indices<RankId>(slots_.size()))
      if (std::ssize(made.natives(rank)) != slots_[rank.offset()])
        throw InvalidArgument("alternative",
                              fmt::format("rank {} holds {} experts, but has {} slots", rank.value(),
                                          made.natives(rank).size(), slots_[rank.offset()]),
                              "as many experts as slots on each rank");
    const LayerPlacement kept = renumbered(made, before_, num_nodes);
    std::vector<std::vector<std::int32_t>> lists(static_cast<std::size_t>(kept.num_experts()));
    for (ExpertId e : indices<ExpertId>(kept.num_experts()))
      for (RankId rank : kept.homes(e)) lists[e.offset()].push_back(rank.value());
    alternative_.push_back(offer_whole(lists, kAlternative));
  }

  // Adds an offer with these homes, and returns the layer.
  LayerPlacement offer_whole(const std::vector<std::vector<std::int32_t>>& lists, std::size_t state) {
    LayerHomes homes(before_, loads_);
    for (std::size_t e = 0; e < lists.size(); ++e) {
      for (std::int32_t rank : lists[e])
        if (!homes.holds(static_cast<std::size_t>(rank), e)) homes.add(static_cast<std::size_t>(rank), e);
      for (RankId rank : before_.homes(ExpertId(e)))
        if (std::ranges::find(lists[e], rank.value()) == lists[e].end()) homes.remove(rank.offset(), e);
    }
    offers_.push_back({homes.moves(), max_over_mean(homes), state});
    return LayerPlacement(homes.listed(before_), before_.num_ranks());
  }

  const LayerPlacement& before_;
  std::vector<double> loads_;  // [W, E]; 1 is the mean load of a rank in that recording
  std::vector<std::int32_t> slots_;
  std::vector<std::int32_t> free_;
  std::vector<ReliefStep> steps_;
  std::vector<LayerPlacement> fresh_;        // at most one
  std::vector<LayerPlacement> alternative_;  // at most one
  std::vector<MoveOffer> offers_;
};

std::vector<std::int32_t> nodes_of_ranks(int num_ranks, int num_nodes) {
  std::vector<std::int32_t> node_of_rank;
  for (std::int64_t n = 0; n < num_nodes; ++n)
    node_of_rank.resize(static_cast<std::size_t>((n + 1) * num_ranks / num_nodes),
                        static_cast<std::int32_t>(n));
  return node_of_rank;
}

// [L] index of the offer that each layer takes.
std::vector<std::size_t> choose(const IncrementalProblem& problem,
                                std::span<const std::vector<MoveOffer>> offers, const Deadline& deadline) {
  const double worth_it = problem.least_gain * static_cast<double>(offers.size());
  if (most_gain(offers) < worth_it) return std::vector<std::size_t>(offers.size(), 0);
  return spend_moves(offers, problem.max_moves, worth_it * kLeftToGain, deadline);
}

}  // namespace

}  // namespace internal

IncrementalResult place_incrementally(const IncrementalProblem& problem) {
  using namespace internal;
  require_sizes(problem);
  const auto node_of_rank = nodes_of_ranks(problem.current.num_ranks(), problem.num_nodes);
  const Deadline deadline(problem.limits);
  std::vector<LayerChoices> choices;
  std::vector<std::vector<MoveOffer>> offers;
  for (int l = 0; l < problem.current.num_layers(); ++l) {
    choices.emplace_back(problem, l, node_of_rank, deadline);
    offers.push_back(choices.back().offers());
  }
  const std::vector<std::size_t> taken = choose(problem, offers, deadline);
  std::vector<LayerPlacement> layers;
  std::vector<int> moves_of_layer;
  std::vector<double> before;
  std::vector<double> after;
  std::vector<double> reachable;
  for (std::size_t l = 0; l < choices.size(); ++l) {
    const MoveOffer& offer = offers[l][taken[l]];
    layers.push_back(choices[l].take(offer));
    moves_of_layer.push_back(offer.moves);
    before.push_back(offers[l].front().value);
    after.push_back(offer.value);
    reachable.push_back(offers[l].back().value);
  }
  const int moves = std::reduce(moves_of_layer.begin(), moves_of_layer.end());
  return {Placement(std::move(layers)), moves, std::move(moves_of_layer), std::move(before), std::move(after),
          std::move(reachable)};
}

}  // namespace evenkeel
