#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "evenkeel/placement/clusters/internal/equal_totals.h"
#include "evenkeel/placement/clusters/internal/partition.h"
#include "evenkeel/placement/internal/size_rule.h"

namespace evenkeel::internal {

namespace {

constexpr std::size_t kMostStates = 50'000;

class SizeProgram {
 public:
  // `total` must be the totals of a SizeRule.
  SizeProgram(const std::vector<PartitionTask>& tasks, std::vector<int> total, const std::vector<Wide>& least,
              std::int64_t search_steps, const Deadline& deadline)
      : tasks_(tasks),
        total_(std::move(total)),
        least_(least),
        search_steps_(search_steps),
        deadline_(deadline),
        cuts_(tasks.size()),
        states_(tasks.size() + 1) {
    std::ranges::sort(total_);
  }

  bool run(Wide known, std::vector<Clusters>& layers) {
    const Wide least = std::accumulate(least_.begin(), least_.end(), Wide{0});
    for (std::size_t layer = 0; layer < tasks_.size(); ++layer)
      list_cuts(layer, known - least + least_[layer]);
    states_[0].assign(1, State{.totals = Sizes(total_.size(), 0)});
    for (std::size_t layer = 0; layer < tasks_.size(); ++layer)
      if (!step(layer, known)) return finished_;
    const States& ends = states_.back();
    const auto best = std::ranges::min_element(ends, {}, &State::deviation);
    if (best != ends.end()) write(static_cast<std::size_t>(best - ends.begin()), layers);
    return finished_;
  }

 private:
  struct Cut {    // the best clusters of a layer for given sizes
    Sizes sizes;  // ascending
    Clusters clusters;
    Wide deviation;
  };
  struct State {
    Sizes totals = {};  // by rank
    Wide deviation = 0;
    std::size_t parent = 0;
    std::size_t cut = 0;
    Sizes sizes = {};  // of this layer, by rank
  };
  using States = std::vector<State>;

  // Lists the ways to cut E experts into P clusters of ascending sizes that can deviate less than `slack`.
  void list_cuts(std::size_t layer, Wide slack) {
    const int P = tasks_[layer].num_clusters();
    const int E = tasks_[layer].num_experts();
    Sizes sizes(static_cast<std::size_t>(P), 1);
    for (;;) {
      const int others = std::accumulate(sizes.begin(), sizes.end() - 1, 0);
      sizes.back() = E - others;
      if (std::ranges::is_sorted(sizes) && sizes.back() <= tasks_[layer].most.front())
        add_cut(layer, sizes, slack);
      std::size_t at = 0;
      while (at + 1 < sizes.size() && ++sizes[at] > E / 2) sizes[at++] = 1;
      if (at + 1 >= sizes.size()) return;
    }
  }

  void add_cut(std::size_t layer, const Sizes& sizes, Wide slack) {
    const PartitionTask task{.loads = tasks_[layer].loads, .least = sizes, .most = sizes};
    if (deadline_.passed()) {
      finished_ = false;
      return;
    }
    if (deviation_bound(task) >= slack) return;
    const auto [clusters, finished] = search_partitions(task, slack, search_steps_);
    finished_ = finished_ && finished;
    if (!clusters.empty()) cuts_[layer].push_back({sizes, clusters, deviation(task, clusters)});
  }

  bool step(std::size_t layer, Wide known) {
    const Wide later =
        std::accumulate(least_.begin() + static_cast<std::ptrdiff_t>(layer) + 1, least_.end(), Wide{0});
    std::map<Sizes, std::size_t> known_totals;
    for (std::size_t parent = 0; parent < states_[layer].size(); ++parent)
      for (std::size_t cut = 0; cut < cuts_[layer].size(); ++cut) {
        if (states_[layer][parent].deviation + cuts_[layer][cut].deviation + later >= known) continue;
        extend(parent, layer, cut, known_totals);
        if (states_[layer + 1].size() <= kMostStates && !deadline_.passed()) continue;
        finished_ = false;
        return false;
      }
    return true;
  }

  void extend(std::size_t parent, std::size_t layer, std::size_t cut,
              std::map<Sizes, std::size_t>& known_totals) {
    const State& from = states_[layer][parent];
    States& next = states_[layer + 1];
    Sizes sizes = cuts_[layer][cut].sizes;
    do {
      State state{.totals = from.totals,
                  .deviation = from.deviation + cuts_[layer][cut].deviation,
                  .parent = parent,
                  .cut = cut,
                  .sizes = sizes};
      for (std::size_t rank = 0; rank < sizes.size(); ++rank) state.totals[rank] += sizes[rank];
      Sizes ascending = state.totals;
      std::ranges::sort(ascending);
      if (!may_end_even(ascending, tasks_.size() - layer - 1)) continue;
      const auto [entry, is_new] = known_totals.emplace(std::move(ascending), next.size());
      if (is_new)
        next.push_back(std::move(state));
      else if (state.deviation < next[entry->second].deviation)
        next[entry->second] = std::move(state);
    } while (std::next_permutation(sizes.begin(), sizes.end()));
  }

  // Whether equal totals are still possible: each rank gets at least one more expert in each remaining layer.
  bool may_end_even(const Sizes& totals, std::size_t layers_left) const {
    for (std::size_t rank = 0; rank < totals.size(); ++rank) {
      const int left = total_[rank] - totals[rank];
      if (layers_left == 0 ? left != 0 : totals[rank] + static_cast<int>(layers_left) > total_.back())
        return false;
    }
    return true;
  }

  void write(std::size_t last, std::vector<Clusters>& layers) const {
    for (std::size_t layer = tasks_.size(); layer-- > 0;) {
      const State& state = states_[layer + 1][last];
      const Cut& cut = cuts_[layer][state.cut];
      Sizes rank_of(cut.sizes.size(), -1);
      std::vector<bool> taken(cut.sizes.size(), false);
      for (std::size_t c = 0; c < cut.sizes.size(); ++c) {
        std::size_t rank = 0;
        while (taken[rank] || state.sizes[rank] != cut.sizes[c]) ++rank;
        taken[rank] = true;
        rank_of[c] = static_cast<int>(rank);
      }
      layers[layer] = cut.clusters;
      for (int& cluster : layers[layer]) cluster = rank_of[static_cast<std::size_t>(cluster)];
      last = state.parent;
    }
  }

  const std::vector<PartitionTask>& tasks_;
  Sizes total_;
  const std::vector<Wide>& least_;  // [L]
  std::int64_t search_steps_;
  const Deadline& deadline_;
  bool finished_ = true;
  std::vector<std::vector<Cut>> cuts_;  // [L]
  std::vector<States> states_;          // [L + 1]
};

}  // namespace

bool improve_sizes(const std::vector<PartitionTask>& tasks, const std::vector<int>& total,
                   const std::vector<Wide>& least, Wide known, std::int64_t search_steps,
                   const Deadline& deadline, std::vector<Clusters>& layers) {
  return SizeProgram(tasks, total, least, search_steps, deadline).run(known, layers);
}

}  // namespace evenkeel::internal
