#include <algorithm>
#include <random>
#include <utility>

#include "evenkeel/placement/ranks/internal/methods.h"

namespace evenkeel::internal {

namespace {

constexpr double kLeastGain = 1e-12;      // relative to the cost at the start
constexpr std::size_t kShakes = 4096;     // limit on shakes of a layer, times P^2
constexpr std::size_t kMostShakes = 100;  // limit on shakes of a layer

class RankSearch {
 public:
  RankSearch(const ClusterTraffic& traffic, const RankRule& rule, std::vector<Ranks> start,
             const Deadline& deadline)
      : traffic_(traffic),
        rule_(rule),
        deadline_(deadline),
        num_ranks_(traffic.num_ranks()),
        dispatch_(traffic.dispatch()),
        worst_(traffic.worst_pair()),
        sources_(in_order(num_ranks_)),
        ranks_(std::move(start)),
        lines_(traffic.num_exchanges()) {
    for (const Ranks& ranks : ranks_) {
      cluster_on_.emplace_back(num_ranks_);
      for (std::size_t c = 0; c < num_ranks_; ++c) cluster_on_.back()[static_cast<std::size_t>(ranks[c])] = c;
    }
    for (std::size_t exchange = 0; exchange < lines_.size(); ++exchange) refresh(exchange);
    least_gain_ = kLeastGain * (1 + cost());
  }

  std::vector<Ranks> run() {
    descend();
    if (num_ranks_ > 1) shake();
    descend();
    return ranks_;
  }

 private:
  struct Lines {  // of an exchange: the largest cost of each row and column, or the sum
    std::vector<double> senders;
    std::vector<double> receivers;
    double cost = 0;
  };

  double join(double a, double b) const { return worst_ ? std::max(a, b) : a + b; }
  std::size_t cluster_on(std::size_t layer, std::size_t rank) const { return cluster_on_[layer][rank]; }
  std::size_t rank_of(std::size_t layer, std::size_t cluster) const {
    return static_cast<std::size_t>(ranks_[layer][cluster]);
  }
  const Ranks& senders_of(std::size_t exchange) const { return dispatch_ ? sources_ : ranks_[exchange]; }
  double cost() const {
    double sum = 0;
    for (const Lines& lines : lines_) sum += lines.cost;
    return sum;
  }

  void descend() {
    for (bool improved = true; improved;) {
      improved = false;
      for (std::size_t layer = 0; layer < ranks_.size(); ++layer) {
        if (deadline_.passed()) return;
        improved |= swap_clusters(layer);
      }
      if (dispatch_) continue;
      for (std::size_t one = 0; one < num_ranks_; ++one)
        for (std::size_t other = one + 1; other < num_ranks_; ++other) {
          if (deadline_.passed()) return;
          improved |= swap_runs(one, other);
        }
    }
  }

  void shake() {
    std::mt19937_64 random(1);
    const std::size_t times = std::min(kMostShakes, kShakes / (num_ranks_ * num_ranks_));
    for (std::size_t time = 0; time < times; ++time)
      for (std::size_t layer = 0; layer < ranks_.size(); ++layer) {
        if (deadline_.passed()) return;
        shake_layer(layer, random);
      }
  }

