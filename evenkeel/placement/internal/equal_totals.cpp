#include "evenkeel/placement/internal/equal_totals.h"

#include <algorithm>
#include <optional>

#include "evenkeel/placement/internal/partition_exchange.h"

namespace evenkeel::internal {

namespace {

constexpr std::size_t kMostTrials = 6;  // layers in which a move is followed by exchanges, to choose from

class Totals {
 public:
  Totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
         std::vector<Clusters>& layers)
      : tasks_(tasks), layers_(layers), ranks_(total.size()), above_(total.begin(), total.end()) {
    for (int& above : above_) above = -above;
    for (const Clusters& clusters : layers) {
      sizes_.push_back(cluster_sizes(clusters, static_cast<int>(ranks_)));
      for (std::size_t rank = 0; rank < ranks_; ++rank) above_[rank] += sizes_.back()[rank];
    }
  }

  bool hold() const {
    return std::ranges::all_of(above_, [](int above) { return above == 0; });
  }

  void renumber(const Deadline& deadline) {
    while (!hold() && renumber_once(deadline)) {
    }
  }

  // Moves one expert from a rank with too many to one with too few, where it costs least.
  bool resize_once(const Deadline& deadline) {
    const auto most = static_cast<std::size_t>(std::ranges::max_element(above_) - above_.begin());
    const auto least = static_cast<std::size_t>(std::ranges::min_element(above_) - above_.begin());
    std::optional<Change> best;
    for (const Change& change : cheapest_moves(most, least, deadline)) {
      Clusters evened = change.clusters;
      exchange(fixed_sizes(change.layer, evened), evened, deadline);
      const Wide cost =
          deviation(tasks_[change.layer], evened) - deviation(tasks_[change.layer], layers_[change.layer]);
      if (!best || cost < best->cost) best = Change{change.layer, cost, std::move(evened)};
    }
    if (!best || deadline.passed()) return false;
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

  bool renumber_once(const Deadline& deadline) {
    bool improved = false;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer)
      for (std::size_t a = 0; a < ranks_; ++a) {
        if (deadline.passed()) return false;
        for (std::size_t b = a + 1; b < ranks_; ++b) improved |= swap_if_nearer(layer, a, b);
      }
    return improved;
  }

  bool swap_if_nearer(std::size_t layer, std::size_t a, std::size_t b) {
    const std::vector<int>& size = sizes_[layer];
    const int moved = size[b] - size[a];
    // Half the fall of the sum of squares.
    const std::int64_t gain = std::int64_t{moved} * (std::int64_t{above_[b]} - above_[a] - moved);
    if (gain <= 0 || size[a] > tasks_[layer].most[b] || size[b] > tasks_[layer].most[a]) return false;
    for (int& cluster : layers_[layer]) {
      if (cluster == static_cast<int>(a))
        cluster = static_cast<int>(b);
      else if (cluster == static_cast<int>(b))
        cluster = static_cast<int>(a);
    }
    std::swap(sizes_[layer][a], sizes_[layer][b]);
    above_[a] += moved;
    above_[b] -= moved;
    return true;
  }

  std::vector<Change> cheapest_moves(std::size_t from, std::size_t to, const Deadline& deadline) const {
    std::vector<Change> moves;
    for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
      if (deadline.passed()) return {};
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

  PartitionTask fixed_sizes(std::size_t layer, const Clusters& clusters) const {
    const std::vector<int> sizes = cluster_sizes(clusters, static_cast<int>(ranks_));
    return {.loads = tasks_[layer].loads, .least = sizes, .most = sizes};
  }

  const std::vector<PartitionTask>& tasks_;
  std::vector<Clusters>& layers_;
  std::size_t ranks_;
  std::vector<std::vector<int>> sizes_;  // [L][P]
  std::vector<int> above_;               // [P] experts beyond the total, below 0 if fewer
};

}  // namespace

bool renumber_to_totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                        std::vector<Clusters>& layers, const Deadline& deadline) {
  Totals totals(tasks, total, layers);
  totals.renumber(deadline);
  return totals.hold();
}

bool resize_to_totals(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                      std::vector<Clusters>& layers, const Deadline& deadline) {
  Totals totals(tasks, total, layers);
  totals.renumber(deadline);
  while (!totals.hold())
    if (!totals.resize_once(deadline)) return false;
  return true;
}

}  // namespace evenkeel::internal
