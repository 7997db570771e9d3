// One layer's homes as they are being changed: which experts each rank holds, what it bears in each
// recording, and how many of the homes are new.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evenkeel/plan/placement.h"

namespace evenkeel {

class LayerHomes {
 public:
  // loads [W, E], of W recordings.
  LayerHomes(const LayerPlacement& placement, std::span<const double> loads);

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
  // The load of each home of an expert, with `change` more or fewer homes.
  double share(std::size_t expert, std::size_t recording, int change = 0) const {
    return loads_[recording * homes_.size() + expert] / (static_cast<double>(homes_[expert].size()) + change);
  }
  int moves() const { return moves_; }
  double heaviest_load() const;
  struct Heaviest {
    std::size_t rank = 0;
    std::size_t recording = 0;
  };
  Heaviest heaviest() const;

  // Each leaves rank loads and the count of moves right. A home to remove is there, one to add is not.
  void add(std::size_t rank, std::size_t expert);
  void remove(std::size_t rank, std::size_t expert);

  // Old homes in their order, then new ones ascending.
  std::vector<std::vector<int>> listed(const LayerPlacement& before) const;

 private:
  void measure(std::size_t rank);
  void spread(std::size_t expert);

  std::span<const double> loads_;
  std::vector<std::vector<std::int32_t>> on_rank_;  // [P] experts
  std::vector<std::vector<std::int32_t>> homes_;    // [E] ranks
  std::vector<std::uint8_t> held_;                  // [P, E]
  std::vector<std::uint8_t> before_;                // [P, E]
  std::vector<double> rank_load_;                   // [W, P]
  int moves_ = 0;
};

}  // namespace evenkeel
