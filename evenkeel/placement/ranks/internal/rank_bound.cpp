#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "evenkeel/placement/ranks/internal/methods.h"

namespace evenkeel::internal {

namespace {

struct FastestLinks {
  double any = 0;     // between two ranks
  double across = 0;  // between two nodes
  std::size_t node_size = 0;
};

FastestLinks fastest_links(const ClusterTraffic& traffic) {
  const Topology& topology = traffic.topology();
  FastestLinks fastest;
  const auto P = traffic.num_ranks();
  std::vector<std::size_t> sizes(static_cast<std::size_t>(topology.num_nodes()), 0);
  for (std::size_t from = 0; from < P; ++from) {
    ++sizes[topology.node_of(RankId(from)).offset()];
    for (std::size_t to = 0; to < P; ++to) {
      if (from == to) continue;
      fastest.any = std::max(fastest.any, traffic.bandwidth(from, to));
      if (!topology.same_node(RankId(from), RankId(to)))
        fastest.across = std::max(fastest.across, traffic.bandwidth(from, to));
    }
  }
  fastest.node_size = std::ranges::max(sizes);
  return fastest;
}

// Union-find over senders and receivers that traffic joins. join() is false if the joined set has more
// senders or receivers than a node has ranks.
class UnionFind {
 public:
  explicit UnionFind(std::size_t P) : parent_(2 * P), senders_(2 * P, 0), receivers_(2 * P, 0) {
    std::iota(parent_.begin(), parent_.end(), 0);
    std::fill_n(senders_.begin(), P, 1);
    std::fill_n(receivers_.begin() + static_cast<std::ptrdiff_t>(P), P, 1);
  }

  bool join(std::size_t a, std::size_t b, std::size_t most) {
    a = root(a);
    b = root(b);
    if (a == b) return true;
    parent_[b] = a;
    senders_[a] += senders_[b];
    receivers_[a] += receivers_[b];
    return std::max(senders_[a], receivers_[a]) <= most;
  }

 private:
  std::size_t root(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }

