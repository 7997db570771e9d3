#include "evenkeel/placement/internal/pool/level_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "evenkeel/placement/internal/pool/copy_counts.h"
#include "evenkeel/placement/internal/pool/pool_solver.h"

namespace evenkeel::internal {

namespace {

// Other ranks that are tried if no swap helps the heaviest. More ranks gain little for their time.
constexpr std::size_t kMostTried = 8;
// A swap must lower the potential of its two ranks by more than kLeastGain x the potential + kLeastChange,
// the potential of a rank 1e-4 above the mean. A smaller change is rounding, or not worth its time.
constexpr float kLeastGain = 1e-3F;
constexpr float kLeastChange = 1e-16F;
constexpr int kMostVariedSlots = 4000;  // over all tries of a pool

class LevelSearch {
 public:
  // Returns false, with no usable placement, if copies of an expert find no rank without that expert.
  bool fill(const LevelPool& pool, std::span<const std::int32_t> copies) {
    size_for(pool);
    split_loads(copies);
    std::vector<std::int32_t> items = items_by_size(copies);
    if (place_items(items, false)) return true;
    size_for(pool);
    std::ranges::stable_sort(items, [&](std::int32_t a, std::int32_t b) {
      const auto of = [&](std::int32_t expert) { return copies[static_cast<std::size_t>(expert)]; };
      return of(a) != of(b) ? of(a) > of(b) : a < b;  // copies of one expert are adjacent
    });
    return place_items(items, true);
  }

  void start_at(const LevelPool& pool, std::span<const std::int32_t> expert_in) {
    size_for(pool);
    std::vector<std::int32_t> copies(num_experts_, 0);
    for (std::int32_t expert : expert_in) ++copies[static_cast<std::size_t>(expert)];
    split_loads(copies);
    for (std::size_t slot = 0; slot < expert_in.size(); ++slot) put(slot, expert_in[slot], rank_of_[slot]);
    for (std::size_t rank = 0; rank < potential_.size(); ++rank) measure(rank);
  }

  void level(float target, const Deadline& deadline) {
    while (!deadline.passed()) {
      const auto heaviest = static_cast<std::size_t>(std::ranges::max_element(worst_) - worst_.begin());
      if (worst_[heaviest] <= target) return;
      if (relieve(heaviest)) continue;
      order_ranks();
      if (std::ranges::none_of(by_potential_,
                               [&](std::size_t rank) { return rank != heaviest && relieve(rank); }))
        return;
    }
  }

  float heaviest_load() const { return std::ranges::max(worst_); }
  LevelAnswer answer() const { return {heaviest_load(), expert_in_}; }

 private:
  struct Exchange {
    std::size_t mine = 0;
    std::size_t theirs = 0;
    float change = 0;  // change of the potential
  };

  bool holds(std::size_t rank, std::int32_t expert) const {
    return held_[rank * num_experts_ + static_cast<std::size_t>(expert)] != 0;
  }
  std::span<const Lanes> share(std::int32_t expert) const {
    return std::span(shares_).subspan(static_cast<std::size_t>(expert) * blocks_, blocks_);
  }
  void size_for(const LevelPool& pool) {
    blocks_ = pool.blocks;
    loads_ = pool.loads;
    num_experts_ = pool.loads.size() / blocks_;
    const std::size_t ranks = pool.capacities.size();
    begin_.assign(1, 0);
    rank_of_.clear();
    for (std::size_t r = 0; r < ranks; ++r) {
      begin_.push_back(begin_.back() + static_cast<std::size_t>(pool.capacities[r]));
      rank_of_.resize(begin_.back(), r);
    }
    expert_in_.resize(begin_.back());
    held_.assign(ranks * num_experts_, 0);
    rank_load_.assign(ranks * blocks_, Lanes{});
    potential_.resize(ranks);
    worst_.resize(ranks);
    mean_.assign(blocks_, Lanes{});
    for (std::size_t i = 0; i < loads_.size(); ++i) mean_[i % blocks_] = mean_[i % blocks_] + loads_[i];
    for (Lanes& lanes : mean_) lanes = lanes * Lanes::all(1.0F / static_cast<float>(ranks));
  }

