#include <algorithm>
#include <compare>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <random>
#include <utility>

#include "evenkeel/placement/clusters/internal/partition.h"

namespace evenkeel::internal {

namespace {

// At most two experts of one cluster, ordered by their total load.
struct Bundle {
  std::int64_t load = 0;
  int count = 0;
  int experts[2] = {-1, -1};

  friend auto operator<=>(const Bundle&, const Bundle&) = default;
};

// An exchange between two clusters, and the difference of their loads afterwards.
struct BundleExchange {
  const Bundle* give = nullptr;
  const Bundle* take = nullptr;
  std::int64_t distance = 0;
};

constexpr int kFewExperts = 64;                  // up to this many, precision is worth the time
constexpr std::size_t kMostExpertsOfPairs = 48;  // per cluster; more experts make too many pairs to sort

class Exchanger {
 public:
  Exchanger(const PartitionTask& task, Clusters& clusters, const Deadline& deadline)
      : task_(task), cluster_of_(clusters), deadline_(deadline) {
    members_.resize(task.least.size());
    for (std::size_t expert = 0; expert < clusters.size(); ++expert)
      members_[at(clusters[expert])].push_back(static_cast<int>(expert));
    loads_ = cluster_loads(task, clusters);
    mean_ = std::accumulate(loads_.begin(), loads_.end(), std::int64_t{0}) / task.num_clusters();
    narrow_ = task.num_experts() > kFewExperts ? std::max<std::int64_t>(1, mean_ / 50'000) : 1;
    bundles_.resize(3 * members_.size());
    fresh_.assign(3 * members_.size(), false);
    version_.assign(members_.size(), 1);
    tried_.assign(members_.size() * members_.size(), 0);
  }

  void run() {
    widest_ = 1;
    while (pass()) {
    }
    widest_ = 2;
    std::fill(tried_.begin(), tried_.end(), 0);
    while (pass()) {
    }
  }

 private:
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }

  // Tries pairs of clusters, heaviest against lightest first. Skips pairs that failed before and have not
  // changed.
  bool pass() {
    std::vector<std::size_t> order(members_.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return loads_[a] > loads_[b]; });
    bool improved = false;
    for (std::size_t heavy = 0; heavy < order.size(); ++heavy)
      for (std::size_t light = order.size() - 1; light > heavy; --light) {
        if ((light & 0x3f) == 0 && deadline_.passed()) return false;
        improved |= improve(order[heavy], order[light]);
      }
    return improved;
  }

  bool improve(std::size_t a, std::size_t b) {
    if (loads_[a] < loads_[b]) std::swap(a, b);
    if (loads_[a] - loads_[b] <= narrow_ || loads_[a] <= mean_) return false;
    std::int64_t& tried = tried_[std::min(a, b) * members_.size() + std::max(a, b)];
    const std::int64_t versions = version_[a] + version_[b];
    if (tried == versions) return false;
    const BundleExchange best = best_exchange(a, b);
    if (best.give == nullptr) {
      tried = versions;
      return false;
    }
    carry_out(a, b, *best.give, *best.take);
    return true;
  }

  BundleExchange best_exchange(std::size_t a, std::size_t b) {
    BundleExchange best{.distance = loads_[a] - loads_[b]};
    const int sizes[2] = {static_cast<int>(members_[a].size()), static_cast<int>(members_[b].size())};
    for (int give = 0; give <= widest_; ++give)
      for (int take = 0; take <= widest_; ++take) {
        if (give + take == 0) continue;
        const int a_size = sizes[0] - give + take;
        const int b_size = sizes[1] + give - take;
        if (a_size < task_.least[a] || a_size > task_.most[a]) continue;
        if (b_size < task_.least[b] || b_size > task_.most[b]) continue;
        find_best(a, b, bundles(a, give), bundles(b, take), best);
      }
    return best;
  }

  // Both lists ascend, so one staircase walk finds the exchange that moves closest to half the difference.
  void find_best(std::size_t a, std::size_t b, const std::vector<Bundle>& gives,
                 const std::vector<Bundle>& takes, BundleExchange& best) const {
    std::size_t give = 0;
    std::size_t take = 0;
    while (give < gives.size() && take < takes.size()) {
      const std::int64_t moved = gives[give].load - takes[take].load;
      const std::int64_t above = (loads_[a] - moved) - (loads_[b] + moved);
      if (std::abs(above) < best.distance) best = {&gives[give], &takes[take], std::abs(above)};
      if (above > 0)
        ++give;
      else
        ++take;
    }
  }

  void carry_out(std::size_t a, std::size_t b, const Bundle& give, const Bundle& take) {
    const Bundle gives = give;  // copies: the lists that hold them change below
    const Bundle takes = take;
    move(a, b, gives);
    move(b, a, takes);
    for (std::size_t cluster : {a, b}) {
      ++version_[cluster];
      for (std::size_t count = 0; count < 3; ++count) fresh_[3 * cluster + count] = false;
    }
  }