  std::vector<std::size_t> parent_;
  std::vector<std::size_t> senders_;
  std::vector<std::size_t> receivers_;
};

// The largest traffic that must leave its node. The few largest pairs are usually enough to fill the nodes,
// so only these are sorted at first, then more.
double least_crossing_nodes(const ClusterTraffic& traffic, std::size_t exchange, std::size_t node_size,
                            const Deadline& deadline) {
  const auto P = traffic.num_ranks();
  const std::vector<double>& pairs = traffic.traffic(exchange);
  std::vector<std::size_t> order(pairs.size());
  std::iota(order.begin(), order.end(), 0);
  const auto larger = [&](std::size_t a, std::size_t b) { return pairs[a] > pairs[b]; };
  UnionFind sets(P);
  auto next = order.begin();
  for (std::size_t take = 4 * P; next != order.end() && !deadline.passed(); take *= 8) {
    const auto end =
        next + static_cast<std::ptrdiff_t>(std::min(take, static_cast<std::size_t>(order.end() - next)));
    if (end != order.end()) std::nth_element(next, end, order.end(), larger);
    std::sort(next, end, larger);
    for (; next != end; ++next)
      if (!sets.join(*next / P, P + *next % P, node_size)) return pairs[*next];
  }
  return 0;
}

// An upper bound on the traffic that stays on its rank, over all ranks: the sum of the rows' largest values,
// or of the columns' largest values if that is less.
double most_kept_at_all(const ClusterTraffic& traffic, std::size_t exchange) {
  const auto P = traffic.num_ranks();
  double by_rows = 0;
  std::vector<double> of_column(P, 0.0);
  for (std::size_t i = 0; i < P; ++i) {
    double of_row = 0;
    for (std::size_t j = 0; j < P; ++j) {
      of_row = std::max(of_row, traffic.at(exchange, i, j));
      of_column[j] = std::max(of_column[j], traffic.at(exchange, i, j));
    }
    by_rows += of_row;
  }
  return std::min(by_rows, std::accumulate(of_column.begin(), of_column.end(), 0.0));
}

double most_kept_on_ranks(const ClusterTraffic& traffic, std::size_t exchange, const Deadline& deadline) {
  const std::vector<double>& pairs = traffic.traffic(exchange);
  std::vector<double> costs = pairs;
  for (double& cost : costs) cost = -cost;
  const std::vector<int> receiver = least_total_assignment(costs, traffic.num_ranks(), deadline);
  if (receiver.empty()) return most_kept_at_all(traffic, exchange);
  double kept = 0;
  for (std::size_t c = 0; c < receiver.size(); ++c)
    kept += traffic.at(exchange, c, static_cast<std::size_t>(receiver[c]));
  return kept;
}

double most_kept_in_nodes(const ClusterTraffic& traffic, std::size_t exchange, std::size_t node_size) {
  const auto P = traffic.num_ranks();
  double by_rows = 0;
  double by_columns = 0;
  std::vector<double> line(P);
  const auto largest = [&] {
    const auto end = line.begin() + static_cast<std::ptrdiff_t>(node_size);
    if (end != line.end()) std::ranges::nth_element(line, end, std::greater{});
    std::sort(line.begin(), end, std::greater{});
    return std::accumulate(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(node_size), 0.0);
  };
  for (std::size_t i = 0; i < P; ++i) {
    for (std::size_t j = 0; j < P; ++j) line[j] = traffic.at(exchange, i, j);
    by_rows += largest();
    for (std::size_t j = 0; j < P; ++j) line[j] = traffic.at(exchange, j, i);
    by_columns += largest();
  }
  return std::min(by_rows, by_columns);
}

double total_bound(const ClusterTraffic& traffic, const FastestLinks& fastest, std::size_t exchange,
                   const Deadline& deadline) {
  const std::vector<double>& pairs = traffic.traffic(exchange);
  const double all = std::accumulate(pairs.begin(), pairs.end(), 0.0);
  const double leaving = std::max(0.0, all - most_kept_on_ranks(traffic, exchange, deadline)) / fastest.any;
  if (fastest.across == 0 || fastest.across >= fastest.any || deadline.passed()) return leaving;
  const double leaving_nodes = std::max(0.0, all - most_kept_in_nodes(traffic, exchange, fastest.node_size));
  return leaving + leaving_nodes * (1 / fastest.across - 1 / fastest.any);
}

}  // namespace

double least_crossing(const ClusterTraffic& traffic, std::size_t exchange) {
  const auto P = traffic.num_ranks();
  double worst = 0;
  for (std::size_t i = 0; i < P; ++i) {
    double largest[2] = {0, 0};
    double second[2] = {0, 0};
    for (std::size_t j = 0; j < P; ++j) {
      const double of_line[2] = {traffic.at(exchange, i, j), traffic.at(exchange, j, i)};
      for (std::size_t k = 0; k < 2; ++k) {
        second[k] = std::max(second[k], std::min(largest[k], of_line[k]));
        largest[k] = std::max(largest[k], of_line[k]);
      }
    }
    worst = std::max({worst, second[0], second[1]});
  }
  return worst;
}

double exchange_bound(const ClusterTraffic& traffic, std::size_t exchange, const Deadline& deadline) {
  if (traffic.num_ranks() == 1) return 0;
  const FastestLinks fastest = fastest_links(traffic);
  if (!traffic.worst_pair()) return total_bound(traffic, fastest, exchange, deadline);
  const double bound = least_crossing(traffic, exchange) / fastest.any;
  if (fastest.across == 0) return bound;
  return std::max(bound,
                  least_crossing_nodes(traffic, exchange, fastest.node_size, deadline) / fastest.across);
}

}  // namespace evenkeel::internal