  void split_loads(std::span<const std::int32_t> copies) {
    shares_.resize(loads_.size());
    for (std::size_t i = 0; i < loads_.size(); ++i)
      shares_[i] = loads_[i] * Lanes::all(1.0F / static_cast<float>(copies[i / blocks_]));
  }

  void put(std::size_t slot, std::int32_t expert, std::size_t rank) {
    expert_in_[slot] = expert;
    held_[rank * num_experts_ + static_cast<std::size_t>(expert)] = 1;
    for (std::size_t b = 0; b < blocks_; ++b)
      rank_load_[rank * blocks_ + b] = rank_load_[rank * blocks_ + b] + share(expert)[b];
  }

  // How much the rank's sum of squares grows with a copy of the expert.
  float growth(std::size_t rank, std::int32_t expert) const {
    float growth = 0;
    for (std::size_t b = 0; b < blocks_; ++b) {
      const Lanes& now = rank_load_[rank * blocks_ + b];
      const Lanes& more = share(expert)[b];
      growth += (more * (now + now + more)).sum();
    }
    return growth;
  }

  std::vector<std::int32_t> items_by_size(std::span<const std::int32_t> copies) const {
    std::vector<float> squares(num_experts_, 0);
    for (std::size_t i = 0; i < shares_.size(); ++i) squares[i / blocks_] += (shares_[i] * shares_[i]).sum();
    std::vector<std::int32_t> items;
    for (std::size_t e = 0; e < num_experts_; ++e)
      items.insert(items.end(), static_cast<std::size_t>(copies[e]), static_cast<std::int32_t>(e));
    std::ranges::stable_sort(items, [&](std::int32_t a, std::int32_t b) {
      return squares[static_cast<std::size_t>(a)] > squares[static_cast<std::size_t>(b)];
    });
    return items;
  }

  // Places each item on the rank whose squares grow least. With `emptiest_first` only ranks with the most
  // free slots are considered; if experts with the most copies then come first, all copies of an expert find
  // distinct ranks.
  bool place_items(std::span<const std::int32_t> items, bool emptiest_first) {
    std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);  // the next free slot of each rank
    for (std::int32_t expert : items) {
      std::size_t best = next.size();
      std::size_t most_free = 0;
      float least = 0;
      for (std::size_t rank = 0; rank < next.size(); ++rank) {
        const std::size_t free = begin_[rank + 1] - next[rank];
        if (free == 0 || holds(rank, expert) || (emptiest_first && free < most_free)) continue;
        const float grown = growth(rank, expert);
        if (best < next.size() && grown >= least && (!emptiest_first || free == most_free)) continue;
        best = rank;
        least = grown;
        most_free = free;
      }
      if (best == next.size()) return false;
      put(next[best]++, expert, best);
    }
    for (std::size_t rank = 0; rank < next.size(); ++rank) measure(rank);
    return true;
  }

  Lanes above(Lanes load, std::size_t block) const {
    const Lanes over = positive(load - mean_[block]);
    const Lanes square = over * over;
    return square * square;
  }

  void measure(std::size_t rank) {
    potential_[rank] = 0;
    worst_[rank] = 0;
    for (std::size_t b = 0; b < blocks_; ++b) {
      const Lanes& load = rank_load_[rank * blocks_ + b];
      potential_[rank] += above(load, b).sum();
      worst_[rank] = std::max(worst_[rank], load.largest());
    }
  }

  std::size_t heaviest_lane(std::size_t rank) const {
    std::size_t lane = 0;
    const auto load = [&](std::size_t i) {
      return rank_load_[rank * blocks_ + i / Lanes::kWidth].of[i % Lanes::kWidth];
    };
    for (std::size_t i = 1; i < blocks_ * Lanes::kWidth; ++i)
      if (load(i) > load(lane)) lane = i;
    return lane;
  }

