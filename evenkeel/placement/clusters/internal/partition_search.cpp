#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "evenkeel/base/check.h"
#include "evenkeel/placement/clusters/internal/partition.h"

namespace evenkeel::internal {

namespace {

class PartitionSearch {
 public:
  PartitionSearch(const PartitionTask& task, std::int64_t steps) : task_(task), steps_left_(steps) {
    EVENKEEL_CHECK(task.num_experts() <= kMostSearchedExperts);
    load_of_.assign(std::size_t{1} << task.loads.size(), 0);
    for (std::size_t experts = 1; experts < load_of_.size(); ++experts)
      load_of_[experts] =
          load_of_[experts & (experts - 1)] + task.loads[static_cast<std::size_t>(std::countr_zero(experts))];
    total_ = load_of_.back();
  }

  SearchedPartition run(Wide known) {
    Sizes sizes;
    for (std::size_t c = 0; c < task_.least.size(); ++c) sizes.push_back({task_.least[c], task_.most[c]});
    std::sort(sizes.begin(), sizes.end());
    Parts parts;
    const auto all = static_cast<Experts>(load_of_.size() - 1);
    const bool found = split(all, sizes, known, parts) < known;
    return {found ? clusters_of(parts) : Clusters{}, steps_left_ >= 0};
  }

 private:
  using Experts = std::uint32_t;  // a bit set
  struct Size {
    int least;
    int most;
    friend auto operator<=>(const Size&, const Size&) = default;
  };
  using Sizes = std::vector<Size>;  // ascending
  struct Part {
    Experts experts;
    Size size;
  };
  using Parts = std::vector<Part>;
  struct Choice {  // which sizes go into one half
    Sizes in;
    Sizes out;
  };

  // Returns the least deviation of `experts` in clusters of `sizes`, or `limit` if it is not below `limit`.
  Wide split(Experts experts, const Sizes& sizes, Wide limit, Parts& parts) {
    if (!fits(experts, sizes)) return limit;
    if (sizes.size() == 1) {
      const Wide deviation = distance(experts, 1);
      if (deviation < limit) parts.assign(1, {experts, sizes.front()});
      return std::min(deviation, limit);
    }
    const std::size_t count = sizes.size() % 2 == 0 ? sizes.size() / 2 : 1;
    for (const Choice& choice : choices(sizes, count)) limit = halve(experts, choice, limit, parts);
    return limit;
  }

  // One half always holds the first expert, so that no split is tried twice.
  Wide halve(Experts experts, const Choice& choice, Wide limit, Parts& parts) {
    const Experts first = experts & (~experts + 1);
    const Experts others = experts ^ first;
    Parts in_parts;
    Parts out_parts;
    for (Experts more = others;; more = (more - 1) & others) {
      if (--steps_left_ < 0) return limit;
      const Experts in = first | more;
      const Experts out = experts ^ in;
      const Wide of_out = distance(out, choice.out.size());
      if (distance(in, choice.in.size()) + of_out < limit && fits(in, choice.in) && fits(out, choice.out)) {
        const Wide of_in = split(in, choice.in, limit - of_out, in_parts);
        if (of_in < limit - of_out) {
          const Wide rest = split(out, choice.out, limit - of_in, out_parts);
          if (rest < limit - of_in) {
            limit = of_in + rest;
            parts = in_parts;
            parts.insert(parts.end(), out_parts.begin(), out_parts.end());
          }
        }
      }
      if (more == 0) return limit;
    }
  }

  // How far the experts' load is from `num_clusters` means. The clusters together deviate at least as much.
  Wide distance(Experts experts, std::size_t num_clusters) const {
    const Wide above =
        Wide{load_of_[experts]} * task_.num_clusters() - Wide{total_} * static_cast<int>(num_clusters);
    return above < 0 ? -above : above;
  }

  static bool fits(Experts experts, const Sizes& sizes) {
    const int count = std::popcount(experts);
    int least = 0;
    int most = 0;
    for (const Size& size : sizes) {
      least += size.least;
      most += size.most;
    }
    return least <= count && count <= most;
  }

  // All ways to take `count` of the sizes; equal sets of sizes are listed once.
  static std::vector<Choice> choices(const Sizes& sizes, std::size_t count) {
    std::vector<Choice> found;
    std::vector<bool> taken(sizes.size(), false);
    std::fill_n(taken.begin(), count, true);
    do {
      Choice choice;
      for (std::size_t i = 0; i < sizes.size(); ++i) (taken[i] ? choice.in : choice.out).push_back(sizes[i]);
      const bool known =
          std::ranges::any_of(found, [&](const Choice& other) { return other.in == choice.in; });
      if (!known) found.push_back(std::move(choice));
    } while (std::prev_permutation(taken.begin(), taken.end()));
    return found;
  }

  // Parts were split by size; this assigns each part a cluster with that size.
  Clusters clusters_of(const Parts& parts) const {
    std::vector<bool> used(parts.size(), false);
    Clusters clusters(task_.loads.size(), 0);
    for (const Part& part : parts) {
      std::size_t cluster = 0;
      while (used[cluster] || Size{task_.least[cluster], task_.most[cluster]} != part.size) ++cluster;
      used[cluster] = true;
      for (std::size_t expert = 0; expert < clusters.size(); ++expert)
        if (part.experts >> expert & 1) clusters[expert] = static_cast<int>(cluster);
    }
    return clusters;
  }

  const PartitionTask& task_;
  std::vector<std::int64_t> load_of_;  // [2^E]
  std::int64_t total_ = 0;
  std::int64_t steps_left_;
};

}  // namespace

SearchedPartition search_partitions(const PartitionTask& task, Wide known, std::int64_t steps) {
  return PartitionSearch(task, steps).run(known);
}

}  // namespace evenkeel::internal