  void move(std::size_t from, std::size_t to, const Bundle& bundle) {
    for (int i = 0; i < bundle.count; ++i) {
      const int expert = bundle.experts[i];
      std::erase(members_[from], expert);
      members_[to].push_back(expert);
      cluster_of_[at(expert)] = static_cast<int>(to);
    }
    loads_[from] -= bundle.load;
    loads_[to] += bundle.load;
  }

  const std::vector<Bundle>& bundles(std::size_t cluster, int count) {
    const std::size_t list = 3 * cluster + at(count);
    if (!fresh_[list]) list_bundles(members_[cluster], count, bundles_[list]);
    fresh_[list] = true;
    return bundles_[list];
  }

  void list_bundles(const std::vector<int>& members, int count, std::vector<Bundle>& list) const {
    list.clear();
    if (count == 0) list.push_back({});
    if (count == 1)
      for (int expert : members) list.push_back({task_.loads[at(expert)], 1, {expert, -1}});
    if (count == 2 && members.size() <= kMostExpertsOfPairs)
      for (std::size_t i = 0; i < members.size(); ++i)
        for (std::size_t j = i + 1; j < members.size(); ++j)
          list.push_back(
              {task_.loads[at(members[i])] + task_.loads[at(members[j])], 2, {members[i], members[j]}});
    std::ranges::sort(list);
  }

  const PartitionTask& task_;
  Clusters& cluster_of_;
  const Deadline& deadline_;
  std::vector<std::vector<int>> members_;     // [P]
  std::vector<std::int64_t> loads_;           // [P]
  std::vector<std::vector<Bundle>> bundles_;  // [P][3] bundles of none, one, two experts
  std::vector<char> fresh_;                   // [P][3]
  std::vector<std::int64_t> version_;         // [P], raised by every change
  std::vector<std::int64_t> tried_;           // [P, P] sum of both versions when no exchange was found
  std::int64_t mean_ = 0;
  std::int64_t narrow_ = 1;  // clusters that differ by at most this are skipped
  int widest_ = 1;
};

// Swaps a few experts between clusters at random; sizes stay the same.
void shake(std::mt19937_64& random, Clusters& clusters) {
  for (int swap = 0; swap < 3; ++swap) {
    const std::size_t one = random() % clusters.size();
    const std::size_t other = random() % clusters.size();
    std::swap(clusters[one], clusters[other]);
  }
}

}  // namespace

Clusters largest_first(const PartitionTask& task) {
  const auto E = task.loads.size();
  std::vector<std::size_t> order(E);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return task.loads[a] > task.loads[b]; });
  std::vector<int> sizes(task.least.size(), 0);
  // The number of experts that clusters still need to reach their least sizes. Once only that many experts
  // are left, no cluster gets more than its least size.
  std::int64_t owed = std::accumulate(task.least.begin(), task.least.end(), std::int64_t{0});
  bool spare = true;
  std::vector<std::pair<std::int64_t, std::size_t>> lightest;  // min-heap: load, cluster with space
  const auto has_space = [&](std::size_t c) { return sizes[c] < (spare ? task.most[c] : task.least[c]); };
  for (std::size_t c = 0; c < sizes.size(); ++c)
    if (has_space(c)) lightest.emplace_back(0, c);
  std::ranges::make_heap(lightest, std::greater{});
  Clusters clusters(E, 0);
  for (std::size_t i = 0; i < E; ++i) {
    if (spare && owed == static_cast<std::int64_t>(E - i)) {
      spare = false;
      std::erase_if(lightest, [&](const auto& each) { return !has_space(each.second); });
      std::ranges::make_heap(lightest, std::greater{});
    }
    std::ranges::pop_heap(lightest, std::greater{});
    auto [load, best] = lightest.back();
    lightest.pop_back();
    if (sizes[best] < task.least[best]) --owed;
    ++sizes[best];
    load += task.loads[order[i]];
    clusters[order[i]] = static_cast<int>(best);
    if (!has_space(best)) continue;
    lightest.emplace_back(load, best);
    std::ranges::push_heap(lightest, std::greater{});
  }
  return clusters;
}

void exchange(const PartitionTask& task, Clusters& clusters, const Deadline& deadline) {
  Exchanger(task, clusters, deadline).run();
}

Clusters exchanged_partition(const PartitionTask& task, const Deadline& deadline) {
  Clusters best = largest_first(task);
  exchange(task, best, deadline);
  const Wide bound = deviation_bound(task);
  std::mt19937_64 random(1);
  int restarts = task.num_experts() <= kFewExperts ? 8 : 0;
  for (; restarts > 0 && !deadline.passed() && deviation(task, best) > bound; --restarts) {
    Clusters shaken = best;
    shake(random, shaken);
    exchange(task, shaken, deadline);
    if (is_better(task, shaken, best)) best = shaken;
  }
  return best;
}

}  // namespace evenkeel::internal