  // Finds the swap with `other` that lowers the potential of the two ranks most; replaces `best` if it is
  // better.
  void consider(std::size_t rank, std::size_t other, Exchange& best) const {
    const float now = potential_[rank] + potential_[other];
    const std::size_t lane = heaviest_lane(rank);
    const auto in_lane = [&](std::int32_t expert) {
      return share(expert)[lane / Lanes::kWidth].of[lane % Lanes::kWidth];
    };
    const Lanes* my_load = &rank_load_[rank * blocks_];
    const Lanes* other_load = &rank_load_[other * blocks_];
    for (std::size_t mine = begin_[rank]; mine < begin_[rank + 1]; ++mine) {
      if (holds(other, expert_in_[mine])) continue;
      const Lanes* given = share(expert_in_[mine]).data();
      const float least = in_lane(expert_in_[mine]);
      for (std::size_t theirs = begin_[other]; theirs < begin_[other + 1]; ++theirs) {
        if (in_lane(expert_in_[theirs]) >= least) continue;
        const Lanes* taken = share(expert_in_[theirs]).data();
        Lanes after;
        for (std::size_t b = 0; b < blocks_; ++b) {
          const Lanes more = taken[b] - given[b];
          after = after + above(my_load[b] + more, b) + above(other_load[b] - more, b);
        }
        const float change = after.sum() - now;
        if (change < best.change && change < -(kLeastGain * now + kLeastChange) &&
            !holds(rank, expert_in_[theirs]))
          best = {mine, theirs, change};
      }
    }
  }

  void exchange(const Exchange& chosen, std::size_t rank, std::size_t other) {
    const std::int32_t given = expert_in_[chosen.mine];
    const std::int32_t taken = expert_in_[chosen.theirs];
    held_[rank * num_experts_ + static_cast<std::size_t>(given)] = 0;
    held_[other * num_experts_ + static_cast<std::size_t>(taken)] = 0;
    held_[rank * num_experts_ + static_cast<std::size_t>(taken)] = 1;
    held_[other * num_experts_ + static_cast<std::size_t>(given)] = 1;
    std::swap(expert_in_[chosen.mine], expert_in_[chosen.theirs]);
    // Recompute the sums, so that rounding errors do not accumulate over many swaps.
    for (std::size_t each : {rank, other}) {
      for (std::size_t b = 0; b < blocks_; ++b) {
        Lanes load;
        for (std::size_t slot = begin_[each]; slot < begin_[each + 1]; ++slot)
          load = load + share(expert_in_[slot])[b];
        rank_load_[each * blocks_ + b] = load;
      }
      measure(each);
    }
  }

  bool relieve(std::size_t rank) {
    Exchange best;
    for (std::size_t other = 0; other < potential_.size(); ++other)
      if (other != rank) consider(rank, other, best);
    if (best.change >= 0) return false;
    exchange(best, rank, rank_of_[best.theirs]);
    return true;
  }

  void order_ranks() {
    by_potential_.resize(potential_.size());
    std::iota(by_potential_.begin(), by_potential_.end(), std::size_t{0});
    const std::size_t tried = std::min(kMostTried, by_potential_.size());
    std::ranges::partial_sort(by_potential_, by_potential_.begin() + static_cast<std::ptrdiff_t>(tried),
                              [&](std::size_t a, std::size_t b) {
                                return potential_[a] != potential_[b] ? potential_[a] > potential_[b] : a < b;
                              });
    by_potential_.resize(tried);
  }