  void shake_layer(std::size_t layer, std::mt19937_64& random) {
    const std::size_t first = layer == 0 ? 0 : layer - 1;
    const std::size_t last = std::min(layer + 1, ranks_.size() - 1);
    const double before = cost();
    const std::vector<Ranks> kept(ranks_.begin() + static_cast<std::ptrdiff_t>(first),
                                  ranks_.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    for (int swap = 0; swap < 3; ++swap) {
      const std::size_t a = random() % num_ranks_;
      const std::size_t b = random() % num_ranks_;
      if (a != b && may_swap(layer, a, b)) swap_ranks(layer, rank_of(layer, a), rank_of(layer, b));
    }
    for (bool improved = true; improved;) {
      improved = swap_clusters(layer);
      for (std::size_t near = first; near <= last; ++near)
        if (near != layer) improved |= swap_clusters(near);
    }
    if (cost() <= before) return;
    for (std::size_t near = first; near <= last; ++near)
      for (std::size_t c = 0; c < num_ranks_; ++c)
        if (ranks_[near][c] != kept[near - first][c])
          swap_ranks(near, rank_of(near, c), static_cast<std::size_t>(kept[near - first][c]));
  }

  // Also returns false if the deadline passes, so that callers stop.
  bool swap_clusters(std::size_t layer) {
    bool improved = false;
    for (std::size_t a = 0; a < num_ranks_; ++a) {
      if (deadline_.passed()) return false;
      for (std::size_t b = a + 1; b < num_ranks_; ++b) {
        if (!may_swap(layer, a, b)) continue;
        const double change = receiving_change(layer, a, b) + sending_change(layer, a, b);
        if (change >= -least_gain_) continue;
        swap_ranks(layer, rank_of(layer, a), rank_of(layer, b));
        improved = true;
        if (deadline_.passed()) return false;
      }
    }
    return improved;
  }

  bool may_swap(std::size_t layer, std::size_t a, std::size_t b) const {
    if (rule_.has_totals()) return rule_.size(layer, a) == rule_.size(layer, b);
    return rule_.fits(layer, a, rank_of(layer, b)) && rule_.fits(layer, b, rank_of(layer, a));
  }

  bool swap_runs(std::size_t one, std::size_t other) {
    if (!rule_.fits_everywhere() || !interchangeable(one, other)) return false;
    return rule_.has_totals() ? swap_balanced_runs(one, other) : swap_suffixes(one, other);
  }

  // Swaps the two ranks in all layers from some layer to the last.
  bool swap_suffixes(std::size_t one, std::size_t other) {
    bool improved = false;
    for (std::size_t exchange = 0; exchange < lines_.size(); ++exchange) {
      if (run_change(exchange, one, other) >= -least_gain_) continue;
      for (std::size_t layer = exchange + 1; layer < ranks_.size(); ++layer) rename(layer, one, other);
      refresh(exchange);
      improved = true;
    }
    return improved;
  }

  // Swaps the two ranks in a run of layers over which both have the same total size.
  bool swap_balanced_runs(std::size_t one, std::size_t other) {
    std::vector<double> change(ranks_.size() + 1, 0.0);  // at the start of each layer, and after the last
    for (std::size_t exchange = 0; exchange < lines_.size(); ++exchange)
      change[exchange + 1] = run_change(exchange, one, other);
    double best = -least_gain_;
    std::pair<std::size_t, std::size_t> run(0, 0);
    for (std::size_t first = 0; first < ranks_.size(); ++first) {
      int surplus = 0;
      for (std::size_t last = first; last < ranks_.size(); ++last) {
        surplus += rule_.size(last, cluster_on(last, one)) - rule_.size(last, cluster_on(last, other));
        if (surplus != 0 || change[first] + change[last + 1] >= best) continue;
        best = change[first] + change[last + 1];
        run = {first, last + 1};
      }
    }
    for (std::size_t layer = run.first; layer < run.second; ++layer) rename(layer, one, other);
    if (run.first > 0) refresh(run.first - 1);
    if (run.second > run.first && run.second < ranks_.size()) refresh(run.second - 1);
    return run.second > run.first;
  }

  bool interchangeable(std::size_t one, std::size_t other) const {
    for (std::size_t rank = 0; rank < num_ranks_; ++rank) {
      if (rank == one || rank == other) continue;
      if (traffic_.bandwidth(rank, one) != traffic_.bandwidth(rank, other)) return false;
      if (traffic_.bandwidth(one, rank) != traffic_.bandwidth(other, rank)) return false;
    }
    return traffic_.bandwidth(one, other) == traffic_.bandwidth(other, one);
  }

  // Change of Eq. 8 if clusters a and b swap ranks: in the exchange that the layer receives from, and in the
  // one that it sends to.
  double receiving_change(std::size_t layer, std::size_t a, std::size_t b) const {
    if (!dispatch_ && layer == 0) return 0;
    const std::size_t exchange = dispatch_ ? layer : layer - 1;
    const Ranks& senders = senders_of(exchange);
    return cost_change(layer, a, b, lines_[exchange].receivers, lines_[exchange].cost,
                       [&](std::size_t sender, std::size_t cluster, std::size_t rank) {
                         return traffic_.at(exchange, sender, cluster) /
                                traffic_.bandwidth(static_cast<std::size_t>(senders[sender]), rank);
                       });
  }
  double sending_change(std::size_t layer, std::size_t a, std::size_t b) const {
    if (dispatch_ || layer >= lines_.size()) return 0;
    return cost_change(layer, a, b, lines_[layer].senders, lines_[layer].cost,
                       [&](std::size_t receiver, std::size_t cluster, std::size_t rank) {
                         return traffic_.at(layer, cluster, receiver) /
                                traffic_.bandwidth(rank, rank_of(layer + 1, receiver));
                       });
  }
  // cost_with(c, cluster, rank): cost of the traffic between `cluster` on `rank` and cluster c of the other
  // layer.
  template <class F>
  double cost_change(std::size_t layer, std::size_t a, std::size_t b, const std::vector<double>& lines,
                     double now, F cost_with) const {
    const std::size_t on_a = rank_of(layer, b);
    const std::size_t on_b = rank_of(layer, a);
    double cost = 0;
    for (std::size_t c = 0; c < num_ranks_; ++c) {
      cost = join(cost, cost_with(c, a, on_a));
      cost = join(cost, cost_with(c, b, on_b));
      if (c != a && c != b) cost = join(cost, lines[c]);
    }
    return cost - now;
  }

  double run_change(std::size_t exchange, std::size_t one, std::size_t other) const {
    const std::size_t layer = traffic_.receiving_layer(exchange);
    return receiving_change(layer, cluster_on(layer, one), cluster_on(layer, other));
  }

  // The caller must refresh the costs of the layer's exchanges, as swap_ranks() does.
  void rename(std::size_t layer, std::size_t one, std::size_t other) {
    std::swap(cluster_on_[layer][one], cluster_on_[layer][other]);
    ranks_[layer][cluster_on_[layer][one]] = static_cast<int>(one);
    ranks_[layer][cluster_on_[layer][other]] = static_cast<int>(other);
  }

  void swap_ranks(std::size_t layer, std::size_t one, std::size_t other) {
    rename(layer, one, other);
    if (dispatch_) {
      refresh(layer);
      return;
    }
    if (layer > 0) refresh(layer - 1);
    if (layer < lines_.size()) refresh(layer);
  }

  void refresh(std::size_t exchange) {
    Lines& lines = lines_[exchange];
    lines = {std::vector<double>(num_ranks_, 0.0), std::vector<double>(num_ranks_, 0.0), 0};
    const Ranks& senders = senders_of(exchange);
    const Ranks& receivers = ranks_[traffic_.receiving_layer(exchange)];
    for (std::size_t c1 = 0; c1 < num_ranks_; ++c1)
      for (std::size_t c2 = 0; c2 < num_ranks_; ++c2) {
        const double cost =
            traffic_.at(exchange, c1, c2) / traffic_.bandwidth(static_cast<std::size_t>(senders[c1]),
                                                               static_cast<std::size_t>(receivers[c2]));
        lines.senders[c1] = join(lines.senders[c1], cost);
        lines.receivers[c2] = join(lines.receivers[c2], cost);
        lines.cost = join(lines.cost, cost);
      }
  }

  const ClusterTraffic& traffic_;
  const RankRule& rule_;
  const Deadline& deadline_;
  std::size_t num_ranks_;
  double least_gain_ = 0;  // a smaller gain is rounding
  bool dispatch_;
  bool worst_;
  Ranks sources_;  // under dispatch_combine each source is its own rank
  std::vector<Ranks> ranks_;
  std::vector<std::vector<std::size_t>> cluster_on_;  // [L][P] inverse of ranks_
  std::vector<Lines> lines_;                          // by exchange
};

}  // namespace

std::vector<Ranks> search_ranks(const ClusterTraffic& traffic, const RankRule& rule, std::vector<Ranks> start,
                                const Deadline& deadline) {
  return RankSearch(traffic, rule, std::move(start), deadline).run();
}

}  // namespace evenkeel::internal
