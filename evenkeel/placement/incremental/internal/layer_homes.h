// One layer's homes while they change: the experts on each rank, its load in each recording, and the number
// of new homes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel::internal {

class LayerHomes {
 public:
  // `loads` is [W, E], for W recordings.
  LayerHomes(const LayerPlacement& placement, std::span<const double> loads)
      : loads_(loads),
        on_rank_(static_cast<std::size_t>(placement.num_ranks())),
        homes_(static_cast<std::size_t>(placement.num_experts())),
        held_(on_rank_.size() * homes_.size(), 0),
        rank_load_(on_rank_.size() * num_recordings(), 0.0) {
    for (ExpertId e : indices<ExpertId>(placement.num_experts()))
      for (RankId rank : placement.homes(e)) {
        homes_[e.offset()].push_back(rank.value());
        on_rank_[rank.offset()].push_back(e.value());
        held_[rank.offset() * homes_.size() + e.offset()] = 1;
      }
    for (std::size_t rank = 0; rank < on_rank_.size(); ++rank) measure(rank);
    before_ = held_;
  }

  std::size_t num_ranks() const { return on_rank_.size(); }
  std::size_t num_experts() const { return homes_.size(); }
  std::size_t num_recordings() const { return loads_.size() / homes_.size(); }
  const std::vector<std::int32_t>& on_rank(std::size_t rank) const { return on_rank_[rank]; }
  const std::vector<std::int32_t>& homes(std::size_t expert) const { return homes_[expert]; }
  bool holds(std::size_t rank, std::size_t expert) const { return held_[rank * homes_.size() + expert] != 0; }
  bool held_before(std::size_t rank, std::size_t expert) const {
    return before_[rank * homes_.size() + expert] != 0;
  }
  double rank_load(std::size_t rank, std::size_t recording) const {
    return rank_load_[recording * on_rank_.size() + rank];
  }
  // The load of each home of an expert if the expert had `change` more homes (negative: fewer).
  double share(std::size_t expert, std::size_t recording, int change = 0) const {
    return loads_[recording * homes_.size() + expert] / (static_cast<double>(homes_[expert].size()) + change);
  }
  int moves() const { return moves_; }
  double heaviest_load() const { return std::ranges::max(rank_load_); }
  struct Heaviest {
    std::size_t rank = 0;
    std::size_t recording = 0;
  };
  Heaviest heaviest() const {
    const auto at = static_cast<std::size_t>(std::ranges::max_element(rank_load_) - rank_load_.begin());
    return {at % on_rank_.size(), at / on_rank_.size()};
  }

  // Both update rank loads and the count of moves. remove() needs a home that exists, add() one that does
  // not.
  void add(std::size_t rank, std::size_t expert) {
    homes_[expert].push_back(static_cast<std::int32_t>(rank));
    on_rank_[rank].push_back(static_cast<std::int32_t>(expert));
    held_[rank * homes_.size() + expert] = 1;
    moves_ += held_before(rank, expert) ? 0 : 1;
    spread(expert);
  }
  void remove(std::size_t rank, std::size_t expert) {
    std::erase(homes_[expert], static_cast<std::int32_t>(rank));
    std::erase(on_rank_[rank], static_cast<std::int32_t>(expert));
    held_[rank * homes_.size() + expert] = 0;
    moves_ -= held_before(rank, expert) ? 0 : 1;
    spread(expert);
    measure(rank);
  }

  // The homes of each expert: old homes in their order, then new homes ascending.
  std::vector<std::vector<int>> listed(const LayerPlacement& before) const {
    std::vector<std::vector<int>> lists(homes_.size());
    for (std::size_t e = 0; e < homes_.size(); ++e) {
      for (RankId rank : before.homes(ExpertId(e)))
        if (holds(rank.offset(), e)) lists[e].push_back(rank.value());
      const std::size_t kept = lists[e].size();
      for (std::int32_t rank : homes_[e])
        if (!held_before(static_cast<std::size_t>(rank), e)) lists[e].push_back(rank);
      std::sort(lists[e].begin() + static_cast<std::ptrdiff_t>(kept), lists[e].end());
    }
    return lists;
  }

 private:
  // Recomputes the sums, so that rounding errors do not accumulate over many steps.
  void measure(std::size_t rank) {
    for (std::size_t recording = 0; recording < num_recordings(); ++recording) {
      double load = 0;
      for (std::int32_t e : on_rank_[rank]) load += share(static_cast<std::size_t>(e), recording);
      rank_load_[recording * on_rank_.size() + rank] = load;
    }
  }
  void spread(std::size_t expert) {
    for (std::int32_t home : homes_[expert]) measure(static_cast<std::size_t>(home));
  }

  std::span<const double> loads_;
  std::vector<std::vector<std::int32_t>> on_rank_;  // [P] experts
  std::vector<std::vector<std::int32_t>> homes_;    // [E] ranks
  std::vector<std::uint8_t> held_;                  // [P, E]
  std::vector<std::uint8_t> before_;                // [P, E]
  std::vector<double> rank_load_;                   // [W, P]
  int moves_ = 0;
};

}  // namespace evenkeel::internal
