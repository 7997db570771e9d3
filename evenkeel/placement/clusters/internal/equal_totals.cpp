#include "evenkeel/placement/clusters/internal/equal_totals.h"

#include <algorithm>
#include <optional>

#include "evenkeel/placement/clusters/internal/partition.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

namespace {

constexpr std::size_t kMostTrials = 6;  // layers in which a move is tried with swaps after it

class Totals {
 public:
  Totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
         std::vector<Clusters>& layers, const Deadline& deadline)
      : tasks_(tasks), layers_(layers), deadline_(deadline), above_(total.size(), 0) {
    renumber(total);
    sizes_ = sizes_of(layers, static_cast<int>(total.size()));
    for (std::size_t rank = 0; rank < total.size(); ++rank) {
      for (const Sizes& sizes : sizes_) above_[rank] += sizes[rank];
      above_[rank] -= total[rank];
    }
  }

  bool hold() const {
    return std::ranges::all_of(above_, [](int above) { return above == 0; });
  }

  // Moves one expert from a rank with too many to one with too few, in the layer where that costs least.
  bool resize_once() {
    const auto most = static_cast<std::size_t>(std::ranges::max_element(above_) - above_.begin());
    const auto least = static_cast<std::size_t>(std::ranges::min_element(above_) - above_.begin());
    std::optional<Change> best;
    for (const Change& change : cheapest_moves(most, least)) {
      const PartitionTask& task = tasks_[change.layer];
      const Sizes sizes = cluster_sizes(change.clusters, task.num_clusters());
      Clusters evened = change.clusters;
      exchange({.loads = task.loads, .least = sizes, .most = sizes}, evened, deadline_);
      const Wide cost = deviation(task, evened) - deviation(task, layers_[change.layer]);
      if (!best || cost < best->cost) best = Change{change.layer, cost, std::move(evened)};
    }
    if (!best || deadline_.passed()) return false;
    layers_[best->layer] = std::move(best->clusters);
    --sizes_[best->layer][most];
    ++sizes_[best->layer][least];
    --above_[most];
    ++above_[least];
    return true;
  }

 private:
  struct Change {
    std::size_t layer;
    Wide cost;
    Clusters clusters;
  };

  void renumber(const std::vector<int>& total) {
    const auto number = renumbered_to_totals(sizes_of(layers_, static_cast<int>(total.size())),
                                             tasks_.front().most, total, deadline_);
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (int& cluster : layers_[layer]) cluster = number[layer][static_cast<std::size_t>(cluster)];
  }

  std::vector<Change> cheapest_moves(std::size_t from, std::size_t to) const {
    std::vector<Change> moves;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      if (deadline_.passed()) return {};
      if (sizes_[layer][from] <= 1 || sizes_[layer][to] >= tasks_[layer].most[to]) continue;
      moves.push_back(cheapest_move(layer, static_cast<int>(from), static_cast<int>(to)));
    }
    std::ranges::stable_sort(moves, {}, &Change::cost);
    if (moves.size() > kMostTrials) moves.resize(kMostTrials);
    return moves;
  }

  Change cheapest_move(std::size_t layer, int from, int to) const {
    std::optional<Change> best;
    Clusters clusters = layers_[layer];
    const Wide before = deviation(tasks_[layer], clusters);
    for (int& cluster : clusters) {
      if (cluster != from) continue;
      cluster = to;
      const Wide cost = deviation(tasks_[layer], clusters) - before;
      if (!best || cost < best->cost) best = Change{layer, cost, clusters};
      cluster = from;
    }
    return *best;
  }

  const std::vector<PartitionTask>& tasks_;
  std::vector<Clusters>& layers_;
  const Deadline& deadline_;
  std::vector<Sizes> sizes_;  // [L]
  std::vector<int> above_;    // [P] experts beyond the total; negative if fewer
};

}  // namespace

TotalsMet meet_totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                      std::vector<Clusters>& layers, const Deadline& deadline) {
  Totals totals(tasks, total, layers, deadline);
  if (totals.hold()) return TotalsMet::by_numbers;
  while (!totals.hold())
    if (!totals.resize_once()) return TotalsMet::not_found;
  return TotalsMet::by_sizes;
}

}  // namespace evenkeel::internal