  std::size_t num_experts_ = 0;
  std::size_t blocks_ = 1;
  std::span<const Lanes> loads_;
  std::vector<Lanes> mean_;              // [blocks] mean load of the pool's ranks
  std::vector<std::size_t> begin_;       // [P + 1] into the slots
  std::vector<std::size_t> rank_of_;     // [slots]
  std::vector<std::int32_t> expert_in_;  // [slots]
  std::vector<std::uint8_t> held_;       // [P, E]
  std::vector<Lanes> shares_;            // [E, blocks] load of one copy
  std::vector<Lanes> rank_load_;         // [P, blocks]
  std::vector<float> potential_;         // [P]
  std::vector<float> worst_;             // [P] load in the worst recording
  std::vector<std::size_t> by_potential_;
};

class CopyChoices {
 public:
  CopyChoices(const LevelPool& pool, float target, const Deadline& deadline)
      : pool_(pool), target_(target), deadline_(deadline), peaks_(pool.loads.size() / pool.blocks, 0) {
    for (std::size_t i = 0; i < pool.loads.size(); ++i) {
      double& peak = peaks_[i / pool.blocks];
      peak = std::max(peak, static_cast<double>(pool.loads[i].largest()));
    }
  }

  LevelAnswer run() {
    const auto slots = std::reduce(pool_.capacities.begin(), pool_.capacities.end(), std::int64_t{0});
    if (std::ranges::max(pool_.capacities) > std::ssize(peaks_) || slots < std::ssize(peaks_)) return {};
    std::vector<FixedLoad> fixed(peaks_.size());
    to_fixed(peaks_, fixed_scale(std::reduce(peaks_.begin(), peaks_.end(), 0.0)), fixed);
    CopyCounts counts;
    counts.choose(fixed, static_cast<int>(slots), static_cast<int>(pool_.capacities.size()));
    copies_.assign(counts.counts().begin(), counts.counts().end());
    if (search() && slots < kFewSlots) vary_copies();
    return best_;
  }

 private:
  // Keeps the result if it is lighter than the best so far. Returns false if it is not, or if copies find no
  // distinct ranks.
  bool search() {
    if (!search_.fill(pool_, copies_)) return false;
    search_.level(target_, deadline_);
    if (!best_.expert_in.empty() && search_.heaviest_load() >= best_.heaviest) return false;
    best_ = search_.answer();
    return true;
  }

  void vary_copies() {
    int tries = kMostVariedSlots / static_cast<int>(best_.expert_in.size());
    for (std::size_t giver = 0; giver < copies_.size(); ++giver)
      for (std::size_t taker = 0; taker < copies_.size(); ++taker) {
        if (best_.heaviest <= target_ || tries <= 0 || deadline_.passed()) return;
        if (giver == taker || copies_[giver] == 1 || copies_[taker] == std::ssize(pool_.capacities)) continue;
        if (peaks_[giver] >= static_cast<double>(best_.heaviest) * (copies_[giver] - 1)) break;
        --tries;
        --copies_[giver];
        ++copies_[taker];
        if (search()) continue;
        ++copies_[giver];
        --copies_[taker];
      }
  }

  const LevelPool& pool_;
  float target_;
  const Deadline& deadline_;
  std::vector<double> peaks_;  // [E] the largest share in any recording
  LevelSearch search_;
  std::vector<std::int32_t> copies_;  // [E]
  LevelAnswer best_;
};

}  // namespace

LevelAnswer level_pool(const LevelPool& pool, float target, const Deadline& deadline) {
  return CopyChoices(pool, target, deadline).run();
}

LevelAnswer level_copies(const LevelPool& pool, std::span<const std::int32_t> copies, float target,
                         const Deadline& deadline) {
  LevelSearch search;
  if (!search.fill(pool, copies)) return {};
  search.level(target, deadline);
  return search.answer();
}

LevelAnswer level_from(const LevelPool& pool, std::span<const std::int32_t> expert_in, float target,
                       const Deadline& deadline) {
  LevelSearch search;
  search.start_at(pool, expert_in);
  search.level(target, deadline);
  return search.answer();
}

}  // namespace evenkeel::internal
